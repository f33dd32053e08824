//! Files that go with messages, from their sender to the record and back.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::*;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and the rest of it";

fn file(name: &str, media_type: &str, data: &[u8]) -> Value {
    json!({ "name": name, "mediaType": media_type, "data": STANDARD.encode(data) })
}

fn chat() -> String {
    format!("{BASE}/chat")
}

#[tokio::test]
async fn a_file_is_recorded_and_given_back_as_it_was_sent() {
    let world = World::new().await;
    let olga = world.token("olga", &[], None).await;
    let files = json!([file("größe.png", "image/png", PNG), file("page.html", "text/html", b"<script>alert(1)</script>")]);
    // A message may be blank where files say it all.
    let answer = world.post(&chat(), &olga, json!({ "message": " ", "attachments": files })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let Some(Event::ExecutionStarted { session_id, .. }) = answer.events().first().cloned() else { panic!("{answer:?}") };
    let read = world.get(&format!("{BASE}/chat/{session_id}/messages"), &olga).await.json();
    let [picture, page] = read["messages"][0]["content"].as_array().unwrap().as_slice() else { panic!("{read}") };
    assert_eq!(
        (&picture["type"], &picture["name"], &picture["mediaType"], &picture["size"]),
        (&json!("file"), &json!("größe.png"), &json!("image/png"), &json!(PNG.len()))
    );
    let said = read["messages"][1]["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("größe.png") && said.contains("page.html"), "the demo agent names them: {said}");
    assert_eq!(world.get(&format!("{BASE}/threads/{session_id}"), &olga).await.json()["title"], json!("größe.png"));

    let get = async |part: &Value| world.get(&format!("{BASE}/chat/attachments/{}", part["id"].as_str().unwrap()), &olga).await;
    let answer = get(picture).await;
    assert_eq!((answer.status, answer.header("content-type"), &answer.body[..]), (200, "image/png", PNG));
    assert_eq!(answer.header("content-disposition"), "inline; filename*=UTF-8''gr%C3%B6%C3%9Fe.png");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(answer.header("content-security-policy"), "sandbox; default-src 'none'");
    let answer = get(page).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/html; charset=utf-8"));
    assert_eq!(answer.header("content-disposition"), "attachment; filename*=UTF-8''page.html");
    assert_eq!(answer.header("content-security-policy"), "sandbox; default-src 'none'");

    let thread = format!("{BASE}/threads/{session_id}");
    assert!(world.send("DELETE", &thread, &[("authorization", &olga)], None).await.status < 300);
    assert_eq!(get(picture).await.outcome(), (404, "not_found".to_owned()), "they go with their thread");
}

#[tokio::test]
async fn what_is_refused_names_its_field_and_leaves_nothing() {
    let more = "[limits]\nmax_attachments = 2\nmax_attachment_bytes = 100\n[[agents]]\nproject = \"demo\"\nid = \"reader\"\n\
                engine = \"demo\"\nattachments = false";
    let world = World::with(more).await;
    let olga = world.token("olga", &[], None).await;
    let good = file("a.txt", "text/plain", &[b'x'; 100]);
    let refusals = [
        (json!([file("a.txt", "text/plain", &[b'x'; 101])]), 413, "payload_too_large", "attachments[0].data"),
        (json!([good, file("b.png", "image/png", b"no picture")]), 400, "invalid_request", "attachments[1].data"),
        (json!([good, good, good]), 400, "invalid_request", "attachments"),
        (json!([{ "name": "a", "mediaType": "text/plain" }]), 400, "invalid_request", "attachments[0].data"),
    ];
    for (attachments, status, code, field) in refusals {
        let answer = world.post(&chat(), &olga, json!({ "message": "look", "attachments": attachments })).await;
        assert_eq!((answer.outcome(), &answer.json()["field"]), ((status, code.to_owned()), &json!(field)), "{answer:?}");
    }
    let answer =
        world.post("/projects/demo/agents/v2/reader/chat", &olga, json!({ "message": "x", "attachments": [good] })).await;
    assert_eq!((answer.outcome(), &answer.json()["field"]), ((400, "invalid_request".to_owned()), &json!("attachments")));
    assert_eq!(world.get(&format!("{BASE}/threads"), &olga).await.json()["threads"], json!([]));
    let answer = world.post(&chat(), &olga, json!({ "message": "look", "attachments": [good, good] })).await;
    assert_eq!(answer.status, 200, "exactly as much as is taken");
}
