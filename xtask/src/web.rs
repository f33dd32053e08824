//! The web app, from sources to the folder that the server embeds.
//!
//! Files that another file refers to get a name with a hash of their content, so that browsers may keep them for ever; a file that
//! nothing refers to (the page itself) keeps its name.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{
    install,
    repo::{Repo, WASM, run, say},
    shorten::shorten,
};

/// Builds `target/web`.
pub(crate) fn build(repo: &Repo) -> Result<()> {
    say("building the web app");
    wasm(repo, "turnfast-web")?;
    let bindgen = repo.target("web-bindgen");
    bind(repo, "turnfast-web.wasm", "turnfast", &bindgen)?;

    let mut sources = BTreeMap::new();
    for (name, path) in files(&repo.path("web/static"))?.into_iter().chain(files(&bindgen)?) {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if sources.insert(name.clone(), bytes).is_some() {
            bail!("{name} is in web/static and is written by wasm-bindgen too: rename the one in web/static");
        }
    }
    shorten_pair(&mut sources)?;
    let mut output = with_hashed_names(sources)?;
    for (name, bytes) in output.clone() {
        if is_text(&name) || name.ends_with(".wasm") {
            output.insert(format!("{name}.gz"), gzip(&bytes)?);
        }
    }
    replace_folder(&repo.web(), &output)
}

/// Builds a package for browsers, into the build folder's `wasm32-unknown-unknown/wasm`.
pub(crate) fn wasm(repo: &Repo, package: &str) -> Result<()> {
    install::wasm_target()?;
    run(repo
        .cargo(["build", "--package", package, "--target", WASM, "--profile", "wasm"])
        .env("RUSTFLAGS", format!("--remap-path-prefix={}=/", registry().display())))
}

/// Writes what of a built package a browser loads into `folder`: `NAME.js` and `NAME_bg.wasm`.
pub(crate) fn bind(repo: &Repo, built: &str, name: &str, folder: &Path) -> Result<()> {
    run(&mut repo.cargo(["build", "--workspace", "--bin", "wasm-bindgen-runner", "--bin", "wasm-bindgen-test-runner"]))?;
    fs::create_dir_all(folder)?;
    run(repo
        .program(repo.target("debug/wasm-bindgen-runner"))
        .args(["--target", "web", "--no-typescript", "--remove-name-section", "--remove-producers-section"])
        .args(["--out-name", name, "--out-dir"])
        .arg(folder)
        .arg(repo.target(&format!("{WASM}/wasm/{built}")))
        .env("RUST_BACKTRACE", "0"))
}

/// Where cargo keeps the sources of dependencies. Panic messages name them: without this folder the page is the same to the byte
/// whoever builds it, and tells nobody where that was.
fn registry() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).unwrap_or_default();
    let sources = home.join("registry/src");
    // One folder per registry; which is cargo's business. A machine with several gets the path of none shortened further.
    match fs::read_dir(&sources).map(|entries| entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>()) {
        Ok(folders) if folders.len() == 1 => folders.into_iter().next().unwrap_or(sources),
        _ => sources,
    }
}

/// Shortens what wasm-bindgen wrote.
fn shorten_pair(sources: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let (Some(glue), Some(wasm)) = (sources.get("turnfast.js"), sources.get("turnfast_bg.wasm")) else {
        bail!("wasm-bindgen did not write turnfast.js and turnfast_bg.wasm");
    };
    let (glue, wasm) = shorten(std::str::from_utf8(glue)?, wasm)?;
    sources.insert("turnfast.js".to_owned(), glue.into_bytes());
    sources.insert("turnfast_bg.wasm".to_owned(), wasm);
    Ok(())
}

/// All files below `folder` by their path relative to it, with `/` between its parts.
pub(crate) fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), folder.to_owned())];
    while let Some((prefix, folder)) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                open.push((format!("{name}/"), entry.path()));
            } else {
                found.insert(name, entry.path());
            }
        }
    }
    Ok(found)
}

/// `bytes` as the server sends them to a browser that takes gzip. Zopfli packs a twentieth closer than `gzip -9`, for seconds at
/// build time. The same bytes always give the same result.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = Vec::new();
    zopfli::compress(zopfli::Options::default(), zopfli::Format::Gzip, bytes, &mut packed)?;
    Ok(packed)
}

fn is_text(name: &str) -> bool {
    [".html", ".js", ".css", ".svg", ".webmanifest", ".json", ".txt"].iter().any(|ending| name.ends_with(ending))
}

