//! A headless Chromium and what a person does with it. Elements are found the way a person finds them: by role and name, by label,
//! by text; by test id only where a person would point.

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use fantoccini::{ClientBuilder, Locator, elements::Element, wd::WebDriverCompatibleCommand};
use hyper_util::client::legacy::connect::HttpConnector;
use reqwest::Url;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{GUARD, process::Process};

/// Pause between two looks at the page.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Whether something is on its way from one style to another, such as a drawer that opens.
const SLIDES: &str = "return document.getAnimations().some((it) => it instanceof CSSTransition && it.playState === 'running')";

/// Chromium without a window, and without anything that reaches out of this machine by itself.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-default-browser-check",
    "--no-first-run",
    "--hide-scrollbars",
];

/// A browser with one profile; tabs of it share cookies and storage.
#[derive(Debug)]
pub struct Browser {
    web: fantoccini::Client,
    session: String,
    port: u16,
    _driver: Process,
    _profile: TempDir,
}

/// Starts ChromeDriver, and gives its port.
///
/// It takes a port that is free for IPv4 and then the same one for IPv6, where somebody may have been quicker: then it ends, and
/// another is started.
async fn driver(profile: &Path) -> Result<(Process, u16)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut command = Command::new(env::var_os("CHROMEDRIVER").unwrap_or_else(|| "chromedriver".into()));
        command.arg("--port=0");
        let mut driver = Process::start(command, profile.join(format!("chromedriver-stderr-{tries}")))?;
        let port = |line: &str| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok();
        match driver.line("the port", port).await {
            Ok(port) => return Ok((driver, port)),
            Err(_) if tries < 10 && driver.stderr().contains("Address already in use") => driver.hush(),
            Err(error) => return Err(error),
        }
    }
}

impl Browser {
    /// Starts one.
    ///
    /// # Errors
    /// ChromeDriver or Chromium is missing or does not start.
    pub async fn start() -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let (driver, port) = driver(profile.path()).await?;

