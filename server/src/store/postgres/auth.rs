//! [`AuthStore`] on PostgreSQL.

use async_trait::async_trait;
use sqlx::{FromRow, PgConnection};
use turnfast_shared::{Millis, ids::UserId};
use uuid::Uuid;

use crate::store::{
    AuthStore, StoreError,
    auth::{Digest, NewSession, NewUser, Session, Token, User},
    postgres::{PostgresStore, without_nul},
};

type Result<T> = std::result::Result<T, StoreError>;

#[derive(FromRow)]
struct UserRow {
    id: Uuid,
    name: String,
    disabled: bool,
    has_password: bool,
    signed_in_at: Option<Millis>,
    created_at: Millis,
}

impl From<UserRow> for User {
    fn from(row: UserRow) -> Self {
        let UserRow { id, name, disabled, has_password, signed_in_at, created_at } = row;
        Self { id: id.into(), name, disabled, has_password, signed_in_at, created_at }
    }
}

#[derive(FromRow)]
struct TokenRow {
    id: Uuid,
    user_id: Uuid,
    name: String,
    scopes: Option<String>,
    expires_at: Option<Millis>,
    revoked_at: Option<Millis>,
    created_at: Millis,
}

impl From<TokenRow> for Token {
    fn from(row: TokenRow) -> Self {
        let TokenRow { id, user_id, name, scopes, expires_at, revoked_at, created_at } = row;
        Self { id, user: user_id.into(), name, scopes, expires_at, revoked_at, created_at }
    }
}

#[async_trait]
impl AuthStore for PostgresStore {
    async fn add_user(&self, user: NewUser) -> Result<bool> {
        self.write(move |c| Box::pin(async move { add_user(c, user).await })).await
    }

    async fn add_first_user(&self, user: NewUser) -> Result<bool> {
        self.write(move |c| {
            Box::pin(async move {
                // Two processes may start on an empty database at once; the table lock lets one of them find it empty.
                sqlx::query("LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE").execute(&mut *c).await?;
                let (empty,): (bool,) = sqlx::query_as("SELECT NOT EXISTS (SELECT 1 FROM users)").fetch_one(&mut *c).await?;
                if empty { add_user(c, user).await } else { Ok(false) }
            })
        })
        .await
    }

    async fn users(&self) -> Result<Vec<User>> {
        self.statement(|c| {
            Box::pin(async move {
                let rows: Vec<UserRow> = sqlx::query_as(
                    "SELECT id, name, disabled, password_hash IS NOT NULL AS has_password, signed_in_at, created_at
                     FROM users ORDER BY name COLLATE \"C\"",
                )
                .fetch_all(c)
                .await?;
                Ok(rows.into_iter().map(User::from).collect())
            })
        })
        .await
    }

    async fn user_named(&self, name: &str) -> Result<Option<User>> {
        let name = without_nul(name).into_owned();
        self.statement(move |c| {
            Box::pin(async move {
                let row: Option<UserRow> = sqlx::query_as(
                    "SELECT id, name, disabled, password_hash IS NOT NULL AS has_password, signed_in_at, created_at
                     FROM users WHERE name = $1",
                )
                .bind(name)
                .fetch_optional(c)
                .await?;
                Ok(row.map(User::from))
            })
        })
        .await
    }

    async fn password_hash(&self, name: &str) -> Result<Option<(UserId, String)>> {
        let name = without_nul(name).into_owned();
        self.statement(move |c| {
            Box::pin(async move {
                let row: Option<(Uuid, String)> = sqlx::query_as(
                    "SELECT id, password_hash FROM users WHERE name = $1 AND NOT disabled AND password_hash IS NOT NULL",
                )
                .bind(name)
                .fetch_optional(c)
                .await?;
                Ok(row.map(|(id, hash)| (id.into(), hash)))
            })
        })
        .await
    }

