//! Users, sessions, tokens, scopes: who calls, and what they may do. Knows nothing of turns.
//!
//! - A person has a browser session: a random cookie value, of which the record keeps a digest. It ends when it has not been used
//!   for [`SESSION`].
//! - A program has an API token, which may be restricted to some scopes and may expire.
//! - Every request looks its credential up in the record, so that a revoked token or a disabled user is refused from the next
//!   request on. Long-lived connections end with [`Auth::shut_out`].
//! - What a user may do follows from the role in a project, which is configuration and not record.

mod attempts;
pub mod password;
pub mod scope;
mod secret;

use std::{collections::BTreeSet, fmt, net::IpAddr, sync::Arc, time::Duration};

use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{Instant, MissedTickBehavior, interval_at},
};
use turnfast_shared::{Millis, ids::UserId};
use uuid::Uuid;

use attempts::Attempts;
use password::Verifier;
use secret::{digest, generate};

pub use scope::{Denied, Scope, Scopes};
pub use secret::TOKEN_PREFIX;

use crate::{
    clock,
    config::{Config, FIRST_USER, Project, Secret},
    store::{
        AuthStore, StoreError,
        auth::{Digest, NewSession, NewUser, Token, User},
    },
};

/// A browser session ends when it has not been used for this long, in milliseconds: 30 days.
pub const SESSION: Millis = 30 * 24 * 60 * 60 * 1_000;
/// A use prolongs a session at most this often, in milliseconds: 1 hour.
const REFRESH: Millis = 60 * 60 * 1_000;
/// Sessions that have just ended here, for connections that have not looked yet. One that falls behind asks the record.
const ENDED: usize = 64;
/// A sign-in link is good for this long, in milliseconds: 24 hours.
pub const LINK: Millis = 24 * 60 * 60 * 1_000;

/// How a caller showed who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A browser's session cookie. Browsers send it whoever makes them do so.
    Cookie,
    /// An `Authorization: Bearer` header.
    Bearer,
}

/// Who makes a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user.
    pub user: UserId,
    /// The user's name, which `members` of projects go by.
    pub name: String,
    /// How they showed it.
    pub via: Via,
    /// What the token is restricted to.
    limit: Option<Scopes>,
    /// The cookie's or token's digest.
    credential: Digest,
}

impl Caller {
    /// What the caller may do in `project`; `None`: no member.
    #[must_use]
    pub fn scopes_in(&self, project: &Project) -> Option<Scopes> {
        scope::scopes_in(project, &self.name, self.limit)
    }

    /// The project of that id, if the caller may do `scope` in it. Every route of a project asks here first.
    ///
    /// # Errors
    /// [`Denied::NotFound`] for a project that does not exist and for one that the caller is no member of alike.
    pub fn admit<'c>(&self, config: &'c Config, project: &str, scope: Scope) -> Result<&'c Project, Denied> {
        scope::admit(config, &self.name, self.limit, project, scope)
    }
}

/// A browser session that has just begun.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// Whose it is.
    pub user: UserId,
    /// The user's name.
    pub name: String,
    /// The cookie's value.
    pub session: Secret,
}

/// Why nobody was signed in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// Unknown name, wrong password, no password or disabled: the four cannot be told apart.
    #[error("the name or the password is wrong")]
    Wrong,
    /// Too many attempts.
    #[error("too many attempts to sign in; try again in {retry_after} s")]
    TooMany {
        /// Seconds until the next may come.
        retry_after: u64,
    },
    /// The record does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Knows who is who. A handle: clones share everything.
#[derive(Clone)]
pub struct Auth {
    store: Arc<dyn AuthStore>,
    verifier: Verifier,
    attempts: Arc<Attempts>,
    /// Sessions that end in this process.
    ended: broadcast::Sender<Digest>,
    clock: Arc<dyn Fn() -> Millis + Send + Sync>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").finish_non_exhaustive()
    }
}

impl Auth {
    /// Over a record, with the wall clock.
    #[must_use]
    pub fn new(store: Arc<dyn AuthStore>) -> Self {
        Self::with_clock(store, Arc::new(clock::now))
    }

