//! Who and what the tests talk to.

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use turnfast_shared::{
    Event, Message,
    api::{ChatRequest, ResumeRequest, ThreadSnapshot},
    event::Suspension,
    ids::{ExecutionId, ThreadId},
    message::ResumeData,
};

use crate::{
    client::{Client, Live, Started, answer, assistant},
    within,
};

/// What is tested.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub url: String,
    /// A second process on the same database; else the same.
    pub second_url: Option<String>,
    /// A token of a user who may talk to the agent.
    pub token: String,
    /// A token of another such user.
    pub other_token: String,
    /// The project.
    pub project: String,
    /// The agent, which does what the demo agent does.
    pub agent: String,
}

/// Callers, and what most tests begin with.
#[derive(Clone, Debug)]
pub struct House {
    /// The user whose turns they are.
    pub owner: Client,
    /// The same user at the second process, where there is one.
    pub second: Client,
    /// The other user.
    pub other: Client,
    /// Without credentials.
    pub nobody: Client,
    /// The target.
    pub target: Target,
}

impl House {
    /// Makes the callers.
    ///
    /// # Errors
    /// No HTTP client is to be had.
    pub fn new(mut target: Target) -> Result<Self> {
        target.url.truncate(target.url.trim_end_matches('/').len());
        let second = target.second_url.clone().unwrap_or_else(|| target.url.clone());
        let owner = Client::new(&target.url, &target.token)?.in_project(&target.project);
        Ok(Self {
            second: owner.with(second.trim_end_matches('/'), &target.token),
            other: owner.with(&target.url, &target.other_token),
            nobody: owner.with(&target.url, ""),
            owner,
            target,
        })
    }

    /// That the target is there and the two tokens are those of two users.
    ///
    /// # Errors
    /// It is not.
    pub async fn check(&self) -> Result<()> {
        let me = |who: &Client| answer::<Value>(who.request(Method::GET, "/auth/me"));
        let (owner, other) = (me(&self.owner).await.context("--token")?, me(&self.other).await.context("--other-token")?);
        ensure!(owner["id"] != other["id"], "both tokens are those of {}", owner["name"]);
        for who in [&self.owner, &self.other] {
            answer::<Value>(self.at(who, Method::GET, "")).await.context("the agent")?;
        }
        Ok(())
    }

    /// The agent's id.
    pub fn agent(&self) -> &str {
        &self.target.agent
    }

    /// A request of `who` to a path below the agent's.
    pub fn at(&self, who: &Client, method: Method, path: &str) -> RequestBuilder {
        who.agent(method, self.agent(), path)
    }

    /// The server's address as plain HTTP has it.
    fn authority(&self) -> Result<&str> {
        let authority = self.target.url.strip_prefix("http://");
        authority.context("this test speaks plain HTTP only; run it at the server itself, without the proxy")
    }

    /// A connection to the server, which takes in little at a time where it is told how much.
    pub(super) async fn connect(&self, recv_buffer: Option<u32>) -> Result<TcpStream> {
        let address = lookup_host(self.authority()?).await?.next().context("the server's address")?;
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(bytes) = recv_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        within("a connection", socket.connect(address)).await
    }

    /// What comes before the body of the owner's POST to a path below the agent's.
    pub(super) fn post_head(&self, path: &str, length: usize) -> Result<String> {
        let (authority, Target { project, agent, token, .. }) = (self.authority()?, &self.target);
        Ok(format!(
            "POST /projects/{project}/agents/v2/{agent}{path} HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        ))
    }

    /// A submit of the owner that need not succeed.
    pub fn chat(&self, body: &Value) -> RequestBuilder {
        self.at(&self.owner, Method::POST, "/chat").json(body)
    }

    /// Starts a turn of the owner in a new thread.
    pub async fn say(&self, text: &str) -> Result<Live> {
        self.owner.say(self.agent(), text).await
    }

    /// Starts a turn of the owner in a thread that exists.
    pub async fn say_in(&self, thread: ThreadId, text: &str) -> Result<Live> {
        self.owner.say_in(self.agent(), thread, text).await
    }

    /// Runs a turn of the owner in a new thread to its end.
    pub async fn turn(&self, text: &str) -> Result<Live> {
        let mut live = self.say(text).await?;
        live.rest().await?;
        Ok(live)
    }

    /// A thread whose id is taken before anything is said in it.
    pub async fn say_as(&self, request: &ChatRequest) -> Result<Live> {
        self.owner.submit(self.agent(), request).await
    }

    /// What the owner reads.
    pub async fn read(&self, thread: ThreadId) -> Result<ThreadSnapshot> {
        self.owner.read(self.agent(), thread).await
    }

    /// The same as JSON, for what is in it and what is not.
    pub async fn read_json(&self, thread: ThreadId, query: &str) -> Result<Value> {
        answer(self.at(&self.owner, Method::GET, &format!("/chat/{thread}/messages{query}"))).await
    }

    /// The events of a stream as they came, unread: a type would not see a field that it does not know.
    pub async fn events(&self, request: RequestBuilder) -> Result<Vec<Value>> {
        let response = within("a stream", request.send()).await?;
        let (status, text) = (response.status(), within("its end", response.text()).await?);
        ensure!(status == StatusCode::OK, "{status}: {text}");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|json| serde_json::from_str(json).with_context(|| json.to_owned())).collect()
    }

    /// Reads at the second process until `found` is content, again whenever a notification says so.
    pub async fn read_until(
        &self,
        thread: ThreadId,
        what: &str,
        found: impl Fn(&ThreadSnapshot) -> bool,
    ) -> Result<ThreadSnapshot> {
        self.second.read_until(self.agent(), thread, what, found).await
    }

    /// Waits until nothing runs in the thread and returns its last message.
    pub async fn settled(&self, thread: ThreadId) -> Result<Message> {
        self.second.settled(self.agent(), thread).await
    }

    /// Runs a turn that waits for a person, and returns how it began and what it waits for.
    pub async fn suspended(&self, text: &str) -> Result<(Started, Suspension)> {
        let mut live = self.say(text).await?;
        let event = live.until("a suspension", |event| matches!(event, Event::ToolCallSuspended { .. })).await?;
        live.rest().await?;
        let Event::ToolCallSuspended { payload } = event else { anyhow::bail!("{event:?} is no suspension") };
        Ok((live.started, payload))
    }

    /// Answers.
    pub async fn resume(&self, asked: &Suspension, resume_data: ResumeData) -> Result<Live> {
        let request = ResumeRequest { run_id: asked.run_id, tool_call_id: asked.tool_call_id.clone(), resume_data };
        self.owner.resume(self.agent(), &request).await
    }

    /// An answer that need not be taken.
    pub fn answering(&self, who: &Client, asked: &Suspension, data: &Value) -> RequestBuilder {
        let body = json!({"runId": asked.run_id, "toolCallId": asked.tool_call_id, "resumeData": data});
        self.at(who, Method::POST, "/chat/resume").json(&body)
    }

    /// Asks at the second process for an execution to stop, and returns what the answer says.
    pub async fn stop(&self, thread: ThreadId, execution: ExecutionId) -> Result<bool> {
        Ok(self.second.stop(self.agent(), thread, execution).await?.cancel_requested)
    }
}

/// The last message of a read, as JSON.
pub(super) fn last(read: &Value) -> Result<&Value> {
    read["messages"].as_array().and_then(|messages| messages.last()).with_context(|| format!("no message in {read}"))
}

/// The text of a thread's last message, where it is the agent's.
pub(super) fn text_of(read: &ThreadSnapshot) -> String {
    assistant(read).map(Message::text).unwrap_or_default()
}
