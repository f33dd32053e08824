//! See [`turnfast_tests::provider`].

fn main() -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(turnfast_tests::provider::app::main())
}
