use std::sync::atomic::{AtomicI64, Ordering};

use tempfile::TempDir;

use super::*;
use crate::{
    config::Overrides,
    store::{Store, memory::MemoryStore, postgres::PostgresStore, sqlite::SqliteStore},
};

const HOUR: Millis = 60 * 60 * 1_000;
const DAY: Millis = 24 * HOUR;

/// The store that a test runs over.
#[derive(Clone, Copy)]
enum On {
    Memory,
    Sqlite,
    Postgres,
}

/// Makes a test of each function for each store.
macro_rules! over_every_store {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::On::Memory).await;
            })*
        }

        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::On::Sqlite).await;
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::On::Postgres).await;
            })*
        }
    };
}

over_every_store! {
    only_an_enabled_user_with_the_right_password_gets_in
    a_session_ends_thirty_days_after_its_last_use
    a_use_prolongs_a_session_at_most_once_an_hour
    logging_out_ends_that_session_alone
    what_is_open_ends_with_what_opened_it
    a_new_password_ends_what_the_old_one_began
    attempts_run_out_for_the_right_password_too
    a_link_works_once_and_for_a_day
    two_who_redeem_one_link_at_once_get_one_session
    a_token_is_refused_once_it_is_expired_or_revoked_or_its_user_disabled
    a_token_has_its_scopes_of_those_that_its_user_has
    a_name_is_taken_once
    the_first_start_leads_in_until_somebody_has_been_in
    a_start_gives_no_way_in_where_there_is_another
}

/// A real store and a clock that stands still until it is told to go on.
struct House {
    auth: Auth,
    store: Arc<dyn Store>,
    now: Arc<AtomicI64>,
    _folder: TempDir,
}

impl House {
    async fn build(on: On) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = match on {
            On::Memory => Arc::new(MemoryStore::default()),
            On::Sqlite => Arc::new(SqliteStore::open(&folder.path().join("turnfast.db")).await.unwrap()),
            On::Postgres => Arc::new(PostgresStore::open(&turnfast_test_postgres::database().unwrap()).await.unwrap()),
        };
        let now = Arc::new(AtomicI64::new(1_700_000_000_000));
        let clock = Arc::clone(&now);
        let auth = Auth::with_clock(store.clone(), Arc::new(move || clock.load(Ordering::SeqCst)));
        Self { auth, store, now, _folder: folder }
    }

    fn pass(&self, millis: Millis) {
        self.now.fetch_add(millis, Ordering::SeqCst);
    }

    async fn user(&self, name: &str, password: Option<&str>) -> User {
        let hash = password.map(|password| password::hash(&secret(password)).unwrap());
        self.auth.add_user(name, hash).await.unwrap().unwrap();
        self.store.user_named(name).await.unwrap().unwrap()
    }

    async fn is_in(&self, session: &Secret) -> bool {
        self.auth.by_session(session.expose()).await.unwrap().is_some()
    }
}

fn secret(text: &str) -> Secret {
    Secret::new(text.to_owned())
}

async fn only_an_enabled_user_with_the_right_password_gets_in(on: On) {
    let house = House::build(on).await;
    let ada = house.user("ada", Some("correct horse")).await;
    house.user("link-only", None).await;
    for (name, password) in [("ada", "wrong"), ("ada", ""), ("Ada", "correct horse"), ("nobody", "x"), ("link-only", "")] {
        let answer = house.auth.login(name, secret(password), None).await;
        assert!(matches!(answer, Err(LoginError::Wrong)), "{name}");
    }
    let signed_in = house.auth.login("ada", secret("correct horse"), None).await.unwrap();
    assert_eq!((signed_in.user, signed_in.name.as_str()), (ada.id, "ada"));
    let caller = house.auth.by_session(signed_in.session.expose()).await.unwrap().unwrap();
    assert_eq!((caller.user, caller.name.as_str(), caller.via), (ada.id, "ada", Via::Cookie));

    house.store.set_disabled(ada.id, true).await.unwrap();
    assert!(!house.is_in(&signed_in.session).await);
    assert!(!house.auth.still_valid(&caller).await.unwrap());
    assert!(matches!(house.auth.login("ada", secret("correct horse"), None).await, Err(LoginError::Wrong)));
    house.store.set_disabled(ada.id, false).await.unwrap();
    assert!(!house.is_in(&signed_in.session).await, "a session that ended does not come back");
    assert!(house.auth.login("ada", secret("correct horse"), None).await.is_ok());
}

