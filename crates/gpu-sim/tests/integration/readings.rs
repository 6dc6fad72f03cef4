//! The form in which a recording stores a value or the reason of its absence.

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
