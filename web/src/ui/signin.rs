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
use crate::{api, route::Route};

/// What `/?signin=expired` means.
pub(super) const LINK_USED_UP: &str =
    "That sign-in link was used before or is too old; each one works once. Sign in with your password, or ask for a new link.";

/// The sign-in page.
pub(super) fn page(state: &State, notice: Option<&'static str>) -> Draft {
    let notice = notice.map(|notice| {
        element("p", &[("class", "note"), ("role", "status"), ("data-testid", "signin-notice")])
            .key(Key::Name("notice"))
            .text(notice)
    });
    let panel = element("div", &[("class", "panel")])
        .with(element("div", &[("class", "brand")]).with(icon::mark()).with(element("span", &[]).text("Turnfast")))
        .with(element("h1", &[]).text("Sign in"))
        .with_some(notice)
        .with(form(state, None))
        .with(element("p", &[("class", "hint")]).text(
            "No password yet? When the server starts for the first time it prints a one-time sign-in link: open that link and you are in.",
        ));
    element("main", &[("class", "signin"), ("id", "main")]).key(Key::Name("signin")).with(panel)
}

/// The session ended under an open page: it stays as it is behind this.
pub(super) fn dialog(state: &State) -> Draft {
    let name = match &state.session {
        Session::In(me) => Some(me.name.clone()),
        _ => None,
    };
    element("dialog", &[("class", "panel"), ("aria-labelledby", "lost-title")])
        .key(Key::Name("lost"))
        .on("cancel", Action::KeepOpen)
        .mounted(Action::ShowModal)
        .with(element("h2", &[("id", "lost-title")]).text("You are signed out"))
        .with(element("p", &[]).text(
            "You signed out in another tab, or the session has ended. What is open here and what you typed stays; sign in to go on.",
        ))
        .with(form(state, name))
}

/// Whose name is known only types the password.
fn form(state: &State, name: Option<String>) -> Draft {
    let named = name.is_some();
    let mut name_input = element(
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
    .set("value", name.unwrap_or_default())
    .flag("aria-invalid", state.signin_error.is_some());
    let mut password_input = element(
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
    if named {
        password_input = password_input.mounted(Action::Focus);
    } else {
        name_input = name_input.mounted(Action::Focus);
    }
    let error = element("p", &[("class", "error"), ("role", "alert"), ("data-testid", "signin-error")])
        .text(state.signin_error.clone().unwrap_or_default());
    let submit = element("button", &[("class", "primary"), ("type", "submit"), ("data-testid", "signin-submit")])
        .flag("aria-disabled", state.signing_in)
        .text(if state.signing_in { "Signing in…" } else { "Sign in" });
    element("form", &[("class", "fields")])
        .on("submit", Action::SignIn)
        .with(element("label", &[]).with(element("span", &[]).text("Name")).with(name_input))
        .with(element("label", &[]).with(element("span", &[]).text("Password")).with(password_input))
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
    if app.peek().session_lost {
        app.look_again();
        return;
    }
    let expired = matches!(app.peek().session, Session::Out(Some(_)));
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
            Some(seconds) => format!("Too many attempts. Try again in {seconds} s."),
            None => "Too many attempts. Try again a little later.".to_owned(),
        },
        (Failure::Broken, _) => "The server cannot be reached. Is it running, and are you online?".to_owned(),
        _ => failure.to_string(),
    }
}
