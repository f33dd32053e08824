//! What the last successful read showed. Only reads write here.

use std::{collections::HashMap, rc::Rc};

use turnfast_shared::{Message, api::ThreadSnapshot, ids::MessageId};

/// The recorded messages as far as they were read.
#[derive(Debug, Default)]
pub(super) struct Record {
    messages: Rc<Vec<Rc<Message>>>,
    index: HashMap<MessageId, usize>,
    revision: Option<u64>,
}

/// Why a snapshot was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is older than what is shown.
    Older,
    /// It is a part of something that is not here.
    PartOfNothing,
}

impl Record {
    /// The messages in order.
    pub(super) fn messages(&self) -> &Rc<Vec<Rc<Message>>> {
        &self.messages
    }

    /// The message of that id.
    pub(super) fn get(&self, id: MessageId) -> Option<&Rc<Message>> {
        self.index.get(&id).map(|&at| &self.messages[at])
    }

    /// Where the message of that id stands.
    pub(super) fn position(&self, id: MessageId) -> Option<usize> {
        self.index.get(&id).copied()
    }

    /// The revision that this shows; `None`: nothing was read yet.
    pub(super) fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// Takes a snapshot in. Messages whose revision did not change stay the same [`Rc`].
    pub(super) fn apply(
        &mut self,
        revision: u64,
        messages: Vec<Message>,
        partial: bool,
        deleted: &[MessageId],
    ) -> Result<(), Refused> {
        match self.revision {
            Some(shown) if revision < shown => return Err(Refused::Older),
            None if partial => return Err(Refused::PartOfNothing),
            _ => {}
        }
        self.revision = Some(revision);
        if partial {
            self.merge(messages, deleted);
        } else {
            self.replace(messages);
        }
        Ok(())
    }

    fn merge(&mut self, messages: Vec<Message>, deleted: &[MessageId]) {
        if messages.is_empty() && deleted.is_empty() {
            return;
        }
        let list = Rc::make_mut(&mut self.messages);
        for message in messages {
            match self.index.get(&message.id) {
                Some(&at) if list[at].revision == message.revision => {}
                Some(&at) => list[at] = Rc::new(message),
                None => {
                    self.index.insert(message.id, list.len());
                    list.push(Rc::new(message));
                }
            }
        }
        if deleted.iter().any(|id| self.index.contains_key(id)) {
            list.retain(|message| !deleted.contains(&message.id));
            self.index = list.iter().enumerate().map(|(at, message)| (message.id, at)).collect();
        }
    }

    fn replace(&mut self, messages: Vec<Message>) {
        let mut list: Vec<Rc<Message>> = Vec::with_capacity(messages.len());
        let mut index = HashMap::with_capacity(messages.len());
        for message in messages {
            let message = match self.get(message.id) {
                Some(shown) if shown.revision == message.revision => Rc::clone(shown),
                _ => Rc::new(message),
            };
            match index.get(&message.id) {
                // Two messages of one id would break every list that is keyed by it: the later state wins.
                Some(&at) => list[at] = message,
                None => {
                    index.insert(message.id, list.len());
                    list.push(message);
                }
            }
        }
        self.messages = Rc::new(list);
        self.index = index;
    }
}

/// Splits off what [`Record::apply`] takes.
pub(super) fn apply_snapshot(record: &mut Record, snapshot: &mut ThreadSnapshot) -> Result<(), Refused> {
    let deleted = snapshot.deleted_message_ids.take().unwrap_or_default();
    record.apply(snapshot.revision, std::mem::take(&mut snapshot.messages), snapshot.partial, &deleted)
}
