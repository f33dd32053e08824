//! Request bodies: JSON, of bounded length, with errors that name the field and what it takes (contract 1, section 3).
//!
//! A body is held against its [`Shape`] before it is deserialised: what a deserialiser says is made for programmers, in the words of
//! the program.

use std::{borrow::Cow, fmt};

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, header},
};
use serde::{
    Deserialize,
    de::{DeserializeOwned, Deserializer, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use turnfast_shared::{
    Code,
    api::{ChatRequest, RenameThread, ResumeRequest},
};

use super::{path::parse_uuid, problem::ApiError};

/// Characters of a client's own word that an answer repeats.
const REPEATED: usize = 64;

/// A body that a route takes.
pub trait Shape: DeserializeOwned {
    /// Its fields.
    const FIELDS: &'static [Field];
}

/// A field of a JSON object.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    name: &'static str,
    takes: Takes,
    needed: bool,
    /// Whether it may be null, as programs write what they do not have.
    nullable: bool,
}

/// What a field takes.
#[derive(Clone, Copy, Debug)]
enum Takes {
    Text,
    Uuid,
    Flag,
    /// An answer to a suspended tool call.
    Answer,
    /// A list of objects.
    List(&'static [Field]),
}

const fn needed(name: &'static str, takes: Takes) -> Field {
    Field { name, takes, needed: true, nullable: false }
}

const fn optional(name: &'static str, takes: Takes) -> Field {
    Field { name, takes, needed: false, nullable: false }
}

const fn nullable(name: &'static str, takes: Takes) -> Field {
    Field { name, takes, needed: false, nullable: true }
}

impl Shape for ChatRequest {
    const FIELDS: &'static [Field] = &[
        optional("message", Takes::Text),
        nullable("sessionId", Takes::Uuid),
        nullable("newSession", Takes::Flag),
        nullable("messageId", Takes::Uuid),
        optional(
            "attachments",
            Takes::List(&[needed("name", Takes::Text), needed("mediaType", Takes::Text), needed("data", Takes::Text)]),
        ),
    ];
}

impl Shape for ResumeRequest {
    const FIELDS: &'static [Field] =
        &[needed("runId", Takes::Uuid), needed("toolCallId", Takes::Text), needed("resumeData", Takes::Answer)];
}

impl Shape for RenameThread {
    const FIELDS: &'static [Field] = &[needed("title", Takes::Text)];
}

/// Reads a JSON body. Call it after the caller's rights are known: a body is never looked at for someone who may not send one.
///
/// # Errors
/// `unsupported_media_type`, `payload_too_large`, or `invalid_request` with the field at fault.
pub async fn json<T: Shape>(headers: &HeaderMap, body: Body, limit: usize) -> Result<T, ApiError> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::new(Code::UnsupportedMediaType, "Send the body as application/json."));
    }
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    parse(&whole(body, limit).await?)
}

/// Reads a body to its end.
///
/// # Errors
/// `payload_too_large`, or `invalid_request` where it broke off or stood still.
pub(super) async fn whole(body: Body, limit: usize) -> Result<bytes::Bytes, ApiError> {
    to_bytes(body, limit).await.map_err(|error| {
        // The only error with a cause of this kind is the limit; any other is a connection that broke or stood still.
        if std::error::Error::source(&error).is_some_and(|source| source.to_string().contains("length limit")) {
            too_large(limit)
        } else {
            ApiError::new(Code::InvalidRequest, "The body did not arrive whole, or not in time.")
        }
    })
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("The body is longer than the {limit} bytes that are taken here."))
}

/// The body, if it has its shape.
fn parse<T: Shape>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::new(Code::InvalidRequest, "The body is not UTF-8 text."))?;
    let body: &RawValue = serde_json::from_str(text).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        let what = if error.is_eof() { "it ends too early" } else { "it goes wrong there" };
        ApiError::new(Code::InvalidRequest, format!("The body is no JSON: {what} ({place})."))
    })?;
    check(body, T::FIELDS, "")?;
    serde_json::from_str(text).map_err(|error| {
        // The shape lets through what fits. What does not get in all the same is for whoever keeps the two together.
        tracing::error!(%error, "a body has its shape and cannot be read");
        ApiError::new(Code::InvalidRequest, "The body does not fit what this route takes.")
    })
}

