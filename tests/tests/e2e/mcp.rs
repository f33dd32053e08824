//! Tools of MCP servers: real servers, over standard streams and over HTTP. Whatever a server does, the turn goes on.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use turnfast_shared::{
    Event, ExecutionStatus, Part,
    api::ResumeRequest,
    message::{ResumeData, SuspendPayload, ToolCall, ToolState},
};
use turnfast_tests::{
    client::Live,
    installation::MCP_TOKEN,
    mcp::{Happened, Reports},
    within,
};

use crate::House;

/// A server `files` that is a program, with `settings`, and the agents `tooled`, which may use all of it, and `narrow`, which may use
/// one tool.
async fn program(reports: &Reports, arguments: &[&str], settings: &str) -> Result<House> {
    let mut command = reports.command()?;
    command.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let env = r#"env = { FILES_TOKEN = "env:TURNFAST_TEST_MCP_TOKEN", LEVEL = "debug" }"#;
    house(&format!("command = {}\n{env}\n{settings}", json!(command))).await
}

/// The same with a server at an address.
async fn address(url: &str) -> Result<House> {
    house(&format!("url = {}\ntoken = \"env:TURNFAST_TEST_MCP_TOKEN\"", json!(url))).await
}

async fn house(server: &str) -> Result<House> {
    let agent = |id: &str, tools: &str| {
        format!(
            "[[agents]]\nproject = \"demo\"\nid = \"{id}\"\nprovider = \"test\"\nmodel = \"test-model\"\ntools = [{tools}]\n\
             delegates = [\"tooled\"]\n"
        )
    };
    House::open_with(&format!(
        "[[mcp_servers]]\nid = \"files\"\n{server}\n{}approve = [\"mcp:files/write_file\", \"clock\"]\n{}",
        agent("tooled", r#""clock", "mcp:files""#),
        agent("narrow", r#""delegate", "mcp:files/echo", "mcp:files/nothing""#),
    ))
    .await
}

impl House {
    /// A turn that comes to its end, with its tool calls as they were recorded.
    async fn turn(&self, agent: &str, script: &str) -> Result<(Live, Vec<ToolCall>)> {
        let mut live = self.alice.say(agent, script).await?;
        assert_eq!(live.done().await?, ExecutionStatus::Success);
        let calls = self.calls(agent, &live).await?;
        Ok((live, calls))
    }

    async fn calls(&self, agent: &str, live: &Live) -> Result<Vec<ToolCall>> {
        let message = self.alice.settled(agent, live.started.thread).await?;
        Ok(message.content.iter().filter_map(Part::as_tool_call).cloned().collect())
    }

    /// Names of the tools that request `n` to the provider offered.
    async fn offered(&self, n: usize) -> Result<Vec<String>> {
        let body = self.provider.request(n).await?.body;
        let tools = body["tools"].as_array().cloned().unwrap_or_default();
        Ok(tools.iter().filter_map(|tool| Some(tool["function"]["name"].as_str()?.to_owned())).collect())
    }
}

fn warnings(live: &Live) -> Vec<String> {
    let warnings = live.seen.iter().filter_map(|event| match event {
        Event::Warning { message, code } => Some(format!("{}: {message}", code.as_deref().unwrap_or_default())),
        _ => None,
    });
    warnings.collect()
}

fn failed(call: &ToolCall, words: &str) {
    assert_eq!(call.state, ToolState::Rejected, "{call:#?}");
    assert!(call.error.as_ref().is_some_and(|error| error.contains(words)), "`{words}` is not in {call:#?}");
}

/// Tools that work, and tools that fail as tools do.
async fn every_kind_of_answer(house: &House) -> Result<()> {
    let script = r#"[[tool:files__echo:{"text":"hi"}]][[tool:files__add:{"a":1,"b":2}]][[tool:files__picture:{}]]
        [[tool:files__fail:{}]][[tool:files__refuse:{}]][[tool:files__nothing:{}]]"#;
    let (live, calls) = house.turn("tooled", script).await?;
    assert_eq!(warnings(&live), Vec::<String>::new());
    let calls: [ToolCall; 6] = calls.try_into().map_err(|calls| anyhow::anyhow!("six calls: {calls:#?}"))?;
    let [echo, add, picture, fail, refuse, nothing] = &calls;
    assert_eq!((echo.tool_name.as_str(), echo.output.clone()), ("mcp:files/echo", Some(json!("echo: hi"))));
    assert_eq!(add.output, Some(json!({"sum": 3})));
    assert_eq!(picture.output, Some(json!("[picture of type image/png, not shown]")));
    failed(fail, "out of paper");
    failed(refuse, "`files` refused the call: the arguments are not to my taste");
    failed(nothing, "There is no tool `files__nothing`");
    let names: Vec<_> = live
        .seen
        .iter()
        .filter_map(|event| match event {
            Event::ToolInputStart { tool_name, .. } | Event::ToolExecutionStart { tool_name, .. } => Some(tool_name.as_str()),
            _ => None,
        })
        .filter(|name| *name == "mcp:files/echo")
        .collect();
    assert_eq!(names.len(), 2, "one name everywhere: {:#?}", live.seen);
    Ok(())
}

#[tokio::test]
async fn tools_of_a_program() -> Result<()> {
    let reports = Reports::open().await?;
    let house = program(&reports, &[], "").await?;
    every_kind_of_answer(&house).await?;
    every_kind_of_answer(&house).await?;
    assert_eq!((reports.count("started"), reports.count("listed")), (1, 2), "one process, both pages of its list, once");

    let offered = house.offered(0).await?;
    assert!(offered.len() > 10 && offered.contains(&"clock".to_owned()), "{offered:?}");
    for name in &offered {
        let fits = name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        assert!(fits, "providers take no tool named {name}");
    }
    let odd = offered.iter().find(|name| name.contains("read_text")).context("the tool with a dot in its name")?;
    let (_, calls) = house.turn("tooled", &format!(r#"[[tool:{odd}:{{"n":1}}]]"#)).await?;
    assert_eq!(calls[0].tool_name, "mcp:files/read.text");
    assert_eq!(calls[0].output, Some(json!("read.text did {\"n\":1}")));
    let last = house.provider.requests().await?.pop().context("requests")?.body;
    let told = last["messages"].as_array().and_then(|messages| messages.iter().find(|message| message["tool_calls"].is_array()));
    assert_eq!(told.map(|message| message["tool_calls"][0]["function"]["name"].clone()), Some(json!(odd)));
    Ok(())
}

#[tokio::test]
async fn tools_at_an_address() -> Result<()> {
    let reports = Reports::open().await?;
    let server = reports.http("127.0.0.1:0").await?;
    let house = address(&server.url).await?;
    every_kind_of_answer(&house).await?;
    let (_, calls) = house.turn("tooled", "[[tool:files__forbidden:{}]]").await?;
    failed(&calls[0], "`files` refused the call: it answered HTTP 403 Forbidden");

    // It goes down and comes back.
    let at = server.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    server.kill().await?;
    let (live, calls) = house.turn("tooled", r#"[[tool:files__echo:{"text":"gone"}]]"#).await?;
    failed(&calls[0], "`files` was lost while the tool ran");
    assert!(live.text().contains("was lost"), "the model was told");
    let _again = reports.http(&at).await?;
    // It is left alone for a moment after an attempt to reach it failed.
    within("the server's return", async {
        loop {
            let (live, calls) = house.turn("tooled", r#"[[tool:files__echo:{"text":"back"}]]"#).await?;
            if warnings(&live).is_empty() {
                assert_eq!(calls[0].output, Some(json!("echo: back")));
                return anyhow::Ok(());
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_address_that_refuses_us_or_nobody_listens_at() -> Result<()> {
    let reports = Reports::open().await?;
    let server = reports.http("127.0.0.1:0").await?;
    let refused = house(&format!("url = {}", json!(server.url))).await?;
    let nobody = house("url = \"http://127.0.0.1:9/mcp?key=a-key-in-the-address\"").await?;
    for (house, words) in [(refused, "check `token`"), (nobody, "Connection refused")] {
        let (live, _) = house.turn("tooled", "[[words:2]]").await?;
        let [warning] = warnings(&live).try_into().map_err(|all| anyhow::anyhow!("one warning: {all:?}"))?;
        assert!(warning.starts_with("tools_unavailable: The MCP server `files` ") && warning.contains(words), "{warning}");
        assert_eq!(live.text(), "word1 word2");
        assert!(!house.server.log().contains("a-key-in-the-address"), "{}", house.server.log());
    }
    Ok(())
}

#[tokio::test]
async fn a_slow_tool_meets_its_limit() -> Result<()> {
    let reports = Reports::open().await?;
    let house = program(&reports, &[], "call_seconds = 1").await?;
    let (_, calls) = house.turn("tooled", r#"[[tool:files__wait:{}]][[tool:files__echo:{"text":"meanwhile"}]]"#).await?;
    failed(&calls[0], "did not answer within 1 s (call_seconds)");
    assert_eq!(calls[1].state, ToolState::Resolved, "calls do not wait for each other");
    reports.said("cancelled wait", 1).await
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_of_a_call_is_started_again() -> Result<()> {
    let reports = Reports::open().await?;
    let house = program(&reports, &[], "").await?;
    let (live, calls) = house.turn("tooled", "[[tool:files__die:{}]][[say: on]][[tool:files__echo:{\"text\":\"x\"}]]").await?;
    failed(&calls[0], "It is unknown whether the call took effect");
    assert_eq!((calls[1].output.clone(), warnings(&live)), (Some(json!("echo: x")), vec![]), "in the same turn");
    let (_, calls) = house.turn("tooled", r#"[[tool:files__echo:{"text":"y"}]]"#).await?;
    assert_eq!(calls[0].output, Some(json!("echo: y")));
    assert_eq!(reports.count("started"), 2);
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_start_is_a_warning() -> Result<()> {
    let reports = Reports::open().await?;
    let missing = house("command = [\"no-such-program-anywhere\"]").await?;
    let ends = house("command = [\"false\"]").await?;
    let silent = program(&reports, &["--silent"], "start_seconds = 1").await?;
    let unset = house("command = [\"cat\"]\nenv = { KEY = \"env:NOT_SET_ANYWHERE\" }").await?;
    for (house, words) in [
        (missing, "there is no program `no-such-program-anywhere`"),
        (ends, "`files` "),
        (silent, "did not answer within 1 s (start_seconds)"),
        (unset, "nothing found at env:NOT_SET_ANYWHERE"),
    ] {
        // The second turn comes at once: the server is left alone for a while, and says the same.
        for _ in 0..2 {
            let (live, calls) = house.turn("tooled", "[[say:Well. ]][[tool:files__echo:{}]]").await?;
            let [warning] = warnings(&live).try_into().map_err(|all| anyhow::anyhow!("one warning: {all:?}"))?;
            assert!(warning.contains(words) && warning.contains("goes on without its tools"), "{warning}");
            failed(&calls[0], "There is no tool");
        }
        assert_eq!(house.offered(0).await?, ["clock"]);
    }
    // It was killed when it was given up.
    reports.gone(1).await
}

#[tokio::test]
async fn a_tool_waits_for_approval_over_a_restart() -> Result<()> {
    let reports = Reports::open().await?;
    let house = program(&reports, &[], "").await?;
    let script = r#"[[tool:files__write_file:{"path":"a"}]][[tool:files__write_file:{"path":"b"}]]"#;
    let mut live = house.alice.say("tooled", script).await?;
    live.rest().await?;
    let read = house.alice.read("tooled", live.started.thread).await?;
    let [first, second] = read.open_suspensions.as_slice() else { panic!("two questions: {read:#?}") };
    let payload = SuspendPayload::Approval { tool_name: "mcp:files/write_file".to_owned(), input: json!({"path": "a"}) };
    assert_eq!((first.tool_name.as_str(), first.suspend_payload.as_ref()), ("mcp:files/write_file", Some(&payload)));
    assert_eq!(reports.count("call write_file"), 0);

    house.server.kill().await?;
    reports.gone(1).await?;
    let server = house.installation.serve().await?;
    let alice = server.client(&house.token)?;
    let answer = |asked: &turnfast_shared::event::Suspension, approved| ResumeRequest {
        run_id: asked.run_id,
        tool_call_id: asked.tool_call_id.clone(),
        resume_data: ResumeData::Approval { approved, reason: Some("not b".to_owned()) },
    };
    alice.resume("tooled", &answer(first, true)).await?.rest().await?;
    assert_eq!(reports.count("call write_file"), 1);
    assert_eq!(alice.resume("tooled", &answer(second, false)).await?.done().await?, ExecutionStatus::Success);
    let message = alice.settled("tooled", live.started.thread).await?;
    let calls: Vec<_> = message.content.iter().filter_map(Part::as_tool_call).collect();
    assert_eq!(calls[0].output, Some(json!("write_file did {\"path\":\"a\"}")));
    failed(calls[1], "Denied by the user: not b");
    assert_eq!(reports.count("call write_file"), 1);
    Ok(())
}

#[tokio::test]
async fn a_built_in_tool_waits_for_approval_too() -> Result<()> {
    let reports = Reports::open().await?;
    let house = program(&reports, &[], "").await?;
    let mut live = house.alice.say("tooled", "[[tool:clock:{}]]").await?;
    live.rest().await?;
    let read = house.alice.read("tooled", live.started.thread).await?;
    assert_eq!(read.open_suspensions.first().context("a question")?.tool_name, "clock");
    Ok(())
}

#[tokio::test]
async fn stop_reaches_the_tool() -> Result<()> {
    let reports = Reports::open().await?;
    let at_address = reports.http("127.0.0.1:0").await?;
    for (n, house) in [program(&reports, &[], "").await?, address(&at_address.url).await?].into_iter().enumerate() {
        let mut live = house.alice.say("tooled", "[[tool:files__wait:{}]]").await?;
        reports.said("waits", n + 1).await?;
        let started = live.started;
        assert!(house.alice.stop("tooled", started.thread, started.execution).await?.cancel_requested);
        reports.said("cancelled wait", n + 1).await?;
        assert_eq!(live.done().await?, ExecutionStatus::Cancelled);
        assert_eq!(house.calls("tooled", &live).await?[0].state, ToolState::Cancelled);
        house.turn("tooled", r#"[[tool:files__echo:{"text":"after"}]]"#).await?;
    }
    Ok(())
}

#[tokio::test]
async fn stop_reaches_the_tool_of_a_child() -> Result<()> {
    let reports = Reports::open().await?;
    let house = program(&reports, &[], "").await?;
    let task = json!({"agent": "tooled", "task": "[[tool:files__wait:{}]]"});
    let mut live = house.alice.say("narrow", &format!("[[tool:delegate:{task}]]")).await?;
    reports.said("waits", 1).await?;
    let started = live.started;
    assert!(house.alice.stop("narrow", started.thread, started.execution).await?.cancel_requested);
    reports.said("cancelled wait", 1).await?;
    assert_eq!(live.done().await?, ExecutionStatus::Cancelled);
    let calls = house.calls("narrow", &live).await?;
    let trace = calls[0].child_trace.as_ref().context("what the child did")?;
    assert_eq!((trace.steps[0].tool_name.as_str(), trace.steps[0].running), ("mcp:files/wait", false));
    Ok(())
}

#[tokio::test]
async fn a_program_gets_what_it_is_given_and_no_secret_comes_back() -> Result<()> {
    let reports = Reports::open().await?;
    let house = program(&reports, &[], "").await?;
    let (live, calls) = house.turn("tooled", "[[tool:files__environment:{}]][[tool:files__secret:{}]]").await?;
    let names = calls[0].output.as_ref().and_then(Value::as_str).context("names")?;
    let names: Vec<_> = names.split(' ').collect();
    for there in ["PATH", "FILES_TOKEN", "LEVEL"] {
        assert!(names.contains(&there), "{there} is missing in {names:?}");
    }
    assert!(!names.iter().any(|name| name.starts_with("TURNFAST")), "{names:?}");
    assert_eq!(calls[1].output, Some(json!("the token is [secret]")));
    assert!(!serde_json::to_string(&live.seen)?.contains(MCP_TOKEN));
    assert!(!house.server.log().contains(MCP_TOKEN));
    Ok(())
}

#[tokio::test]
async fn a_tool_that_is_new_is_offered_in_the_next_step() -> Result<()> {
    let reports = Reports::open().await?;
    let at_address = reports.http("127.0.0.1:0").await?;
    for (n, house) in [program(&reports, &[], "").await?, address(&at_address.url).await?].into_iter().enumerate() {
        house.turn("tooled", "[[tool:files__grow:{}]]").await?;
        // That the list changed is told beside the result of the call, and may come after it.
        let mut turns = 0;
        while !house.offered(house.provider.requests().await?.len() - 1).await?.contains(&"files__grown".to_owned()) {
            turns += 1;
            assert!(turns < 50, "server {n} never offers its new tool");
            house.turn("tooled", "[[words:1]]").await?;
        }
        let (_, calls) = house.turn("tooled", "[[tool:files__grown:{}]]").await?;
        assert_eq!(calls[0].output, Some(json!("I am new here")));
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_gets_the_tools_that_it_names() -> Result<()> {
    let reports = Reports::open().await?;
    let house = program(&reports, &[], "").await?;
    let (_, calls) = house.turn("narrow", r#"[[tool:files__echo:{"text":"x"}]][[tool:files__add:{}]]"#).await?;
    assert_eq!(calls[0].state, ToolState::Resolved);
    failed(&calls[1], "There is no tool `files__add`");
    assert_eq!(house.offered(0).await?, ["delegate", "files__echo"]);
    assert_eq!(reports.count("call add"), 0);
    Ok(())
}

#[tokio::test]
async fn programs_end_with_the_server() -> Result<()> {
    // One that ends when its standard input does, and one that has to be told.
    for arguments in [&[][..], &["--stubborn"]] {
        let reports = Reports::open().await?;
        let house = program(&reports, arguments, "").await?;
        house.turn("tooled", "[[words:1]]").await?;
        assert!(!reports.seen().contains(&Happened::Gone));
        house.server.ask_to_end()?;
        assert!(house.server.ended().await?.success());
        reports.gone(1).await?;
    }
    Ok(())
}