    /// Over a record, with a clock of the caller's.
    #[must_use]
    pub fn with_clock(store: Arc<dyn AuthStore>, clock: Arc<dyn Fn() -> Millis + Send + Sync>) -> Self {
        Self {
            store,
            verifier: Verifier::new(),
            attempts: Arc::new(Attempts::default()),
            ended: broadcast::channel(ENDED).0,
            clock,
        }
    }

    /// Begins a session for who knows the password. `address` is the client's, where it is known.
    ///
    /// # Errors
    /// See [`LoginError`].
    pub async fn login(&self, name: &str, password: Secret, address: Option<IpAddr>) -> Result<SignedIn, LoginError> {
        let too_many = |millis: Millis| LoginError::TooMany { retry_after: u64::try_from(millis).unwrap_or(0).div_ceil(1_000) };
        self.attempts.take(name, address, (self.clock)()).map_err(too_many)?;
        let (user, hash) = self.store.password_hash(name).await?.unzip();
        let fits = self.verifier.verify(password, hash).await.map_err(|password::Busy| too_many(1_000))?;
        let Some(user) = user.filter(|_| fits) else { return Err(LoginError::Wrong) };
        let (session, new) = self.new_session();
        if !self.store.begin_session(user, new).await? {
            return Err(LoginError::Wrong);
        }
        self.attempts.give_back(name, address);
        Ok(SignedIn { user, name: name.to_owned(), session })
    }

