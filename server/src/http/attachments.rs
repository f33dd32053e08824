//! Files that go with messages: what is taken, and how it is given back (contract 1, section 3).
//!
//! The bytes decide what a file is, not what its sender says: a picture of a kind that models and browsers know, or text. What
//! someone else uploaded is never run: it comes back with a type that is not guessed at, in a sandbox, and as a download unless it
//! is a picture.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use turnfast_shared::{
    Code,
    api::{AttachmentLimits, NewAttachment},
    files::{is_text, picture},
};

use super::{
    access,
    path::{self, AttachmentPath, Segments},
    problem::ApiError,
};
use crate::{
    app::App,
    auth::{Caller, Scope},
    config::Limits,
    store::turns::Attachment,
    turns::new_attachment_id,
};

/// Characters of a file's name.
const NAME_CHARS: usize = 200;
/// Bytes of a media type.
const TYPE_BYTES: usize = 100;
/// Bytes of a body that an attachment takes beside its data.
const ENVELOPE: usize = 4 * 1024;

/// Bytes that all attachments of one message can take in a body.
pub(super) fn body_bytes(limits: &Limits) -> usize {
    limits.max_attachments * (encoded(limits.max_attachment_bytes) + ENVELOPE)
}

/// What a client is told of the limits; `None`: no file goes with a message.
pub(super) fn wire_limits(limits: &Limits) -> Option<AttachmentLimits> {
    let [max, max_bytes] =
        [limits.max_attachments, limits.max_attachment_bytes].map(|limit| u64::try_from(limit).unwrap_or(u64::MAX));
    (max > 0).then_some(AttachmentLimits { max, max_bytes })
}

/// Length of `bytes` bytes in base64.
fn encoded(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// The attachments of a message.
///
/// # Errors
/// `payload_too_large` or `invalid_request`, with the field at fault.
pub(super) fn decode(attachments: Vec<NewAttachment>, limits: &Limits) -> Result<Vec<Attachment>, ApiError> {
    let most = limits.max_attachments;
    if attachments.len() > most {
        let detail = format!("There are {} attachments; {most} go with one message.", attachments.len());
        return Err(ApiError::field("attachments", detail));
    }
    attachments.into_iter().enumerate().map(|(n, attachment)| decode_one(n, attachment, limits.max_attachment_bytes)).collect()
}

fn decode_one(n: usize, attachment: NewAttachment, most: usize) -> Result<Attachment, ApiError> {
    let wrong = |field: &str, detail: String| ApiError::field(&format!("attachments[{n}].{field}"), detail);
    let name = attachment.name.trim();
    if name.is_empty() || name.chars().count() > NAME_CHARS || name.chars().any(char::is_control) {
        return Err(wrong("name", format!("A name takes 1 to {NAME_CHARS} characters, none of them a control character.")));
    }
    let too_large = || {
        let mut error = ApiError::new(Code::PayloadTooLarge, format!("An attachment takes at most {most} bytes."));
        error.0.field = Some(format!("attachments[{n}].data"));
        error
    };
    if attachment.data.len() > encoded(most) {
        return Err(too_large());
    }
    let data = STANDARD
        .decode(&attachment.data)
        .map_err(|_| wrong("data", "The data takes base64 (the alphabet with + and /, with padding).".to_owned()))?;
    if data.len() > most {
        return Err(too_large());
    }
    let declared = attachment.media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if declared.len() > TYPE_BYTES || !is_media_type(&declared) {
        return Err(wrong("mediaType", "A media type is needed, such as image/png or text/plain.".to_owned()));
    }
    let media_type = match picture(&data) {
        Some(found) => found.to_owned(),
        None if declared.starts_with("image/") => {
            return Err(wrong("data", "This is no picture of the kinds that are taken: PNG, JPEG, GIF, WebP.".to_owned()));
        }
        None if is_text(&data) => declared,
        None => {
            let detail = "Pictures (PNG, JPEG, GIF, WebP) and text files in UTF-8 are taken; this is neither.";
            return Err(wrong("data", detail.to_owned()));
        }
    };
    Ok(Attachment { id: new_attachment_id(), name: name.to_owned(), media_type, data: data.into() })
}

/// `type/subtype` of RFC 9110, section 8.3.1.
fn is_media_type(text: &str) -> bool {
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b));
    text.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

/// Reads a file that went with a message
///
/// As it was sent. A text file comes as a download.
#[utoipa::path(get, operation_id = "attachment", path = "/chat/attachments/{attachmentId}", tag = "turns",
    params(AttachmentPath),
    responses((status = 200, content_type = "*/*", body = Vec<u8>, description = "The file, with its media type.")),
    extensions(("x-access" = json!("agent:read")), ("x-owner" = json!("attachmentId"))))]
