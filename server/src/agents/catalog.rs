//! The projects and agents of a configuration, each agent with the engine that runs it or what is missing for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use turnfast_shared::ids::Slug;

use super::{
    Engine,
    demo::{DemoModel, Postcard},
    mcp::{self, McpServers},
    openai::{Clients, Endpoint, OpenAiModel},
    tools::{AskUser, Clock, Delegate, Tool},
    turn_loop::{NativeAgent, NativeEngine, Roster},
};
use crate::config::{Agent, Config, EngineKind, Project, Provider};
use crate::redact::Redactor;

/// An agent of the configuration.
pub struct Entry {
    /// Its configuration.
    pub agent: Agent,
    engine: Result<Arc<dyn Engine>, Vec<String>>,
}

impl Entry {
    /// What runs the agent.
    ///
    /// # Errors
    /// What is missing in the configuration, for `agent_misconfigured` (contract 1, section 3).
    pub fn engine(&self) -> Result<Arc<dyn Engine>, &[String]> {
        match &self.engine {
            Ok(engine) => Ok(Arc::clone(engine)),
            Err(missing) => Err(missing),
        }
    }

    /// What goes on with the agent's turns after the death of their process, where it is to and can.
    #[must_use]
    pub fn engine_to_continue(&self) -> Option<Arc<dyn Engine>> {
        if self.agent.continue_interrupted { self.engine().ok() } else { None }
    }
}

/// All projects and agents. Built once; it does not change while the server runs.
pub struct Catalog {
    projects: Vec<Project>,
    agents: Vec<Entry>,
    mcp: McpServers,
}

impl Catalog {
    /// The catalog of `config`. An agent that cannot run is in it too, and says why.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let roster = Arc::new(Roster::default());
        let mut clients = Clients::default();
        let redactor = Redactor::of(config);
        let mcp = McpServers::new(config, &mut clients, &redactor);
        let mut endpoints =
            Endpoints { providers: &config.providers, clients: &mut clients, redactor: &redactor, made: BTreeMap::new() };
        let built: Vec<_> = config.agents.iter().map(|agent| (agent, build(agent, config, &mut endpoints, &mcp))).collect();
        roster.fill(
            built
                .iter()
                .map(|(agent, built)| {
                    let usable = match built {
                        Ok(native) => Ok(Arc::clone(native)),
                        Err(missing) => Err(format!("The agent `{}` is not set up: {}.", agent.id, missing.join("; "))),
                    };
                    ((agent.project.clone(), agent.id.clone()), usable)
                })
                .collect::<BTreeMap<_, _>>(),
        );
        let agents = built
            .into_iter()
            .map(|(agent, built)| Entry {
                agent: agent.clone(),
                engine: built.map(|native| Arc::new(NativeEngine::new(native, Arc::clone(&roster))) as Arc<dyn Engine>),
            })
            .collect();
        Self { projects: config.projects.clone(), agents, mcp }
    }

    /// Ends what agents keep running between turns: the MCP servers. Call it once no turn runs any more.
    pub async fn close(&self) {
        self.mcp.close().await;
    }

    /// All projects, in the order of the configuration.
    #[must_use]
    pub fn projects(&self) -> &[Project] {
        &self.projects
    }

    /// A project.
    #[must_use]
    pub fn project(&self, id: &Slug) -> Option<&Project> {
        self.projects.iter().find(|project| project.id == *id)
    }

    /// A project's agents, in the order of the configuration.
    pub fn agents<'c>(&'c self, project: &'c Slug) -> impl Iterator<Item = &'c Entry> {
        self.agents.iter().filter(move |entry| entry.agent.project == *project)
    }

    /// An agent.
    #[must_use]
    pub fn agent(&self, project: &Slug, id: &Slug) -> Option<&Entry> {
        self.agents.iter().find(|entry| entry.agent.project == *project && entry.agent.id == *id)
    }
}

fn build(
    agent: &Agent,
    config: &Config,
    endpoints: &mut Endpoints<'_>,
    mcp: &McpServers,
) -> Result<Arc<NativeAgent>, Vec<String>> {
    match agent.engine {
        EngineKind::Demo => demo(agent),
        EngineKind::Native => native(agent, config, endpoints, mcp),
        EngineKind::Openclaw => Err(vec!["engine `openclaw` is not available in this build".to_owned()]),
    }
}