/// Holds an object against its fields. `path` is where it stands, with a dot behind it; empty: it is the body.
fn check(object: &RawValue, fields: &[Field], path: &str) -> Result<(), ApiError> {
    let known = fields.iter().map(|field| format!("`{}`", field.name)).collect::<Vec<_>>().join(", ");
    let Ok(Entries(entries)) = serde_json::from_str(object.get()) else {
        let takes = format!("takes a JSON object with {known}.");
        return Err(match path.trim_end_matches('.') {
            "" => ApiError::new(Code::InvalidRequest, format!("The body {takes}")),
            field => ApiError::field(field, format!("`{field}` {takes}")),
        });
    };
    for (place, (name, value)) in entries.iter().enumerate() {
        let full = format!("{path}{}", shortened(name));
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            return Err(ApiError::field(&full, format!("There is no field `{full}`; {} takes {known}.", name_of(path))));
        };
        if entries.iter().take(place).any(|(earlier, _)| earlier == name) {
            return Err(ApiError::field(&full, format!("`{full}` is given twice.")));
        }
        field.check(value, &full)?;
    }
    match fields.iter().find(|field| field.needed && !entries.iter().any(|(name, _)| name == field.name)) {
        Some(missing) => {
            let full = format!("{path}{}", missing.name);
            Err(ApiError::field(&full, format!("`{full}` is missing. It takes {}.", missing.takes)))
        }
        None => Ok(()),
    }
}

fn name_of(path: &str) -> String {
    if path.is_empty() { "the body".to_owned() } else { format!("`{}`", path.trim_end_matches('.')) }
}

/// A client's own word, not longer than an answer should be.
fn shortened(word: &str) -> Cow<'_, str> {
    match word.char_indices().nth(REPEATED) {
        Some((end, _)) => format!("{}…", &word[..end]).into(),
        None => word.into(),
    }
}

impl Field {
    fn check(self, value: &RawValue, full: &str) -> Result<(), ApiError> {
        let json = value.get();
        let text = || serde_json::from_str::<Cow<'_, str>>(json).ok();
        let wrong = || ApiError::field(full, format!("`{full}` takes {}.", self.takes));
        let fits = match self.takes {
            Takes::Text => text().is_some(),
            _ if self.nullable && json == "null" => true,
            Takes::Uuid => text().is_some_and(|text| parse_uuid(&text).is_some()),
            Takes::Flag => matches!(json, "true" | "false"),
            Takes::Answer => is_answer(value),
            Takes::List(fields) => {
                let items: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| wrong())?;
                for (n, item) in items.into_iter().enumerate() {
                    check(item, fields, &format!("{full}[{n}]."))?;
                }
                true
            }
        };
        if fits { Ok(()) } else { Err(wrong()) }
    }
}

/// `{approved, reason?}` or `{answer}`, and nothing else in it.
fn is_answer(value: &RawValue) -> bool {
    const APPROVAL: &[Field] = &[needed("approved", Takes::Flag), nullable("reason", Takes::Text)];
    const ANSWER: &[Field] = &[needed("answer", Takes::Text)];
    check(value, APPROVAL, "").is_ok() || check(value, ANSWER, "").is_ok()
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Uuid => f.write_str("a UUID such as 0198c0de-0000-7000-8000-000000000001"),
            Self::Flag => f.write_str("true or false"),
            Self::Answer => f.write_str(
                "{\"approved\": true or false, \"reason\": text} for an approval (without a reason where there is none), or {\"answer\": text} \
                 for a question",
            ),
            Self::List(fields) => {
                f.write_str("a list of objects with ")?;
                let names: Vec<_> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
                f.write_str(&names.join(", "))
            }
        }
    }
}

/// An object's fields in their order, those that are given twice too.
struct Entries<'b>(Vec<(Cow<'b, str>, &'b RawValue)>);

