//! Refusals that take a configuration of their own (contract 1, section 3).

use anyhow::Result;
use http::Method;
use serde_json::json;
use turnfast_shared::problem::Code;
use turnfast_tests::{client::refusal, installation::Installation};
use uuid::Uuid;

use crate::House;

#[tokio::test]
async fn switched_off_agents_say_so() -> Result<()> {
    let installation = Installation::with_config("[features]\nagents = false\n")?;
    let token = installation.user("admin").await?;
    let server = installation.serve().await?;
    let admin = server.client(&token)?;
    let id = Uuid::from_u128(1);
    for (method, path) in [
        (Method::GET, String::new()),
        (Method::POST, "/chat".to_owned()),
        (Method::POST, "/chat/resume".to_owned()),
        (Method::GET, format!("/chat/{id}/messages")),
        (Method::DELETE, format!("/chat/{id}/executions/{id}")),
        (Method::DELETE, format!("/chat/runs/{id}")),
        (Method::GET, "/threads".to_owned()),
        (Method::GET, format!("/threads/{id}")),
        (Method::PATCH, format!("/threads/{id}")),
        (Method::DELETE, format!("/threads/{id}")),
    ] {
        let refused = refusal(admin.agent(method.clone(), "assistant", &path).json(&json!({"message": "hi"}))).await?;
        assert_eq!((refused.status, refused.code), (404, Code::AgentsDisabled), "{method} {path}");
    }
    for path in ["/projects", "/projects/demo/agents/v2"] {
        assert_eq!(refusal(admin.request(Method::GET, path)).await?.code, Code::AgentsDisabled, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_that_lacks_a_part_says_which() -> Result<()> {
    let house = House::open().await?;
    let chat = house.alice.agent(Method::POST, "incomplete", "/chat").json(&json!({"message": "hi"}));
    let refused = refusal(chat).await?;
    assert_eq!((refused.status, refused.code), (422, Code::AgentMisconfigured));
    let missing = refused.missing.unwrap_or_default().join(" ");
    assert!(missing.contains("provider") && missing.contains("model"), "{missing}");
    let threads = house.alice.agent(Method::GET, "incomplete", "/threads");
    let threads: turnfast_shared::api::ThreadPage = turnfast_tests::client::answer(threads).await?;
    assert!(threads.threads.is_empty(), "nothing was started: {threads:?}");
    Ok(())
}
