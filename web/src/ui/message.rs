//! One message and its parts.

use leptos::{html, prelude::*};
use turnfast_shared::{ExecutionStatus, Part, Role};

use super::{
    conversation::{Row, open},
    copy,
    dom::Rendered,
    local_time, now,
    tool::ToolCard,
};
use crate::{
    api,
    markdown::Document,
    words::{self, Tone},
};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Text,
    Reasoning,
    File,
    Tool,
}

fn kind(part: &Part) -> Kind {
    match part {
        Part::Text { .. } => Kind::Text,
        Part::Reasoning { .. } => Kind::Reasoning,
        Part::File { .. } => Kind::File,
        Part::ToolCall(_) => Kind::Tool,
    }
}

/// A message of the list.
#[component]
pub(super) fn MessageRow(row: Row) -> impl IntoView {
    let open = open();
    let parts = Memo::new(move |_| {
        row.message.with(|message| message.content.iter().map(kind).enumerate().collect::<Vec<(usize, Kind)>>())
    });
    let status = Memo::new(move |_| row.message.with(|message| message.execution_status));
    let running = Memo::new(move |_| status.get() == Some(ExecutionStatus::Running));
    let user = row.role == Role::User;
    let (speaker, test_id) = if user {
        ("You".to_owned(), "message-user")
    } else {
        (open.agent.with_value(|agent| agent.name.clone()), "message-assistant")
    };
    let created = row.message.with_untracked(|message| message.created_at.clone());
    let time = local_time(&created);
    let outcome = Memo::new(move |_| row.message.with(|message| words::outcome(message)));
    let copy_all = move |event: leptos::ev::MouseEvent| {
        let button: web_sys::Element = event_target(&event);
        copy(row.message.with_untracked(|message| words::copied(message)), button);
    };
    view! {
        <div class="message" class:user=user data-testid=test_id data-id=row.id.to_string() data-status=move || status.get().map(ExecutionStatus::as_str)>
            <article aria-label=speaker.clone() aria-busy=move || running.get().then_some("true")>
                <h2 class:said=user>{speaker.clone()}</h2>
                <For each=move || parts.get() key=|part| *part let((index, kind))>
                    {match kind {
                        Kind::Text if user => view! { <p class="bubble">{move || text_of(row, index)}</p> }.into_any(),
                        Kind::Text => view! { <Markdown row index/> }.into_any(),
                        Kind::Reasoning => view! { <Reasoning row index/> }.into_any(),
                        Kind::File => view! { <File row index/> }.into_any(),
                        Kind::Tool => view! { <ToolCard row index/> }.into_any(),
                    }}
                </For>
                {move || (running.get() && parts.with(Vec::is_empty)).then(|| view! { <p class="thinking">"Working on it…"</p> })}
                {move || outcome.get().map(|(tone, text)| view! { <p class=tone_class(tone) data-testid="outcome">{text}</p> })}
                {(!user).then(|| view! {
                    <div class="meta">
                        <time datetime=created.clone()>{time.clone()}</time>
                        {move || (!running.get() && parts.with(|parts| parts.iter().any(|(_, kind)| *kind == Kind::Text))).then(|| view! {
                            <button type="button" class="quiet copy" on:click=copy_all>"Copy"</button>
                        })}
                    </div>
                })}
            </article>
        </div>
    }
}

fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Quiet => "note",
        Tone::Bad => "note bad",
    }
}

fn text_of(row: Row, index: usize) -> String {
    row.message.with(|message| match message.content.get(index) {
        Some(Part::Text { text } | Part::Reasoning { text, .. }) => text.clone(),
        _ => String::new(),
    })
}

/// A text part as Markdown.
#[component]
fn Markdown(row: Row, index: usize) -> impl IntoView {
    let host = NodeRef::<html::Div>::new();
    show_markdown(host, move |show| {
        row.message.with(|message| {
            let done = message.execution_status.is_none_or(ExecutionStatus::is_final);
            if let Some(Part::Text { text } | Part::Reasoning { text, .. }) = message.content.get(index) {
                show(text, done);
            }
        });
    });
    view! { <div class="prose" node_ref=host></div> }
}

/// Shows in `host` what `source` passes on: a text, and whether nothing will be appended to it.
pub(super) fn show_markdown(host: NodeRef<html::Div>, source: impl Fn(&mut dyn FnMut(&str, bool)) + 'static) {
    let state = StoredValue::new_local(None::<(Document, Rendered)>);
    Effect::new(move |_| {
        let Some(host) = host.get() else { return };
        source(&mut |text, done| {
            state.update_value(|state| {
                let (parsed, rendered) = state.get_or_insert_with(|| {
                    (Document::default(), Rendered::new(web_sys::HtmlElement::clone(&host).into(), document()))
                });
                for from in [parsed.update(text), done.then(|| parsed.finish()).flatten()].into_iter().flatten() {
                    rendered.show(parsed.blocks(), from);
                }
            });
        });
    });
}

/// The model's reasoning, folded.
#[component]
fn Reasoning(row: Row, index: usize) -> impl IntoView {
    let times = Memo::new(move |_| {
        row.message.with(|message| match message.content.get(index) {
            Some(Part::Reasoning { start_time, end_time, .. }) => {
                (*start_time, *end_time, message.execution_status == Some(ExecutionStatus::Running))
            }
            _ => (0, None, false),
        })
    });
    let unfolded = RwSignal::new(false);
    let title = move || match times.get() {
        (start, Some(end), _) => format!("Reasoned for {}", words::duration(end - start)),
        (_, None, true) => "Reasoning…".to_owned(),
        (..) => "Reasoning".to_owned(),
    };
    view! {
        <details class="fold reasoning" data-testid="reasoning" on:toggle=move |event| unfolded.set(is_open(&event))>
            <summary>{title}</summary>
            {move || unfolded.get().then(|| view! { <Markdown row index/> })}
        </details>
    }
}

/// Whether the `<details>` of a toggle event is open now.
pub(super) fn is_open(event: &leptos::ev::Event) -> bool {
    event_target::<web_sys::HtmlDetailsElement>(event).open()
}

/// An attachment.
#[component]
fn File(row: Row, index: usize) -> impl IntoView {
    let open = open();
    row.message.with_untracked(|message| match message.content.get(index) {
        Some(Part::File { id, name, media_type, size }) => {
            let path =
                open.project.with_value(|project| open.agent.with_value(|agent| api::attachment_path(project, &agent.id, id)));
            let about = format!("{media_type}, {}", words::size(*size));
            view! {
                <a class="file" href=path target="_blank" rel="noopener noreferrer"><strong>{name.clone()}</strong><span>{about}</span></a>
            }
            .into_any()
        }
        _ => ().into_any(),
    })
}

/// Time since `start`, or up to `end`.
pub(super) fn elapsed(start: turnfast_shared::Millis, end: Option<turnfast_shared::Millis>) -> String {
    words::duration(end.unwrap_or_else(now) - start)
}