/// The demo agent has all its tools, whatever `tools` says; it delegates to itself.
fn demo(agent: &Agent) -> Result<Arc<NativeAgent>, Vec<String>> {
    let tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(Clock::new()),
        Arc::new(AskUser::new()),
        Arc::new(Delegate::new(vec![agent.id.clone()])),
        Arc::new(Postcard::new()),
    ];
    let mut missing = Vec::new();
    let mut approve = approved_tools(agent, &tools, &mut missing);
    approve.insert(Postcard::NAME.to_owned());
    if !missing.is_empty() {
        return Err(missing);
    }
    Ok(Arc::new(NativeAgent {
        model: Arc::new(DemoModel::new(agent.id.clone())),
        instructions: agent.instructions.clone(),
        tools,
        sources: Vec::new(),
        approve,
    }))
}

/// The endpoints of a configuration, one per provider, made when an agent first needs it.
struct Endpoints<'c> {
    providers: &'c [Provider],
    clients: &'c mut Clients,
    redactor: &'c Redactor,
    made: BTreeMap<&'c str, Result<Arc<Endpoint>, String>>,
}

impl<'c> Endpoints<'c> {
    fn get(&mut self, id: &str) -> Result<Arc<Endpoint>, String> {
        let Some(provider) = self.providers.iter().find(|provider| provider.id == id) else {
            return Err(format!("`provider`: there is no provider `{id}`"));
        };
        let clients = &mut *self.clients;
        self.made
            .entry(&provider.id)
            .or_insert_with(|| Endpoint::new(provider, clients, self.redactor.clone()).map(Arc::new))
            .clone()
    }
}

fn native(
    agent: &Agent,
    config: &Config,
    endpoints: &mut Endpoints<'_>,
    mcp: &McpServers,
) -> Result<Arc<NativeAgent>, Vec<String>> {
    let mut missing = Vec::new();
    let endpoint = match agent.provider.as_deref().map(|id| endpoints.get(id)) {
        None => {
            missing.push("`provider` is not set".to_owned());
            None
        }
        Some(Err(why)) => {
            missing.push(why);
            None
        }
        Some(Ok(endpoint)) => Some(endpoint),
    };
    let model = agent.model.clone().filter(|model| !model.trim().is_empty());
    if model.is_none() {
        missing.push("`model` is not set".to_owned());
    }
    for id in &agent.delegates {
        if !config.agents.iter().any(|other| other.project == agent.project && other.id == *id) {
            missing.push(format!("`delegates`: there is no agent `{id}` in this project"));
        }
    }
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    // MCP servers, with the tools that are taken from them; `None`: all.
    let mut foreign: BTreeMap<&str, Option<BTreeSet<String>>> = BTreeMap::new();
    for name in &agent.tools {
        match name.as_str() {
            _ if tools.iter().any(|tool| tool.definition().name == *name) => {}
            Clock::NAME => tools.push(Arc::new(Clock::new())),
            AskUser::NAME => tools.push(Arc::new(AskUser::new())),
            // With nobody to delegate to, a model would only be led astray.
            Delegate::NAME if agent.delegates.is_empty() => {}
            Delegate::NAME => tools.push(Arc::new(Delegate::new(agent.delegates.clone()))),
            name => match mcp::parse_name(name) {
                Some((server, _)) if !mcp.has(server) => {
                    missing.push(format!("tool `{name}`: there is no MCP server `{server}`"))
                }
                Some((server, None)) => {
                    foreign.insert(server, None);
                }
                Some((server, Some(tool))) => {
                    if let Some(only) = foreign.entry(server).or_insert_with(|| Some(BTreeSet::new())) {
                        only.insert(tool.to_owned());
                    }
                }
                None => missing.push(format!("there is no tool `{name}`; the built-in tools are clock, ask_user and delegate")),
            },
        }
    }
    let approve = approved_tools(agent, &tools, &mut missing);
    match (endpoint, model) {
        (Some(endpoint), Some(model)) if missing.is_empty() => Ok(Arc::new(NativeAgent {
            model: Arc::new(OpenAiModel::new(endpoint, model)),
            instructions: agent.instructions.clone().filter(|instructions| !instructions.trim().is_empty()),
            tools,
            sources: foreign.into_iter().filter_map(|(server, only)| mcp.source(server, only)).collect(),
            approve,
        })),
        _ => Err(missing),
    }
}

/// `approve`, checked against the tools there are: a name that fits no tool would let a call run that was meant to wait. Which tools
/// an MCP server has is not known here; that the agent may use them is.
fn approved_tools(agent: &Agent, tools: &[Arc<dyn Tool>], missing: &mut Vec<String>) -> BTreeSet<String> {
    for name in &agent.approve {
        let server = name.split_once('/').map(|(server, _)| server);
        let known = agent.tools.iter().any(|tool| tool == name || Some(tool.as_str()) == server);
        if !known && !tools.iter().any(|tool| tool.definition().name == *name) {
            missing.push(format!("`approve` names `{name}`, which is not among this agent's tools"));
        }
    }
    agent.approve.iter().cloned().collect()
}
