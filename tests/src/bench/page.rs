//! What a long thread costs the page, beside a short one, in a real browser.
//!
//! What the browser itself tells is what counts: its long tasks, the delays of its events, the time its main thread was busy. Bounds
//! are ratios wherever the machine's speed would show. A long task is one by the clock: other programs that take the processor make
//! some, so the machine should have nothing else to do.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use turnfast_shared::{ExecutionStatus, ids::ThreadId};

use crate::{
    browser::Browser,
    client::Client,
    installation::{Installation, password},
    provider::Provider,
};

/// Turns of the short thread and of the long one; each has two messages.
const TURNS: [usize; 2] = [5, 500];
/// Bytes of the long reply.
const LONG_REPLY: usize = 200_000;
/// How often each thread is loaded.
const LOADS: usize = 9;
/// How often deltas are measured in each thread, and how many at a time, one every 20 ms.
const STREAMS: usize = 3;
const DELTAS: usize = 100;
/// Most that the long thread may cost, as a multiple of what the short one does.
const BOUND: f64 = 1.5;
/// Milliseconds from which on a task is a long one; the browser's own bound.
const LONG_TASK_MS: f64 = 50.0;

/// Notes when the newest message has been painted, and what took long since.
const WATCH: &str = r"
    window.long = [];
    window.events = [];
    window.painted = new Promise((done) => {
        const look = () => {
            const all = document.querySelectorAll('.message');
            if (!all.length || !all[all.length - 1].textContent.includes('word')) return requestAnimationFrame(look);
            const channel = new MessageChannel();
            channel.port1.onmessage = () => done(performance.now());
            requestAnimationFrame(() => channel.port2.postMessage(0));
        };
        requestAnimationFrame(look);
    });
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map(({startTime, duration}) => [startTime, duration])))
        .observe({type: 'longtask', buffered: true});
    new PerformanceObserver((list) => window.events.push(...list.getEntries().map(({name, duration}) => [name, duration])))
        .observe({type: 'event', durationThreshold: 16, buffered: true});
";

/// What was measured in the short thread and in the long one.
struct Pair {
    what: &'static str,
    unit: &'static str,
    short: Vec<f64>,
    long: Vec<f64>,
}

impl Pair {
    fn new(what: &'static str, unit: &'static str) -> Self {
        Self { what, unit, short: Vec::new(), long: Vec::new() }
    }

