//! The npm package, and what it is tried with: its example, its README, its tests and its benchmark.
//!
//! The package is built into `target/package`, ready for `npm pack`. What it is tried with comes from npm too, so all of that is
//! copied to `target/example`, next to the `node_modules` that it needs: nothing is installed into the checkout.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    npm,
    repo::{Repo, run, say},
    types, web,
};

/// Builds `target/package`.
pub(crate) fn build(repo: &Repo) -> Result<()> {
    say("building the npm package");
    web::wasm(repo, "turnfast-client")?;
    let bindgen = repo.target("package-bindgen");
    web::bind(repo, "turnfast_client.wasm", "turnfast_client", &bindgen)?;

    let mut output = BTreeMap::new();
    for (name, path) in web::files(&repo.path("client-js/package"))?.into_iter().chain(web::files(&bindgen)?) {
        output.insert(name, read(&path)?);
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        output.insert(name.to_owned(), read(&repo.path(name))?);
    }
    // As text: the order of `exports` has a meaning. The version is the workspace's, which all of its members have.
    let manifest = String::from_utf8(read(&repo.path("client-js/package/package.json"))?)?;
    let manifest = manifest.replace("\"0.0.0\"", &format!("\"{}\"", env!("CARGO_PKG_VERSION")));
    output.insert("package.json".to_owned(), manifest.into_bytes());
    let document = serde_json::from_slice(&read(&repo.path("server/openapi.json"))?)?;
    output.insert("wire.d.ts".to_owned(), types::declarations(&document)?.into_bytes());
    web::replace_folder(&repo.target("package"), &output)
}

/// Builds `target/example`: the pages that the browser tests open (in `dist`), and what runs in Node.
pub(crate) fn example(repo: &Repo) -> Result<()> {
    let folder = repo.target("example");
    for part in ["src", "package"] {
        let copy = folder.join(part);
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
    }
    let sources = web::files(&repo.path("examples/react"))?;
    // What a person installed or built there stays out.
    let is_source = |name: &str| !["node_modules/", "dist/"].iter().any(|start| name.starts_with(start));
    for (name, path) in sources.into_iter().filter(|(name, _)| is_source(name)) {
        write(&folder.join(name), &read(&path)?)?;
    }
    for (name, path) in web::files(&repo.path("client-js/tests"))?.into_iter().chain(web::files(&repo.path("client-js/benches"))?)
    {
        write(&folder.join("package").join(name), &read(&path)?)?;
    }
    write(&folder.join("package/readme.tsx"), readme(repo)?.as_bytes())?;
    install(repo, &folder)?;

    say("building the example");
    let pages = ["src/main.tsx", "package/readme.tsx", "package/renders.tsx"];
    run(Command::new("node").current_dir(&folder).args(["build.mjs", "dist"]).args(pages))?;
    let page = String::from_utf8(read(&folder.join("index.html"))?)?;
    for name in ["readme", "renders"] {
        write(&folder.join(format!("dist/{name}.html")), page.replace("/main.js", &format!("/{name}.js")).as_bytes())?;
    }
    let for_node = ["--platform=node", "--format=esm", "--packages=external", "--outdir=node", "--out-extension:.js=.mjs"];
    run(tool(&folder, "esbuild").args(["package/node.tsx", "package/delta.ts", "--bundle", "--log-level=warning"]).args(for_node))
}

/// A program that npm installed in `folder`, to run there.
fn tool(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(folder.join("node_modules/.bin").join(name));
    command.current_dir(folder);
    command
}

/// Checks the package's types, what uses them, and that they are what Rust writes.
pub(crate) fn check_types(repo: &Repo) -> Result<()> {
    let folder = repo.target("example");
    let samples = repo.cargo(["run", "--quiet", "--package", "turnfast-client", "--example", "samples"]).output()?;
    anyhow::ensure!(samples.status.success(), "the samples cannot be made: {}", String::from_utf8_lossy(&samples.stderr));
    write(&folder.join("package/samples.ts"), &samples.stdout)?;
    let tsc = |args: &[&str]| {
        let mut command = tool(&folder, "tsc");
        command.args(["--strict", "--noEmit"]).args(args);
        command
    };
    let config = r#"{"extends": "./tsconfig.json", "include": ["src", "package"]}"#;
    write(&folder.join("tsconfig.all.json"), config.as_bytes())?;
    run(&mut tsc(&["--project", "tsconfig.all.json"]))?;
    // As Node resolves modules, where names of files are whole.
    run(&mut tsc(&["--ignoreConfig", "--target", "es2024", "--module", "nodenext", "package/samples.ts"]))
}

/// The tests of the package that need no browser.
pub(crate) fn node_tests(repo: &Repo) -> Command {
    let mut command = Command::new("node");
    command.current_dir(repo.target("example")).args(["--test-reporter=tap", "node/node.mjs"]);
    command
}

/// Measures what one delta costs in a short thread and in a long one.
pub(crate) fn bench(repo: &Repo) -> Result<()> {
    build(repo)?;
    example(repo)?;
    run(Command::new("node").current_dir(repo.target("example")).args(["--expose-gc", "node/delta.mjs"]))
}

/// The README's example.
fn readme(repo: &Repo) -> Result<String> {
    let text = String::from_utf8(read(&repo.path("client-js/package/README.md"))?)?;
    let code = text.split_once("```tsx\n").and_then(|(_, rest)| rest.split_once("```")).map(|(code, _)| code);
    let code = code.context("the package's README has no example")?;
    anyhow::ensure!(code.lines().count() <= 20, "the README's example has more than 20 lines");
    Ok(code.to_owned())
}

/// Installs what the example's `package.json` names. The package itself is linked to, so that a new build of it is there at once.
fn install(repo: &Repo, folder: &Path) -> Result<()> {
    let manifest = String::from_utf8(read(&folder.join("package.json"))?)?;
    let package = repo.target("package").display().to_string();
    npm::install(folder, &manifest.replace("file:../../target/package", &format!("file:{package}")))
}

fn read(path: &PathBuf) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
