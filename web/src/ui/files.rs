//! Files on their way into a message: chosen, pasted or dropped.

use turnfast_shared::api::{AttachmentLimits, NewAttachment};
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{ClipboardEvent, DragEvent, Element, Event, File, FileList, HtmlElement, HtmlInputElement};

use super::{
    app::{Action, App, Draft},
    conversation::Conversation,
    icon,
    node::{Key, element},
    page,
};
use crate::{files, words};

/// The button that chooses files, and the field behind it; `None` where the agent takes none.
pub(super) fn button(open: &Conversation) -> Option<[Draft; 2]> {
    open.takes_files()?;
    let field =
        element("input", &[("type", "file"), ("id", "files"), ("multiple", ""), ("hidden", ""), ("data-testid", "files")])
            .key(Key::Name("files"))
            .on("change", Action::FilesPicked);
    let button = element("button", &[("type", "button"), ("class", "icon attach"), ("aria-label", "Attach files")])
        .key(Key::Name("attach"))
        .on("click", Action::PickFiles)
        .with(icon::clip());
    Some([field, button])
}

/// What goes with the message, each to be taken back.
pub(super) fn chosen(attachments: &[NewAttachment]) -> Option<Draft> {
    if attachments.is_empty() {
        return None;
    }
    let items = attachments.iter().enumerate().map(|(at, file)| {
        let remove = element("button", &[("type", "button"), ("class", "icon")])
            .set("aria-label", format!("Remove {}", file.name))
            .on("click", Action::RemoveFile(at))
            .with(icon::close());
        element("li", &[("class", "chip"), ("data-testid", "chosen-file")])
            .with(element("span", &[("dir", "auto")]).text(file.name.clone()))
            .with(element("small", &[]).text(words::size(files::size(file))))
            .with(remove)
            .done()
    });
    let list = element("ul", &[("class", "chips"), ("aria-label", "Files that go with the message")]);
    Some(list.key(Key::Name("chips")).children(items.collect()))
}

pub(super) fn pick() {
    if let Some(field) = page::find("#files").and_then(|field| field.dyn_into::<HtmlElement>().ok()) {
        field.click();
    }
}

pub(super) fn picked(app: &App, field: &Element) {
    let Some(field) = field.dyn_ref::<HtmlInputElement>() else { return };
    let files = list(field.files());
    // So that the same file can be chosen again.
    field.set_value("");
    add(app, files);
    page::focus_composer();
}

pub(super) fn pasted(app: &App, event: &Event) {
    let Some(data) = event.dyn_ref::<ClipboardEvent>().and_then(ClipboardEvent::clipboard_data) else { return };
    let files = list(data.files());
    if !files.is_empty() {
        event.prevent_default();
        add(app, files);
    }
}

/// Files are dragged over the page, or dropped on it. Left alone, the browser would leave the page to show them.
pub(super) fn dragged(app: &App, event: &Event) {
    let Some(data) = event.dyn_ref::<DragEvent>().and_then(DragEvent::data_transfer) else { return };
    if !data.types().includes(&"Files".into(), 0) {
        return;
    }
    event.prevent_default();
    if event.type_() == "drop" {
        add(app, list(data.files()));
    }
}

pub(super) fn remove(app: &App, at: usize) {
    let Some(handle) = app.handle() else { return };
    let mut all = handle.view().attachments.to_vec();
    if at < all.len() {
        let gone = all.remove(at);
        handle.set_attachments(all);
        app.say(format!("Removed {}.", gone.name));
    }
    page::focus_composer();
}

fn list(files: Option<FileList>) -> Vec<File> {
    files.map(|files| (0..files.length()).filter_map(|at| files.get(at)).collect()).unwrap_or_default()
}

/// Takes files along, as far as they may go, and says which may not.
fn add(app: &App, chosen: Vec<File>) {
    let Some((handle, limits, number)) =
        app.peek().open.as_ref().map(|open| (open.handle.clone(), open.takes_files(), open.number))
    else {
        return;
    };
    let app = app.clone();
    spawn_local(async move {
        let mut troubles = Vec::new();
        let mut added = Vec::new();
        match limits {
            None => troubles.push("This agent takes no files.".to_owned()),
            Some(limits) => {
                for file in chosen {
                    let taken = read(&file, limits).await;
                    // As they are now: reading took a while.
                    let mut all = handle.view().attachments.to_vec();
                    if all.len() as u64 >= limits.max {
                        troubles.push(files::too_many(limits));
                        break;
                    }
                    match taken {
                        Ok(file) => {
                            added.push(file.name.clone());
                            all.push(file);
                            handle.set_attachments(all);
                        }
                        Err(why) => troubles.push(why),
                    }
                }
            }
        }
        let mut state = app.state();
        if let Some(open) = state.open.as_mut().filter(|open| open.number == number) {
            open.file_trouble = (!troubles.is_empty()).then(|| troubles.join(" "));
            if !added.is_empty() {
                state.said = format!("Added {}.", added.join(", "));
            }
        }
    });
}

async fn read(file: &File, limits: AttachmentLimits) -> Result<NewAttachment, String> {
    let name = file.name();
    if file.size() > limits.max_bytes as f64 {
        return Err(files::too_large(&name, limits));
    }
    let read = JsFuture::from(file.array_buffer().unchecked_into::<js_sys::Promise>()).await;
    let data = read.map_err(|_| format!("“{name}” could not be read."))?;
    files::take(&name, &file.type_(), &js_sys::Uint8Array::new(&data).to_vec(), limits)
}