async fn a_session_ends_thirty_days_after_its_last_use(on: On) {
    let house = House::build(on).await;
    house.user("ada", Some("pw")).await;
    let used = house.auth.login("ada", secret("pw"), None).await.unwrap().session;
    let unused = house.auth.login("ada", secret("pw"), None).await.unwrap().session;
    for _ in 0..4 {
        house.pass(29 * DAY);
        assert!(house.is_in(&used).await);
    }
    assert!(!house.is_in(&unused).await);
    house.pass(SESSION);
    assert!(!house.is_in(&used).await);
}

async fn a_use_prolongs_a_session_at_most_once_an_hour(on: On) {
    let house = House::build(on).await;
    house.user("ada", Some("pw")).await;
    let session = house.auth.login("ada", secret("pw"), None).await.unwrap().session;
    let begun = house.now.load(Ordering::SeqCst);
    let ends = async || {
        assert!(house.is_in(&session).await);
        house.store.session(digest(session.expose()), begun).await.unwrap().unwrap().expires_at - begun
    };
    house.pass(HOUR);
    assert_eq!(ends().await, SESSION);
    house.pass(1);
    assert_eq!(ends().await, SESSION + HOUR + 1);
    house.pass(HOUR);
    assert_eq!(ends().await, SESSION + HOUR + 1);
}

async fn logging_out_ends_that_session_alone(on: On) {
    let house = House::build(on).await;
    house.user("ada", Some("pw")).await;
    let one = house.auth.login("ada", secret("pw"), None).await.unwrap().session;
    let other = house.auth.login("ada", secret("pw"), None).await.unwrap().session;
    let caller = house.auth.by_session(one.expose()).await.unwrap().unwrap();
    house.auth.logout(&caller).await.unwrap();
    assert!(!house.is_in(&one).await);
    assert!(house.is_in(&other).await);
}

async fn what_is_open_ends_with_what_opened_it(on: On) {
    let soon = Duration::from_millis(10);
    // Longer than any test: only what happens in this process ends it.
    let never = Duration::from_secs(100_000);
    let house = House::build(on).await;
    let ada = house.user("ada", Some("pw")).await;
    let one = house.auth.login("ada", secret("pw"), None).await.unwrap().session;
    let other = house.auth.login("ada", secret("pw"), None).await.unwrap().session;
    let caller = async |session: &Secret| house.auth.by_session(session.expose()).await.unwrap().unwrap();
    let (one, other) = (caller(&one).await, caller(&other).await);
    let ends = house.auth.shut_out(&one, never);
    let mut stays = Box::pin(house.auth.shut_out(&other, never));
    house.auth.logout(&one).await.unwrap();
    ends.await;
    assert!(futures::poll!(&mut stays).is_pending(), "another session of the same user");

    // What another process does, such as a command, is found by looking.
    let token = house.auth.create_token(&ada, None, None).await.unwrap();
    let token = house.auth.by_token(token.expose()).await.unwrap().unwrap();
    let ends = house.auth.shut_out(&token, soon);
    let id = house.store.tokens().await.unwrap().first().unwrap().id;
    house.store.revoke_token(id, 1).await.unwrap();
    ends.await;
    let ends = house.auth.shut_out(&other, soon);
    house.store.set_disabled(ada.id, true).await.unwrap();
    ends.await;
    house.store.set_disabled(ada.id, false).await.unwrap();
    let brief = house.auth.create_token(&ada, None, Some(HOUR)).await.unwrap();
    let ends = house.auth.shut_out(&house.auth.by_token(brief.expose()).await.unwrap().unwrap(), soon);
    house.pass(HOUR);
    ends.await;
}

