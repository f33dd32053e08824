//! What becomes of open streams when their caller is no longer let in.

use axum::body::BodyDataStream;
use futures::StreamExt as _;

use super::*;

const HERE: (&str, &str) = ("origin", "http://127.0.0.1:8080");

/// Opens a stream and reads its beginning.
async fn open(world: &World, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> BodyDataStream {
    let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:8080");
    for (name, value) in headers.iter().chain(&[("content-type", "application/json")]) {
        request = request.header(*name, *value);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let response = world.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut stream = response.into_body().into_data_stream();
    stream.next().await.unwrap().unwrap();
    stream
}

#[tokio::test]
async fn signing_out_ends_the_streams_of_that_session_and_no_turn() {
    let world = World::new().await;
    let (one, other) = (world.login("olga").await.cookie(), world.login("olga").await.cookie());
    let mut push = open(&world, "GET", "/push", &[("cookie", &one)], None).await;
    let mut others_push = open(&world, "GET", "/push", &[("cookie", &other)], None).await;
    let thread = ThreadId(Uuid::now_v7()).to_string();
    let body = json!({ "message": "/slow 100000", "sessionId": thread, "newSession": true });
    let live = open(&world, "POST", &format!("{BASE}/chat"), &[("cookie", &one), HERE], Some(body)).await;

    assert_eq!(world.send("POST", "/auth/logout", &[("cookie", &one), HERE], None).await.status, 204);
    // What was told before it is not taken back; that the rest is read to an end is what counts.
    while push.next().await.is_some() {}
    live.for_each(|_| async {}).await;

    let path = format!("{BASE}/chat/{thread}/messages");
    let read = world.send("GET", &path, &[("cookie", &other)], None).await.json();
    assert!(read["activeExecutionId"].is_string(), "the turn runs on: {read}");
    others_push.next().await.unwrap().unwrap();
    let token = world.token("olga", &[], None).await;
    let execution = read["activeExecutionId"].as_str().unwrap();
    world.send("DELETE", &format!("{BASE}/chat/{thread}/executions/{execution}"), &[("authorization", &token)], None).await;
}
