//! Random secrets: the values of session cookies, sign-in links and API tokens.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use crate::{config::Secret, store::auth::Digest};

/// What an API token starts with, so that people and scanners know one when they see it.
pub const TOKEN_PREFIX: &str = "turnfast_";

/// A new secret of 256 random bits, in characters that stand in a URL, a cookie and a header as they are.
pub(super) fn generate(prefix: &str) -> Secret {
    let bits: [u8; 32] = rand::random();
    Secret::new(format!("{prefix}{}", BASE64_URL_SAFE_NO_PAD.encode(bits)))
}

/// What the record keeps of a secret.
pub(super) fn digest(secret: &str) -> Digest {
    Digest(Sha256::digest(secret.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_need_no_escaping() {
        let (one, other) = (generate(TOKEN_PREFIX), generate(TOKEN_PREFIX));
        assert_ne!(one, other);
        assert_ne!(digest(one.expose()), digest(other.expose()));
        assert_eq!(one.expose().len(), TOKEN_PREFIX.len() + 43);
        assert!(one.expose().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
    }
}
