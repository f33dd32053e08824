//! Signing in: as a page, and as a dialog over what was open when the session ended.

use turnfast_client_core::thread::Failure;
use turnfast_shared::Code;
use wasm_bindgen_futures::spawn_local;
use web_sys::Element;

use super::{
    app::{Action, App, Draft, Session, State},
    icon,
    node::{Key, element},
    page,
};
use crate::{api, route::Route, words};

/// What `/?signin=expired` means.
pub(super) const LINK_USED_UP: &str =
    "That sign-in link was used before or is too old; each one works once. Sign in with your password, or ask for a new link.";

/// What a page says that somebody was signed in at.
pub(super) const SESSION_OVER: &str = "You signed out in another tab, or the session has ended. Sign in to go on where you were; the message you were writing is kept for you.";

/// The sign-in page.
pub(super) fn page(state: &State, notice: Option<&'static str>) -> Draft {
    let notice = notice.map(|notice| {
        element("p", &[("class", "note"), ("role", "status"), ("data-testid", "signin-notice")])
            .key(Key::Name("notice"))
            .text(notice)
    });
    let title = if state.was_signed_in() { "You are signed out" } else { "Sign in" };
    let hint = element("p", &[("class", "hint")])
        .text("No password? A one-time link signs you in. The server prints one when it starts for the first time, and ")
        .with(element("code", &[]).text("turnfast user link NAME"))
        .text(" prints another.");
    let panel = element("div", &[("class", "panel")])
        .with(element("div", &[("class", "brand")]).with(icon::mark()).with(element("span", &[]).text("Turnfast")))
        .with(element("h1", &[]).text(title))
        .with_some(notice)
        .with(form(state))
        .with(hint);
    element("main", &[("class", "signin"), ("id", "main")]).key(Key::Name("signin")).with(panel)
}

fn form(state: &State) -> Draft {
    let name = element(
        "input",
        &[
            ("name", "name"),
            ("type", "text"),
            ("autocomplete", "username"),
            ("autocapitalize", "none"),
            ("spellcheck", "false"),
            ("required", ""),
            ("data-testid", "signin-name"),
        ],
    )
    .flag("aria-invalid", state.signin_error.is_some())
    .mounted(Action::Focus);
    let password = element(
        "input",
        &[
            ("name", "password"),
            ("type", "password"),
            ("autocomplete", "current-password"),
            ("required", ""),
            ("data-testid", "signin-password"),
        ],
    )
    .flag("aria-invalid", state.signin_error.is_some());
    let error = element("p", &[("class", "error"), ("role", "alert"), ("data-testid", "signin-error")])
        .text(state.signin_error.clone().unwrap_or_default());
    let submit = element("button", &[("class", "primary"), ("type", "submit"), ("data-testid", "signin-submit")])
        .flag("aria-disabled", state.signing_in)
        .text(if state.signing_in { "Signing in…" } else { "Sign in" });
    element("form", &[("class", "fields")])
        .on("submit", Action::SignIn)
        .with(element("label", &[]).with(element("span", &[]).text("Name")).with(name))
        .with(element("label", &[]).with(element("span", &[]).text("Password")).with(password))
        .with(error)
        .with(submit)
}

/// The form was sent.
pub(super) fn submit(app: &App, form: &Element) {
    let (Some(name), Some(password)) = (page::input(form, "[name=name]"), page::input(form, "[name=password]")) else { return };
    {
        let mut state = app.state();
        if state.signing_in {
            return;
        }
        state.signing_in = true;
        state.signin_error = None;
    }
    let app = app.clone();
    spawn_local(async move {
        let result = api::sign_in(name.value(), password.value()).await;
        app.state().signing_in = false;
        match result {
            Ok(()) => {
                password.set_value("");
                signed_in(&app);
            }
            Err(failure) => {
                app.state().signin_error = Some(explain(&failure));
                password.select();
            }
        }
    });
}

fn signed_in(app: &App) {
    let expired = matches!(app.peek().session, Session::Out(Some(LINK_USED_UP)));
    if expired {
        // Takes the spent `?signin=expired` out of the address.
        app.adopt(Route::Home);
    }
    app.state().session = Session::Checking;
    app.load();
}

fn explain(failure: &Failure) -> String {
    match (failure, failure.code()) {
        (_, Some(Code::Unauthenticated)) => "Name and password do not fit together.".to_owned(),
        (Failure::Refused { retry_after, .. }, Some(Code::RateLimited)) => match retry_after {
            Some(seconds) => format!("Too many attempts. Try again {}.", words::after(*seconds)),
            None => "Too many attempts. Try again a little later.".to_owned(),
        },
        (Failure::Broken, _) => "The server cannot be reached. Is it running, and are you online?".to_owned(),
        _ => words::failure(failure),
    }
}