async fn a_new_password_ends_what_the_old_one_began(on: On) {
    let house = House::build(on).await;
    let ada = house.user("ada", Some("old")).await;
    let session = house.auth.login("ada", secret("old"), None).await.unwrap().session;
    let link = house.auth.create_link(ada.id).await.unwrap();
    house.store.set_password_hash(ada.id, password::hash(&secret("new")).unwrap()).await.unwrap();
    assert!(!house.is_in(&session).await);
    assert!(house.auth.redeem_link(link.expose()).await.unwrap().is_none());
    assert!(matches!(house.auth.login("ada", secret("old"), None).await, Err(LoginError::Wrong)));
    assert!(house.auth.login("ada", secret("new"), None).await.is_ok());
}

async fn attempts_run_out_for_the_right_password_too(on: On) {
    let house = House::build(on).await;
    house.user("ada", Some("pw")).await;
    for _ in 0..10 {
        assert!(matches!(house.auth.login("ada", secret("no"), None).await, Err(LoginError::Wrong)));
    }
    let answer = house.auth.login("ada", secret("pw"), None).await;
    assert!(matches!(answer, Err(LoginError::TooMany { retry_after: 15 })), "{answer:?}");
    house.pass(15_000);
    assert!(house.auth.login("ada", secret("pw"), None).await.is_ok());
}

async fn a_link_works_once_and_for_a_day(on: On) {
    let house = House::build(on).await;
    let ada = house.user("ada", None).await;
    let replaced = house.auth.create_link(ada.id).await.unwrap();
    let link = house.auth.create_link(ada.id).await.unwrap();
    assert!(house.auth.redeem_link(replaced.expose()).await.unwrap().is_none());
    let signed_in = house.auth.redeem_link(link.expose()).await.unwrap().unwrap();
    assert_eq!(signed_in.user, ada.id);
    assert!(house.is_in(&signed_in.session).await);
    assert!(house.auth.redeem_link(link.expose()).await.unwrap().is_none());

    let late = house.auth.create_link(ada.id).await.unwrap();
    house.pass(LINK);
    assert!(house.auth.redeem_link(late.expose()).await.unwrap().is_none());

    let shut = house.auth.create_link(ada.id).await.unwrap();
    house.store.set_disabled(ada.id, true).await.unwrap();
    house.store.set_disabled(ada.id, false).await.unwrap();
    assert!(house.auth.redeem_link(shut.expose()).await.unwrap().is_none());
}

async fn two_who_redeem_one_link_at_once_get_one_session(on: On) {
    let house = House::build(on).await;
    let ada = house.user("ada", None).await;
    let link = house.auth.create_link(ada.id).await.unwrap();
    let redeem = || house.auth.redeem_link(link.expose());
    let (one, two, three) = tokio::join!(redeem(), redeem(), redeem());
    let winners = [one, two, three].into_iter().filter(|answer| answer.as_ref().unwrap().is_some()).count();
    assert_eq!(winners, 1);
}

async fn a_token_is_refused_once_it_is_expired_or_revoked_or_its_user_disabled(on: On) {
    let house = House::build(on).await;
    let ada = house.user("ada", None).await;
    let for_ever = house.auth.create_token(&ada, None, None).await.unwrap();
    let for_a_day = house.auth.create_token(&ada, None, Some(DAY)).await.unwrap();
    let by = async |token: &Secret| house.auth.by_token(token.expose()).await.unwrap();
    let caller = by(&for_ever).await.unwrap();
    assert_eq!((caller.user, caller.via), (ada.id, Via::Bearer));
    assert!(by(&for_a_day).await.is_some());
    assert!(by(&secret("turnfast_made-up")).await.is_none());
    assert!(!house.is_in(&for_ever).await, "a token is no session");
    house.pass(DAY);
    assert!(by(&for_a_day).await.is_none());

    house.store.set_disabled(ada.id, true).await.unwrap();
    assert!(by(&for_ever).await.is_none());
    house.store.set_disabled(ada.id, false).await.unwrap();
    assert!(by(&for_ever).await.is_some());

    let listed = house.store.tokens().await.unwrap();
    let [first, second] = listed.as_slice() else { unreachable!("two tokens were made, not {listed:?}") };
    assert_eq!((first.name.as_str(), first.expires_at, second.expires_at.is_some()), ("ada", None, true));
    assert!(house.store.revoke_token(first.id, 1).await.unwrap());
    assert!(by(&for_ever).await.is_none());
    assert!(!house.auth.still_valid(&caller).await.unwrap());
    assert!(house.store.revoke_token(first.id, 2).await.unwrap());
    let revoked: Vec<_> = house.store.tokens().await.unwrap().into_iter().map(|token| token.revoked_at).collect();
    assert_eq!(revoked, [Some(1), None], "the first time counts");
    assert!(!house.store.revoke_token(Uuid::nil(), 1).await.unwrap());
}

