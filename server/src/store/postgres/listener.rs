//! A connection that listens, and holds whatever belongs to its session.
//!
//! One that listens only reads, and a network that swallows everything looks like a quiet server. So a quiet one is asked now and
//! then; without an answer it counts as lost. The server asks in its turn, by TCP ([`WATCHED`]), and is slower about it: whoever's
//! session it ends knows by then.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

use super::within;
use crate::store::StoreError;

/// How long a connection may be quiet before the server is asked whether it is there.
const ASK: Duration = Duration::from_secs(5);
/// How long it has for the answer, and for letting a listener in.
const ANSWER: Duration = Duration::from_secs(5);

/// How soon a server ends the session of a client that vanished without a word: after 5 + 3 × 2 seconds, or 2 where it works on
/// something. Longer than [`ASK`] and [`ANSWER`] together. Such sessions may wait for as long as they like.
pub(crate) const WATCHED: [(&str, &str); 7] = [
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("client_connection_check_interval", "2s"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
];

/// Listens on one channel. Dropping it ends the session.
pub(crate) struct Listener {
    inner: PgListener,
    ask: Duration,
    answer: Duration,
}

impl Listener {
    /// Connects and listens.
    ///
    /// # Errors
    /// The server does not answer in time.
    pub(crate) async fn connect(options: &PgConnectOptions, channel: &str) -> Result<Self, StoreError> {
        within(ANSWER, async {
            // It wants a pool: one of its own, so that nothing else has its connection, or waits for it.
            let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None).acquire_timeout(ANSWER);
            let pool = pool.connect_with(options.clone().options(WATCHED)).await?;
            let mut inner = PgListener::connect_with(&pool).await?;
            // By itself it would come back with another session, as if nothing had been lost.
            inner.eager_reconnect(false);
            inner.listen(channel).await?;
            Ok::<_, sqlx::Error>(Self { inner, ask: ASK, answer: ANSWER })
        })
        .await
    }

    /// The session, for statements. What is told meanwhile is kept.
    pub(crate) fn session(&mut self) -> &mut PgListener {
        &mut self.inner
    }

    /// What is told next. May be dropped and called again.
    ///
    /// # Errors
    /// The session is lost, with what was told since. Nothing more comes of this listener.
    pub(crate) async fn told(&mut self) -> Result<String, StoreError> {
        loop {
            match tokio::time::timeout(self.ask, self.inner.try_recv()).await {
                Ok(Ok(Some(notification))) => return Ok(notification.payload().to_owned()),
                Ok(Ok(None)) => return Err(StoreError::Unavailable("the connection broke".to_owned())),
                Ok(Err(error)) => return Err(error.into()),
                Err(_quiet) => within(self.answer, sqlx::query("SELECT 1").execute(&mut self.inner)).await.map(drop)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use turnfast_test_postgres::Wire;

    use super::*;

    #[tokio::test]
    async fn a_quiet_connection_stays_and_one_that_swallows_everything_is_lost() {
        let url = turnfast_test_postgres::database().unwrap();
        let wire = Wire::to(&url).unwrap();
        let mut listener = Listener::connect(&PgConnectOptions::from_str(wire.url()).unwrap(), "news").await.unwrap();
        listener.ask = Duration::from_millis(1);
        let other = sqlx::PgPool::connect(&url).await.unwrap();
        // Asked many times meanwhile, and told all the same.
        for n in 0..20 {
            let told = tokio::spawn({
                let other = other.clone();
                async move { sqlx::query("SELECT pg_sleep(0.005), pg_notify('news', $1)").bind(n.to_string()).execute(&other).await }
            });
            assert_eq!(listener.told().await.unwrap(), n.to_string());
            told.await.unwrap().unwrap();
        }
        listener.answer = Duration::from_millis(300);
        wire.swallow();
        assert!(matches!(listener.told().await, Err(StoreError::Unavailable(_))));
    }
}