    async fn set_password_hash(&self, user: UserId, hash: String) -> Result<()> {
        self.write(move |c| {
            Box::pin(async move {
                sqlx::query("UPDATE users SET password_hash = $1 WHERE id = $2").bind(hash).bind(user.0).execute(&mut *c).await?;
                shut_out(c, user).await
            })
        })
        .await
    }

    async fn set_disabled(&self, user: UserId, disabled: bool) -> Result<()> {
        self.write(move |c| {
            Box::pin(async move {
                sqlx::query("UPDATE users SET disabled = $1 WHERE id = $2").bind(disabled).bind(user.0).execute(&mut *c).await?;
                if disabled { shut_out(c, user).await } else { Ok(()) }
            })
        })
        .await
    }

    async fn begin_session(&self, user: UserId, session: NewSession) -> Result<bool> {
        self.write(move |c| {
            Box::pin(async move {
                if lock_enabled(c, user.0).await?.is_none() {
                    return Ok(false);
                }
                begin(c, user.0, session).await?;
                Ok(true)
            })
        })
        .await
    }

    async fn session(&self, digest: Digest, now: Millis) -> Result<Option<Session>> {
        self.statement(move |c| {
            Box::pin(async move {
                let row: Option<(Uuid, String, Millis)> = sqlx::query_as(
                    "SELECT users.id, users.name, browser_sessions.expires_at
                     FROM browser_sessions JOIN users ON users.id = browser_sessions.user_id
                     WHERE browser_sessions.digest = $1 AND browser_sessions.expires_at > $2 AND NOT users.disabled",
                )
                .bind(&digest.0[..])
                .bind(now)
                .fetch_optional(c)
                .await?;
                Ok(row.map(|(id, name, expires_at)| Session { user: id.into(), name, expires_at }))
            })
        })
        .await
    }

