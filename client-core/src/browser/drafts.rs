//! Drafts in localStorage, one entry per user and thread.

use turnfast_shared::ids::{Slug, ThreadId};

use super::{Client, Scope};
use crate::thread::StoredDraft;

const PREFIX: &str = "turnfast.drafts.";
/// Keys of earlier versions, which do not say whose draft it is.
const OF_NOBODY: &str = "turnfast.draft.";

/// Where one user's drafts for one agent's threads are kept; nowhere while it is not known who that is.
pub(super) struct Drafts {
    prefix: Option<String>,
}

impl Drafts {
    pub(super) fn new(client: &Client, project: &Slug, agent: &Slug) -> Self {
        let prefix = client.drafts_of().map(|user| format!("{PREFIX}{}{user}.{project}.{agent}.", client.base_url()));
        Self { prefix }
    }

    /// What is kept for the thread; `None` as well where it cannot be read.
    pub(super) fn load(&self, scope: &Scope, thread: Option<ThreadId>) -> Option<StoredDraft> {
        let text = scope.storage()?.get_item(&self.key(thread)?).ok()??;
        turnfast_shared::json::read(&text)
    }

    /// Keeps a draft. `false`: it is not kept, since storage is full or forbidden, or it is not known whose it is.
    pub(super) fn save(&self, scope: &Scope, thread: Option<ThreadId>, draft: &StoredDraft) -> bool {
        let (Some(storage), Some(key)) = (scope.storage(), self.key(thread)) else { return false };
        if draft.is_empty() {
            return storage.remove_item(&key).is_ok();
        }
        serde_json::to_string(draft).is_ok_and(|text| storage.set_item(&key, &text).is_ok())
    }

    fn key(&self, thread: Option<ThreadId>) -> Option<String> {
        let prefix = self.prefix.as_ref()?;
        Some(thread.map_or_else(|| format!("{prefix}new"), |thread| format!("{prefix}{thread}")))
    }
}

/// Removes every draft of this browser, whoever wrote it.
pub fn forget_drafts(scope: &Scope) {
    remove(scope, PREFIX);
    forget_drafts_of_nobody(scope);
}

/// Removes the drafts that earlier versions kept for whoever comes.
pub(super) fn forget_drafts_of_nobody(scope: &Scope) {
    remove(scope, OF_NOBODY);
}

fn remove(scope: &Scope, prefix: &str) {
    let Some(storage) = scope.storage() else { return };
    let keys: Vec<_> = (0..storage.length().unwrap_or(0)).filter_map(|at| storage.key(at).ok()?).collect();
    for key in keys.iter().filter(|key| key.starts_with(prefix)) {
        // A failure leaves the entry, and nothing else can be done about it.
        let _ = storage.remove_item(key);
    }
}
