//! Behind the proxies of `deploy/`: what is streamed arrives as it comes, and a process that is about to end loses nobody. The proxies
//! are the distribution's own, with the files that we hand out; only addresses and the certificate are replaced.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    process::Command,
};
use turnfast_shared::{ExecutionStatus, api::PushEvent};
use turnfast_tests::{
    client::Client,
    installation::{Installation, Server},
    process::Process,
    provider::Provider,
    within,
};

use crate::House;

/// A proxy that runs, and ends when this is dropped.
struct Proxy {
    url: String,
    _process: Process,
    _folder: TempDir,
}

/// The text of a file in `deploy/`.
fn example(name: &str) -> Result<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name);
    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
}

/// `text` with the one `old` in it replaced.
fn replaced(text: &str, old: &str, new: &str) -> Result<String> {
    ensure!(text.matches(old).count() == 1, "`{old}` is not in the example once");
    Ok(text.replace(old, new))
}

/// A port that nothing listens on.
async fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port())
}

impl Proxy {
    /// nginx with `deploy/nginx.conf`, before these servers.
    async fn nginx(servers: &[&Server]) -> Result<Self> {
        let upstream: Vec<_> = servers.iter().map(|server| format!("server {};", server.address())).collect();
        let site = replaced(&example("nginx.conf")?, "server 127.0.0.1:8080;", &upstream.join("\n    "))?;
        Self::nginx_with(&site).await
    }

    /// nginx as somebody sets it up who has not read what we say of streams.
    async fn plain_nginx(server: &Server) -> Result<Self> {
        let address = server.address();
        let site = format!(
            "gzip on; gzip_types *; gzip_min_length 0;\n\
             server {{ listen 443 ssl http2; ssl_certificate /etc/ssl/chat.example.org.pem; ssl_certificate_key /etc/ssl/chat.example.org.key;\n\
             location / {{ proxy_pass http://{address}; proxy_set_header Host $host; }} }}"
        );
        Self::nginx_with(&site).await
    }

    async fn nginx_with(site: &str) -> Result<Self> {
        let (folder, port) = (tempfile::tempdir()?, free_port().await?);
        let site = replaced(site, "listen 443 ssl http2;", &format!("listen 127.0.0.1:{port};"))?;
        let site = replaced(&site, "ssl_certificate /etc/ssl/chat.example.org.pem;", "")?;
        let site = replaced(&site, "ssl_certificate_key /etc/ssl/chat.example.org.key;", "")?;
        // What the distribution's nginx.conf has around a site, with everything in a folder of our own, and in one process: what is
        // killed with the test must leave no workers behind.
        let around = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{ worker_connections 256; }}\n\
             http {{\naccess_log off;\nclient_body_temp_path body;\nproxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n{site}\n}}\n"
        );
        let config = folder.path().join("nginx.conf");
        fs::write(&config, around)?;
        let mut command = Command::new(turnfast_tests::process::installed("nginx")?);
        command.arg("-p").arg(folder.path()).arg("-c").arg(&config).args(["-e", "stderr"]);
        Self::started(command, folder, port).await
    }

    /// Caddy with `deploy/Caddyfile`, before these servers.
    async fn caddy(servers: &[&Server]) -> Result<Self> {
        let (folder, port) = (tempfile::tempdir()?, free_port().await?);
        let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
        let site =
            replaced(&example("Caddyfile")?, "reverse_proxy 127.0.0.1:8080", &format!("reverse_proxy {}", addresses.join(" ")))?;
        let site = replaced(&site, "\nchat.example.org {", &format!("\nhttp://127.0.0.1:{port} {{"))?;
        let config = folder.path().join("Caddyfile");
        // Its remote control stays off, so that it does not meet another one on the machine.
        fs::write(&config, format!("{{\n\tadmin off\n}}\n{site}"))?;
        let mut command = Command::new(turnfast_tests::process::installed("caddy")?);
        command.arg("run").arg("--config").arg(&config).args(["--adapter", "caddyfile"]);
        for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env(name, folder.path());
        }
        Self::started(command, folder, port).await
    }

    async fn started(command: Command, folder: TempDir, port: u16) -> Result<Self> {
        let process = Process::start(command, folder.path().join("stderr"))?;
        within("the proxy", async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                // It says nothing on stdout when it is ready; whether it listens is the only sign.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(Self { url: format!("http://127.0.0.1:{port}"), _process: process, _folder: folder })
    }
}

/// The first words are read while the provider waits for us to have read them: a proxy that keeps them back makes this wait for ever.
async fn streams_as_it_comes(house: &House, proxy: &Proxy) -> Result<()> {
    let alice = Client::new(&proxy.url, &house.token)?;
    let mut push = alice.push().await?;
    let mut live = alice.say("assistant", "[[words:2]][[hold:gate]][[say: end]]").await?;
    live.until_text("word2").await?;
    let mut told = push.next().await?;
    while !matches!(&told, PushEvent::AgentExecutionUpdated(update) if update.thread_id == live.started.thread) {
        told = push.next().await?;
    }
    house.provider.release("gate").await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    assert_eq!(alice.settled("assistant", live.started.thread).await?.text(), "word1 word2 end");

    // Who leaves the proxy leaves the server, and the turn runs on.
    let left = alice.say("assistant", "[[words:2]][[hold:left]][[say: end]]").await?.started;
    house.provider.holds("left").await?;
    house.provider.release("left").await?;
    assert_eq!(alice.settled("assistant", left.thread).await?.text(), "word1 word2 end");
    Ok(())
}

