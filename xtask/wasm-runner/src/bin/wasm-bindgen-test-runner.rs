//! `wasm-bindgen-test-runner` at the version that Cargo.lock holds; `.cargo/config.toml` names it as the wasm runner.

fn main() -> anyhow::Result<()> {
    wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args(std::env::args_os())
}