impl<'de: 'b, 'b> Deserialize<'de> for Entries<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::{Value, json};

    use super::*;
    use crate::http::attachments;

    const ID: &str = "0198c0de-0000-7000-8000-00000000000A";

    /// The field at fault and the detail; `None`: it fits.
    fn fault<T: Shape>(body: &str) -> Option<(Option<String>, String)> {
        let problem = parse::<T>(body.as_bytes()).err()?.0;
        assert_eq!(problem.code, Code::InvalidRequest);
        Some((problem.field, problem.detail))
    }

    #[test]
    fn a_body_that_fits_is_read() {
        let chat = json!({ "message": "a \" b \u{e4}", "sessionId": ID, "newSession": true, "messageId": null,
            "attachments": [{ "name": "n", "mediaType": "text/plain", "data": "" }] });
        let read: ChatRequest = parse(chat.to_string().as_bytes()).unwrap();
        assert_eq!((read.message.as_str(), read.new_session, read.attachments.len()), ("a \" b \u{e4}", Some(true), 1));
        assert_eq!(read.session_id.unwrap().to_string(), ID.to_lowercase());
        parse::<ChatRequest>(b" {} ").unwrap();
        for data in [json!({ "approved": true }), json!({ "approved": false, "reason": "no" }), json!({ "answer": "red" })] {
            let resume = json!({ "runId": ID, "toolCallId": "c", "resumeData": data });
            parse::<ResumeRequest>(resume.to_string().as_bytes()).unwrap();
        }
        parse::<RenameThread>(br#"{"title":"\u0041"}"#).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_named_with_what_it_takes() {
        for (body, field, says) in [
            ("", None, "The body is no JSON: it ends too early (line 1, column 0)."),
            ("{", None, "The body is no JSON: it ends too early (line 1, column 1)."),
            ("{\n]", None, "The body is no JSON: it goes wrong there (line 2, column 1)."),
            ("{} {}", None, "The body is no JSON"),
            ("[]", None, "The body takes a JSON object with `message`, `sessionId`"),
            ("7", None, "The body takes a JSON object"),
            (r#"{"message":null}"#, Some("message"), "`message` takes text."),
            (r#"{"sessionId":7}"#, Some("sessionId"), "`sessionId` takes a UUID such as"),
            (r#"{"newSession":"yes"}"#, Some("newSession"), "`newSession` takes true or false."),
            (r#"{"sessionID":7}"#, Some("sessionID"), "There is no field `sessionID`; the body takes `message`"),
            (r#"{"message":"a","message":"b"}"#, Some("message"), "`message` is given twice."),
            (
                r#"{"attachments":{}}"#,
                Some("attachments"),
                "`attachments` takes a list of objects with `name`, `mediaType`, `data`.",
            ),
            (r#"{"attachments":[7]}"#, Some("attachments[0]"), "`attachments[0]` takes a JSON object with `name`"),
            (r#"{"attachments":[{"name":7}]}"#, Some("attachments[0].name"), "takes text."),
            (r#"{"attachments":[{"name":"n"}]}"#, Some("attachments[0].mediaType"), "is missing. It takes text."),
        ] {
            let (at, said) = fault::<ChatRequest>(body).unwrap();
            assert!(at.as_deref() == field && said.contains(says), "{body}: {at:?}: {said}");
        }
        for data in ["{}", "[]", "7", "null", r#"{"approved":1}"#, r#"{"approved":true,"answer":"x"}"#, r#"{"reason":"x"}"#] {
            let body = format!("{{\"runId\":\"{ID}\",\"toolCallId\":\"c\",\"resumeData\":{data}}}");
            let (at, said) = fault::<ResumeRequest>(&body).unwrap();
            assert!(at.as_deref() == Some("resumeData") && said.contains("or {\"answer\": text}"), "{data}: {said}");
        }
        let (at, said) = fault::<ResumeRequest>("{}").unwrap();
        assert!(at.as_deref() == Some("runId") && said.contains("missing"), "{said}");
        let long = format!("{{\"{}\":1}}", "x".repeat(1_000));
        assert!(fault::<RenameThread>(&long).unwrap().1.len() < 300, "a client's own word is not repeated at length");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            Just(json!(ID)),
        ];
        let names = ["message", "sessionId", "newSession", "messageId", "attachments", "name", "mediaType", "data", "runId"];
        let names = names.into_iter().chain(["toolCallId", "resumeData", "approved", "reason", "answer", "title", "x"]);
        let name = prop::sample::select(names.collect::<Vec<_>>());
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                vec((name.clone(), inner), 0..6).prop_map(|entries| Value::Object(
                    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
                )),
            ]
        })
    }

    /// What a deserialiser reads and a shape does not, or the other way round, is a mistake in one of them.
    fn check_answer<T: Shape>(text: &str) -> Result<(), TestCaseError> {
        if let Some((_, detail)) = fault::<T>(text) {
            for word in ["struct", "enum", "variant", "untagged", "::", "expected", "invalid type", "offset 0"] {
                prop_assert!(!detail.contains(word), "{text}: {detail}");
            }
            prop_assert!(detail != "The body does not fit what this route takes.", "{text}");
            prop_assert!(serde_json::from_str::<T>(text).is_err() || strict(text), "{text}: {detail}");
        }
        Ok(())
    }

    /// Whether a body may have a list where an object belongs: the deserialiser takes that too.
    fn strict(text: &str) -> bool {
        text.contains('[')
    }

    proptest! {
        #[test]
        fn no_answer_speaks_of_the_program(value in any_json(), cut in 0..200usize) {
            let text = value.to_string();
            let cut = text.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(text.len());
            for text in [text.as_str(), &text[..cut]] {
                check_answer::<ChatRequest>(text)?;
                check_answer::<ResumeRequest>(text)?;
                check_answer::<RenameThread>(text)?;
            }
        }

        #[test]
        fn no_answer_to_an_attachment_does_either(name in ".{0,4}", kind in ".{0,8}", data in "[A-Za-z0-9+/=!]{0,8}") {
            let limits = crate::config::Config::load(&crate::config::Overrides::default()).unwrap().limits;
            let new = turnfast_shared::api::NewAttachment { name, media_type: kind, data };
            if let Err(error) = attachments::decode(vec![new], &limits) {
                for word in ["struct", "enum", "variant", "untagged", "::", "offset", "symbol"] {
                    prop_assert!(!error.0.detail.contains(word), "{}", error.0.detail);
                }
            }
        }
    }
}
