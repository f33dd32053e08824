//! [`AuthStore`] on SQLite.

use async_trait::async_trait;
use sqlx::{FromRow, SqliteConnection};
use turnfast_shared::{Millis, ids::UserId};
use uuid::Uuid;

use crate::store::{
    AuthStore, StoreError,
    auth::{Digest, NewSession, NewUser, Session, Token, User},
    sqlite::SqliteStore,
};

#[derive(FromRow)]
struct UserRow {
    id: String,
    name: String,
    disabled: bool,
    has_password: bool,
    signed_in_at: Option<Millis>,
    created_at: Millis,
}

impl UserRow {
    fn read(self) -> Result<User, StoreError> {
        Ok(User {
            id: user_id(&self.id)?,
            name: self.name,
            disabled: self.disabled,
            has_password: self.has_password,
            signed_in_at: self.signed_in_at,
            created_at: self.created_at,
        })
    }
}

#[derive(FromRow)]
struct TokenRow {
    id: String,
    user_id: String,
    name: String,
    scopes: Option<String>,
    expires_at: Option<Millis>,
    revoked_at: Option<Millis>,
    created_at: Millis,
}

impl TokenRow {
    fn read(self) -> Result<Token, StoreError> {
        Ok(Token {
            id: uuid(&self.id)?,
            user: user_id(&self.user_id)?,
            name: self.name,
            scopes: self.scopes,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            created_at: self.created_at,
        })
    }
}

fn uuid(text: &str) -> Result<Uuid, StoreError> {
    text.parse().map_err(|_| StoreError::Corrupt("an id of a user or token is no UUID".to_owned()))
}

fn user_id(text: &str) -> Result<UserId, StoreError> {
    uuid(text).map(UserId)
}

/// Begins a session; the user is known to be enabled.
async fn begin(connection: &mut SqliteConnection, user: &str, session: NewSession) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM browser_sessions WHERE expires_at <= ?").bind(session.now).execute(&mut *connection).await?;
    sqlx::query("INSERT INTO browser_sessions (digest, user_id, expires_at, created_at) VALUES (?, ?, ?, ?)")
        .bind(session.digest.0.to_vec())
        .bind(user)
        .bind(session.expires_at)
        .bind(session.now)
        .execute(&mut *connection)
        .await?;
    sqlx::query("UPDATE users SET signed_in_at = ? WHERE id = ?").bind(session.now).bind(user).execute(&mut *connection).await?;
    Ok(())
}

/// Ends every session and link of a user.
async fn shut_out(connection: &mut SqliteConnection, user: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM browser_sessions WHERE user_id = ?").bind(user).execute(&mut *connection).await?;
    sqlx::query("DELETE FROM sign_in_links WHERE user_id = ?").bind(user).execute(&mut *connection).await?;
    Ok(())
}

