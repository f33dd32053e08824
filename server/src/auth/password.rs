//! Passwords: Argon2id, off the async threads, a few at a time.

use std::sync::Arc;

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use tokio::sync::Semaphore;

use crate::config::Secret;

/// Hashes computed at once. Each takes 19 MiB and a core for some tens of milliseconds.
const AT_ONCE: usize = 2;
/// Hashes computed or waited for. More are turned away: a queue that only grows helps nobody.
const WAITING: usize = 64;

/// Verified where there is no hash to verify, so that a name without a user takes as long as one with. Of the same cost as
/// [`hash`]; no password fits it, for its hash part is made up.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm90IGEgcmVhbCBzYWx0$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Hashes a new password. Takes some tens of milliseconds.
///
/// # Errors
/// The system gives no random numbers, or no memory.
pub fn hash(password: &Secret) -> Result<String, String> {
    let hash: PasswordHash = Argon2::default().hash_password(password.expose().as_bytes()).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

/// Too many passwords are being checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy;

/// Checks passwords.
#[derive(Clone, Debug)]
pub(super) struct Verifier {
    queue: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

impl Verifier {
    pub(super) fn new() -> Self {
        Self { queue: Arc::new(Semaphore::new(WAITING)), running: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Whether `password` fits `hash`. `None` fits nothing and takes as long.
    pub(super) async fn verify(&self, password: Secret, hash: Option<String>) -> Result<bool, Busy> {
        let place = Arc::clone(&self.queue).try_acquire_owned().map_err(|_| Busy)?;
        let turn = Arc::clone(&self.running).acquire_owned().await.map_err(|_| Busy)?;
        let check = tokio::task::spawn_blocking(move || {
            // They are held here: a caller that goes away does not end the work.
            let _held = (place, turn);
            let known = hash.is_some();
            let fits = fits(&password, hash.as_deref().unwrap_or(NOBODY));
            known && fits
        });
        Ok(check.await.unwrap_or(false))
    }
}

fn fits(password: &Secret, hash: &str) -> bool {
    match PasswordHash::new(hash) {
        Ok(hash) => Argon2::default().verify_password(password.expose().as_bytes(), &hash).is_ok(),
        Err(error) => {
            tracing::error!(%error, "a recorded password hash cannot be read");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.to_owned())
    }

    #[tokio::test]
    async fn only_the_password_fits() {
        let verifier = Verifier::new();
        let hash = hash(&secret("correct horse")).unwrap();
        assert_eq!(verifier.verify(secret("correct horse"), Some(hash.clone())).await, Ok(true));
        assert_eq!(verifier.verify(secret("battery staple"), Some(hash)).await, Ok(false));
        assert_eq!(verifier.verify(secret("correct horse"), None).await, Ok(false));
        assert_eq!(verifier.verify(secret(""), Some("no hash".to_owned())).await, Ok(false));
    }

    #[test]
    fn nobody_costs_as_much_as_somebody() {
        let real = hash(&secret("x")).unwrap();
        let (nobody, real) = (PasswordHash::new(NOBODY).unwrap(), PasswordHash::new(&real).unwrap());
        assert_eq!(nobody.algorithm, real.algorithm);
        assert_eq!(nobody.version, real.version);
        assert_eq!(nobody.params, real.params);
        assert_eq!(nobody.hash.unwrap().len(), real.hash.unwrap().len());
        assert!(!fits(&secret("x"), NOBODY));
    }

    #[tokio::test]
    async fn a_full_queue_turns_away() {
        let verifier = Verifier::new();
        let places = Arc::clone(&verifier.queue).try_acquire_many_owned(u32::try_from(WAITING).unwrap()).unwrap();
        assert_eq!(verifier.verify(secret("x"), None).await, Err(Busy));
        drop(places);
        assert_eq!(verifier.verify(secret("x"), None).await, Ok(false));
    }
}
