//! The bytes of a good answer's body, cut anywhere, as [`ModelEvent`]s.
//!
//! What the body is follows from its first byte, not from its content type, which endpoints and proxies get wrong: a stream, one
//! JSON document from an endpoint that does not stream, or a web page from something that is no endpoint.

use turnfast_shared::sse::{Parser, SseEvent};

use super::answer::{Answer, Fault};
use crate::agents::model::ModelEvent;

/// Bytes of an answer that comes as one document.
const DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

#[derive(Default)]
enum Form {
    /// Nothing but white space so far.
    #[default]
    Unknown,
    Stream(Parser),
    Document(Vec<u8>),
}

/// Reads one body.
#[derive(Default)]
pub(super) struct BodyReader {
    form: Form,
    answer: Answer,
}

impl BodyReader {
    /// Takes the next bytes. After a fault only [`BodyReader::keep`] makes sense.
    pub(super) fn feed(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        if let Form::Unknown = self.form {
            self.form = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => Form::Unknown,
                Some(b'<') => return Err(Fault::WebPage),
                Some(b'{' | b'[') => Form::Document(Vec::new()),
                Some(_) => Form::Stream(Parser::new()),
            };
        }
        match &mut self.form {
            Form::Unknown => Ok(()),
            Form::Document(document) => {
                document.extend_from_slice(bytes);
                if document.len() > DOCUMENT_BYTES { Err(Fault::TooLong) } else { Ok(()) }
            }
            Form::Stream(parser) => {
                let answer = &mut self.answer;
                let mut taken = Ok(());
                let fed = parser.feed(bytes, |SseEvent { event, data, .. }| {
                    if taken.is_ok() {
                        taken = answer.take(&event, &data, events);
                    }
                });
                taken.and(fed.map_err(|_| Fault::TooLong))
            }
        }
    }

    /// Whether the endpoint said that nothing more comes.
    pub(super) fn is_done(&self) -> bool {
        self.answer.is_done()
    }

    /// Whether the answer is complete although the connection just stays silent or breaks.
    pub(super) fn may_end(&self) -> bool {
        self.answer.may_end()
    }

    /// The connection ended, or nothing more is to be read; the rest of a complete answer.
    pub(super) fn end(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        match std::mem::take(&mut self.form) {
            Form::Unknown => {}
            Form::Document(document) => self.answer.take_document(&String::from_utf8_lossy(&document), events)?,
            Form::Stream(parser) => {
                // What has no blank line behind it may be cut short: it counts if it makes sense.
                if let Some(SseEvent { event, data, .. }) = parser.finish() {
                    match self.answer.take(&event, &data, events) {
                        Ok(()) | Err(Fault::Malformed(_)) => {}
                        Err(fault) => return Err(fault),
                    }
                }
            }
        }
        if !self.answer.may_end() {
            return Err(Fault::Cut);
        }
        self.answer.end(events);
        Ok(())
    }

    /// What there is of an answer that failed.
    pub(super) fn keep(&mut self, events: &mut Vec<ModelEvent>) {
        self.answer.keep(events);
    }
}