    /// Begins a session for who has a sign-in link, and uses the link up. `None`: unknown, used or expired, or the user is
    /// disabled.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn redeem_link(&self, link: &str) -> Result<Option<SignedIn>, StoreError> {
        let (session, new) = self.new_session();
        let user = self.store.redeem_link(digest(link), new).await?;
        Ok(user.map(|user| SignedIn { user: user.id, name: user.name, session }))
    }

    fn new_session(&self) -> (Secret, NewSession) {
        let (secret, now) = (generate(""), (self.clock)());
        let new = NewSession { digest: digest(secret.expose()), now, expires_at: now + SESSION };
        (secret, new)
    }

    /// Who has that session cookie; `None`: nobody any more. Prolongs the session.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn by_session(&self, cookie: &str) -> Result<Option<Caller>, StoreError> {
        let (credential, now) = (digest(cookie), (self.clock)());
        let Some(session) = self.store.session(credential, now).await? else { return Ok(None) };
        if session.expires_at < now + SESSION - REFRESH {
            self.store.extend_session(credential, now + SESSION).await?;
        }
        Ok(Some(Caller { user: session.user, name: session.name, via: Via::Cookie, limit: None, credential }))
    }

    /// Who has that API token; `None`: nobody any more.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn by_token(&self, token: &str) -> Result<Option<Caller>, StoreError> {
        let credential = digest(token);
        let Some(token) = self.store.token(credential, (self.clock)()).await? else { return Ok(None) };
        let limit = token.scopes.as_deref().map(str::parse::<Scopes>).transpose();
        let limit = limit.map_err(|error| StoreError::Corrupt(format!("token {}: {error}", token.id)))?;
        Ok(Some(Caller { user: token.user, name: token.name, via: Via::Bearer, limit, credential }))
    }

    /// Comes to its end when the caller is no longer let in: for connections that outlive their request. A session that ends in this
    /// process ends them at once; what happens elsewhere, or by the passing of time, is looked for `every` so often.
    pub fn shut_out(&self, caller: &Caller, every: Duration) -> impl Future<Output = ()> + Send + 'static {
        let (auth, caller) = (self.clone(), caller.clone());
        let mut ended = self.ended.subscribe();
        let mut checks = interval_at(Instant::now() + every, every);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        async move {
            loop {
                tokio::select! {
                    session = ended.recv() => match session {
                        Ok(session) if session != caller.credential => continue,
                        Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed) => {}
                    },
                    _ = checks.tick() => {}
                }
                // A database that does not answer says neither; the connection stays.
                if let Ok(false) = auth.still_valid(&caller).await {
                    return;
                }
            }
        }
    }

    /// Whether a caller would still be let in.
    ///
    /// # Errors
    /// The record does not answer.
    async fn still_valid(&self, caller: &Caller) -> Result<bool, StoreError> {
        let now = (self.clock)();
        Ok(match caller.via {
            Via::Cookie => self.store.session(caller.credential, now).await?.is_some(),
            Via::Bearer => self.store.token(caller.credential, now).await?.is_some(),
        })
    }

    /// Ends the caller's browser session. A token stays: it is revoked by its id.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn logout(&self, caller: &Caller) -> Result<(), StoreError> {
        match caller.via {
            Via::Cookie => {
                self.store.end_session(caller.credential).await?;
                // Nobody there: nothing is open.
                let _ = self.ended.send(caller.credential);
                Ok(())
            }
            Via::Bearer => Ok(()),
        }
    }

    /// Adds a user, without a password where there is no hash. `None`: the name is taken.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn add_user(&self, name: &str, password_hash: Option<String>) -> Result<Option<UserId>, StoreError> {
        let user = self.new_user(name, password_hash);
        let id = user.id;
        Ok(self.store.add_user(user).await?.then_some(id))
    }

    fn new_user(&self, name: &str, password_hash: Option<String>) -> NewUser {
        NewUser { id: UserId(Uuid::now_v7()), name: name.to_owned(), password_hash, created_at: (self.clock)() }
    }

    /// Makes a one-time sign-in link for `user`, and gives the secret that ends it (see [`link_url`]). Links made before no longer
    /// work.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn create_link(&self, user: UserId) -> Result<Secret, StoreError> {
        let secret = generate("");
        self.store.put_link(user, digest(secret.expose()), (self.clock)() + LINK).await?;
        Ok(secret)
    }

    /// A link for the first sign-in, for `serve` to print:
    /// - where there is no user at all, [`FIRST_USER`] is added, without a password, and gets one;
    /// - while that user is enabled, nobody has ever signed in, and no enabled user has a password, each start makes a new one: the
    ///   one printed before may be lost.
    ///
    /// Once somebody has been in, no start gives a way in away any more; `turnfast user link NAME` does, when asked.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn first_sign_in(&self) -> Result<Option<Secret>, StoreError> {
        self.store.add_first_user(self.new_user(FIRST_USER, None)).await?;
        let users = self.store.users().await?;
        let somebody_can = users.iter().any(|user| user.signed_in_at.is_some() || (user.has_password && !user.disabled));
        let first = users.iter().find(|user| user.name == FIRST_USER && !user.disabled);
        match first.filter(|_| !somebody_can) {
            Some(first) => self.create_link(first.id).await.map(Some),
            None => Ok(None),
        }
    }

    /// Names in `members` of projects that no user has: they cannot sign in until they are added. For the log.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn unknown_members(&self, config: &Config) -> Result<BTreeSet<String>, StoreError> {
        let users: BTreeSet<String> = self.store.users().await?.into_iter().map(|user| user.name).collect();
        let members = config.projects.iter().flat_map(|project| project.members.keys());
        Ok(members.filter(|name| !users.contains(*name)).cloned().collect())
    }

    /// Makes an API token, and gives its secret, which nobody can look up later.
    ///
    /// # Errors
    /// The record does not answer.
    pub async fn create_token(&self, user: &User, scopes: Option<Scopes>, valid: Option<Millis>) -> Result<Secret, StoreError> {
        let (secret, now) = (generate(TOKEN_PREFIX), (self.clock)());
        let token = Token {
            id: Uuid::now_v7(),
            user: user.id,
            name: user.name.clone(),
            scopes: scopes.map(|scopes| scopes.to_string()),
            expires_at: valid.map(|valid| now.saturating_add(valid)),
            revoked_at: None,
            created_at: now,
        };
        self.store.add_token(token, digest(secret.expose())).await?;
        Ok(secret)
    }
}

/// The address of a sign-in link. `base` is [`Config::base_url`].
#[must_use]
pub fn link_url(base: &str, link: &Secret) -> String {
    format!("{base}/auth/link/{}", link.expose())
}

#[cfg(test)]
mod tests;
