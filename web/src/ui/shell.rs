//! The page as a whole: who is signed in decides what it shows.

use turnfast_client_core::thread::Failure;
use turnfast_shared::Code;

use super::{
    app::{Action, Catalog, Child, Draft, Session, State},
    conversation, icon,
    node::{Fixed, Key, element},
    sidebar, signin,
};
use crate::{api::Group, route::Route, words};

const NOTICE: Fixed = &[("class", "notice"), ("id", "main"), ("tabindex", "-1")];

/// Everything.
pub(super) fn page(state: &mut State) -> Vec<Child> {
    let skip = match (&state.session, &state.open) {
        // What it leads to lies behind the drawer.
        _ if state.drawer => None,
        (Session::In(_), Some(open)) if open.has_composer() => Some(skip("#composer", "Skip to the message box")),
        (Session::In(_), _) => Some(skip("#main", "Skip to the content")),
        _ => None,
    };
    let said = element("div", &[("class", "said"), ("role", "status"), ("aria-live", "polite"), ("data-testid", "announcer")])
        .text(state.said.clone());
    let content = match &state.session {
        Session::Checking => {
            let words = element("p", &[("role", "status")]).text("Loading…");
            element("main", &[("class", "splash")])
                .key(Key::Name("splash"))
                .with(element("h1", &[]).text("Turnfast"))
                .with(words)
                .done()
        }
        Session::Out(notice) => signin::page(state, *notice).done(),
        Session::Failed(failure) => unreachable(failure).done(),
        Session::In(_) => shell(state).done(),
    };
    skip.into_iter().chain([said]).map(Draft::done).chain([content]).collect()
}

fn skip(target: &'static str, words: &'static str) -> Draft {
    element("a", &[("class", "skip")]).set("href", target).on("click", Action::Skip(target)).text(words)
}

/// What the tab says.
pub(super) fn title(state: &State) -> String {
    let title = match &state.route {
        Route::Agent { project, agent, .. } => {
            state.title().or_else(|| state.find(project, agent).map(|(_, agent)| agent.name.as_str()))
        }
        _ => None,
    };
    title.map_or_else(|| "Turnfast".to_owned(), |title| [title, " · Turnfast"].concat())
}

/// The server did not say who is signed in.
fn unreachable(failure: &Failure) -> Draft {
    element("main", NOTICE)
        .key(Key::Name("unreachable"))
        .with(element("h1", &[]).text("Turnfast cannot be reached"))
        .with(element("p", &[("role", "alert")]).text(words::failure(failure)))
        .with(element("p", &[]).text("Turns do not need this page."))
        .with(again(Action::Recheck))
}

fn again(action: Action) -> Draft {
    element("button", &[("class", "primary")]).on("click", action).text("Try again")
}

fn shell(state: &mut State) -> Draft {
    let sidebar = match &state.sidebar {
        Some(sidebar) => Child::clone(sidebar),
        None => {
            let sidebar = sidebar::view(state).done();
            state.sidebar = Some(Child::clone(&sidebar));
            sidebar
        }
    };
    let main = match (state.open.is_some(), &state.catalog) {
        (true, _) => conversation::view(state),
        (false, Catalog::Loading) => element("main", NOTICE)
            .key(Key::Name("loading"))
            .with(element("h1", &[("class", "said")]).text("Turnfast"))
            .with(element("p", &[("role", "status")]).text("Loading…")),
        (false, Catalog::Failed(failure)) => catalog_failed(state, failure),
        (false, Catalog::Ready(groups)) => match state.route {
            Route::Home => chooser(state, groups),
            Route::Agent { .. } => nowhere(state, "There is no such agent, or it is not yours to use."),
            Route::Unknown => nowhere(state, "There is no such page."),
        },
    };
    element("div", &[])
        .key(Key::Name("shell"))
        .set("class", if state.drawer { "shell drawer-open" } else { "shell" })
        .child(sidebar)
        .with_some(state.asking.as_ref().map(|asking| sidebar::dialog(asking, state.dialog_error.as_deref())))
        .with(element("div", &[("class", "scrim")]).on("click", Action::CloseDrawer))
        // Under the drawer nothing is to be reached.
        .with(main.maybe("inert", state.drawer.then_some("")))
}

fn catalog_failed(state: &State, failure: &Failure) -> Draft {
    let (title, why) = if failure.code() == Some(Code::AgentsDisabled) {
        (
            "Agents are switched off",
            "Whoever runs this server has switched the Agents feature off. Nothing that was recorded is lost.".to_owned(),
        )
    } else {
        ("The list of agents could not be loaded", words::failure(failure))
    };
    element("main", NOTICE)
        .key(Key::Name("catalog"))
        .with(menu_button(state))
        .with(element("h1", &[]).text(title))
        .with(element("p", &[("role", "alert")]).text(why))
        .with(again(Action::ReloadCatalog))
}

fn nowhere(state: &State, why: &'static str) -> Draft {
    element("main", NOTICE)
        .key(Key::Name("nowhere"))
        .with(menu_button(state))
        .with(element("h1", &[]).text("Nothing here"))
        .with(element("p", &[]).text(why))
        .with(element("button", &[("class", "primary")]).on("click", Action::LeaveNowhere).text("To the start"))
}

/// Opens the drawer where the left column is one.
pub(super) fn menu_button(state: &State) -> Draft {
    element("button", &[("class", "icon menu"), ("aria-label", "Conversations"), ("aria-controls", "sidebar")])
        .flag("aria-expanded", state.drawer)
        .on("click", Action::OpenDrawer)
        .with(icon::menu())
}

/// All agents, to choose from.
fn chooser(state: &State, groups: &[Group]) -> Draft {
    let none = groups.iter().all(|group| group.agents.is_empty()).then(|| {
        element("p", &[]).text("There is no agent that you may use yet. Whoever runs this server can add you to a project.")
    });
    let list = groups.iter().map(|Group { project, agents }| {
        let cards = agents.iter().map(|agent| {
            let route = Route::Agent { project: project.id.clone(), agent: agent.id.clone(), thread: None };
            let card = element("a", &[("class", "card")])
                .set("href", route.path())
                .on("click", Action::Follow(route))
                .with(element("strong", &[]).text(agent.name.clone()))
                .with(element("span", &[]).text(agent.model.as_ref().unwrap_or(&agent.engine).clone()));
            element("li", &[]).with(card).done()
        });
        element("section", &[])
            .with(element("h2", &[]).text(project.name.clone()))
            .with(element("ul", &[("class", "cards")]).children(cards.collect()))
            .done()
    });
    element("main", &[("class", "chooser"), ("id", "main"), ("tabindex", "-1")])
        .key(Key::Name("chooser"))
        .with(menu_button(state))
        .with(element("h1", &[]).text("Whom would you like to talk to?"))
        .with_some(none)
        .children(list.collect())
}
