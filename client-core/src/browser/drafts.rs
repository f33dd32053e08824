//! Drafts in localStorage, one entry per thread.

use turnfast_shared::ids::{Slug, ThreadId};

use super::{Client, Scope};
use crate::thread::StoredDraft;

const PREFIX: &str = "turnfast.draft.";

/// Where the drafts of one agent's threads are kept.
pub(super) struct Drafts {
    prefix: String,
}

impl Drafts {
    pub(super) fn new(client: &Client, project: &Slug, agent: &Slug) -> Self {
        Self { prefix: format!("{PREFIX}{}{project}.{agent}.", client.base_url()) }
    }

    /// What is kept for the thread; `None` as well where it cannot be read.
    pub(super) fn load(&self, scope: &Scope, thread: Option<ThreadId>) -> Option<StoredDraft> {
        let text = scope.storage()?.get_item(&self.key(thread)).ok()??;
        turnfast_shared::json::read(&text)
    }

    /// Keeps a draft. `false`: it is not kept, since storage is full or forbidden.
    pub(super) fn save(&self, scope: &Scope, thread: Option<ThreadId>, draft: &StoredDraft) -> bool {
        let (Some(storage), key) = (scope.storage(), self.key(thread)) else { return false };
        if draft.is_empty() {
            return storage.remove_item(&key).is_ok();
        }
        serde_json::to_string(draft).is_ok_and(|text| storage.set_item(&key, &text).is_ok())
    }

    fn key(&self, thread: Option<ThreadId>) -> String {
        let prefix = &self.prefix;
        thread.map_or_else(|| format!("{prefix}new"), |thread| format!("{prefix}{thread}"))
    }
}

/// Removes every draft of this browser: for a sign-out, after which somebody else may sit here.
pub fn forget_drafts(scope: &Scope) {
    let Some(storage) = scope.storage() else { return };
    let keys: Vec<_> = (0..storage.length().unwrap_or(0)).filter_map(|at| storage.key(at).ok()?).collect();
    for key in keys.iter().filter(|key| key.starts_with(PREFIX)) {
        // A failure leaves the entry, and nothing else can be done about it.
        let _ = storage.remove_item(key);
    }
}