async fn a_token_has_its_scopes_of_those_that_its_user_has(on: On) {
    let house = House::build(on).await;
    let config = Config::load(&Overrides::default()).unwrap();
    let admin = house.user("admin", None).await;
    let limit = Scopes::from_iter([Scope::AgentRead]);
    let token = house.auth.create_token(&admin, Some(limit), None).await.unwrap();
    let caller = house.auth.by_token(token.expose()).await.unwrap().unwrap();
    let project = caller.admit(&config, "demo", Scope::AgentRead).unwrap();
    assert_eq!(caller.scopes_in(project), Some(limit));
    assert_eq!(caller.admit(&config, "demo", Scope::AgentExecute).unwrap_err(), Denied::MissingScope(Scope::AgentExecute));
}

async fn a_name_is_taken_once(on: On) {
    let house = House::build(on).await;
    house.user("ada", None).await;
    assert_eq!(house.auth.add_user("ada", None).await.unwrap(), None);
    assert_eq!(house.store.users().await.unwrap().len(), 1);
}

async fn the_first_start_leads_in_until_somebody_has_been_in(on: On) {
    let house = House::build(on).await;
    let config = Config::load(&Overrides::default()).unwrap();
    assert_eq!(house.auth.unknown_members(&config).await.unwrap(), BTreeSet::from(["admin".to_owned()]));
    let lost = house.auth.first_sign_in().await.unwrap().unwrap();
    assert!(house.auth.unknown_members(&config).await.unwrap().is_empty());
    let link = house.auth.first_sign_in().await.unwrap().unwrap();
    assert!(house.auth.redeem_link(lost.expose()).await.unwrap().is_none());
    assert_eq!(house.auth.redeem_link(link.expose()).await.unwrap().unwrap().name, FIRST_USER);
    assert!(house.auth.first_sign_in().await.unwrap().is_none());
}

async fn a_start_gives_no_way_in_where_there_is_another(on: On) {
    let with_password = House::build(on).await;
    with_password.user(FIRST_USER, Some("pw")).await;
    assert!(with_password.auth.first_sign_in().await.unwrap().is_none());

    let of_others = House::build(on).await;
    of_others.user("ada", None).await;
    assert!(of_others.auth.first_sign_in().await.unwrap().is_none());

    let disabled = House::build(on).await;
    let first = disabled.user(FIRST_USER, None).await;
    disabled.store.set_disabled(first.id, true).await.unwrap();
    assert!(disabled.auth.first_sign_in().await.unwrap().is_none());
}

#[tokio::test]
async fn no_secret_is_recorded() {
    let house = House::build(On::Sqlite).await;
    let ada = house.user("ada", Some("correct horse")).await;
    let session = house.auth.login("ada", secret("correct horse"), None).await.unwrap().session;
    let link = house.auth.create_link(ada.id).await.unwrap();
    let token = house.auth.create_token(&ada, None, None).await.unwrap();
    house.store.close().await;
    let file = std::fs::read(house._folder.path().join("turnfast.db")).unwrap();
    for secret in ["correct horse", session.expose(), link.expose(), token.expose()] {
        assert!(!file.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
    assert!(file.windows(3).any(|window| window == b"ada"), "the record is in that file");
}