/// Renames what is referred to and rewrites the references, leaves first: a file's hash covers the hashed names in it.
fn with_hashed_names(mut sources: BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, Vec<u8>>> {
    let names: Vec<String> = sources.keys().cloned().collect();
    let mut refers_to: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, bytes) in &sources {
        let text = if is_text(name) { std::str::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))? } else { "" };
        let found = names.iter().filter(|other| *other != name && references(text, other).next().is_some());
        refers_to.insert(name.clone(), found.cloned().collect());
    }
    let is_referred_to = |name: &String| refers_to.values().any(|targets| targets.contains(name));

    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    let mut output = BTreeMap::new();
    while !sources.is_empty() {
        let ready = sources.keys().find(|name| refers_to[*name].iter().all(|target| renamed.contains_key(target))).cloned();
        let Some(name) = ready else {
            bail!("these files refer to each other in a circle: {}", sources.into_keys().collect::<Vec<_>>().join(", "));
        };
        let mut bytes = sources.remove(&name).unwrap_or_default();
        for target in &refers_to[&name] {
            let text = String::from_utf8(bytes)?;
            bytes = rename_references(&text, target, &renamed[target]).into_bytes();
        }
        let new_name = if is_referred_to(&name) { hashed_name(&name, &bytes) } else { name.clone() };
        output.insert(new_name.clone(), bytes);
        renamed.insert(name, new_name);
    }
    Ok(output)
}

/// `dir/app.css` as `dir/app-0123456789abcdef.css`; the server knows such names by their form.
fn hashed_name(name: &str, bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[start..].find('.') {
        Some(dot) => format!("{}-{hash}{}", &name[..start + dot], &name[start + dot..]),
        None => format!("{name}-{hash}"),
    }
}

/// Where `text` names the file: the name stands alone, or behind a `/`.
fn references<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = usize> + 't {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.match_indices(name).map(|(at, _)| at).filter(move |&at| {
        !text[..at].chars().next_back().is_some_and(part_of_name)
            && !text[at + name.len()..].chars().next().is_some_and(part_of_name)
    })
}

fn rename_references(text: &str, name: &str, new_name: &str) -> String {
    let mut renamed = String::with_capacity(text.len());
    let mut end = 0;
    for at in references(text, name) {
        renamed.push_str(&text[end..at]);
        renamed.push_str(new_name);
        end = at + name.len();
    }
    renamed.push_str(&text[end..]);
    renamed
}

/// Makes `folder` hold exactly `wanted`. What is right already is left alone, so that cargo sees no change where there is none.
pub(crate) fn replace_folder(folder: &Path, wanted: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, path) in files(folder)? {
        if !wanted.contains_key(&name) {
            fs::remove_file(path)?;
        }
    }
    for (name, bytes) in wanted {
        let path = folder.join(name);
        if fs::read(&path).is_ok_and(|present| present == *bytes) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::*;

    fn app(css: &str) -> BTreeMap<String, Vec<u8>> {
        [
            ("index.html", "<link href=\"/app.css\"><script src=\"/boot.js\"></script>"),
            ("boot.js", "import init from './turnfast.js'; init()"),
            ("turnfast.js", "new URL('turnfast_bg.wasm', import.meta.url)"),
            ("turnfast_bg.wasm", "\0asm"),
            ("app.css", css),
            ("my-app.css", "unrelated"),
        ]
        .map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()))
        .into()
    }

    #[test]
    fn every_reference_leads_to_a_file_and_the_page_keeps_its_name() {
        let output = with_hashed_names(app("body{}")).unwrap();
        let text = |name: &str| String::from_utf8(output[name].clone()).unwrap();
        let named = |start: &str, end: &str| output.keys().find(|n| n.starts_with(start) && n.ends_with(end)).unwrap().clone();
        let (css, boot, glue) = (named("app-", ".css"), named("boot-", ".js"), named("turnfast-", ".js"));
        assert_eq!(text("index.html"), format!("<link href=\"/{css}\"><script src=\"/{boot}\"></script>"));
        assert_eq!(text(&boot), format!("import init from './{glue}'; init()"));
        assert!(text(&glue).contains(&named("turnfast_bg-", ".wasm")));
        assert!(output.contains_key("my-app.css"), "nothing refers to it: {:?}", output.keys());
    }

    #[test]
    fn a_change_renames_the_file_and_nothing_that_does_not_depend_on_it() {
        let (one, two) = (with_hashed_names(app("a{}")).unwrap(), with_hashed_names(app("b{}")).unwrap());
        let changed: Vec<_> = two.keys().filter(|name| !one.contains_key(*name)).collect();
        assert_eq!(changed.len(), 1);
        assert!(changed[0].starts_with("app-"));
    }

    #[test]
    fn a_circle_of_references_is_an_error() {
        let circle = [("a.js", "import './b.js'"), ("b.js", "import './a.js'")];
        let error = with_hashed_names(circle.map(|(n, t)| (n.to_owned(), t.as_bytes().to_vec())).into()).unwrap_err();
        assert!(error.to_string().contains("a.js, b.js"));
    }

    #[test]
    fn a_folder_is_replaced_without_touching_what_stays() {
        let folder = tempfile::tempdir().unwrap();
        let write = |names: &[&str]| {
            let wanted = names.iter().map(|name| ((*name).to_owned(), name.as_bytes().to_vec())).collect();
            replace_folder(folder.path(), &wanted).unwrap();
        };
        write(&["keep", "sub/gone"]);
        let before = fs::metadata(folder.path().join("keep")).unwrap().modified().unwrap();
        write(&["keep", "new"]);
        assert_eq!(fs::metadata(folder.path().join("keep")).unwrap().modified().unwrap(), before);
        assert_eq!(files(folder.path()).unwrap().into_keys().collect::<Vec<_>>(), ["keep", "new"]);
    }
}