pub async fn attachment(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<AttachmentPath>,
) -> Result<Response, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentRead)?;
    let id = path::uuid("attachmentId", &path.attachment_id)?;
    let found = app.store.attachment(&agent.project.id, &agent.entry.agent.id, agent.user, id).await?;
    let Attachment { name, media_type, data, .. } = found.ok_or_else(ApiError::not_found)?;
    let is_picture = media_type.starts_with("image/");
    let content_type = if is_picture { media_type } else { format!("{media_type}; charset=utf-8") };
    let disposition = format!("{}; filename*=UTF-8''{}", if is_picture { "inline" } else { "attachment" }, percent(&name));
    let mut response = data.into_response();
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: HeaderValue| headers.insert(name, value);
    // Both are made of visible ASCII characters.
    set(
        header::CONTENT_TYPE,
        HeaderValue::from_str(&content_type).unwrap_or(HeaderValue::from_static("application/octet-stream")),
    );
    set(header::CONTENT_DISPOSITION, HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment")));
    set(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    set(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    Ok(response)
}

/// `text` as the extended value of a header's parameter (RFC 8187).
fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        max_running_turns_per_user: 1,
        max_message_bytes: 1,
        max_attachments: 2,
        max_attachment_bytes: 100,
        interaction_expiry: None,
    };

    fn send(name: &str, media_type: &str, data: &[u8]) -> NewAttachment {
        NewAttachment { name: name.to_owned(), media_type: media_type.to_owned(), data: STANDARD.encode(data) }
    }

    /// The media type, or the status and the field at fault.
    fn taken(attachment: NewAttachment) -> Result<String, (u16, String)> {
        match decode(vec![attachment], &LIMITS) {
            Ok(taken) => Ok(taken[0].media_type.clone()),
            Err(error) => Err((error.0.status, error.0.field.unwrap_or_default())),
        }
    }

    #[test]
    fn the_bytes_decide() {
        let pictures: [(&[u8], &str); 5] = [
            (b"\x89PNG\r\n\x1a\n....", "image/png"),
            (b"\xff\xd8\xff\xe0....", "image/jpeg"),
            (b"GIF89a....", "image/gif"),
            (b"GIF87a....", "image/gif"),
            (b"RIFF\x01\x02\x03\x04WEBPVP8 ", "image/webp"),
        ];
        for (data, expected) in pictures {
            for declared in ["image/png", "image/x-odd", "text/html"] {
                assert_eq!(taken(send("a", declared, data)).as_deref(), Ok(expected));
            }
        }
        assert_eq!(taken(send("a.md", "Text/Markdown; charset=utf-8", "# größe\n".as_bytes())).as_deref(), Ok("text/markdown"));
        assert_eq!(taken(send("a", "application/json", b"{}")).as_deref(), Ok("application/json"));
        assert_eq!(taken(send("empty", "text/plain", b"")).as_deref(), Ok("text/plain"));
    }

    #[test]
    fn what_is_not_taken_names_its_field() {
        let data = || Err((400, "attachments[0].data".to_owned()));
        assert_eq!(taken(send("a", "image/png", b"no picture")), data());
        assert_eq!(taken(send("a", "image/svg+xml", b"<svg/>")), data());
        assert_eq!(taken(send("a", "application/zip", b"PK\x03\x04")), data());
        assert_eq!(taken(send("a", "text/plain", b"nul \0")), data());
        assert_eq!(taken(send("a", "text/plain", b"\xff\xfe")), data());
        assert_eq!(taken(NewAttachment { data: "no base64!".to_owned(), ..send("a", "text/plain", b"") }), data());
        for name in ["", " ", "a\nb", &"x".repeat(201)] {
            assert_eq!(taken(send(name, "text/plain", b"x")), Err((400, "attachments[0].name".to_owned())));
        }
        for media_type in ["", "text", "text/", "text/pl ain", "text/plain/x", "a/\r\nx"] {
            assert_eq!(taken(send("a", media_type, b"x")), Err((400, "attachments[0].mediaType".to_owned())), "{media_type}");
        }
    }

    #[test]
    fn limits_hold_to_the_byte() {
        assert!(taken(send("a", "text/plain", &[b'x'; 100])).is_ok());
        for more in [101, 102, 1_000] {
            assert_eq!(taken(send("a", "text/plain", &vec![b'x'; more])), Err((413, "attachments[0].data".to_owned())));
        }
        let all = |count| decode(vec![send("a", "text/plain", b"x"); count], &LIMITS);
        assert_eq!(all(2).map(|taken| taken.len()).ok(), Some(2));
        assert_eq!(all(3).err().and_then(|error| error.0.field).as_deref(), Some("attachments"));
        assert_eq!(wire_limits(&LIMITS), Some(AttachmentLimits { max: 2, max_bytes: 100 }));
        assert_eq!(wire_limits(&Limits { max_attachments: 0, ..LIMITS }), None);
    }

    #[test]
    fn any_name_fits_into_a_header() {
        assert_eq!(percent("größe \"1\";.txt"), "gr%C3%B6%C3%9Fe%20%221%22%3B.txt");
    }
}
