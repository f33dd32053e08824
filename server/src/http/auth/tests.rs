use std::sync::atomic::Ordering;

use axum::body::Body;
use serde_json::json;

use super::*;
use crate::{http::tests as http, store::AuthStore};

/// The answer of a login.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The cookie as a browser sends it back.
    fn cookie(&self) -> String {
        self.header("set-cookie").split(';').next().unwrap().to_owned()
    }

    fn is_problem(&self, status: u16, code: &str) -> bool {
        assert_eq!((self.status, self.body.get("code")), (status, Some(&json!(code))));
        self.header("content-type") == "application/problem+json" && self.body.get("status") == Some(&json!(status))
    }
}

/// A server with a user `olga` of password `correct horse`.
struct House(http::World);

impl House {
    async fn build(public_url: Option<&str>) -> Self {
        let more = public_url.map(|url| format!("[server]\npublic_url = \"{url}\"")).unwrap_or_default();
        Self(http::World::with(&more).await)
    }

    async fn send(&self, request: Request) -> Answer {
        let http::Answer { status, headers, body } = self.0.request(request).await;
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
        Answer { status, headers, body }
    }

    async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(request(method, path, headers, Body::empty())).await
    }

    async fn login(&self, name: &str, password: &str) -> Answer {
        self.send(login_request(name, password, &[])).await
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Request {
    let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:8080");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

fn login_request(name: &str, password: &str, headers: &[(&str, &str)]) -> Request {
    let body = json!({ "name": name, "password": password }).to_string();
    request("POST", "/auth/login", &[headers, &[("content-type", "application/json")]].concat(), body.into())
}

#[tokio::test]
async fn a_person_signs_in_and_out() {
    let house = House::build(None).await;
    let answer = house.login("olga", "correct horse").await;
    assert_eq!((answer.status, answer.body.get("name")), (200, Some(&json!("olga"))));
    assert_eq!(answer.header("cache-control"), "no-store");
    let (cookie, me) = (answer.cookie(), answer.body);
    let attributes = answer.headers.get("set-cookie").unwrap().to_str().unwrap().split_once(';').unwrap().1;
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax; Max-Age=34560000");
    assert!(cookie.starts_with("turnfast_session="));

    let answer = house.call("GET", "/auth/me", &[("cookie", &format!("a=b; {cookie}; c=d"))]).await;
    assert_eq!((answer.status, &answer.body), (200, &me));

    let answer = house.call("POST", "/auth/logout", &[("cookie", &cookie), ("origin", "http://127.0.0.1:8080")]).await;
    assert_eq!((answer.status, answer.cookie().as_str()), (204, "turnfast_session="));
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
    assert!(house.call("GET", "/auth/me", &[("cookie", &cookie)]).await.is_problem(401, "unauthenticated"));
}

#[tokio::test]
async fn wrong_credentials_all_get_the_same_answer() {
    let house = House::build(None).await;
    let mut bodies = Vec::new();
    for (name, password) in [("olga", "wrong"), ("nobody", "correct horse"), ("", "")] {
        let answer = house.login(name, password).await;
        assert!(answer.is_problem(401, "unauthenticated"));
        assert!(answer.headers.get("set-cookie").is_none());
        bodies.push(answer.body);
    }
    assert!(bodies.windows(2).all(|pair| pair.first() == pair.last()));
}

#[tokio::test]
async fn bad_bodies_are_refused_and_not_repeated() {
    let house = House::build(None).await;
    let json = [("content-type", "application/json; charset=utf-8")];
    for (body, field) in [
        ("", "name"),
        ("hunter2", "name"),
        ("[]", "name"),
        (r#"{"password":"hunter2"}"#, "name"),
        (r#"{"name":"olga"}"#, "password"),
        (r#"{"name":"olga","password":["hunter2"]}"#, "password"),
    ] {
        let answer = house.send(request("POST", "/auth/login", &json, body.into())).await;
        assert!(answer.is_problem(400, "invalid_request"));
        assert_eq!(answer.body.get("field"), Some(&json!(field)), "{body}");
        assert!(!answer.body.to_string().contains("hunter2"));
    }
    let body = r#"{"name":"olga","password":"correct horse"}"#;
    for headers in [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/x-www-form-urlencoded")]] {
        let answer = house.send(request("POST", "/auth/login", headers, body.into())).await;
        assert!(answer.is_problem(415, "unsupported_media_type"));
    }
    let long = json!({ "name": "olga", "password": "x".repeat(MAX_LOGIN) }).to_string();
    let answer = house.send(request("POST", "/auth/login", &json, long.into())).await;
    assert!(answer.is_problem(413, "payload_too_large"));
}

#[tokio::test]
async fn too_many_attempts_are_told_when_to_come_back() {
    let house = House::build(None).await;
    for _ in 0..10 {
        assert_eq!(house.login("olga", "wrong").await.status, 401);
    }
    let answer = house.login("olga", "correct horse").await;
    assert!(answer.is_problem(429, "rate_limited"));
    assert_eq!(answer.header("retry-after"), "15");
    house.0.now.fetch_add(15_000, Ordering::SeqCst);
    assert_eq!(house.login("olga", "correct horse").await.status, 200);
}

#[tokio::test]
async fn attempts_are_counted_for_the_client_and_not_for_the_proxy() {
    let house = House::build(None).await;
    let attempt = async |peer: &str, forwarded: &str, n: usize| {
        let mut request = login_request(&format!("nobody-{n}"), "x", &[("x-forwarded-for", forwarded)]);
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
        house.send(request).await.status
    };
    for n in 0..30 {
        assert_eq!(attempt("127.0.0.1", &format!("192.0.2.{n}, 198.51.100.7"), n).await, 401, "{n}");
    }
    assert_eq!(attempt("::1", "198.51.100.7", 30).await, 429);
    assert_eq!(attempt("127.0.0.1", "198.51.100.8", 31).await, 401);
    assert_eq!(attempt("198.51.100.7", "198.51.100.9", 32).await, 429, "from elsewhere the header is a claim");
    assert_eq!(attempt("127.0.0.1", "not an address", 33).await, 401);
}

#[tokio::test]
async fn other_sites_cannot_use_the_cookie() {
    let house = House::build(Some("https://chat.example.org")).await;
    let answer = house.login("olga", "correct horse").await;
    let cookie = answer.cookie();
    assert!(cookie.starts_with("__Host-turnfast_session="));
    assert!(answer.header("set-cookie").ends_with("; Secure"));
    let logout =
        async |headers: &[(&str, &str)]| house.call("POST", "/auth/logout", &[&[("cookie", &*cookie)], headers].concat()).await;
    for headers in [
        &[][..],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "https://chat.example.org.evil.example")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://chat.example.org")],
        // Where the request was sent to is not where its browser is.
        &[("origin", "http://127.0.0.1:8080")],
    ] {
        assert!(logout(headers).await.is_problem(403, "cross_origin"), "{headers:?}");
    }
    assert_eq!(house.call("GET", "/auth/me", &[("cookie", &cookie)]).await.status, 200, "reading needs no origin");
    for headers in [[("origin", "https://chat.example.org")], [("sec-fetch-site", "same-origin")], [("sec-fetch-site", "none")]] {
        let cookie = house.login("olga", "correct horse").await.cookie();
        let [origin] = headers;
        let answer = house.call("POST", "/auth/logout", &[("cookie", &cookie), origin]).await;
        assert_eq!(answer.status, 204, "{headers:?}");
    }
}

#[tokio::test]
async fn other_sites_cannot_sign_a_browser_in() {
    let house = House::build(None).await;
    for headers in [[("origin", "https://evil.example")], [("sec-fetch-site", "cross-site")]] {
        let answer = house.send(login_request("olga", "correct horse", &headers)).await;
        assert!(answer.is_problem(403, "cross_origin"));
        assert!(answer.headers.get("set-cookie").is_none());
    }
    for headers in [[("origin", "http://127.0.0.1:8080")], [("sec-fetch-site", "same-origin")]] {
        assert_eq!(house.send(login_request("olga", "correct horse", &headers)).await.status, 200);
    }
}

#[tokio::test]
async fn a_bearer_token_works_everywhere_and_needs_no_origin() {
    let house = House::build(None).await;
    let olga = house.0.sqlite.user_named("olga").await.unwrap().unwrap();
    let token = house.0.app.auth.create_token(&olga, None, None).await.unwrap();
    let bearer = format!("Bearer {}", token.expose());
    for value in [&*bearer, &bearer.replace("Bearer", "bearer")] {
        let answer = house.call("GET", "/auth/me", &[("authorization", value)]).await;
        assert_eq!((answer.status, answer.body.get("name")), (200, Some(&json!("olga"))));
    }
    let elsewhere = [("authorization", &*bearer), ("origin", "https://elsewhere.example")];
    assert_eq!(house.call("POST", "/auth/logout", &elsewhere).await.status, 204);
    assert_eq!(house.call("GET", "/auth/me", &[("authorization", &bearer)]).await.status, 200, "a token does not log out");

    let id = house.0.sqlite.tokens().await.unwrap().first().unwrap().id;
    house.0.sqlite.revoke_token(id, 1).await.unwrap();
    assert!(house.call("GET", "/auth/me", &[("authorization", &bearer)]).await.is_problem(401, "unauthenticated"));
    let cookie = house.login("olga", "correct horse").await.cookie();
    let both = [("authorization", &*bearer), ("cookie", &*cookie)];
    assert_eq!(house.call("GET", "/auth/me", &both).await.status, 401, "a cookie does not make a bad token good");
    let proxied = [("authorization", "Basic cHJveHk6cHc="), ("cookie", &*cookie)];
    assert_eq!(house.call("GET", "/auth/me", &proxied).await.status, 200);
}

#[tokio::test]
async fn nonsense_is_nobody() {
    let house = House::build(None).await;
    for headers in [
        &[][..],
        &[("authorization", "Bearer")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Bearer x y")],
        &[("cookie", "turnfast_session")],
        &[("cookie", "turnfast_session=")],
        &[("cookie", ";;=;turnfast_session=x")],
        &[("cookie", "__Host-turnfast_session=x")],
    ] {
        assert!(house.call("GET", "/auth/me", headers).await.is_problem(401, "unauthenticated"), "{headers:?}");
    }
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let house = House::build(None).await;
    let olga = house.0.sqlite.user_named("olga").await.unwrap().unwrap();
    let link = house.0.app.auth.create_link(olga.id).await.unwrap();
    let path = format!("/auth/link/{}", link.expose());
    assert_eq!(house.call("HEAD", &path, &[]).await.status, 303);
    let in_advance = house.call("GET", &path, &[("sec-purpose", "prefetch;prerender")]).await;
    assert_eq!((in_advance.status, in_advance.headers.get("set-cookie")), (503, None), "nobody has followed it yet");
    let followed = format!("{path}?utm_source=mail");
    let answer = house.call("GET", &followed, &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/"));
    assert_eq!((answer.header("referrer-policy"), answer.header("cache-control")), ("no-referrer", "no-store"));
    assert_eq!(house.call("GET", "/auth/me", &[("cookie", &answer.cookie())]).await.status, 200);

    for used in [path.as_str(), "/auth/link/made-up", "/auth/link/%ff"] {
        let answer = house.call("GET", used, &[]).await;
        assert_eq!((answer.status, answer.header("location"), &answer.body), (303, "/?signin=expired", &Value::Null));
        assert!(answer.headers.get("set-cookie").is_none());
    }
}
