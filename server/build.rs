//! Tells the compiler where the web app lies that `cargo xtask web` builds: `web` in cargo's target folder.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=migrations");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // Cargo marks the root of its target folder with this file.
    let target = out.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file()).unwrap_or(&out);
    let web = target.join("web");
    println!("cargo::rustc-env=TURNFAST_WEB_DIR={}", web.display());
    // A build with debug assertions reads the folder when it is asked for a file. Any other has it inside, and must be built
    // again when it changes; cargo watches only what exists.
    if env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_none() && fs::create_dir_all(&web).is_ok() {
        println!("cargo::rerun-if-changed={}", web.display());
    }
}