    async fn extend_session(&self, digest: Digest, expires_at: Millis) -> Result<()> {
        self.statement(move |c| {
            Box::pin(async move {
                sqlx::query("UPDATE browser_sessions SET expires_at = greatest(expires_at, $1) WHERE digest = $2")
                    .bind(expires_at)
                    .bind(&digest.0[..])
                    .execute(c)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    async fn end_session(&self, digest: Digest) -> Result<()> {
        self.statement(move |c| {
            Box::pin(async move {
                sqlx::query("DELETE FROM browser_sessions WHERE digest = $1").bind(&digest.0[..]).execute(c).await?;
                Ok(())
            })
        })
        .await
    }

    async fn put_link(&self, user: UserId, digest: Digest, expires_at: Millis) -> Result<()> {
        self.statement(move |c| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO sign_in_links (user_id, digest, expires_at) VALUES ($1, $2, $3)
                     ON CONFLICT (user_id) DO UPDATE SET digest = excluded.digest, expires_at = excluded.expires_at",
                )
                .bind(user.0)
                .bind(&digest.0[..])
                .bind(expires_at)
                .execute(c)
                .await?;
                Ok(())
            })
        })
        .await
    }

    async fn redeem_link(&self, link: Digest, session: NewSession) -> Result<Option<User>> {
        self.write(move |c| {
            Box::pin(async move {
                let found: Option<(Uuid, Millis)> =
                    sqlx::query_as("DELETE FROM sign_in_links WHERE digest = $1 RETURNING user_id, expires_at")
                        .bind(&link.0[..])
                        .fetch_optional(&mut *c)
                        .await?;
                let Some((user, _)) = found.filter(|(_, expires_at)| *expires_at > session.now) else {
                    return Ok(None);
                };
                let Some(row) = lock_enabled(c, user).await? else { return Ok(None) };
                begin(c, user, session).await?;
                Ok(Some(row))
            })
        })
        .await
    }

    async fn add_token(&self, token: Token, digest: Digest) -> Result<()> {
        self.statement(move |c| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO api_tokens (id, user_id, digest, scopes, expires_at, revoked_at, created_at)
                     VALUES ($1, $2, $3, $4, $5, $6, $7)",
                )
                .bind(token.id)
                .bind(token.user.0)
                .bind(&digest.0[..])
                .bind(token.scopes)
                .bind(token.expires_at)
                .bind(token.revoked_at)
                .bind(token.created_at)
                .execute(c)
                .await?;
                Ok(())
            })
        })
        .await
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        self.statement(|c| {
            Box::pin(async move {
                let rows: Vec<TokenRow> = sqlx::query_as(
                    "SELECT api_tokens.id, user_id, name, scopes, expires_at, revoked_at, api_tokens.created_at
                     FROM api_tokens JOIN users ON users.id = user_id ORDER BY api_tokens.created_at, api_tokens.id",
                )
                .fetch_all(c)
                .await?;
                Ok(rows.into_iter().map(Token::from).collect())
            })
        })
        .await
    }

    async fn token(&self, digest: Digest, now: Millis) -> Result<Option<Token>> {
        self.statement(move |c| {
            Box::pin(async move {
                let row: Option<TokenRow> = sqlx::query_as(
                    "SELECT api_tokens.id, user_id, name, scopes, expires_at, revoked_at, api_tokens.created_at
                     FROM api_tokens JOIN users ON users.id = user_id
                     WHERE digest = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2) AND NOT disabled",
                )
                .bind(&digest.0[..])
                .bind(now)
                .fetch_optional(c)
                .await?;
                Ok(row.map(Token::from))
            })
        })
        .await
    }

    async fn revoke_token(&self, id: Uuid, now: Millis) -> Result<bool> {
        self.statement(move |c| {
            Box::pin(async move {
                let done = sqlx::query("UPDATE api_tokens SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2")
                    .bind(now)
                    .bind(id)
                    .execute(c)
                    .await?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
    }
}

async fn add_user(c: &mut PgConnection, user: NewUser) -> Result<bool> {
    let done = sqlx::query(
        "INSERT INTO users (id, name, password_hash, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING",
    )
    .bind(user.id.0)
    .bind(user.name)
    .bind(user.password_hash)
    .bind(user.created_at)
    .execute(c)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// The user, if enabled. The row stays locked until the transaction ends: nobody is shut out between the look and the sign-in.
async fn lock_enabled(c: &mut PgConnection, user: Uuid) -> Result<Option<User>> {
    let row: Option<UserRow> = sqlx::query_as(
        "SELECT id, name, disabled, password_hash IS NOT NULL AS has_password, signed_in_at, created_at
         FROM users WHERE id = $1 AND NOT disabled FOR UPDATE",
    )
    .bind(user)
    .fetch_optional(c)
    .await?;
    Ok(row.map(User::from))
}

/// Begins a session; the user is known to be enabled.
async fn begin(c: &mut PgConnection, user: Uuid, session: NewSession) -> Result<()> {
    // Rows that another sign-in is deleting at this moment are left to it.
    sqlx::query(
        "DELETE FROM browser_sessions WHERE digest IN
           (SELECT digest FROM browser_sessions WHERE expires_at <= $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(session.now)
    .execute(&mut *c)
    .await?;
    sqlx::query("INSERT INTO browser_sessions (digest, user_id, expires_at, created_at) VALUES ($1, $2, $3, $4)")
        .bind(&session.digest.0[..])
        .bind(user)
        .bind(session.expires_at)
        .bind(session.now)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE users SET signed_in_at = $1 WHERE id = $2").bind(session.now).bind(user).execute(&mut *c).await?;
    Ok(())
}

/// Ends every session and link of a user.
async fn shut_out(c: &mut PgConnection, user: UserId) -> Result<()> {
    sqlx::query("DELETE FROM browser_sessions WHERE user_id = $1").bind(user.0).execute(&mut *c).await?;
    sqlx::query("DELETE FROM sign_in_links WHERE user_id = $1").bind(user.0).execute(&mut *c).await?;
    Ok(())
}
