//! Who may do what, and what is refused as it comes in (contract 1, section 3).

use anyhow::Result;
use http::Method;
use reqwest::RequestBuilder;
use serde_json::json;
use turnfast_shared::{ExecutionStatus, problem::Code};
use turnfast_tests::{client::refusal, within};
use uuid::Uuid;

use crate::House;

#[tokio::test]
async fn a_private_thread_does_not_exist_for_anyone_else() -> Result<()> {
    let house = House::open().await?;
    let bob = house.user("bob").await?;
    let mut live = house.alice.say("assistant", "[[words:2]][[hold:gate]][[say: mine]]").await?;
    let (thread, execution) = (live.started.thread, live.started.execution);
    house.provider.holds("gate").await?;

    let unknown = Uuid::from_u128(1);
    type Ask = fn(&turnfast_tests::client::Client, &str, &str) -> RequestBuilder;
    let asks: [(&str, Ask); 6] = [
        ("read", |who, thread, _| who.agent(Method::GET, "assistant", &format!("/chat/{thread}/messages"))),
        ("stop", |who, thread, execution| {
            who.agent(Method::DELETE, "assistant", &format!("/chat/{thread}/executions/{execution}"))
        }),
        ("submit", |who, thread, _| {
            who.agent(Method::POST, "assistant", "/chat").json(&json!({"message": "hi", "sessionId": thread}))
        }),
        ("thread", |who, thread, _| who.agent(Method::GET, "assistant", &format!("/threads/{thread}"))),
        ("rename", |who, thread, _| {
            who.agent(Method::PATCH, "assistant", &format!("/threads/{thread}")).json(&json!({"title": "mine now"}))
        }),
        ("delete", |who, thread, _| who.agent(Method::DELETE, "assistant", &format!("/threads/{thread}"))),
    ];
    for (what, ask) in asks {
        let others = refusal(ask(&bob, &thread.to_string(), &execution.to_string())).await?;
        let nothing = refusal(ask(&bob, &unknown.to_string(), &execution.to_string())).await?;
        assert_eq!((others.code, &others), (Code::NotFound, &nothing), "{what}");
    }
    house.provider.release("gate").await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    assert_eq!(live.text(), "word1 word2 mine");
    Ok(())
}

#[tokio::test]
async fn roles_decide_and_strangers_see_nothing() -> Result<()> {
    let house = House::open().await?;
    let vera = house.user("vera").await?;
    let chat =
        |who: &turnfast_tests::client::Client| who.agent(Method::POST, "assistant", "/chat").json(&json!({"message": "hi"}));
    let refused = refusal(chat(&vera)).await?;
    assert_eq!((refused.code, refused.scope.as_deref()), (Code::MissingScope, Some("agent:execute")));
    let stranger = house.user("mallory").await?;
    assert_eq!(refusal(chat(&stranger)).await?.code, Code::NotFound);
    assert_eq!(refusal(chat(&house.server.client("")?)).await?.code, Code::Unauthenticated);
    assert_eq!(refusal(chat(&house.server.client("tf_wrong")?)).await?.code, Code::Unauthenticated);
    assert_eq!(house.provider.requests().await?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn bad_values_are_refused_with_the_field_and_start_nothing() -> Result<()> {
    let house = House::open().await?;
    let chat = || house.alice.agent(Method::POST, "assistant", "/chat");
    for (body, field) in [
        (json!({"message": "  "}), Some("message")),
        (json!({"message": 7}), None),
        (json!({"message": "hi", "sessionId": "no-uuid"}), None),
        (json!({"message": "hi", "messageId": ""}), None),
        (json!({"message": "hi", "unknown": true}), None),
    ] {
        let refused = refusal(chat().json(&body)).await?;
        assert_eq!(refused.code, Code::InvalidRequest, "{body}");
        assert!(field.is_none() || refused.field.as_deref() == field, "{body}: {refused:?}");
    }
    let not_json = chat().header("content-type", "application/json").body("{\"message\": ");
    assert_eq!(refusal(not_json).await?.code, Code::InvalidRequest);
    let not_said = chat().header("content-type", "text/plain").body("{\"message\": \"hi\"}");
    assert_eq!(refusal(not_said).await?.code, Code::UnsupportedMediaType);
    let unknown = chat().json(&json!({"message": "hi", "sessionId": Uuid::from_u128(1)}));
    assert_eq!(refusal(unknown).await?.code, Code::NotFound);
    assert_eq!(refusal(house.alice.agent(Method::PUT, "assistant", "/chat")).await?.code, Code::MethodNotAllowed);
    assert_eq!(refusal(house.alice.agent(Method::GET, "assistant", "/chat/no-uuid/messages")).await?.code, Code::InvalidRequest);
    let cursor = house.alice.agent(Method::GET, "assistant", "/threads?cursor=nonsense");
    assert_eq!(refusal(cursor).await?.code, Code::InvalidRequest);
    assert_eq!(refusal(house.alice.request(Method::GET, "/projects/demo/nothing")).await?.code, Code::NotFound);
    let threads: turnfast_shared::api::ThreadPage =
        turnfast_tests::client::answer(house.alice.agent(Method::GET, "assistant", "/threads")).await?;
    assert!(threads.threads.is_empty(), "{threads:?}");
    assert_eq!(house.provider.requests().await?.len(), 0);
    within("health", house.alice.request(Method::GET, "/healthz").send()).await?;
    Ok(())
}
