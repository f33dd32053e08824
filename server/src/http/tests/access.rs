//! The golden list: every route, who may use it, and what everyone else is told.

use serde_json::Map;

use super::*;

/// A route, and who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    method: &'static str,
    /// As the document has it.
    path: &'static str,
    /// `public`, `signed-in`, or the scope.
    access: &'static str,
    /// What must be the caller's own.
    owner: Option<&'static str>,
}

const fn route(method: &'static str, path: &'static str, access: &'static str, owner: Option<&'static str>) -> Route {
    Route { method, path, access, owner }
}

/// Every route. A new one comes in here, or `the_list_is_that_of_the_document` fails.
#[rustfmt::skip]
const ROUTES: [Route; 21] = [
    route("GET",    "/projects",                                                                                "signed-in",     None),
    route("GET",    "/projects/{projectId}/agents/v2",                                                          "agent:read",    None),
    route("GET",    "/projects/{projectId}/agents/v2/{agentId}",                                                "agent:read",    None),
    route("POST",   "/projects/{projectId}/agents/v2/{agentId}/chat",                                           "agent:execute", Some("sessionId")),
    route("POST",   "/projects/{projectId}/agents/v2/{agentId}/chat/resume",                                    "agent:execute", Some("runId")),
    route("GET",    "/projects/{projectId}/agents/v2/{agentId}/chat/{threadId}/messages",                       "agent:read",    Some("threadId")),
    route("DELETE", "/projects/{projectId}/agents/v2/{agentId}/chat/{threadId}/executions/{executionId}",       "agent:execute", Some("threadId")),
    route("DELETE", "/projects/{projectId}/agents/v2/{agentId}/chat/runs/{runId}",                              "agent:execute", Some("runId")),
    route("GET",    "/projects/{projectId}/agents/v2/{agentId}/chat/attachments/{attachmentId}",                "agent:read",    Some("attachmentId")),
    route("GET",    "/projects/{projectId}/agents/v2/{agentId}/threads",                                        "agent:read",    None),
    route("GET",    "/projects/{projectId}/agents/v2/{agentId}/threads/{threadId}",                             "agent:read",    Some("threadId")),
    route("PATCH",  "/projects/{projectId}/agents/v2/{agentId}/threads/{threadId}",                             "agent:execute", Some("threadId")),
    route("DELETE", "/projects/{projectId}/agents/v2/{agentId}/threads/{threadId}",                             "agent:execute", Some("threadId")),
    route("GET",    "/push",                                                                                    "signed-in",     None),
    route("POST",   "/auth/login",                                                                              "public",        None),
    route("POST",   "/auth/logout",                                                                             "signed-in",     None),
    route("GET",    "/auth/me",                                                                                 "signed-in",     None),
    route("GET",    "/auth/link/{token}",                                                                       "public",        None),
    route("GET",    "/healthz",                                                                                 "public",        None),
    route("GET",    "/readyz",                                                                                  "public",        None),
    route("GET",    "/openapi.json",                                                                            "public",        None),
];

impl Route {
    fn scope(self) -> Option<Scope> {
        self.access.parse().ok()
    }

    fn is_unsafe(self) -> bool {
        self.method != "GET"
    }

    fn name(self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// What belongs to Olga, for one use of the route.
    async fn prepare(self, world: &World, olga: &str) -> Target {
        let turn = match self.owner {
            None => None,
            Some("runId") => Some(world.turn(olga, "/ask").await),
            Some(_) => Some(world.turn(olga, "/long 2").await),
        };
        Target { route: self, project: "demo", turn }
    }
}

/// A route with its values.
#[derive(Clone)]
struct Target {
    route: Route,
    project: &'static str,
    turn: Option<Turn>,
}

impl Target {
    /// The same for what does not exist.
    fn unknown(&self) -> Self {
        let mut target = self.clone();
        if let Some(turn) = &mut target.turn {
            (turn.thread, turn.execution, turn.run, turn.attachment) = (unknown(), unknown(), unknown(), unknown());
        }
        target
    }

    fn in_project(&self, project: &'static str) -> Self {
        Self { project, ..self.clone() }
    }

    fn path(&self) -> String {
        let nobody = Turn {
            thread: unknown(),
            message: unknown(),
            execution: unknown(),
            run: unknown(),
            attachment: unknown(),
            call: None,
        };
        let turn = self.turn.as_ref().unwrap_or(&nobody);
        self.route
            .path
            .replace("{projectId}", self.project)
            .replace("{agentId}", "assistant")
            .replace("{threadId}", &turn.thread)
            .replace("{executionId}", &turn.execution)
            .replace("{runId}", &turn.run)
            .replace("{attachmentId}", &turn.attachment)
            .replace("{token}", "made-up")
    }

