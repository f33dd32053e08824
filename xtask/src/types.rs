//! The TypeScript types of what the server sends and takes, from the schemas of its OpenAPI document.
//!
//! The document is made from the Rust types, and a test of the server keeps it in step with them; so these types are too.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

/// The declarations, one for each schema of the document.
pub(crate) fn declarations(document: &Value) -> Result<String> {
    let schemas = document["components"]["schemas"].as_object().context("the document has no schemas")?;
    let mut out = String::from("// Made from Turnfast's OpenAPI document by `cargo xtask package`.\n");
    for (name, schema) in schemas {
        let declared = declaration(name, schema).with_context(|| format!("the schema {name}"))?;
        write!(out, "\n{}{declared}", comment(schema, ""))?;
    }
    Ok(out)
}

fn declaration(name: &str, schema: &Value) -> Result<String> {
    if let Some(properties) = schema["properties"].as_object() {
        return Ok(format!("export interface {name} {{\n{}}}\n", fields(properties, schema, "  ")?));
    }
    let Some(variants) = schema["oneOf"].as_array() else {
        return Ok(format!("export type {name} = {};\n", expression(schema)?));
    };
    let mut out = format!("export type {name} =");
    for variant in variants {
        write!(out, "\n{}  | {}", comment(variant, "  "), expression(variant)?)?;
    }
    Ok(out + ";\n")
}

fn fields(properties: &Map<String, Value>, schema: &Value, indent: &str) -> Result<String> {
    let mut out = String::new();
    for (name, property) in properties {
        let is_required = schema["required"].as_array().is_some_and(|required| required.iter().any(|field| field == name));
        let mut value = expression(property).with_context(|| format!("the field {name}"))?;
        if !is_required {
            // Where a field may be absent, it is absent and never null.
            value = value.strip_suffix(" | null").map(str::to_owned).unwrap_or(value);
        }
        let mark = if is_required { "" } else { "?" };
        writeln!(out, "{}{indent}readonly {name}{mark}: {value};", comment(property, indent))?;
    }
    Ok(out)
}

/// A schema as a type.
fn expression(schema: &Value) -> Result<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return Ok(reference.rsplit('/').next().unwrap_or(reference).to_owned());
    }
    let several = |of: &Value, between: &str| -> Result<Option<String>> {
        let Some(schemas) = of.as_array() else { return Ok(None) };
        let types = schemas.iter().map(expression).collect::<Result<Vec<_>>>()?;
        Ok(Some(types.join(between)))
    };
    if let Some(union) = several(&schema["oneOf"], " | ")? {
        return Ok(union);
    }
    if let Some(intersection) = several(&schema["allOf"], " & ")? {
        return Ok(intersection);
    }
    if let Some(values) = schema["enum"].as_array() {
        return Ok(values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | "));
    }
    if let Some(properties) = schema["properties"].as_object() {
        return Ok(format!("{{ {}}}", fields(properties, schema, "")?.replace('\n', " ")));
    }
    let names: Vec<&str> = match &schema["type"] {
        // Any JSON value.
        Value::Null => return Ok("unknown".to_owned()),
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        other => bail!("a type that is {other}"),
    };
    let types = names.into_iter().map(|name| {
        Ok(match name {
            "string" => "string".to_owned(),
            "integer" | "number" => "number".to_owned(),
            "boolean" => "boolean".to_owned(),
            "null" => "null".to_owned(),
            "array" => match expression(&schema["items"])? {
                items if items.contains(' ') => format!("readonly ({items})[]"),
                items => format!("readonly {items}[]"),
            },
            other => bail!("a type that is called {other}"),
        })
    });
    Ok(types.collect::<Result<Vec<_>>>()?.join(" | "))
}

/// What the document says of a schema. Of one that may be null, the words stand with the other alternative.
fn comment(schema: &Value, indent: &str) -> String {
    let inner = schema["oneOf"].as_array().into_iter().chain(schema["allOf"].as_array()).flatten();
    let is_nullable = schema["oneOf"].as_array().is_some_and(|all| all.iter().any(|one| one["type"] == "null"));
    let mut words = schema["description"].as_str();
    if is_nullable {
        words = words.or_else(|| inner.into_iter().find_map(|one| one["description"].as_str()));
    }
    match words {
        None => String::new(),
        Some(words) => format!("{indent}/** {} */\n", words.replace('\n', &format!("\n{indent} * ")).replace("*/", "* /")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(schema: &Value) -> String {
        declarations(&json!({"components": {"schemas": {"It": schema}}})).unwrap().split_once("\n\n").unwrap().1.to_owned()
    }

    #[test]
    fn objects_become_interfaces_and_what_may_be_absent_is_optional() {
        let schema = json!({"type": "object", "description": "A thing.", "required": ["id", "next"], "properties": {
            "id": {"$ref": "#/components/schemas/ThingId", "description": "Its id."},
            "next": {"oneOf": [{"$ref": "#/components/schemas/ThingId", "description": "The one behind it."}, {"type": "null"}]},
            "tags": {"type": ["array", "null"], "items": {"type": ["string", "null"]}},
            "any": {"description": "Whatever."}}});
        let expected = "/** A thing. */\nexport interface It {\n  /** Whatever. */\n  readonly any?: unknown;\n  /** Its id. */\n  \
            readonly id: ThingId;\n  /** The one behind it. */\n  readonly next: ThingId | null;\n  \
            readonly tags?: readonly (string | null)[];\n}\n";
        assert_eq!(declared(&schema), expected);
    }

    #[test]
    fn enums_become_unions() {
        assert_eq!(declared(&json!({"type": "string", "enum": ["a", "b"]})), "export type It = \"a\" | \"b\";\n");
        let schema = json!({"oneOf": [
            {"type": "object", "description": "One.", "required": ["type"], "properties": {"type": {"type": "string", "enum": ["one"]}}},
            {"allOf": [{"$ref": "#/components/schemas/Two"}, {"type": "object", "required": ["type"],
                "properties": {"type": {"type": "string", "enum": ["two"]}}}]}]});
        assert_eq!(
            declared(&schema),
            "export type It =\n  /** One. */\n  | { readonly type: \"one\"; }\n  | Two & { readonly type: \"two\"; };\n"
        );
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(declarations(&json!({"components": {"schemas": {"It": {"type": "odd"}}}})).is_err());
        assert!(declarations(&json!({})).is_err());
    }
}
