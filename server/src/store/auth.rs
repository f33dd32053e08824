//! Users, browser sessions, sign-in links and API tokens: the part of the record that says who someone is.
//!
//! It knows digests of secrets and never a secret. It reads no clock: what is valid depends on the `now` it is given.

use std::fmt;

use async_trait::async_trait;
use turnfast_shared::{Millis, ids::UserId};
use uuid::Uuid;

use super::StoreError;

/// SHA-256 of a secret of 256 random bits. Without a salt: there is nothing to guess.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// Someone who can sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The id.
    pub id: UserId,
    /// The name, unique; what `members` of a project name.
    pub name: String,
    /// Whether nobody gets in under that name.
    pub disabled: bool,
    /// Whether there is a password. Without one, only links and tokens lead in.
    pub has_password: bool,
    /// When the last browser session began.
    pub signed_in_at: Option<Millis>,
    /// When the user was added.
    pub created_at: Millis,
}

/// A user to be added.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// The id.
    pub id: UserId,
    /// The name.
    pub name: String,
    /// Argon2id in PHC form.
    pub password_hash: Option<String>,
    /// Now.
    pub created_at: Millis,
}

/// A browser session to be begun.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Of the cookie's value.
    pub digest: Digest,
    /// Now.
    pub now: Millis,
    /// When it ends if it is not used.
    pub expires_at: Millis,
}

/// A browser session that is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Whose it is.
    pub user: UserId,
    /// The user's name.
    pub name: String,
    /// When it ends if it is not used.
    pub expires_at: Millis,
}

/// An API token to be added, or as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The id, by which it is listed and revoked. Says nothing about the secret.
    pub id: Uuid,
    /// Whose it is.
    pub user: UserId,
    /// The user's name.
    pub name: String,
    /// The scopes that it is restricted to, separated by spaces; `None`: all that the user has.
    pub scopes: Option<String>,
    /// When it ends; `None`: never.
    pub expires_at: Option<Millis>,
    /// When it was revoked.
    pub revoked_at: Option<Millis>,
    /// When it was made.
    pub created_at: Millis,
}

/// Reads and writes who someone is.
#[async_trait]
pub trait AuthStore: Send + Sync {
    /// Adds a user. `false`: the name is taken, and nothing was changed.
    async fn add_user(&self, user: NewUser) -> Result<bool, StoreError>;

    /// Adds a user if there is none at all. `false`: there is one, and nothing was changed.
    async fn add_first_user(&self, user: NewUser) -> Result<bool, StoreError>;

    /// All users, by name.
    async fn users(&self) -> Result<Vec<User>, StoreError>;

    /// The user of that name.
    async fn user_named(&self, name: &str) -> Result<Option<User>, StoreError>;

    /// The password hash of the enabled user of that name, if there are both.
    async fn password_hash(&self, name: &str) -> Result<Option<(UserId, String)>, StoreError>;

    /// Gives the user a password and ends the user's sessions and links: whoever knew the old one is out.
    async fn set_password_hash(&self, user: UserId, hash: String) -> Result<(), StoreError>;

    /// Disables or enables a user. Disabling ends the user's sessions and links for good; tokens come back with the user.
    async fn set_disabled(&self, user: UserId, disabled: bool) -> Result<(), StoreError>;

    /// Begins a session of `user`, and forgets those of anyone that have expired. `false`: the user is gone or disabled.
    async fn begin_session(&self, user: UserId, session: NewSession) -> Result<bool, StoreError>;

    /// The session of that digest, if it has not expired and its user is enabled.
    async fn session(&self, digest: Digest, now: Millis) -> Result<Option<Session>, StoreError>;

    /// Lets a session end later.
    async fn extend_session(&self, digest: Digest, expires_at: Millis) -> Result<(), StoreError>;

    /// Ends a session. One that is not there is no error.
    async fn end_session(&self, digest: Digest) -> Result<(), StoreError>;

    /// Makes a sign-in link for `user`. It replaces the links made before it.
    async fn put_link(&self, user: UserId, digest: Digest, expires_at: Millis) -> Result<(), StoreError>;

    /// Uses up a sign-in link and begins a session of its user, both or neither. `None`: unknown, used, expired, or the user is
    /// disabled.
    async fn redeem_link(&self, link: Digest, session: NewSession) -> Result<Option<User>, StoreError>;

    /// Adds an API token.
    async fn add_token(&self, token: Token, digest: Digest) -> Result<(), StoreError>;

    /// All API tokens, oldest first.
    async fn tokens(&self) -> Result<Vec<Token>, StoreError>;

    /// The token of that digest, if it is neither expired nor revoked and its user is enabled.
    async fn token(&self, digest: Digest, now: Millis) -> Result<Option<Token>, StoreError>;

    /// Revokes a token, from its next use on. `false`: there is none of that id.
    async fn revoke_token(&self, id: Uuid, now: Millis) -> Result<bool, StoreError>;
}
