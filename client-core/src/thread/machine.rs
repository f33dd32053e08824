//! The machine itself.

use std::rc::Rc;

use turnfast_shared::Millis;

use super::{Effect, Input, Load, Stop, View};

/// The state of one open thread. See the [module](super) for what it does not know.
#[derive(Debug, Default)]
pub struct Machine {}

impl Machine {
    /// A machine that shows nothing yet. Its first input is [`Input::Opened`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what happened at `now`, and tells what is to be done.
    pub fn handle(&mut self, now: Millis, input: Input) -> Vec<Effect> {
        let _ = (now, input);
        Vec::new()
    }

    /// What is to be shown now. Without a [`Machine::handle`] in between it gives the same [`Rc`]s again.
    pub fn view(&mut self) -> View {
        View {
            thread: None,
            load: Load::New,
            settled: Rc::default(),
            live: None,
            read_failure: None,
            running: None,
            stop: Stop::Hidden,
            interactions: Vec::new(),
            draft: Rc::from(""),
            attachments: Rc::default(),
            draft_kept: true,
            send_blocked: None,
            trouble: None,
            warnings: Rc::default(),
            signed_out: false,
        }
    }
}
