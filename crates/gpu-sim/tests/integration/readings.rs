//! How a recording stores a value, or the reason for its absence.

use gpu_core::{Absent, Reading};

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Line(#[serde(with = "gpu_core::reading")] Reading<Vec<String>>);

#[test]
fn command_line_is_not_confused_with_absence() {
    for line in [Line(Ok(vec!["failed".into()])), Line(Ok(vec![])), Line(Err(Absent::Failed))] {
        let json = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&json).unwrap(), line, "{json}");
    }
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Shape {
    Unit,
    Named { sides: u32 },
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Kinds {
    #[serde(with = "gpu_core::reading")]
    flag: Reading<bool>,
    #[serde(with = "gpu_core::reading")]
    negative: Reading<i32>,
    #[serde(with = "gpu_core::reading")]
    share: Reading<f64>,
    #[serde(with = "gpu_core::reading")]
    text: Reading<String>,
    #[serde(with = "gpu_core::reading")]
    optional: Reading<Option<u8>>,
    #[serde(with = "gpu_core::reading")]
    given: Reading<Option<u8>>,
    #[serde(with = "gpu_core::reading")]
    unit: Reading<Shape>,
    #[serde(with = "gpu_core::reading")]
    named: Reading<Shape>,
    #[serde(with = "gpu_core::reading")]
    nested: Reading<Line>,
    #[serde(with = "gpu_core::reading")]
    map: Reading<std::collections::BTreeMap<String, u64>>,
}

#[test]
fn value_of_each_kind_and_each_absence_is_read_back() {
    let values = Kinds {
        flag: Ok(true),
        negative: Ok(-3),
        share: Ok(1.0),
        text: Ok("a \"b\" \u{1f}".to_owned()),
        optional: Ok(None),
        given: Ok(Some(7)),
        unit: Ok(Shape::Unit),
        named: Ok(Shape::Named { sides: 4 }),
        nested: Ok(Line(Ok(vec![]))),
        map: Ok([("first".to_owned(), 1), ("second".to_owned(), 2)].into()),
    };
    let missing = Kinds {
        flag: Err(Absent::NotSupported),
        negative: Err(Absent::TooOld),
        share: Err(Absent::Implausible),
        text: Err(Absent::NotPermitted),
        optional: Err(Absent::Failed),
        given: Err(Absent::NotRecorded),
        unit: Err(Absent::Asleep),
        named: Err(Absent::NoAnswer),
        nested: Err(Absent::NotFound),
        map: Err(Absent::Deprecated),
    };
    for kinds in [values, missing] {
        let json = serde_json::to_string(&kinds).unwrap();
        assert_eq!(serde_json::from_str::<Kinds>(&json).unwrap(), kinds, "{json}");
        // The same, from text that is not borrowed.
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::from_value::<Kinds>(value).unwrap(), kinds, "{json}");
    }
    for wrong in [r#"{"absent":"failed","more":1}"#, r#"{"absent":"no-such"}"#, r#"[{}]"#] {
        assert!(serde_json::from_str::<Line>(wrong).is_err(), "{wrong}");
    }
}