#[tokio::test]
async fn nginx_keeps_nothing_of_a_stream_back() -> Result<()> {
    let house = House::open().await?;
    let proxy = Proxy::nginx(&[&house.server]).await?;
    streams_as_it_comes(&house, &proxy).await
}

#[tokio::test]
async fn nginx_without_any_settings_for_streams_keeps_nothing_back_either() -> Result<()> {
    let house = House::open().await?;
    let proxy = Proxy::plain_nginx(&house.server).await?;
    streams_as_it_comes(&house, &proxy).await
}

#[tokio::test]
async fn caddy_keeps_nothing_of_a_stream_back() -> Result<()> {
    let house = House::open().await?;
    let proxy = Proxy::caddy(&[&house.server]).await?;
    streams_as_it_comes(&house, &proxy).await
}

#[tokio::test]
async fn nginx_takes_as_much_as_the_server_does() -> Result<()> {
    let house = House::open().await?;
    let proxy = Proxy::nginx(&[&house.server]).await?;
    let alice = Client::new(&proxy.url, &house.token)?;
    // Eight files of 5 MiB are what the server takes unless told otherwise. What is too much is its own, clear answer.
    let files = |count: usize| {
        use base64::{Engine as _, prelude::BASE64_STANDARD};
        let data = BASE64_STANDARD.encode(vec![b'a'; 5 * 1024 * 1024]);
        let files: Vec<_> = (0..count)
            .map(|n| serde_json::json!({"name": format!("{n}.txt"), "mediaType": "text/plain", "data": data}))
            .collect();
        serde_json::json!({"message": "[[say:read]]", "attachments": files})
    };
    let taken = within("an answer", alice.agent(Method::POST, "assistant", "/chat").json(&files(8)).send()).await?;
    assert_eq!(taken.status(), StatusCode::OK);
    drop(taken);
    let refused = turnfast_tests::client::refusal(alice.agent(Method::POST, "assistant", "/chat").json(&files(9))).await?;
    assert_eq!(refused.code, turnfast_shared::problem::Code::PayloadTooLarge, "{refused:?}");
    Ok(())
}

/// One process after the other is replaced while turns run. Each turn that was accepted ends as it would have, and whoever follows
/// through the proxy is served by those that remain.
#[tokio::test]
async fn a_rolling_restart_under_load_loses_no_turn() -> Result<()> {
    let provider = Provider::start().await?;
    let installation = Installation::with_provider(&provider)?.on_postgres(turnfast_test_postgres::database()?);
    let (a, b) = tokio::try_join!(installation.serve(), installation.serve())?;
    let token = installation.user("alice").await?;
    let proxy = Proxy::nginx(&[&a, &b]).await?;
    let through = Client::new(&proxy.url, &token)?;
    let (address_a, address_b) = (a.address().to_owned(), b.address().to_owned());
    let (mut turns, mut replacements) = (Vec::new(), Vec::new());
    for (round, (old, address)) in [(a, address_a), (b, address_b)].into_iter().enumerate() {
        let gate = format!("gate{round}");
        let say = format!("[[words:2]][[hold:{gate}]][[say: end]]");
        // Some at the process that is to end, some wherever the proxy sends them; four, since a user has at most eight at once.
        let direct = old.client(&token)?;
        for client in [&direct, &direct, &through, &through] {
            turns.push(client.say("assistant", &say).await?.started);
        }
        old.ask_to_end()?;
        // Not ready from then on, while its turns go on. `within` is how long it may take to notice.
        within("the process to say that it is not ready", async {
            loop {
                let ready = direct.request(Method::GET, "/readyz").send().await?;
                if ready.status() == StatusCode::SERVICE_UNAVAILABLE {
                    return anyhow::Ok(());
                }
                tokio::task::yield_now().await;
            }
        })
        .await?;
        // Readers come to the other process without noticing.
        for started in &turns {
            let read = through.read("assistant", started.thread).await?;
            assert_eq!(read.messages.len(), 2);
        }
        provider.release(&gate).await?;
        let status = old.ended().await?;
        assert!(status.success(), "{status}");
        // It takes the other's place for the rest of the test.
        replacements.push(installation.serve_at(&address).await?);
        turns_ended(&through, &turns).await?;
    }
    Ok(())
}

async fn turns_ended(client: &Client, turns: &[turnfast_tests::client::Started]) -> Result<()> {
    for started in turns {
        let message = client.settled("assistant", started.thread).await?;
        assert_eq!(message.id, started.assistant);
        assert_eq!((message.execution_status, message.text().as_str()), (Some(ExecutionStatus::Success), "word1 word2 end"));
    }
    Ok(())
}
