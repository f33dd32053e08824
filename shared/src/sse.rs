//! An incremental parser for `text/event-stream`, as the WHATWG HTML standard defines it (section 9.2.6).
//!
//! It takes bytes in pieces of any size and gives the same events however they were cut: in the middle of a character, between CR
//! and LF, inside the byte order mark. It knows nothing of connections and retries, and holds at most one event.

/// Bytes of one event, its unfinished line included, where no other limit is asked for.
pub const DEFAULT_MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The event's type; `message` where the stream names none.
    pub event: String,
    /// Its data lines, joined by line feeds.
    pub data: String,
    /// The last id that the stream gave, on this event or on an earlier one; empty: none yet.
    pub id: String,
}

/// An event is larger than the parser may hold. The stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {limit} bytes")]
pub struct TooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

/// The parser's state between two pieces of a stream.
#[derive(Clone, Debug)]
pub struct Parser {
    limit: usize,
    line: Vec<u8>,
    first_line: bool,
    after_cr: bool,
    failed: bool,
    event: String,
    data: String,
    last_id: String,
    retry: Option<u64>,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

impl Parser {
    /// A parser at the start of a stream, with [`DEFAULT_MAX_EVENT_BYTES`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_MAX_EVENT_BYTES)
    }

    /// A parser at the start of a stream that holds at most `limit` bytes of one event.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            first_line: true,
            after_cr: false,
            failed: false,
            event: String::new(),
            data: String::new(),
            last_id: String::new(),
            retry: None,
        }
    }

    /// The reconnection time that the stream asked for last, in milliseconds.
    #[must_use]
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Takes the next bytes of the stream and hands every event that they complete to `sink`.
    ///
    /// # Errors
    /// [`TooLarge`] once an event outgrows the limit, and on every later call. Events before it have reached `sink`.
    pub fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(SseEvent)) -> Result<(), TooLarge> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.failed {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|&byte| matches!(byte, b'\r' | b'\n'));
            let piece = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + piece.len() + self.data.len() + self.event.len() > self.limit {
                self.failed = true;
                self.line = Vec::new();
                self.data = String::new();
                break;
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { break };
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if let Some(event) = self.end_line() {
                sink(event);
            }
        }
        if self.failed { Err(TooLarge { limit: self.limit }) } else { Ok(()) }
    }

    /// The event that the stream's end left without its blank line, if there is one.
    ///
    /// The standard throws it away, since it may be cut short. Some servers forget the last blank line, so a client of theirs may
    /// want to look at it.
    #[must_use]
    pub fn finish(mut self) -> Option<SseEvent> {
        if !self.line.is_empty() && !self.failed {
            self.end_line();
        }
        self.dispatch()
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let mut line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if std::mem::take(&mut self.first_line) {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        let event = if text.is_empty() {
            self.dispatch()
        } else {
            // CR and LF never occur inside a character, so a line decodes alone as it does within the stream.
            let text = String::from_utf8_lossy(text);
            let (field, value) = text.split_once(':').unwrap_or((&text, ""));
            self.field(field, value.strip_prefix(' ').unwrap_or(value));
            None
        };
        line.clear();
        self.line = line;
        event
    }

    fn field(&mut self, field: &str, value: &str) {
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.last_id),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().or(self.retry);
            }
            // An empty field name is a comment; the standard ignores other names.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let event = std::mem::take(&mut self.event);
        let mut data = std::mem::take(&mut self.data);
        data.pop()?;
        let event = if event.is_empty() { "message".to_owned() } else { event };
        Some(SseEvent { event, data, id: self.last_id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(event: &str, data: &str, id: &str) -> SseEvent {
        SseEvent { event: event.to_owned(), data: data.to_owned(), id: id.to_owned() }
    }

    fn message(data: &str) -> SseEvent {
        event("message", data, "")
    }

    fn parse_pieces<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, limit: usize) -> (Vec<SseEvent>, bool, Option<SseEvent>) {
        let mut parser = Parser::with_limit(limit);
        let mut events = Vec::new();
        let mut ok = true;
        for piece in pieces {
            ok &= parser.feed(piece, |event| events.push(event)).is_ok();
        }
        (events, ok, parser.finish())
    }

    fn parse(stream: &str) -> Vec<SseEvent> {
        parse_pieces([stream.as_bytes()], 1000).0
    }

    #[test]
    fn every_line_ending_ends_a_line() {
        for end in ["\n", "\r", "\r\n"] {
            assert_eq!(parse(&format!("data: a{end}{end}data: b{end}{end}")), [message("a"), message("b")], "{end:?}");
        }
        assert_eq!(parse("data: a\r\n\ndata: b\n\r\n"), [message("a"), message("b")], "mixed");
        assert_eq!(parse("data: a\r\rdata: b\r\r"), [message("a"), message("b")]);
    }

    #[test]
    fn a_crlf_cut_in_two_is_one_line_ending() {
        let (events, ..) = parse_pieces([&b"data: a\r"[..], b"\ndata: b\r", b"\n\r", b"\n"], 1000);
        assert_eq!(events, [message("a\nb")]);
    }

    #[test]
    fn a_blank_line_by_cr_alone_dispatches_without_waiting_for_more() {
        let (events, ..) = parse_pieces([&b"data: a\r\n\r"[..]], 1000);
        assert_eq!(events, [message("a")]);
    }

    #[test]
    fn data_lines_are_joined_and_one_space_is_taken_off() {
        assert_eq!(parse("data:a\ndata: b\ndata:  c\ndata\n\n"), [message("a\nb\n c\n")]);
        assert_eq!(parse("data: {\"a\":\": b\"}\n\n"), [message("{\"a\":\": b\"}")]);
    }

    #[test]
    fn an_event_without_data_is_none_and_forgets_its_type() {
        assert_eq!(parse("event: x\n\ndata: a\n\n"), [message("a")]);
        assert_eq!(parse("data\n\n"), [message("")], "a data line without a value is data");
        assert_eq!(parse("\n\n\n"), []);
    }

    #[test]
    fn types_hold_for_one_event_and_ids_until_the_next() {
        assert_eq!(
            parse("event: x\nid: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\nid: a\0b\ndata: d\n\n"),
            [event("x", "a", "1"), event("message", "b", "1"), message("c"), message("d")]
        );
        assert_eq!(parse("id: 7\n\ndata: a\n\n"), [event("message", "a", "7")], "an id alone counts too");
    }

    #[test]
    fn comments_and_unknown_fields_are_skipped() {
        assert_eq!(parse(": keep-alive\n\n:data: no\nfoo: bar\n data: no\nData: no\ndata: a\n\n"), [message("a")]);
    }

    #[test]
    fn retry_takes_digits_only() {
        let mut parser = Parser::new();
        for (line, expected) in [
            ("retry: 1500\n", Some(1500)),
            ("retry: 1.5\n", Some(1500)),
            ("retry:\n", Some(1500)),
            ("retry: +20\n", Some(1500)),
            ("retry: 99999999999999999999999\n", Some(1500)),
            ("retry:20\n", Some(20)),
        ] {
            parser.feed(line.as_bytes(), |_| unreachable!("no data")).unwrap();
            assert_eq!(parser.retry(), expected, "{line}");
        }
    }

    #[test]
    fn one_byte_order_mark_at_the_start_is_skipped() {
        assert_eq!(parse("\u{feff}data: a\n\n"), [message("a")]);
        assert_eq!(parse("\u{feff}\u{feff}data: a\n\ndata: b\n\n"), [message("b")], "a second one spoils the field's name");
        assert_eq!(parse("data: a\n\n\u{feff}data: b\n\n"), [message("a")], "elsewhere too");
        assert_eq!(parse("\u{feff}\ndata: a\n\n"), [message("a")]);
    }

    #[test]
    fn broken_utf8_becomes_replacement_characters() {
        let (events, ..) = parse_pieces([&b"data: a\xffb\xe2\x82\n\n"[..]], 1000);
        assert_eq!(events, [message("a\u{fffd}b\u{fffd}")]);
    }

    #[test]
    fn an_event_without_its_blank_line_comes_only_from_finish() {
        for stream in ["data: a\n", "data: a", "data: a\r"] {
            let (events, ok, rest) = parse_pieces([stream.as_bytes()], 1000);
            assert_eq!((events, ok, rest), (vec![], true, Some(message("a"))), "{stream:?}");
        }
        assert_eq!(parse_pieces([&b"data: a\n\n: c"[..]], 1000).2, None);
    }

    #[test]
    fn an_event_over_the_limit_fails_the_stream_and_frees_what_it_held() {
        let mut parser = Parser::with_limit(10);
        let mut events = Vec::new();
        parser.feed(b"data: 1234\n\n", |event| events.push(event)).unwrap();
        parser.feed(b"data: 12345", |event| events.push(event)).unwrap_err();
        assert_eq!(parser.feed(b"\n\ndata: a\n\n", |event| events.push(event)), Err(TooLarge { limit: 10 }));
        assert_eq!(events, [message("1234")]);
        assert_eq!(parser.finish(), None);
        assert!(!parse_pieces([&b"data:12\ndata:34\ndata:56\ndata:78\n\n"[..]], 12).1, "lines of one event count together");
        assert!(!parse_pieces([&b": a comment without an end"[..]], 12).1);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "data: héllo wörld", "data:x", "data", "", "", ": ping", "event: tick", "id: 4", "id", "retry: 10", "\u{feff}",
                    "\u{feff}data: 😀", "data: {\"type\":\"done\"}", "data: \u{fffd}", "junk",
                ]),
                0..30,
            ),
            ends in prop::collection::vec(prop::sample::select(vec!["\n", "\r", "\r\n"]), 30),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            limit in prop::sample::select(vec![20usize, 40, 10_000]),
        ) {
            let stream: String = lines.iter().zip(&ends).flat_map(|(line, end)| [*line, *end]).collect();
            let bytes = stream.as_bytes();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let whole = parse_pieces([bytes], limit);
            prop_assert_eq!(&parse_pieces(cuts.windows(2).map(|w| &bytes[w[0]..w[1]]), limit), &whole, "cut anywhere");
            prop_assert_eq!(&parse_pieces(bytes.chunks(1), limit), &whole, "byte by byte");
        }

        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
            let at = cut.index(bytes.len() + 1);
            prop_assert_eq!(parse_pieces([&bytes[..at], &bytes[at..]], 50), parse_pieces([&bytes[..]], 50));
        }
    }
}
