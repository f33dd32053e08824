//! Files reach the model: pictures as pictures, text as text, in the turn and in those after it.

use anyhow::Result;
use serde_json::json;
use turnfast_shared::{
    ExecutionStatus,
    api::{ChatRequest, NewAttachment},
};

use crate::House;

#[tokio::test]
async fn files_reach_the_model_over_a_restart() -> Result<()> {
    let house = House::open().await?;
    let attachment = |name: &str, media_type: &str, data: &str| NewAttachment {
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    };
    let request = ChatRequest {
        message: "[[words:1]]".to_owned(),
        attachments: vec![
            attachment("dot.png", "image/png", "iVBORw0KGgpkb3Q="),
            attachment("notes.md", "text/markdown", "IyBOb3Rlcw=="),
        ],
        ..ChatRequest::default()
    };
    let mut live = house.alice.submit("assistant", &request).await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    let content = json!([
        {"type": "text", "text": "[[words:1]]"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgpkb3Q="}},
        {"type": "text", "text": "[attached file \"notes.md\"]\n# Notes"},
    ]);
    assert_eq!(house.provider.request(0).await?.body["messages"][1]["content"], content);

    house.server.kill().await?;
    let server = house.installation.serve().await?;
    let alice = server.client(&house.token)?;
    alice.say_in("assistant", live.started.thread, "[[words:2]]").await?.done().await?;
    let messages = &house.provider.request(1).await?.body["messages"];
    assert_eq!((&messages[1]["content"], &messages[3]["content"]), (&content, &json!("[[words:2]]")));
    Ok(())
}