        let mut flags: Vec<String> = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
        flags.push(format!("--user-data-dir={}", profile.path().join("profile").display()));
        let capabilities = json!({
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": GUARD.as_millis(), "pageLoad": GUARD.as_millis()},
        });
        let Value::Object(capabilities) = capabilities else { bail!("capabilities are an object") };
        let web = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .context("no browser session")?;
        // The session is ended in `drop`, where no other task can be waited for.
        web.persist().await?;
        let session = web.session_id().await?.context("the session has an id")?;
        let browser = Self { web, session, port, _driver: driver, _profile: profile };
        browser.viewport(1280, 800).await?;
        Ok(browser)
    }

    /// The WebDriver client, for what is not offered here.
    #[must_use]
    pub fn web(&self) -> &fantoccini::Client {
        &self.web
    }

    /// Goes to `url`.
    ///
    /// # Errors
    /// The page cannot be loaded.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.web.goto(url).await.with_context(|| format!("cannot open {url}"))
    }

    /// Opens another tab (or window) at `url` and goes on there. Emulation is per tab.
    ///
    /// # Errors
    /// The page cannot be loaded.
    pub async fn open_beside(&self, url: &str, as_tab: bool) -> Result<()> {
        let window = self.web.new_window(as_tab).await?;
        self.web.switch_to_window(window.handle).await?;
        self.open(url).await
    }

    /// Goes on in the tab that was opened as the `n`th, from 0.
    ///
    /// # Errors
    /// There is none.
    pub async fn switch_to(&self, n: usize) -> Result<()> {
        let window = self.web.windows().await?.into_iter().nth(n).with_context(|| format!("there is no tab {n}"))?;
        Ok(self.web.switch_to_window(window).await?)
    }

    /// Waits until `look` finds something on the page.
    ///
    /// # Errors
    /// It does not within [`GUARD`]; the text of the page is in the message.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let found = tokio::time::timeout(GUARD, async {
            loop {
                looks.tick().await;
                match look().await {
                    Ok(Some(found)) => return anyhow::Ok(found),
                    Ok(None) => {}
                    // The page replaced the element between two questions about it.
                    Err(error) if is_stale(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        });
        match found.await {
            Ok(found) => found.with_context(|| format!("while looking for {what}")),
            Err(_) => bail!("waited {} s for {what}; the page shows:\n{}", GUARD.as_secs(), self.text().await?),
        }
    }

    /// Waits for the element with that ARIA role and accessible name, and until nothing slides: nobody clicks what is on its way to
    /// another place. Roles and names are computed by the browser.
    ///
    /// # Errors
    /// There is none.
    pub async fn role(&self, role: &str, name: &str) -> Result<Element> {
        self.until(&format!("{role} `{name}`"), async || {
            for element in self.web.find_all(Locator::Css(candidates(role))).await? {
                if self.computed(&element, "role").await? == role && self.computed(&element, "label").await?.trim() == name {
                    let slides = self.web.execute(SLIDES, Vec::new()).await?;
                    return Ok((slides == false).then_some(element));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Whether there is an element with that role and name now.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn has_role(&self, role: &str, name: &str) -> Result<bool> {
        for element in self.web.find_all(Locator::Css(candidates(role))).await? {
            if self.computed(&element, "role").await? == role && self.computed(&element, "label").await?.trim() == name {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for the form field with that label.
    ///
    /// # Errors
    /// There is none.
    pub async fn label(&self, label: &str) -> Result<Element> {
        self.until(&format!("a field with the label `{label}`"), async || {
            for element in self.web.find_all(Locator::Css("input, textarea, select, [contenteditable]")).await? {
                if self.computed(&element, "label").await?.trim() == label {
                    return Ok(Some(element));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Waits for the element with that `data-testid`.
    ///
    /// # Errors
    /// There is none.
    pub async fn test_id(&self, id: &str) -> Result<Element> {
        self.css(&format!("[data-testid=\"{id}\"]")).await
    }

    /// Waits for the element that a CSS selector names.
    ///
    /// # Errors
    /// There is none.
    pub async fn css(&self, selector: &str) -> Result<Element> {
        self.until(selector, async || Ok(self.web.find_all(Locator::Css(selector)).await?.into_iter().next())).await
    }

    /// How many elements a CSS selector names now.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn count(&self, selector: &str) -> Result<usize> {
        Ok(self.web.find_all(Locator::Css(selector)).await?.len())
    }

    /// What the page shows, as text.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn text(&self) -> Result<String> {
        let text = self.web.execute("return document.body ? document.body.innerText : ''", Vec::new()).await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the page shows `text`.
    ///
    /// # Errors
    /// It does not.
    pub async fn shows(&self, text: &str) -> Result<()> {
        self.until(&format!("the text `{text}`"), async || Ok(self.text().await?.contains(text).then_some(()))).await
    }

    /// Waits until the page no longer shows `text`.
    ///
    /// # Errors
    /// It still does.
    pub async fn hides(&self, text: &str) -> Result<()> {
        self.until(&format!("the end of the text `{text}`"), async || Ok((!self.text().await?.contains(text)).then_some(())))
            .await
    }

    /// Sets the size of the page in CSS pixels.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn viewport(&self, width: u32, height: u32) -> Result<()> {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await.map(drop)
    }

    /// Sets what the person prefers: a dark page, little motion.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn prefers(&self, dark: bool, reduced_motion: bool) -> Result<()> {
        let features = json!({"features": [
            {"name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" }},
            {"name": "prefers-reduced-motion", "value": if reduced_motion { "reduce" } else { "no-preference" }},
        ]});
        self.devtools("Emulation.setEmulatedMedia", features).await.map(drop)
    }

    /// Takes this tab off the network, or puts it back. Connections that are open break.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn offline(&self, offline: bool) -> Result<()> {
        self.devtools("Network.enable", json!({})).await?;
        let conditions = json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        self.devtools("Network.emulateNetworkConditions", conditions).await.map(drop)
    }

    /// Holds this tab's requests back whose URL fits one of `patterns` (`*` is any text), before they leave the browser.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn hold(&self, patterns: &[&str]) -> Result<()> {
        let patterns: Vec<_> = patterns.iter().map(|pattern| json!({"urlPattern": pattern})).collect();
        self.devtools("Fetch.enable", json!({"patterns": patterns})).await.map(drop)
    }

    /// Sends what [`Browser::hold`] held back.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn let_go(&self) -> Result<()> {
        self.devtools("Fetch.disable", json!({})).await.map(drop)
    }

    /// Lets none of this tab's requests through whose URL fits one of `patterns` (`*` is any text); those of an earlier call are let
    /// through again.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn block(&self, patterns: &[&str]) -> Result<()> {
        self.devtools("Network.enable", json!({})).await?;
        self.devtools("Network.setBlockedURLs", json!({"urls": patterns})).await.map(drop)
    }

    /// Runs `script` in every page that this tab loads from now on, before the page's own.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn before_each_page(&self, script: &str) -> Result<()> {
        self.devtools("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await.map(drop)
    }

    /// What `script` hands to its last argument, a function.
    ///
    /// # Errors
    /// The script fails, or hands nothing over within [`GUARD`].
    pub async fn execute_async(&self, script: &str) -> Result<Value> {
        Ok(self.web.execute_async(script, Vec::new()).await?)
    }

    /// Calls a method of the DevTools protocol on this tab.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn devtools(&self, method: &str, params: Value) -> Result<Value> {
        self.post("goog/cdp/execute", json!({"cmd": method, "params": params})).await.with_context(|| method.to_owned())
    }

    /// Errors in the console since the last call: uncaught exceptions, refused policies, failed loads.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn console_errors(&self) -> Result<Vec<String>> {
        let entries = self.post("se/log", json!({"type": "browser"})).await?;
        let errors = entries.as_array().into_iter().flatten().filter(|entry| entry["level"] == "SEVERE");
        Ok(errors.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Takes a picture of the page, to be looked at: `screenshots/NAME.png` in the build folder.
    ///
    /// # Errors
    /// It cannot be taken or stored.
    pub async fn screenshot(&self, name: &str) -> Result<PathBuf> {
        let folder = match env::var_os("TURNFAST_SCREENSHOTS") {
            Some(folder) => PathBuf::from(folder),
            None => env::current_exe()?.ancestors().nth(3).context("no build folder")?.join("screenshots"),
        };
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}.png"));
        fs::write(&path, self.web.screenshot().await?)?;
        Ok(path)
    }

    async fn computed(&self, element: &Element, what: &str) -> Result<String> {
        let path = format!("element/{}/computed{what}", &*element.element_id());
        let value = self.web.issue_cmd(Extension { path, body: None }).await?;
        Ok(value.as_str().unwrap_or_default().to_owned())
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        Ok(self.web.issue_cmd(Extension { path: path.to_owned(), body: Some(body) }).await?)
    }
}

impl Drop for Browser {
    /// Ends the session, and with it Chromium: killing ChromeDriver alone would leave it behind.
    fn drop(&mut self) {
        let Ok(mut driver) = TcpStream::connect(("127.0.0.1", self.port)) else { return };
        let request = format!(
            "DELETE /session/{} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            self.session, self.port
        );
        let asked = driver.set_read_timeout(Some(Duration::from_secs(10))).and_then(|()| driver.write_all(request.as_bytes()));
        if asked.is_ok() {
            // The answer comes when Chromium is gone; the connection stays open all the same.
            let _bytes = driver.read(&mut [0; 512]);
        }
    }
}

/// Elements that may have a role: those that say so, and those that have it by their nature.
fn candidates(role: &str) -> &'static str {
    match role {
        "button" => "button, [role=button], input[type=submit], summary",
        "link" => "a, [role=link]",
        "textbox" => "textarea, input, [role=textbox]",
        "heading" => "h1, h2, h3, h4, h5, h6, [role=heading]",
        "dialog" => "dialog, [role=dialog]",
        "alert" => "[role=alert]",
        "status" => "output, [role=status]",
        "list" => "ul, ol, [role=list]",
        "listitem" => "li, [role=listitem]",
        "navigation" => "nav, [role=navigation]",
        "combobox" => "select, [role=combobox]",
        _ => "*",
    }
}

fn is_stale(error: &anyhow::Error) -> bool {
    error.downcast_ref::<fantoccini::error::CmdError>().is_some_and(fantoccini::error::CmdError::is_stale_element_reference)
}

/// A command that is the driver's own, or newer than the client: `path` below the session's.
#[derive(Debug)]
struct Extension {
    path: String,
    body: Option<Value>,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, <Url as std::str::FromStr>::Err> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        match &self.body {
            Some(body) => (http::Method::POST, Some(body.to_string())),
            None => (http::Method::GET, None),
        }
    }
}
