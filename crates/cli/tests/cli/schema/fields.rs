//! Rules for the fields: each has a description, and the name of a number contains its unit.

use serde_json::{Map, Value};

const UNITS: [&str; 17] = [
    "bytes", "mib", "gib", "bits", "mw", "w", "mj", "c", "percent", "ms", "s", "us", "ns", "mhz",
    "ticks", "tokens", "ratio",
];

/// The last words of the names of integers without a unit: identifiers, counts and scores.
const UNITLESS: [&str; 20] = [
    "sxid",
    "schema",
    "pid",
    "pids",
    "uid",
    "id",
    "index",
    "gpus",
    "threads",
    "minor",
    "line",
    "count",
    "code",
    "xid",
    "xids",
    "descriptors",
    "scores",
    "shape",
    "class",
    "number",
];

/// Returns the faults in the fields of a schema and of its nested schemas.
fn faults(schema: &Value, at: &str) -> Vec<String> {
    match schema {
        Value::Array(schemas) => schemas.iter().flat_map(|schema| faults(schema, at)).collect(),
        Value::Object(keywords) => {
            let fields = keywords.get("properties").and_then(Value::as_object);
            let fields = fields.into_iter().flatten().filter(|_| !is_variant(keywords));
            let here = fields.filter_map(|(name, field)| {
                fault(name, field).map(|what| format!("{at}.{name}: {what}"))
            });
            let inner = keywords.iter().flat_map(|(name, schema)| {
                let name = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                faults(schema, &name)
            });
            here.chain(inner).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether an object is a variant of an enum: its only field is the name of the variant.
fn is_variant(keywords: &Map<String, Value>) -> bool {
    let fields = keywords["properties"].as_object();
    fields.is_some_and(|fields| {
        fields.len() == 1 && fields.values().all(|field| field.get("description").is_none())
    })
}

fn fault(name: &str, field: &Value) -> Option<&'static str> {
    let is_tag = name == "kind" && field.get("const").is_some();
    if field.get("description").is_none() && !is_tag {
        return Some("it has no description");
    }
    let last = name.rsplit('_').next().unwrap_or_default();
    match (is_a("number", field), is_a("integer", field)) {
        (true, _) if !UNITS.contains(&last) => Some("its name has no unit"),
        (_, true) if !UNITS.contains(&last) && !UNITLESS.contains(&last) => {
            Some("its name has no unit and is not in UNITLESS")
        }
        _ => None,
    }
}

/// Returns whether a field, or an item of a list, is of this type.
fn is_a(name: &str, field: &Value) -> bool {
    let is_of = |known: &Value| match known {
        Value::Array(types) => types.iter().any(|known| known == name),
        known => known == name,
    };
    field.get("type").is_some_and(is_of) || field.get("items").is_some_and(|item| is_a(name, item))
}

#[test]
fn fields_have_descriptions_and_units() {
    for document in gpu_report::schema::documents() {
        let schema: Value = serde_json::from_str(&document.text).expect("it is JSON");
        assert_eq!(faults(&schema, ""), [""; 0], "{}", document.name);
    }
}

#[test]
fn undescribed_fields_and_numbers_without_unit_are_reported() {
    let described = |kind: &str| serde_json::json!({ "type": kind, "description": "A value." });
    let schema = serde_json::json!({
        "properties": {
            "memory_bytes": described("integer"),
            "memory": described("integer"),
            "retry_count": described("number"),
            "name": { "type": "string" },
            "sizes": {
                "description": "A list.",
                "type": ["array", "null"],
                "items": { "items": { "type": ["integer", "null"] } },
            },
            "why": { "description": "A variant.", "oneOf": [
                { "properties": { "let-go": { "type": "integer" } } },
                { "properties": { "kind": { "const": "ended" }, "after": described("integer") } },
            ] },
        },
    });
    let mut found = faults(&schema, "");
    found.sort();
    assert_eq!(
        found,
        [
            ".memory: its name has no unit and is not in UNITLESS",
            ".name: it has no description",
            ".retry_count: its name has no unit",
            ".sizes: its name has no unit and is not in UNITLESS",
            "properties.why.oneOf.after: its name has no unit and is not in UNITLESS",
        ]
    );
}
