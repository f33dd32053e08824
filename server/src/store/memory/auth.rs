//! [`AuthStore`] in memory.

use async_trait::async_trait;
use turnfast_shared::{Millis, ids::UserId};
use uuid::Uuid;

use super::{BrowserSession, MemoryStore, Person, Record};
use crate::store::{
    AuthStore, StoreError,
    auth::{Digest, NewSession, NewUser, Session, Token, User},
};

type Result<T> = std::result::Result<T, StoreError>;

impl Record {
    fn add_user(&mut self, new: NewUser) -> bool {
        if self.users.iter().any(|person| person.user.name == new.name) {
            return false;
        }
        let user = User {
            id: new.id,
            name: new.name,
            disabled: false,
            has_password: new.password_hash.is_some(),
            signed_in_at: None,
            created_at: new.created_at,
        };
        self.users.push(Person { user, password_hash: new.password_hash });
        true
    }

    fn person(&mut self, id: UserId) -> Option<&mut Person> {
        self.users.iter_mut().find(|person| person.user.id == id)
    }

    fn enabled(&mut self, id: UserId) -> Option<&mut Person> {
        self.person(id).filter(|person| !person.user.disabled)
    }

    fn shut_out(&mut self, user: UserId) {
        self.sessions.retain(|session| session.user != user);
        self.links.remove(&user);
    }

    /// Begins a session and gives its user; `None`: the user is gone or disabled.
    fn begin(&mut self, user: UserId, session: &NewSession) -> Option<User> {
        let before = self.enabled(user)?.user.clone();
        self.sessions.retain(|known| known.expires_at > session.now);
        self.sessions.push(BrowserSession { digest: session.digest, user, expires_at: session.expires_at });
        self.enabled(user)?.user.signed_in_at = Some(session.now);
        Some(before)
    }
}

#[async_trait]
impl AuthStore for MemoryStore {
    async fn add_user(&self, user: NewUser) -> Result<bool> {
        Ok(self.record().add_user(user))
    }

    async fn add_first_user(&self, user: NewUser) -> Result<bool> {
        let mut record = self.record();
        Ok(record.users.is_empty() && record.add_user(user))
    }

    async fn users(&self) -> Result<Vec<User>> {
        let mut users: Vec<User> = self.record().users.iter().map(|person| person.user.clone()).collect();
        users.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(users)
    }

    async fn user_named(&self, name: &str) -> Result<Option<User>> {
        Ok(self.record().users.iter().find(|person| person.user.name == name).map(|person| person.user.clone()))
    }

    async fn password_hash(&self, name: &str) -> Result<Option<(UserId, String)>> {
        let record = self.record();
        let person = record.users.iter().find(|person| person.user.name == name && !person.user.disabled);
        Ok(person.and_then(|person| Some((person.user.id, person.password_hash.clone()?))))
    }

    async fn set_password_hash(&self, user: UserId, hash: String) -> Result<()> {
        let mut record = self.record();
        if let Some(person) = record.person(user) {
            person.password_hash = Some(hash);
            person.user.has_password = true;
        }
        record.shut_out(user);
        Ok(())
    }

    async fn set_disabled(&self, user: UserId, disabled: bool) -> Result<()> {
        let mut record = self.record();
        if let Some(person) = record.person(user) {
            person.user.disabled = disabled;
        }
        if disabled {
            record.shut_out(user);
        }
        Ok(())
    }

    async fn begin_session(&self, user: UserId, session: NewSession) -> Result<bool> {
        Ok(self.record().begin(user, &session).is_some())
    }

    async fn session(&self, digest: Digest, now: Millis) -> Result<Option<Session>> {
        let mut record = self.record();
        let found = record.sessions.iter().find(|session| session.digest == digest && session.expires_at > now);
        let Some((user, expires_at)) = found.map(|session| (session.user, session.expires_at)) else { return Ok(None) };
        Ok(record.enabled(user).map(|person| Session { user, name: person.user.name.clone(), expires_at }))
    }

    async fn extend_session(&self, digest: Digest, expires_at: Millis) -> Result<()> {
        for session in self.record().sessions.iter_mut().filter(|session| session.digest == digest) {
            session.expires_at = session.expires_at.max(expires_at);
        }
        Ok(())
    }

    async fn end_session(&self, digest: Digest) -> Result<()> {
        self.record().sessions.retain(|session| session.digest != digest);
        Ok(())
    }

    async fn put_link(&self, user: UserId, digest: Digest, expires_at: Millis) -> Result<()> {
        self.record().links.insert(user, (digest, expires_at));
        Ok(())
    }

    async fn redeem_link(&self, link: Digest, session: NewSession) -> Result<Option<User>> {
        let mut record = self.record();
        let found =
            record.links.iter().find(|(_, (digest, _))| *digest == link).map(|(user, (_, expires_at))| (*user, *expires_at));
        let Some((user, expires_at)) = found else { return Ok(None) };
        record.links.remove(&user);
        if expires_at <= session.now {
            return Ok(None);
        }
        Ok(record.begin(user, &session))
    }

    async fn add_token(&self, token: Token, digest: Digest) -> Result<()> {
        self.record().tokens.push((digest, token));
        Ok(())
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        let mut tokens: Vec<Token> = self.record().tokens.iter().map(|(_, token)| token.clone()).collect();
        tokens.sort_by_key(|token| (token.created_at, token.id));
        Ok(tokens)
    }

    async fn token(&self, digest: Digest, now: Millis) -> Result<Option<Token>> {
        let mut record = self.record();
        let valid = |token: &Token| token.revoked_at.is_none() && token.expires_at.is_none_or(|at| at > now);
        let found = record.tokens.iter().find(|(known, token)| *known == digest && valid(token));
        let Some(token) = found.map(|(_, token)| token.clone()) else { return Ok(None) };
        Ok(record.enabled(token.user).is_some().then_some(token))
    }

    async fn revoke_token(&self, id: Uuid, now: Millis) -> Result<bool> {
        let mut record = self.record();
        let Some((_, token)) = record.tokens.iter_mut().find(|(_, token)| token.id == id) else { return Ok(false) };
        token.revoked_at.get_or_insert(now);
        Ok(true)
    }
}
