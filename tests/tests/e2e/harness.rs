//! That the tools of the other tests do what those tests take for granted.

use anyhow::Result;
use serde_json::json;
use turnfast_tests::{
    browser::Browser,
    client::http,
    provider::{End, Provider},
    within,
};

async fn ask(provider: &Provider, text: &str) -> Result<reqwest::Response> {
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": text}]});
    let request = http()?.post(format!("{}/chat/completions", provider.base_url())).bearer_auth("secret").json(&body);
    within("the provider", request.send()).await
}

#[tokio::test]
async fn the_provider_does_as_it_is_told() -> Result<()> {
    let provider = Provider::start().await?;
    let text = within("a stream", ask(&provider, "[[words:2]][[say:!]]").await?.text()).await?;
    let deltas: Vec<_> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line.strip_prefix("data: ")?).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(deltas, ["", "word1", " word2", "!"]);
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(provider.end_of(0).await?, End::Finished);

    assert_eq!(ask(&provider, "[[fail:503]]").await?.status(), 503);
    assert!(ask(&provider, "[[cut:2]]").await?.text().await.is_err(), "a broken connection is no end of a stream");

    let seen = provider.requests().await?;
    assert_eq!(seen.len(), 3);
    assert!(seen[0].headers.contains(&("authorization".to_owned(), "(there is one)".to_owned())), "{:?}", seen[0].headers);
    Ok(())
}

#[tokio::test]
async fn the_provider_notices_who_hangs_up() -> Result<()> {
    let provider = Provider::start().await?;
    for (n, wait) in ["[[stall]]", "[[hold:gate]]", "[[words:2:600000ms]]"].into_iter().enumerate() {
        let response = ask(&provider, wait).await?;
        provider.request(n).await?;
        drop(response);
        assert_eq!(provider.end_of(n).await?, End::HungUp, "{wait}");
    }
    let held = ask(&provider, "[[hold:gate]][[say:open]]").await?;
    provider.holds("gate").await?;
    provider.release("gate").await?;
    assert!(within("the rest", held.text()).await?.contains("open"));
    Ok(())
}

#[tokio::test]
async fn the_browser_shows_what_a_person_sees() -> Result<()> {
    let page = "data:text/html,<title>t</title><main><h1>Hello</h1><label>Name <input></label><button aria-label='Send it'>x</button>\
        <script>console.error('oh no');console.log(matchMedia('(prefers-color-scheme: dark)').matches)</script></main>";
    let browser = Browser::start().await?;
    browser.open(page).await?;
    browser.shows("Hello").await?;
    browser.role("heading", "Hello").await?;
    browser.label("Name").await?.send_keys("Ada").await?;
    browser.role("button", "Send it").await?.click().await?;
    assert!(!browser.has_role("button", "x").await?);
    let errors = browser.console_errors().await?;
    assert!(errors.len() == 1 && errors[0].contains("oh no"), "{errors:?}");

    browser.viewport(390, 844).await?;
    browser.prefers(true, true).await?;
    let script = "return [innerWidth, matchMedia('(prefers-color-scheme: dark)').matches, \
        matchMedia('(prefers-reduced-motion: reduce)').matches, navigator.onLine]";
    assert_eq!(browser.web().execute(script, Vec::new()).await?, json!([390, true, true, true]));
    browser.offline(true).await?;
    assert_eq!(browser.web().execute("return navigator.onLine", Vec::new()).await?, json!(false));

    browser.open_beside("data:text/html,second", true).await?;
    browser.shows("second").await?;
    browser.switch_to(0).await?;
    browser.shows("Hello").await?;
    assert!(browser.screenshot("harness").await?.is_file());
    Ok(())
}
