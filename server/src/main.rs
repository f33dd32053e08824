//! `turnfast`: see [`turnfast::cli`] for the commands and [`turnfast::app`] for what `serve` puts together.

fn main() -> std::process::ExitCode {
    turnfast::cli::main()
}
