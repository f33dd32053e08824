//! `wasm-bindgen` at the version that Cargo.lock holds. Not named `wasm-bindgen`: rustc refuses a crate of that name.

fn main() -> anyhow::Result<()> {
    wasm_bindgen_cli::wasm_bindgen::run_cli_with_args(std::env::args_os())
}