    fn holds(&self) -> bool {
        let (short, long) = (median(&self.short), median(&self.long));
        let holds = short > 0.0 && long <= short * BOUND;
        println!(
            "{}: {short:.2} {unit} in a thread of {} messages, {long:.2} {unit} in one of {}: {:.2} times as much; bound {BOUND}: {}",
            self.what,
            TURNS[0] * 2,
            TURNS[1] * 2,
            long / short,
            if holds { "holds" } else { "BROKEN" },
            unit = self.unit,
        );
        holds
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Measures everything and says whether it holds.
///
/// # Errors
/// Browser or server is missing, or the page does not do what is measured.
pub async fn run() -> Result<bool> {
    let provider = Provider::start().await?;
    let installation = Installation::with_provider(&provider)?;
    let token = installation.user("alice").await?;
    let mut server = installation.serve().await?;
    server.hush();
    let alice = server.client(&token)?;
    let [short, long] = [thread(&alice, TURNS[0]).await?, thread(&alice, TURNS[1]).await?];

    let browser = Browser::start().await?;
    browser.before_each_page(WATCH).await?;
    browser.open(&format!("{}/demo/assistant", server.url)).await?;
    browser.css("[name=name]").await?.send_keys("alice").await?;
    browser.css("[name=password]").await?.send_keys(&password("alice")).await?;
    browser.css("[type=submit]").await?.click().await?;
    browser.css("#composer").await?;
    let address = |thread: ThreadId| format!("{}/demo/assistant/{thread}", server.url);

    let mut paint = Pair::new("first paint of the newest message", "ms");
    for _ in 0..LOADS {
        for (thread, samples) in [(short, &mut paint.short), (long, &mut paint.long)] {
            browser.open(&address(thread)).await?;
            let painted = browser.execute_async("painted.then(arguments[arguments.length - 1])").await?;
            samples.push(painted.as_f64().context("a time")?);
        }
    }
    let mut holds = paint.holds();

    let mut delta = Pair::new("main thread per delta", "ms");
    for _ in 0..STREAMS {
        for (thread, samples) in [(short, &mut delta.short), (long, &mut delta.long)] {
            browser.open(&address(thread)).await?;
            settled(&browser).await?;
            samples.push(stream(&browser).await?);
        }
    }
    holds &= delta.holds();

    // The longest thread that is: a thousand messages, and a reply of 200 KB among the last.
    alice.say_in("assistant", long, &format!("[[markdown:{LONG_REPLY}]]")).await?.done().await?;
    alice.say_in("assistant", long, "[[words:20]]").await?.done().await?;
    browser.open(&address(long)).await?;
    settled(&browser).await?;
    holds &= no_jank(&browser, "typing", type_something(&browser)).await?;
    holds &= no_jank(&browser, "scrolling to the start and back", scroll(&browser)).await?;
    holds &= no_jank(&browser, "typing while a reply streams", type_while_streaming(&browser)).await?;
    Ok(holds)
}

/// A thread of so many turns, with replies as they come: of some paragraphs, lists and code.
async fn thread(alice: &Client, turns: usize) -> Result<ThreadId> {
    let said = "[[markdown:600]][[say:\n\nThe last word.]]";
    let mut first = alice.say("assistant", said).await?;
    first.done().await?;
    let thread = first.started.thread;
    for _ in 1..turns {
        alice.say_in("assistant", thread, said).await?.done().await?;
    }
    Ok(thread)
}

/// Waits until the page shows the whole thread, and the browser has nothing to do.
async fn settled(browser: &Browser) -> Result<()> {
    let idle = "const done = arguments[arguments.length - 1]; let count = -1; const look = () => { \
        const now = document.querySelectorAll('.message').length; \
        if (now > 0 && now === count) return done(now); count = now; requestIdleCallback(() => setTimeout(look, 500)) }; look()";
    browser.execute_async(idle).await.map(drop)
}

/// Sends a message by the keyboard. Elements are found without asking for roles and names, which costs the page a lot.
async fn send(browser: &Browser, text: &str) -> Result<()> {
    browser.css("#composer").await?.send_keys(text).await?;
    browser.css("[data-testid=send]").await?.click().await?;
    Ok(())
}

/// Waits until the newest message has so many words, and returns how many it has then.
async fn words(browser: &Browser, at_least: usize) -> Result<f64> {
    let wait = format!(
        "const done = arguments[arguments.length - 1]; const look = () => {{ const all = document.querySelectorAll('.message'); \
         const count = all[all.length - 1].textContent.split('word').length - 1; \
         count >= {at_least} ? done(count) : setTimeout(look, 50) }}; look()"
    );
    browser.execute_async(&wait).await?.as_f64().context("a count")
}

/// Waits until the newest message has that status.
async fn newest(browser: &Browser, status: ExecutionStatus) -> Result<()> {
    let wait = format!(
        "const done = arguments[arguments.length - 1]; const look = () => \
         [...document.querySelectorAll('.message')].at(-1).dataset.status === '{}' ? done(true) : setTimeout(look, 50); look()",
        status.as_str()
    );
    browser.execute_async(&wait).await.map(drop)
}

/// Lets a reply stream and returns how many milliseconds the main thread was busy with each of its deltas.
async fn stream(browser: &Browser) -> Result<f64> {
    browser.devtools("Performance.enable", json!({})).await?;
    send(browser, &format!("[[words:{}:20ms]]", DELTAS + 20)).await?;
    newest(browser, ExecutionStatus::Running).await?;
    let (first, busy) = (words(browser, 10).await?, busy(browser).await?);
    let last = words(browser, 10 + DELTAS).await?;
    let busy = self::busy(browser).await? - busy;
    ensure!(last > first, "no delta came while it was measured");
    newest(browser, ExecutionStatus::Success).await?;
    settled(browser).await?;
    Ok(busy / (last - first))
}

/// Milliseconds that the page's main thread has been busy.
async fn busy(browser: &Browser) -> Result<f64> {
    let metrics = browser.devtools("Performance.getMetrics", json!({})).await?;
    let tasks = metrics["metrics"].as_array().into_iter().flatten().find(|metric| metric["name"] == "TaskDuration");
    Ok(tasks.and_then(|metric| metric["value"].as_f64()).context("the browser tells no TaskDuration")? * 1_000.0)
}

/// Whether the page had no long task while something was done.
async fn no_jank(browser: &Browser, what: &str, done: impl Future<Output = Result<()>>) -> Result<bool> {
    let look = async |script: &str| -> Result<Value> { Ok(browser.web().execute(script, Vec::new()).await?) };
    look("window.long = []; window.events = []").await?;
    done.await?;
    // Entries come once the page is idle.
    settled(browser).await?;
    let longest = |list: Value, at: usize| -> (usize, f64) {
        let durations: Vec<_> = list.as_array().into_iter().flatten().filter_map(|entry| entry[at].as_f64()).collect();
        (durations.len(), durations.into_iter().fold(0.0, f64::max))
    };
    let (tasks, task) = longest(look("return long").await?, 1);
    let (_, event) = longest(look("return events").await?, 1);
    let holds = task <= LONG_TASK_MS;
    println!(
        "{what}: {tasks} long tasks, the longest {task:.0} ms; the slowest event {event:.0} ms; bound {LONG_TASK_MS:.0} ms: {}",
        if holds { "holds" } else { "BROKEN" }
    );
    Ok(holds)
}

/// Key by key, as the browser gets them from a keyboard. WebDriver's own way first asks the page for a lot.
async fn type_something(browser: &Browser) -> Result<()> {
    browser.web().execute("document.querySelector('#composer').focus()", Vec::new()).await?;
    for letter in "The quick brown fox jumps. ".repeat(4).chars().map(String::from) {
        for (kind, text) in [("keyDown", letter.as_str()), ("keyUp", "")] {
            browser.devtools("Input.dispatchKeyEvent", json!({"type": kind, "key": letter, "text": text})).await?;
        }
    }
    Ok(())
}

/// As a wheel does, and then by the keyboard.
async fn scroll(browser: &Browser) -> Result<()> {
    for distance in [500_000, -500_000] {
        let gesture = json!({"x": 700, "y": 300, "yDistance": distance, "speed": 40_000, "gestureSourceType": "mouse"});
        browser.devtools("Input.synthesizeScrollGesture", gesture).await?;
    }
    let region = browser.css(".scroll").await?;
    for key in ["\u{e011}", "\u{e010}", "\u{e00e}", "\u{e00e}", "\u{e00f}"] {
        region.send_keys(key).await?;
    }
    Ok(())
}

async fn type_while_streaming(browser: &Browser) -> Result<()> {
    browser.css("#composer").await?.clear().await?;
    send(browser, &format!("[[markdown:{LONG_REPLY}:1ms]]")).await?;
    newest(browser, ExecutionStatus::Running).await?;
    type_something(browser).await?;
    newest(browser, ExecutionStatus::Success).await
}
