//! The product from outside: the real binary, driven over its wire. One module per promise.

mod access;
mod attachments;
mod conformance;
mod crash;
mod delegation;
mod disk;
mod followers;
mod frontend;
mod harness;
mod interactions;
mod mcp;
mod operations;
mod page;
mod postgres;
mod provider_errors;
mod proxies;
mod refusals;
mod smoke;
mod stop;
mod turns;

use anyhow::Result;
use turnfast_tests::{
    client::Client,
    installation::{Installation, Server},
    provider::Provider,
};

/// A provider, a server and `alice`, who may do everything.
struct House {
    server: Server,
    alice: Client,
    /// `alice`'s token, for after a restart.
    token: String,
    installation: Installation,
    provider: Provider,
}

impl House {
    async fn open() -> Result<Self> {
        Self::open_with("").await
    }

    /// With `more` in the configuration.
    async fn open_with(more: &str) -> Result<Self> {
        let provider = Provider::start().await?;
        let installation = Installation::with_provider_and(&provider, more)?;
        let token = installation.user("alice").await?;
        let server = installation.serve().await?;
        let alice = server.client(&token)?;
        Ok(Self { server, alice, token, installation, provider })
    }

    /// Another user.
    async fn user(&self, name: &str) -> Result<Client> {
        self.server.client(&self.installation.user(name).await?)
    }
}
