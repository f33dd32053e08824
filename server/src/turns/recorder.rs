//! What of a message is not recorded yet. Pure: events in, [`PartWrite`]s out.
//!
//! Text grows in segments: a write appends to, or rewrites, one segment per part, so that recording one more token costs the same
//! whatever is there already.

use turnfast_shared::{Event, Millis, Part, Timeline, timeline::Applied};

use crate::store::turns::PartWrite;

/// Bytes after which a segment is complete and the next begins.
pub const SEGMENT_BYTES: usize = 4_096;

/// A message while an execution writes it.
#[derive(Debug)]
pub struct Recorder {
    timeline: Timeline,
    parts: Vec<Unrecorded>,
    dirty: Vec<usize>,
}

/// What is not recorded of one part.
#[derive(Debug, Default)]
struct Unrecorded {
    data: bool,
    text: bool,
    /// The open segment: its place, and the byte where it begins.
    segment: u32,
    segment_start: usize,
}

impl Recorder {
    /// A message of which `parts` are recorded.
    #[must_use]
    pub fn new(parts: Vec<Part>) -> Self {
        let states = parts.iter().map(|_| Unrecorded::default()).collect();
        Self { timeline: Timeline::from_parts(parts), parts: states, dirty: Vec::new() }
    }

    /// The message so far.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Applies an event; says whether it is to be recorded at once.
    pub fn apply(&mut self, event: &Event, at: Millis) -> bool {
        let Applied { part, appended, boundary } = self.timeline.apply(event, at);
        let Some(index) = part else { return false };
        let is_new = index >= self.parts.len();
        while self.parts.len() <= index {
            self.parts.push(Unrecorded::default());
        }
        let state = &mut self.parts[index];
        if !state.data && !state.text {
            self.dirty.push(index);
        }
        if appended {
            state.text = true;
        } else {
            state.data = true;
            // A part that begins brings its first text with it.
            state.text |= is_new && !matches!(self.timeline.parts()[index], Part::ToolCall(_));
        }
        boundary
    }

    /// See [`Timeline::withdraw_suspension`]. What brings the call to rest then records it.
    pub fn withdraw_suspension(&mut self, tool_call_id: &str) {
        self.timeline.withdraw_suspension(tool_call_id);
    }

    /// Whether anything is unrecorded.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes what is unrecorded, to be written now. The caller writes it until it is recorded, or gives up the message.
    ///
    /// # Errors
    /// A part cannot be written as JSON.
    pub fn take_writes(&mut self) -> Result<Vec<PartWrite>, serde_json::Error> {
        let mut writes = Vec::with_capacity(self.dirty.len());
        for index in self.dirty.drain(..) {
            let part = &self.timeline.parts()[index];
            let state = &mut self.parts[index];
            let data = if state.data { Some(header(part)?) } else { None };
            let segment = match part {
                Part::Text { text } | Part::Reasoning { text, .. } if state.text => {
                    let open = &text[state.segment_start..];
                    let write = (state.segment, open.to_owned());
                    if open.len() >= SEGMENT_BYTES {
                        state.segment += 1;
                        state.segment_start = text.len();
                    }
                    Some(write)
                }
                _ => None,
            };
            state.data = false;
            state.text = false;
            writes.push(PartWrite { index, data, segment });
        }
        Ok(writes)
    }
}

/// JSON of a part without its text.
fn header(part: &Part) -> Result<String, serde_json::Error> {
    match part {
        Part::Text { .. } => serde_json::to_string(&Part::Text { text: String::new() }),
        Part::Reasoning { start_time, end_time, .. } => {
            serde_json::to_string(&Part::Reasoning { text: String::new(), start_time: *start_time, end_time: *end_time })
        }
        Part::File { .. } | Part::ToolCall(_) => serde_json::to_string(part),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delta(id: &str, text: &str) -> Event {
        Event::TextDelta { id: id.to_owned(), delta: text.to_owned() }
    }

    /// What a reader of the record would see.
    #[derive(Default)]
    struct Record {
        data: std::collections::BTreeMap<usize, String>,
        segments: std::collections::BTreeMap<(usize, u32), String>,
    }

    impl Record {
        fn write(&mut self, writes: Vec<PartWrite>) {
            for write in writes {
                if let Some(data) = write.data {
                    self.data.insert(write.index, data);
                }
                if let Some((segment, text)) = write.segment {
                    self.segments.insert((write.index, segment), text);
                }
            }
        }

        fn read(&self) -> Vec<Part> {
            let mut parts: Vec<Part> = self.data.values().map(|data| serde_json::from_str(data).unwrap()).collect();
            for ((index, _), more) in &self.segments {
                if let Part::Text { text } | Part::Reasoning { text, .. } = &mut parts[*index] {
                    text.push_str(more);
                }
            }
            parts
        }
    }

    #[test]
    fn a_write_holds_one_segment_whatever_came_before() {
        let mut recorder = Recorder::new(Vec::new());
        for _ in 0..1_000 {
            recorder.apply(&delta("t", "0123456789"), 0);
            let writes = recorder.take_writes().unwrap();
            assert_eq!(writes.len(), 1);
            assert!(writes[0].segment.as_ref().unwrap().1.len() < SEGMENT_BYTES + 10);
        }
        assert!(recorder.take_writes().unwrap().is_empty(), "recorded once");
    }

    #[test]
    fn a_resumed_message_writes_only_what_is_new() {
        let mut recorder = Recorder::new(vec![Part::Text { text: "before".to_owned() }]);
        recorder.apply(&delta("t", "after"), 0);
        let writes = recorder.take_writes().unwrap();
        assert_eq!(writes.iter().map(|w| w.index).collect::<Vec<_>>(), [1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_record_reads_as_the_timeline_wherever_it_was_flushed(
            steps in prop::collection::vec((0..4_u8, prop_oneof![0..40_usize, 1_000..3_000_usize], any::<bool>()), 1..40)
        ) {
            let mut recorder = Recorder::new(Vec::new());
            let mut record = Record::default();
            for (n, (kind, length, flush)) in steps.into_iter().enumerate() {
                // Mixed widths, so that segments end beside characters of every length.
                let text: String = "aé🦀 ".chars().cycle().skip(n).take(length).collect();
                let event = match kind {
                    0 => delta("t", &text),
                    1 => Event::ReasoningDelta { id: "r".to_owned(), delta: text },
                    2 => Event::TextEnd { id: "t".to_owned() },
                    _ => Event::ToolCall { tool_call_id: format!("c{n}"), tool_name: "clock".to_owned(), input: text.into() },
                };
                recorder.apply(&event, 7);
                if flush {
                    record.write(recorder.take_writes().unwrap());
                    prop_assert_eq!(record.read(), recorder.timeline().parts().to_vec());
                }
            }
            record.write(recorder.take_writes().unwrap());
            prop_assert_eq!(record.read(), recorder.timeline().parts().to_vec());
            prop_assert!(!recorder.is_dirty());
        }
    }
}
