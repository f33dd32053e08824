//! What a stolen database, a hostile page and a guesser get.

use std::fs;

use sha2::{Digest, Sha256};

use super::*;

/// Everything that is in the data folder.
fn files(world: &World) -> Vec<u8> {
    let entries = fs::read_dir(world.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).flat_map(|path| fs::read(path).unwrap()).collect()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[tokio::test]
async fn the_record_has_digests_and_no_secret() {
    let world = World::new().await;
    let token = world.token("olga", &[], None).await.split_off("Bearer ".len());
    let cookie = world.login("olga").await.cookie();
    let session = cookie.split_once('=').unwrap().1;
    let olga = world.sqlite.user_named("olga").await.unwrap().unwrap();
    let link = world.app.auth.create_link(olga.id).await.unwrap();
    world.sqlite.close().await;
    let files = files(&world);
    for (what, secret) in [("token", &*token), ("session", session), ("link", link.expose())] {
        assert!(contains(&files, Sha256::digest(secret).as_slice()), "the {what}'s digest is where it is looked for");
        assert!(!contains(&files, secret.as_bytes()), "the {what} itself");
        assert!(!contains(&files, secret.trim_start_matches("turnfast_").as_bytes()), "the {what} without its prefix");
    }
    assert!(!contains(&files, PASSWORD.as_bytes()));
    assert!(contains(&files, b"$argon2id$"));
}

#[tokio::test]
async fn the_page_runs_no_inline_script_and_no_frame_shows_it() {
    let world = World::new().await;
    for path in ["/", "/demo/assistant", "/made-up"] {
        let answer = world.send("GET", path, &[("accept", "text/html")], None).await;
        assert_eq!(answer.status, 200, "{path}");
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("script-src 'self'") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{path}: {policy}");
    }
}

#[tokio::test]
async fn browsers_keep_the_session_to_this_site_and_away_from_scripts() {
    for (more, secure) in [("", false), ("[server]\npublic_url = \"https://chat.example.org\"", true)] {
        let world = World::with(more).await;
        let answer = world.login("olga").await;
        let cookie = answer.header("set-cookie");
        assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Lax") && cookie.contains("; Path=/;"), "{cookie}");
        assert!(!cookie.contains("Domain"), "{cookie}");
        assert_eq!((cookie.starts_with("__Host-"), cookie.ends_with("; Secure")), (secure, secure), "{cookie}");
    }
}
