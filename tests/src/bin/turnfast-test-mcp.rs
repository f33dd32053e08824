//! See [`turnfast_tests::mcp`].

fn main() -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(turnfast_tests::mcp::app::main())
}
