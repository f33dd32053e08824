//! Tools of MCP servers (`[[mcp_servers]]`), over their standard streams or over streamable HTTP.
//!
//! | module | job |
//! | --- | --- |
//! | [`server`] | one connection per server, shared by all turns: started when it is first needed, and again when it died |
//! | [`transport`] | how a server is reached: the program and its environment, or the address |
//! | [`output`] | what a tool answered, as a model reads it |
//! | this one | which server has which tools for whom |
//!
//! A server that is missing, slow or dies is never more than a tool that fails, or tools that are not there: the turn goes on.
//!
//! A tool is named `mcp:SERVER/TOOL` everywhere: in the configuration, in events, in the record, and in what the model is told.
//! How a provider wants names to look is the business of whoever talks to it.

mod output;
mod server;
mod transport;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, future::join_all};
use serde_json::Value;

use self::{server::Server, transport::Transport};
use super::{
    model::ToolDefinition,
    openai::Clients,
    tools::{Tool, ToolContext, ToolRun, ToolSource},
};
use crate::{config::Config, redact::Redactor};

/// The server and, where one is named, the tool of `mcp:SERVER` or `mcp:SERVER/TOOL`; `None`: it is neither.
#[must_use]
pub fn parse_name(name: &str) -> Option<(&str, Option<&str>)> {
    let rest = name.strip_prefix("mcp:")?;
    Some(match rest.split_once('/') {
        Some((server, tool)) => (server, Some(tool)),
        None => (rest, None),
    })
}

/// The MCP servers of a configuration. None is started before it is needed.
pub struct McpServers(BTreeMap<String, Arc<Server>>);

impl McpServers {
    /// The servers of `config`.
    #[must_use]
    pub fn new(config: &Config, clients: &mut Clients, redactor: &Redactor) -> Self {
        let servers = config.mcp_servers.iter().map(|server| {
            let transport = Transport::new(&server.transport, clients);
            let id = server.id.to_string();
            (id.clone(), Arc::new(Server::new(id, transport, server.start, server.call, redactor.clone())))
        });
        Self(servers.collect())
    }

    /// Whether a server is configured.
    #[must_use]
    pub fn has(&self, server: &str) -> bool {
        self.0.contains_key(server)
    }

    /// The tools of a server, or `only` those of them. `None`: there is no such server.
    #[must_use]
    pub fn source(&self, server: &str, only: Option<BTreeSet<String>>) -> Option<Arc<dyn ToolSource>> {
        let server = Arc::clone(self.0.get(server)?);
        Some(Arc::new(Source { prefix: format!("mcp:{}/", server.id), server, only }))
    }

    /// Ends all connections, and with them the programs that were started for them.
    pub async fn close(&self) {
        join_all(self.0.values().map(|server| server.close())).await;
    }
}

/// What one agent may use of a server.
struct Source {
    prefix: String,
    server: Arc<Server>,
    only: Option<BTreeSet<String>>,
}

#[async_trait]
impl ToolSource for Source {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, String> {
        let listed = self.server.tools().await?;
        let taken = listed.iter().filter(|tool| self.only.as_ref().is_none_or(|only| only.contains(&tool.name)));
        Ok(taken
            .map(|tool| Arc::new(McpTool { server: Arc::clone(&self.server), tool: Arc::clone(tool) }) as Arc<dyn Tool>)
            .collect())
    }
}

/// A tool as its server listed it.
struct Listed {
    /// The server's own name for it.
    name: String,
    definition: ToolDefinition,
}

struct McpTool {
    server: Arc<Server>,
    tool: Arc<Listed>,
}

impl Tool for McpTool {
    fn definition(&self) -> &ToolDefinition {
        &self.tool.definition
    }

    fn call(&self, input: Value, _: ToolContext) -> ToolRun {
        let (server, tool) = (Arc::clone(&self.server), Arc::clone(&self.tool));
        async move { server.call(&tool.name, input).await }.into_stream().boxed()
    }
}
