//! The JSON Schemas of the output of `--json`.

use gpu_core::ThrottleReasons;
use gpu_report::schema::documents;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

fn check(name: &str, schema: &Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("properties").is_some_and(Value::is_object) {
                let closed = fields.get("additionalProperties");
                assert_eq!(closed, Some(&Value::Bool(false)), "{name}: {schema}");
            }
            if let Some(Value::String(text)) = fields.get("description") {
                assert!(!text.contains(['\n', '`']), "{name}: {text}");
            }
            fields.values().for_each(|value| check(name, value));
        }
        Value::Array(items) => items.iter().for_each(|value| check(name, value)),
        _ => {}
    }
}

#[test]
fn schemas_are_closed_and_described_in_one_line() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let files: BTreeSet<String> =
        files.filter_map(|name| Some(name.to_str()?.strip_suffix(".json")?.to_owned())).collect();
    let documents = documents();
    let names: BTreeSet<String> = documents.iter().map(|one| one.name.to_owned()).collect();
    assert_eq!((&names, documents.len()), (&files, files.len()));
    for document in documents {
        let schema: Value = serde_json::from_str(&document.text).unwrap();
        let title = schema["title"].as_str().unwrap();
        // The same object is also the answer of `doctor --host`.
        let name = if document.name == "hosts" { "status" } else { document.name };
        let command = name.split('-').next().unwrap();
        assert!(title.starts_with(&format!("gpuws {command} ")), "{title}");
        check(document.name, &schema);
        let version = &schema["properties"]["schema"];
        assert_eq!((&version["type"], &version["const"]), (&"integer".into(), &1.into()));
    }
}

#[test]
fn schemas_of_maps_and_words_are_exact() {
    let schema = |name: &str| -> Value {
        let all = documents();
        let document = all.iter().find(|document| document.name == name).unwrap();
        serde_json::from_str(&document.text).unwrap()
    };
    let counts = &schema("holders")["properties"]["unreadable_by_reason"];
    assert_eq!(counts["propertyNames"]["$ref"], "#/$defs/Absent");
    assert_eq!(counts["additionalProperties"]["type"], "integer");
    let explain = schema("mem-explain");
    let stats = explain["$defs"]["Event"]["properties"]["stats"].to_string();
    assert!(stats.contains(r#""additionalProperties":{"#) && !stats.contains("$ref"), "{stats}");
    let status = schema("status");
    let reasons = &status["$defs"]["ThrottleReason"]["enum"];
    let named: Vec<&str> = ThrottleReasons::NAMED.iter().map(|(_, name)| *name).collect();
    assert_eq!(*reasons, Value::from(named));
    for name in ["Version", "Statistics", "CountByReason"] {
        for document in documents() {
            assert!(!document.text.contains(&format!("\"{name}\"")), "{name} is written in place");
        }
    }
}
