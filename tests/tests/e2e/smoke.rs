//! A fresh machine: start, sign in, look at the page.

use anyhow::{Context, Result};
use http::Method;
use serde_json::Value;
use turnfast_tests::{
    client::{Client, answer, http, refusal},
    installation::{Installation, password},
    within,
};

#[tokio::test]
async fn a_fresh_server_says_where_it_listens_and_lets_one_person_in() -> Result<()> {
    let installation = Installation::empty()?;
    let mut server = installation.serve().await?;
    let nobody = server.client("")?;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(within(path, nobody.request(Method::GET, path).send()).await?.status(), 200, "{path}");
    }
    assert_eq!(refusal(nobody.request(Method::GET, "/auth/me")).await?.status, 401);

    let link = server.sign_in_link().await?;
    let signed_in = within("the sign-in link", http()?.get(&link).send()).await?;
    assert_eq!(signed_in.status(), 303);
    let cookie = signed_in.headers().get("set-cookie").context("a cookie")?.to_str()?.to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().context("a value")?;
    let me: Value = answer(nobody.request(Method::GET, "/auth/me").header("cookie", cookie)).await?;
    assert!(me["name"].is_string(), "{me}");
    let projects: Value = answer(nobody.request(Method::GET, "/projects").header("cookie", cookie)).await?;
    assert_eq!(projects["projects"][0]["id"], "demo");

    let again = within("the used link", http()?.get(&link).send()).await?;
    assert!(again.headers().get("set-cookie").is_none(), "a link works once");
    Ok(())
}

#[tokio::test]
async fn a_password_signs_in_and_a_wrong_one_does_not() -> Result<()> {
    let installation = Installation::empty()?;
    installation.user("ada").await?;
    let server = installation.serve().await?;
    let login = |name: &str, password: &str| -> Result<_> {
        let body = serde_json::json!({"name": name, "password": password});
        Ok(Client::new(&server.url, "")?.request(Method::POST, "/auth/login").json(&body))
    };
    let me: Value = answer(login("ada", &password("ada"))?).await?;
    assert_eq!(me["name"], "ada");
    let wrong = refusal(login("ada", "no")?).await?;
    let unknown = refusal(login("bob", "no")?).await?;
    assert_eq!((wrong.status, wrong), (401, unknown));
    Ok(())
}

#[tokio::test]
async fn the_page_comes_with_its_guards() -> Result<()> {
    let installation = Installation::empty()?;
    let server = installation.serve().await?;
    let response = within("the page", http()?.get(&server.url).send()).await?;
    assert_eq!(response.status(), 200);
    let policy = response.headers().get("content-security-policy").context("a policy")?.to_str()?;
    assert!(policy.contains("script-src 'self' 'wasm-unsafe-eval'") && !policy.contains("unsafe-inline"), "{policy}");
    assert_eq!(response.headers().get("x-content-type-options").context("a guard")?, "nosniff");
    assert!(within("its text", response.text()).await?.contains("<title>Turnfast</title>"));
    Ok(())
}
