//! What an MCP tool answered, as a model reads it and as it is recorded: text, or JSON where the tool gives structure. Pictures and
//! sound are named, not shown. Bounded, and without this server's secrets, should the tool echo one.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

use crate::{agents::tools::ToolEvent, redact::Redactor};

/// Bytes of an answer that are kept.
pub(super) const OUTPUT_BYTES: usize = 1024 * 1024;

/// The end of a call that was answered.
pub(super) fn event(result: CallToolResult, redactor: &Redactor) -> ToolEvent {
    let text = result.content.iter().map(shown).collect::<Vec<_>>().join("\n");
    let output = match result.structured_content {
        None => Value::String(text),
        // Servers repeat the structure as text, for clients that know no structure.
        Some(structure) if text.is_empty() || serde_json::from_str::<Value>(&text).is_ok_and(|same| same == structure) => {
            structure
        }
        Some(structure) => json!({"text": text, "structured": structure}),
    };
    let output = bounded(redactor.value(output));
    match output {
        Value::String(text) if result.is_error == Some(true) => {
            ToolEvent::Failed(if text.is_empty() { "The tool failed and did not say why.".to_owned() } else { text })
        }
        output if result.is_error == Some(true) => ToolEvent::Failed(output.to_string()),
        output => ToolEvent::Output(output),
    }
}

fn shown(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[picture of type {}, not shown]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[sound of type {}, not shown]", audio.mime_type),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, mime_type, .. } => {
                format!("[{uri}, of type {}, not shown]", mime_type.as_deref().unwrap_or("unknown"))
            }
            _ => "[a resource of a kind that is not known here]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => "[content of a kind that is not known here]".to_owned(),
    }
}

/// Cuts what is too long, and says so.
fn bounded(output: Value) -> Value {
    let text = match output {
        Value::String(text) => text,
        other => {
            let text = other.to_string();
            if text.len() <= OUTPUT_BYTES {
                return other;
            }
            text
        }
    };
    if text.len() <= OUTPUT_BYTES {
        return Value::String(text);
    }
    let kept = &text[..text.floor_char_boundary(OUTPUT_BYTES)];
    Value::String(format!("{kept}\n[cut here: the answer has {} bytes, of which {OUTPUT_BYTES} are kept]", text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "a-secret-of-some-length";

    fn answered(result: Value) -> Result<Value, String> {
        match event(serde_json::from_value(result).unwrap(), &Redactor::new([KEY, "short"])) {
            ToolEvent::Output(output) => Ok(output),
            ToolEvent::Failed(why) => Err(why),
            ToolEvent::Child { .. } => unreachable!("an MCP tool has no children"),
        }
    }

    #[test]
    fn text_is_joined_and_what_is_no_text_is_named() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "in a"}},
            {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "application/zip", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]);
        let expected = "one\n[picture of type image/png, not shown]\n[sound of type audio/wav, not shown]\nin a\n\
                        [file:///b, of type application/zip, not shown]\n[c: file:///c]";
        assert_eq!(answered(json!({"content": content})), Ok(json!(expected)));
        assert_eq!(answered(json!({"content": []})), Ok(json!("")));
    }

    #[test]
    fn structure_stays_structure() {
        let structure = json!({"sum": 3});
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        assert_eq!(answered(json!({"content": [], "structuredContent": structure})), Ok(structure.clone()));
        assert_eq!(answered(json!({"content": text("{\"sum\": 3}"), "structuredContent": structure})), Ok(structure.clone()));
        assert_eq!(
            answered(json!({"content": text("three"), "structuredContent": structure})),
            Ok(json!({"text": "three", "structured": structure}))
        );
    }

    #[test]
    fn an_error_is_one() {
        let text = json!([{"type": "text", "text": "no paper"}]);
        assert_eq!(answered(json!({"content": text, "isError": true})), Err("no paper".to_owned()));
        assert_eq!(
            answered(json!({"content": [], "structuredContent": {"code": 7}, "isError": true})),
            Err("{\"code\":7}".to_owned())
        );
        assert!(answered(json!({"content": [], "isError": true})).unwrap_err().contains("did not say why"));
    }

    #[test]
    fn a_long_answer_is_cut_between_characters() {
        let long = "é".repeat(OUTPUT_BYTES);
        let output = answered(json!({"content": [{"type": "text", "text": format!("x{long}")}]})).unwrap();
        let (kept, note) = output.as_str().unwrap().rsplit_once('\n').unwrap();
        assert_eq!(kept.len(), OUTPUT_BYTES - 1);
        assert!(note.contains(&format!("{} bytes", 2 * OUTPUT_BYTES + 1)), "{note}");
        let whole = "y".repeat(OUTPUT_BYTES);
        assert_eq!(answered(json!({"content": [{"type": "text", "text": whole}]})), Ok(json!(whole)));
        let structure = answered(json!({"content": [], "structuredContent": {"long": long}})).unwrap();
        assert!(structure.as_str().unwrap().starts_with("{\"long\":\"éé"));
    }

    #[test]
    fn secrets_are_masked() {
        let structure = json!({"a": [format!("Bearer {KEY}!"), 1, null], KEY: "short"});
        let masked = json!({"a": ["Bearer [secret]!", 1, null], "[secret]": "short"});
        assert_eq!(answered(json!({"content": [], "structuredContent": structure})), Ok(masked));
        let text = json!([{"type": "text", "text": format!("{KEY}{KEY}")}]);
        assert_eq!(answered(json!({"content": text, "isError": true})), Err("[secret][secret]".to_owned()));
    }
}
