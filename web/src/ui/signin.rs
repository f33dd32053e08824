//! Signing in: as a page, and as a dialog over what was open when the session ended.

use leptos::{ev, html, prelude::*, task::spawn_local};
use turnfast_client_core::thread::Failure;
use turnfast_shared::Code;

use super::{App, Session, app, icon};
use crate::{api, route::Route};

/// What `/?signin=expired` means.
pub(super) const LINK_USED_UP: &str =
    "That sign-in link was used before or is too old; each one works once. Sign in with your password, or ask for a new link.";

/// The sign-in page.
#[component]
pub(super) fn SignInPage(notice: Option<&'static str>) -> impl IntoView {
    let app = app();
    let signed_in = move |_| {
        if notice.is_some() {
            // Takes the spent `?signin=expired` out of the address.
            app.adopt(Route::Home);
        }
        app.session.set(Session::Checking);
        app.load();
    };
    view! {
        <main class="signin" id="main">
            <div class="panel">
                <div class="brand">{icon::mark()}<span>"Turnfast"</span></div>
                <h1>"Sign in"</h1>
                {notice.map(|notice| view! { <p class="note" role="status" data-testid="signin-notice">{notice}</p> })}
                <SignInForm name=String::new() signed_in=UnsyncCallback::new(signed_in)/>
                <p class="hint">
                    "No password yet? When the server starts for the first time it prints a one-time sign-in link: open that link and you are in."
                </p>
            </div>
        </main>
    }
}

/// The session ended under an open page: it stays as it is behind this.
#[component]
pub(super) fn SignInDialog(name: String) -> impl IntoView {
    let app = app();
    let dialog = NodeRef::<html::Dialog>::new();
    Effect::new(move |_| {
        if let Some(dialog) = dialog.get() {
            let _ = dialog.show_modal();
        }
    });
    let before = StoredValue::new(name.clone());
    let look = move || {
        spawn_local(async move {
            match api::me().await {
                Ok(me) if before.try_get_value().is_some_and(|before| before == me.name) => {
                    app.session_lost.set(false);
                    app.threads.refresh(app);
                }
                // Someone else: nothing of the one before may stay.
                Ok(_) => {
                    let _ = window().location().assign("/");
                }
                Err(_) => {}
            }
        });
    };
    // The person may have signed in in another tab, by a link say.
    let back = window_event_listener(ev::focus, move |_| look());
    on_cleanup(move || back.remove());
    let signed_in = move |()| look();
    view! {
        <dialog class="panel" node_ref=dialog aria-labelledby="lost-title" on:cancel=|event: ev::Event| event.prevent_default()>
            <h2 id="lost-title">"You are signed out"</h2>
            <p>"You signed out in another tab, or the session has ended. What is open here and what you typed stays; sign in to go on."</p>
            <SignInForm name signed_in=UnsyncCallback::new(signed_in)/>
        </dialog>
    }
}

#[component]
fn SignInForm(name: String, signed_in: UnsyncCallback<()>) -> impl IntoView {
    let busy = RwSignal::new(false);
    let error = RwSignal::new(None::<String>);
    let name_input = NodeRef::<html::Input>::new();
    let password_input = NodeRef::<html::Input>::new();
    let named = !name.is_empty();
    Effect::new(move |_| {
        let first = if named { password_input.get() } else { name_input.get() };
        if let Some(first) = first {
            let _ = first.focus();
        }
    });
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let (Some(name), Some(password)) = (name_input.get_untracked(), password_input.get_untracked()) else { return };
        if busy.get_untracked() {
            return;
        }
        busy.set(true);
        error.set(None);
        spawn_local(async move {
            let result = api::sign_in(name.value(), password.value()).await;
            busy.set(false);
            match result {
                Ok(()) => {
                    password.set_value("");
                    signed_in.run(());
                }
                Err(failure) => {
                    error.set(Some(explain(&failure)));
                    password.select();
                }
            }
        });
    };
    view! {
        <form class="fields" on:submit=submit>
            <label>
                <span>"Name"</span>
                <input
                    name="name" type="text" autocomplete="username" autocapitalize="none" spellcheck="false" required
                    value=name node_ref=name_input data-testid="signin-name"
                    aria-invalid=move || error.with(Option::is_some).to_string()
                />
            </label>
            <label>
                <span>"Password"</span>
                <input
                    name="password" type="password" autocomplete="current-password" required
                    node_ref=password_input data-testid="signin-password"
                    aria-invalid=move || error.with(Option::is_some).to_string()
                />
            </label>
            <p class="error" role="alert" data-testid="signin-error">{move || error.get()}</p>
            <button class="primary" type="submit" data-testid="signin-submit" aria-disabled=move || busy.get().to_string()>
                {move || if busy.get() { "Signing in…" } else { "Sign in" }}
            </button>
        </form>
    }
}

fn explain(failure: &Failure) -> String {
    match (failure, failure.code()) {
        (_, Some(Code::Unauthenticated)) => "Name and password do not fit together.".to_owned(),
        (Failure::Refused { retry_after, .. }, Some(Code::RateLimited)) => match retry_after {
            Some(seconds) => format!("Too many attempts. Try again in {seconds} s."),
            None => "Too many attempts. Try again a little later.".to_owned(),
        },
        (Failure::Broken, _) => "The server cannot be reached. Is it running, and are you online?".to_owned(),
        _ => failure.to_string(),
    }
}

impl App {
    /// An open thread was told that nobody is signed in.
    pub(super) fn lose_session(self) {
        self.session_lost.set(true);
    }
}