#[async_trait]
impl AuthStore for SqliteStore {
    async fn add_user(&self, user: NewUser) -> Result<bool, StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                let done = sqlx::query(
                    "INSERT INTO users (id, name, password_hash, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
                )
                .bind(user.id.to_string())
                .bind(user.name)
                .bind(user.password_hash)
                .bind(user.created_at)
                .execute(connection)
                .await?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
    }

    async fn add_first_user(&self, user: NewUser) -> Result<bool, StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                let done = sqlx::query(
                    "INSERT INTO users (id, name, password_hash, created_at)
                     SELECT ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM users)",
                )
                .bind(user.id.to_string())
                .bind(user.name)
                .bind(user.password_hash)
                .bind(user.created_at)
                .execute(connection)
                .await?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
    }

    async fn users(&self) -> Result<Vec<User>, StoreError> {
        let rows: Vec<UserRow> = sqlx::query_as(
            "SELECT id, name, disabled, password_hash IS NOT NULL AS has_password, signed_in_at, created_at
             FROM users ORDER BY name",
        )
        .fetch_all(self.readers())
        .await?;
        rows.into_iter().map(UserRow::read).collect()
    }

    async fn user_named(&self, name: &str) -> Result<Option<User>, StoreError> {
        let row: Option<UserRow> = sqlx::query_as(
            "SELECT id, name, disabled, password_hash IS NOT NULL AS has_password, signed_in_at, created_at
             FROM users WHERE name = ?",
        )
        .bind(name)
        .fetch_optional(self.readers())
        .await?;
        row.map(UserRow::read).transpose()
    }

    async fn password_hash(&self, name: &str) -> Result<Option<(UserId, String)>, StoreError> {
        let row: Option<(String, String)> =
            sqlx::query_as("SELECT id, password_hash FROM users WHERE name = ? AND NOT disabled AND password_hash IS NOT NULL")
                .bind(name)
                .fetch_optional(self.readers())
                .await?;
        row.map(|(id, hash)| Ok((user_id(&id)?, hash))).transpose()
    }

    async fn set_password_hash(&self, user: UserId, hash: String) -> Result<(), StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                let user = user.to_string();
                sqlx::query("UPDATE users SET password_hash = ? WHERE id = ?")
                    .bind(hash)
                    .bind(&user)
                    .execute(&mut *connection)
                    .await?;
                shut_out(connection, &user).await
            })
        })
        .await
    }

    async fn set_disabled(&self, user: UserId, disabled: bool) -> Result<(), StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                let user = user.to_string();
                sqlx::query("UPDATE users SET disabled = ? WHERE id = ?")
                    .bind(disabled)
                    .bind(&user)
                    .execute(&mut *connection)
                    .await?;
                if disabled { shut_out(connection, &user).await } else { Ok(()) }
            })
        })
        .await
    }

    async fn begin_session(&self, user: UserId, session: NewSession) -> Result<bool, StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                let user = user.to_string();
                let enabled: Option<(i64,)> = sqlx::query_as("SELECT 1 FROM users WHERE id = ? AND NOT disabled")
                    .bind(&user)
                    .fetch_optional(&mut *connection)
                    .await?;
                if enabled.is_none() {
                    return Ok(false);
                }
                begin(connection, &user, session).await?;
                Ok(true)
            })
        })
        .await
    }

    async fn session(&self, digest: Digest, now: Millis) -> Result<Option<Session>, StoreError> {
        let row: Option<(String, String, Millis)> = sqlx::query_as(
            "SELECT users.id, users.name, browser_sessions.expires_at
             FROM browser_sessions JOIN users ON users.id = browser_sessions.user_id
             WHERE browser_sessions.digest = ? AND browser_sessions.expires_at > ? AND NOT users.disabled",
        )
        .bind(digest.0.to_vec())
        .bind(now)
        .fetch_optional(self.readers())
        .await?;
        row.map(|(id, name, expires_at)| Ok(Session { user: user_id(&id)?, name, expires_at })).transpose()
    }

    async fn extend_session(&self, digest: Digest, expires_at: Millis) -> Result<(), StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                sqlx::query("UPDATE browser_sessions SET expires_at = max(expires_at, ?) WHERE digest = ?")
                    .bind(expires_at)
                    .bind(digest.0.to_vec())
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    async fn end_session(&self, digest: Digest) -> Result<(), StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                sqlx::query("DELETE FROM browser_sessions WHERE digest = ?").bind(digest.0.to_vec()).execute(connection).await?;
                Ok(())
            })
        })
        .await
    }

    async fn put_link(&self, user: UserId, digest: Digest, expires_at: Millis) -> Result<(), StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                sqlx::query("INSERT OR REPLACE INTO sign_in_links (user_id, digest, expires_at) VALUES (?, ?, ?)")
                    .bind(user.to_string())
                    .bind(digest.0.to_vec())
                    .bind(expires_at)
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    async fn redeem_link(&self, link: Digest, session: NewSession) -> Result<Option<User>, StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                let found: Option<(String, Millis)> =
                    sqlx::query_as("DELETE FROM sign_in_links WHERE digest = ? RETURNING user_id, expires_at")
                        .bind(link.0.to_vec())
                        .fetch_optional(&mut *connection)
                        .await?;
                let Some((user, _)) = found.filter(|(_, expires_at)| *expires_at > session.now) else {
                    return Ok(None);
                };
                let row: Option<UserRow> = sqlx::query_as(
                    "SELECT id, name, disabled, password_hash IS NOT NULL AS has_password, signed_in_at, created_at
                     FROM users WHERE id = ? AND NOT disabled",
                )
                .bind(&user)
                .fetch_optional(&mut *connection)
                .await?;
                let Some(row) = row else { return Ok(None) };
                begin(connection, &user, session).await?;
                row.read().map(Some)
            })
        })
        .await
    }

    async fn add_token(&self, token: Token, digest: Digest) -> Result<(), StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO api_tokens (id, user_id, digest, scopes, expires_at, revoked_at, created_at)
                     VALUES (?, ?, ?, ?, ?, ?, ?)",
                )
                .bind(token.id.to_string())
                .bind(token.user.to_string())
                .bind(digest.0.to_vec())
                .bind(token.scopes)
                .bind(token.expires_at)
                .bind(token.revoked_at)
                .bind(token.created_at)
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        let rows: Vec<TokenRow> = sqlx::query_as(
            "SELECT api_tokens.id, user_id, name, scopes, expires_at, revoked_at, api_tokens.created_at
             FROM api_tokens JOIN users ON users.id = user_id ORDER BY api_tokens.created_at, api_tokens.id",
        )
        .fetch_all(self.readers())
        .await?;
        rows.into_iter().map(TokenRow::read).collect()
    }

    async fn token(&self, digest: Digest, now: Millis) -> Result<Option<Token>, StoreError> {
        let row: Option<TokenRow> = sqlx::query_as(
            "SELECT api_tokens.id, user_id, name, scopes, expires_at, revoked_at, api_tokens.created_at
             FROM api_tokens JOIN users ON users.id = user_id
             WHERE digest = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) AND NOT disabled",
        )
        .bind(digest.0.to_vec())
        .bind(now)
        .fetch_optional(self.readers())
        .await?;
        row.map(TokenRow::read).transpose()
    }

    async fn revoke_token(&self, id: Uuid, now: Millis) -> Result<bool, StoreError> {
        self.write(move |connection| {
            Box::pin(async move {
                let done = sqlx::query("UPDATE api_tokens SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?")
                    .bind(now)
                    .bind(id.to_string())
                    .execute(connection)
                    .await?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
    }
}