    fn body(&self) -> Option<Value> {
        let mut body = Map::new();
        match (self.route.method, self.route.path.rsplit('/').next()?) {
            ("POST", "chat") => {
                body.insert("message".to_owned(), json!("/long 2"));
                body.insert("sessionId".to_owned(), json!(self.turn.as_ref()?.thread));
            }
            ("POST", "resume") => {
                let turn = self.turn.as_ref()?;
                body.insert("runId".to_owned(), json!(turn.run));
                body.insert("toolCallId".to_owned(), json!(turn.call));
                body.insert("resumeData".to_owned(), json!({ "answer": "red" }));
            }
            ("POST", "login") => {
                body.insert("name".to_owned(), json!("olga"));
                body.insert("password".to_owned(), json!(PASSWORD));
            }
            ("PATCH", _) => {
                body.insert("title".to_owned(), json!("A new title"));
            }
            _ => return None,
        }
        Some(Value::Object(body))
    }

    async fn send(&self, world: &World, headers: &[(&str, &str)]) -> Answer {
        world.send(self.route.method, &self.path(), headers, self.body()).await
    }

    async fn by(&self, world: &World, token: &str) -> Answer {
        self.send(world, &[("authorization", token)]).await
    }
}

/// The tokens of everyone who comes by.
struct Cast {
    olga: String,
    /// Another member of Olga's project.
    otto: String,
    viewer: String,
    stranger: String,
    /// Of a user who is disabled.
    disabled: String,
    expired: String,
    revoked: String,
    /// Olga's session, as a browser sends it.
    cookie: String,
}

impl Cast {
    async fn of(world: &World) -> Self {
        let disabled = world.token("dora", &[], None).await;
        let dora = world.sqlite.user_named("dora").await.unwrap().unwrap();
        world.sqlite.set_disabled(dora.id, true).await.unwrap();
        let revoked = world.token("olga", &[], None).await;
        let id = world.sqlite.tokens().await.unwrap().last().unwrap().id;
        assert!(world.sqlite.revoke_token(id, 1).await.unwrap());
        let expired = world.token("olga", &[], Some(60_000)).await;
        assert_eq!(world.get("/auth/me", &expired).await.status, 200, "until then it is good");
        world.now.fetch_add(60_001, Ordering::SeqCst);
        Self {
            olga: world.token("olga", &[], None).await,
            otto: world.token("otto", &[], None).await,
            viewer: world.token("vera", &[], None).await,
            stranger: world.token("stranger", &[], None).await,
            disabled,
            expired,
            revoked,
            cookie: world.login("olga").await.cookie(),
        }
    }
}

/// The outcome of a problem.
fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn is_allowed(answer: &Answer) -> bool {
    (200..400).contains(&answer.status)
}

#[test]
fn the_list_is_that_of_the_document() {
    let document: Value = serde_json::from_str(&openapi::text()).unwrap();
    let mut documented = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let text = |name: &str| operation.get(name).map(|value| value.as_str().unwrap().to_owned());
            documented.push((method.to_uppercase(), path.clone(), text("x-access").unwrap_or_default(), text("x-owner")));
        }
    }
    let mut golden: Vec<_> = ROUTES
        .iter()
        .map(|route| (route.method.to_owned(), route.path.to_owned(), route.access.to_owned(), route.owner.map(str::to_owned)))
        .collect();
    documented.sort();
    golden.sort();
    assert_eq!(documented, golden);
}

