//! A validator of the part of JSON Schema that the documents use.
//!
//! It panics at any keyword that it does not know, so that no part of a schema is skipped.

use serde_json::{Map, Value};

/// Checks a value, and returns where and why it does not match the schema.
pub(super) fn validate(schema: &Value, value: &Value) -> Result<(), String> {
    Validator { root: schema }.check(schema, value, "$")
}

struct Validator<'a> {
    root: &'a Value,
}

impl Validator<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let keywords = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Bool(false) => return Err(format!("{at}: nothing may be here")),
            Value::Object(keywords) => keywords,
            _ => panic!("{at}: no schema: {schema}"),
        };
        for (keyword, argument) in keywords {
            let is_met = match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "format" => true,
                "$ref" => {
                    let name = argument.as_str().and_then(|name| name.strip_prefix('#'));
                    let referred = name.and_then(|name| self.root.pointer(name));
                    self.check(referred.expect("the reference leads somewhere"), value, at)?;
                    true
                }
                "type" => match argument {
                    Value::Array(types) => types.iter().any(|name| is_of(value, name)),
                    name => is_of(value, name),
                },
                "const" => value == argument,
                "enum" => list(argument).contains(value),
                "minimum" => bound(value, argument).is_none_or(|(value, least)| value >= least),
                "maximum" => bound(value, argument).is_none_or(|(value, most)| value <= most),
                "anyOf" => self.matches(argument, value, at) >= 1,
                "oneOf" => self.matches(argument, value, at) == 1,
                "properties" | "required" | "additionalProperties" | "propertyNames" => {
                    if let Value::Object(fields) = value {
                        self.check_object(keywords, keyword, fields, at)?;
                    }
                    true
                }
                "items" | "prefixItems" | "minItems" | "maxItems" | "uniqueItems" => match value {
                    Value::Array(items) => self.check_array(keywords, keyword, items, at)?,
                    _ => true,
                },
                _ => panic!("{at}: unknown keyword '{keyword}'"),
            };
            if !is_met {
                return Err(format!("{at}: {value} does not match {keyword} {argument}"));
            }
        }
        Ok(())
    }

    /// Returns how many of the schemas a value matches.
    fn matches(&self, schemas: &Value, value: &Value, at: &str) -> usize {
        let is_match = |schema: &&Value| self.check(schema, value, at).is_ok();
        list(schemas).iter().filter(is_match).count()
    }

    fn check_object(
        &self,
        keywords: &Map<String, Value>,
        keyword: &str,
        fields: &Map<String, Value>,
        at: &str,
    ) -> Result<(), String> {
        let argument = &keywords[keyword];
        if keyword == "required" {
            let missing = list(argument)
                .iter()
                .find(|name| !fields.contains_key(name.as_str().expect("a name")));
            return missing.map_or(Ok(()), |name| Err(format!("{at}: {name} is missing")));
        }
        let known = keywords.get("properties").and_then(Value::as_object);
        for (name, value) in fields {
            let schema = known.and_then(|known| known.get(name));
            let inner = format!("{at}.{name}");
            match (keyword, schema) {
                ("properties", Some(schema)) => self.check(schema, value, &inner)?,
                ("additionalProperties", None) => self.check(argument, value, &inner)?,
                ("propertyNames", _) => self.check(argument, &name.as_str().into(), &inner)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn check_array(
        &self,
        keywords: &Map<String, Value>,
        keyword: &str,
        items: &[Value],
        at: &str,
    ) -> Result<bool, String> {
        let argument = &keywords[keyword];
        let count = || argument.as_u64().map(|count| count as usize).expect("a count");
        let first = keywords.get("prefixItems").map_or(&[][..], |schemas| list(schemas));
        for (index, item) in items.iter().enumerate() {
            let schema = match keyword {
                "prefixItems" => first.get(index),
                "items" if index >= first.len() => Some(argument),
                _ => None,
            };
            if let Some(schema) = schema {
                self.check(schema, item, &format!("{at}[{index}]"))?;
            }
        }
        Ok(match keyword {
            "minItems" => items.len() >= count(),
            "maxItems" => items.len() <= count(),
            "uniqueItems" => items.iter().enumerate().all(|(at, item)| !items[..at].contains(item)),
            _ => true,
        })
    }
}

fn list(argument: &Value) -> &[Value] {
    argument.as_array().expect("a list")
}

fn is_of(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type '{other}'"),
    }
}

/// Returns a number and its bound; `None` for any other value, which has no bound.
fn bound(value: &Value, bound: &Value) -> Option<(f64, f64)> {
    Some((value.as_f64()?, bound.as_f64().expect("a bound")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(schema: &Value, value: Value) -> String {
        validate(schema, &value).expect_err("it does not match")
    }

    #[test]
    fn values_of_wrong_type_range_or_name_are_rejected() {
        for (schema, good, bad) in [
            (json!({"type": "integer"}), json!(1), json!(1.5)),
            (json!({"type": ["string", "null"]}), json!(null), json!(true)),
            (json!({"type": "integer", "minimum": 0}), json!(0), json!(-1)),
            (json!({"type": "integer", "maximum": 255}), json!(255), json!(256)),
            (json!({"const": 1}), json!(1), json!(2)),
            (json!({"enum": ["a", "b"]}), json!("b"), json!("c")),
            (json!({"anyOf": [{"type": "null"}, {"const": 1}]}), json!(1), json!(2)),
            (json!({"oneOf": [{"type": "integer"}, {"const": 1}]}), json!(2), json!(1)),
            (json!({"items": {"type": "string"}}), json!(["a"]), json!(["a", 1])),
            (json!({"prefixItems": [{"const": 1}]}), json!([1, 2]), json!([2])),
            (json!({"prefixItems": [true], "items": false}), json!([1]), json!([1, 2])),
            (json!({"minItems": 1}), json!([1]), json!([])),
            (json!({"maxItems": 1}), json!([1]), json!([1, 2])),
            (json!({"uniqueItems": true}), json!([1, 2]), json!([1, 1])),
            (json!({"propertyNames": {"const": "a"}}), json!({"a": 1}), json!({"b": 1})),
            (json!({"additionalProperties": {"const": 1}}), json!({"a": 1}), json!({"a": 2})),
        ] {
            assert_eq!(validate(&schema, &good), Ok(()), "{schema}");
            assert!(validate(&schema, &bad).is_err(), "{schema} {bad}");
        }
    }

    #[test]
    fn objects_are_checked_by_field() {
        let schema = json!({
            "$defs": {"Device": {
                "properties": {"index": {"type": "integer"}},
                "required": ["index"],
                "additionalProperties": false,
            }},
            "properties": {"gpus": {"items": {"$ref": "#/$defs/Device"}}},
        });
        let gpus = |gpu: Value| json!({"gpus": [{"index": 0}, gpu]});
        assert_eq!(validate(&schema, &gpus(json!({"index": 1}))), Ok(()));
        assert_eq!(error(&schema, gpus(json!({}))), "$.gpus[1]: \"index\" is missing");
        let wrong = error(&schema, gpus(json!({"index": "1"})));
        assert_eq!(wrong, "$.gpus[1].index: \"1\" does not match type \"integer\"");
        let more = error(&schema, gpus(json!({"index": 1, "name": "a"})));
        assert_eq!(more, "$.gpus[1].name: nothing may be here");
    }

    #[test]
    #[should_panic(expected = "unknown keyword 'pattern'")]
    fn unknown_keywords_are_refused() {
        let _ = validate(&json!({"pattern": "a"}), &json!("a"));
    }
}
