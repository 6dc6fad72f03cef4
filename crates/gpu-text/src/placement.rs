//! TensorFlow's log of placed operations (`log_device_placement`).
//!
//! A graph's placer prints `name: (Op): /job:localhost/replica:0/task:0/device:GPU:0`, in
//! slightly different forms since version 0; eager execution prints `Executing op Op in device /job:…`.

use crate::document::{Document, Kind, Placement};
use crate::tensorflow::message;
use crate::text::Text;

/// The maximum length of a name.
const MAX_NAME: usize = 1024;

/// Returns whether a line reports a placed operation.
pub(crate) fn is_row(line: &str) -> bool {
    row(line).is_some()
}

/// Parses the log.
pub(crate) fn parse(text: &Text) -> Document {
    let mut document = Document::new(Kind::Placement);
    for (number, line) in text.lines().filter(|(_, line)| !line.trim().is_empty()) {
        match row(line) {
            Some(_) if document.placements.len() >= Document::MAX_ROWS => {
                document.note_unread(number, line, "row limit exceeded");
            }
            Some(row) => document.placements.push(row),
            None => document.note_unread(number, line, "not a placed operation"),
        }
    }
    document
}

fn row(line: &str) -> Option<Placement> {
    let line = message(line);
    let (head, device) = line.split_at(line.find("/job:")?);
    if !is_device(device) {
        return None;
    }
    let device = device.to_owned();
    let eager =
        head.strip_prefix("Executing op ").and_then(|head| head.strip_suffix(" in device "));
    if let Some(op) = eager {
        return is_name(op).then(|| Placement { name: None, op: Some(op.to_owned()), device });
    }
    let head = head.trim_end();
    let head = head.strip_suffix(':').or_else(|| head.ends_with(')').then_some(head))?;
    let (name, op) = match head.split_once(": (") {
        Some((name, op)) => (name, Some(op.strip_suffix(')')?)),
        None => (head, None),
    };
    let is_row = is_name(name) && op.is_none_or(is_name);
    is_row.then(|| Placement { name: Some(name.to_owned()), op: op.map(str::to_owned), device })
}

/// Returns whether a text is the full name of a device: `/job:…/task:0/device:GPU:0`, in version 0
/// `/job:…/task:0/gpu:0`.
fn is_device(text: &str) -> bool {
    let Some((_, last)) = text.split_once("/task:").and_then(|(_, task)| task.split_once('/'))
    else {
        return false;
    };
    let kind = last.strip_prefix("device:").unwrap_or(last);
    text.len() <= MAX_NAME
        && kind.split_once(':').is_some_and(|(kind, index)| {
            is_name(kind) && !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// Returns whether a text can be the name of an operation or a node.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/>\\^".contains(&byte);
    !text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hint, parse as parse_text};

    fn rows(text: &str) -> Vec<(Option<String>, Option<String>, String)> {
        let document = parse_text(text.as_bytes(), &Hint::default()).unwrap();
        assert_eq!((document.kind, document.unread), (Kind::Placement, vec![]));
        let rows = document.placements.into_iter();
        rows.map(|row| (row.name, row.op, row.device)).collect()
    }

    #[test]
    fn every_form_of_the_log_is_read() {
        const DEVICE: &str = "/job:localhost/replica:0/task:0/device:GPU:1";
        let some = |text: &str| Some(text.to_owned());
        for (line, name, op, device) in [
            (format!("m/w: (MatMul): {DEVICE}"), some("m/w"), some("MatMul"), DEVICE),
            (
                format!("I 2020 some/placer.cc:9] b: (Const){DEVICE}"),
                some("b"),
                some("Const"),
                DEVICE,
            ),
            (
                "c: /job:a/replica:0/task:3/gpu:0".into(),
                some("c"),
                None,
                "/job:a/replica:0/task:3/gpu:0",
            ),
            (format!("x.cc:1] Executing op Add in device {DEVICE}"), None, some("Add"), DEVICE),
        ] {
            assert_eq!(rows(&line), [(name, op, device.to_owned())], "{line}");
        }
    }

    #[test]
    fn other_lines_with_a_device_are_no_rows() {
        for line in [
            "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 7 MB memory",
            "see /job:localhost/replica:0/task:0/device:GPU:0",
            "two words: (Op): /job:localhost/replica:0/task:0/device:GPU:0",
            "a: (Op): /job:localhost/replica:0/task:0",
            "a: (Op): /job:localhost/replica:0/task:0/device:GPU:",
            "a: (Op: /job:localhost/replica:0/task:0/device:GPU:0",
            "a: (Op): /job:localhost/replica:0/task:0/device:GPU:0 and more",
            "a: (Op): /gpu:0",
        ] {
            assert!(!is_row(line), "{line}");
        }
    }
}