/// Each refusal leaves things as they were, so the owner, who comes last, finds them untouched.
#[tokio::test]
async fn every_route_lets_in_whom_it_should_and_nobody_else() {
    let world = World::new().await;
    let cast = Cast::of(&world).await;
    for route in ROUTES {
        let name = route.name();
        let target = route.prepare(&world, &cast.olga).await;
        if route.access == "public" {
            assert!(is_allowed(&target.send(&world, &[]).await), "{name}");
            continue;
        }

        let anonymous = target.send(&world, &[]).await;
        assert_eq!(anonymous.outcome(), refused(401, "unauthenticated"), "{name}");
        for (who, token) in [("disabled", &cast.disabled), ("expired", &cast.expired), ("revoked", &cast.revoked)] {
            let answer = target.by(&world, token).await;
            assert_eq!(answer, anonymous, "{name}, {who}: the same as to nobody");
        }

        let elsewhere = target.send(&world, &[("cookie", &cast.cookie), ("origin", "https://evil.example")]).await;
        if route.is_unsafe() {
            assert_eq!(elsewhere.outcome(), refused(403, "cross_origin"), "{name}");
        } else {
            assert!(is_allowed(&elsewhere), "{name}: reading needs no origin: {elsewhere:?}");
        }

        let Some(scope) = route.scope() else {
            assert!(is_allowed(&target.by(&world, &cast.stranger).await), "{name}");
            assert!(is_allowed(&target.by(&world, &cast.olga).await), "{name}");
            continue;
        };
        let stranger = target.by(&world, &cast.stranger).await;
        assert_eq!(stranger.outcome(), refused(404, "not_found"), "{name}");
        assert_eq!(stranger, target.in_project("nowhere").by(&world, &cast.stranger).await, "{name}: as an unknown project");
        assert_eq!(stranger, target.in_project("nowhere").by(&world, &cast.olga).await, "{name}: and to a member of another");

        for (who, token) in [
            ("a viewer", cast.viewer.clone()),
            ("a token for reading", world.token("otto", &[Scope::AgentRead], None).await),
            ("a token for writing", world.token("otto", &[Scope::AgentExecute], None).await),
            ("a token for neither", world.token("otto", &[Scope::UserManage], None).await),
        ] {
            let has = match who {
                "a viewer" | "a token for reading" => scope == Scope::AgentRead,
                "a token for writing" => scope == Scope::AgentExecute,
                _ => false,
            };
            let answer = target.by(&world, &token).await;
            if !has {
                assert_eq!(answer.outcome(), refused(403, "missing_scope"), "{name}, {who}");
                assert_eq!(answer.json()["scope"], json!(route.access), "{name}, {who}");
                assert_eq!(answer, target.unknown().by(&world, &token).await, "{name}, {who}: whatever is asked for");
            } else if route.owner.is_some() {
                assert_eq!(answer.outcome(), refused(404, "not_found"), "{name}, {who}");
            } else {
                assert!(is_allowed(&answer), "{name}, {who}: {answer:?}");
            }
        }

        let other = target.by(&world, &cast.otto).await;
        if route.owner.is_some() {
            // The store looks threads and turns up by owner, project, agent and id together (`ThreadKey`), in one query: another's
            // and none are one case to it, so they take the same time too.
            assert_eq!(other.outcome(), refused(404, "not_found"), "{name}");
            assert_eq!(other, target.unknown().by(&world, &cast.otto).await, "{name}: as an unknown one");
            assert_eq!(other, target.unknown().by(&world, &cast.olga).await, "{name}: as an unknown one to its owner");
        } else {
            assert!(is_allowed(&other), "{name}: {other:?}");
        }

        let narrowed = world.token("olga", &[scope], None).await;
        let owner = target.by(&world, &narrowed).await;
        assert!(is_allowed(&owner), "{name}: {owner:?}");
        if route.path.ends_with("/chat/runs/{runId}") {
            assert_eq!(owner.json(), json!({ "cancelled": true }), "no refusal before it did it");
        }
        if owner.header("content-type") == "text/event-stream" {
            assert_eq!(owner.header("cache-control"), "no-cache, no-transform", "{name}");
        } else if route.path.ends_with("/messages") {
            assert_eq!(owner.header("cache-control"), "private, no-cache", "{name}: kept, and asked for again");
        } else {
            assert_eq!(owner.header("cache-control"), "no-store", "{name}");
        }
        assert_eq!(owner.header("x-content-type-options"), "nosniff", "{name}");
    }
}

#[tokio::test]
async fn with_agents_switched_off_their_routes_say_so() {
    let world = World::with("[features]\nagents = false").await;
    let olga = world.token("olga", &[], None).await;
    for route in ROUTES {
        let name = route.name();
        let target = Target { route, project: "demo", turn: None };
        if route.access != "public" {
            assert_eq!(target.send(&world, &[]).await.outcome(), refused(401, "unauthenticated"), "{name}");
        }
        let answer = target.by(&world, &olga).await;
        if route.path.starts_with("/projects") {
            assert_eq!(answer.outcome(), refused(404, "agents_disabled"), "{name}");
        } else {
            assert!(is_allowed(&answer), "{name}: {answer:?}");
        }
    }
}
