//! Agents of a configuration, and what is said of those that cannot run.

use std::time::Duration;

use super::{
    demo::{agent, config},
    *,
};
use crate::{
    agents::catalog::Catalog,
    config::{Agent, EngineKind, Provider, Secret, SecretSource},
};

fn provider(id: &str, api_key: Option<SecretSource>) -> Provider {
    Provider { id: id.to_owned(), base_url: "http://127.0.0.1:1/v1".to_owned(), api_key, stall: Duration::from_secs(120) }
}

fn native(id: &str) -> Agent {
    Agent { provider: Some("local".to_owned()), model: Some("m".to_owned()), ..agent(id, EngineKind::Native) }
}

/// What is missing for the first of `agents`.
fn missing(agents: Vec<Agent>) -> Vec<String> {
    let id = agents[0].id.clone();
    let mut config = config(agents);
    config.providers = vec![
        provider("local", Some(SecretSource::Present(Secret::new("a-good-key".to_owned())))),
        provider("keyless", Some(SecretSource::Missing("env:NO_SUCH_KEY".to_owned()))),
    ];
    let catalog = Catalog::new(&config);
    let entry = catalog.agent(&slug("demo"), &id).unwrap();
    entry.engine().err().map(<[String]>::to_vec).unwrap_or_default()
}

#[test]
fn agents_are_found_in_their_project() {
    let elsewhere = Agent { project: slug("other"), ..agent("one", EngineKind::Demo) };
    let catalog = Catalog::new(&config(vec![agent("two", EngineKind::Demo), agent("one", EngineKind::Demo), elsewhere]));
    let ids = |project: &str| -> Vec<String> { catalog.agents(&slug(project)).map(|entry| entry.agent.id.to_string()).collect() };
    assert_eq!(
        (ids("demo"), ids("other"), ids("none")),
        (vec!["two".to_owned(), "one".to_owned()], vec!["one".to_owned()], vec![])
    );
    assert!(catalog.agent(&slug("other"), &slug("two")).is_none());
    assert_eq!((catalog.projects().len(), catalog.project(&slug("demo")).unwrap().name.as_str()), (1, "Demo"));
    assert!(catalog.project(&slug("none")).is_none());
}

#[test]
fn an_agent_that_has_everything_runs() {
    assert_eq!(missing(vec![native("a")]), Vec::<String>::new());
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let full = Agent {
        tools: names(&["clock", "ask_user", "delegate", "clock"]),
        approve: names(&["clock"]),
        delegates: vec![slug("b")],
        ..native("a")
    };
    assert_eq!(missing(vec![full, native("b")]), Vec::<String>::new());
    let alone = Agent { tools: names(&["delegate"]), approve: names(&["delegate"]), ..native("a") };
    assert_eq!(missing(vec![alone]), Vec::<String>::new());
}

#[test]
fn everything_that_is_missing_is_said_at_once() {
    let bare = agent("a", EngineKind::Native);
    assert_eq!(missing(vec![bare]), ["`provider` is not set", "`model` is not set"]);
    assert_eq!(missing(vec![Agent { provider: Some("keyless".to_owned()), ..native("a") }]), ["env:NO_SUCH_KEY"]);
    assert_eq!(
        missing(vec![Agent { provider: Some("nobody".to_owned()), ..native("a") }]),
        ["`provider`: there is no provider `nobody`"]
    );
    let odd = Agent {
        tools: vec!["dance".to_owned(), "mcp:files".to_owned()],
        approve: vec!["clock".to_owned()],
        delegates: vec![slug("gone")],
        ..native("a")
    };
    let said = missing(vec![odd]);
    for (said, word) in said.iter().zip(["gone", "dance", "mcp:files", "`approve` names `clock`"]) {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(said.len(), 4);
    assert!(missing(vec![agent("a", EngineKind::Openclaw)])[0].contains("openclaw"));
    let misspelt = Agent { approve: vec!["clok".to_owned()], ..agent("a", EngineKind::Demo) };
    assert!(missing(vec![misspelt])[0].contains("clok"));
}

#[tokio::test(start_paused = true)]
async fn approve_holds_for_the_demo_agent_too() {
    let catalog = Catalog::new(&config(vec![Agent { approve: vec!["clock".to_owned()], ..agent("a", EngineKind::Demo) }]));
    let engine = catalog.agent(&slug("demo"), &slug("a")).unwrap().engine().unwrap();
    let asked = execute(&*engine, input(vec![typed("/tool")])).await;
    assert_eq!(asked.suspended().len(), 1);
}
