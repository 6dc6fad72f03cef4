//! Text inside JSON: the logs of containers and services are strings, with line ends as `\n` and
//! colours as `\u001b`.
//!
//! An object with a message becomes that message; a driver message also gets the time of the
//! object. Any other quoted line with escaped line ends is unescaped unchanged. All lines from one
//! original line share its number, because `\r` ends them.

use crate::stamp::{self, Stamp};
use crate::work_meter;
use gpu_core::Timestamp;
use std::borrow::Cow;

/// The keys of messages in the logs of Docker, Kubernetes, journald and common loggers.
pub(crate) const MESSAGES: [&str; 14] = [
    "log",
    "message",
    "MESSAGE",
    "msg",
    "line",
    "text",
    "textPayload",
    "body",
    "content",
    "output",
    "stdout",
    "stderr",
    "data",
    "event",
];

/// The keys of RFC 3339 times.
const TIMES: [&str; 5] = ["time", "timestamp", "ts", "@timestamp", "eventTime"];

/// Returns the text without JSON escapes.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.lines().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end_matches(['\n', '\r']);
        if is_escaped(bare) {
            work_meter::add(bare.len() * (MESSAGES.len() + TIMES.len()));
            decode(bare, &mut plain);
            if line.len() > bare.len() && !plain.ends_with('\r') {
                plain.push('\n');
            } else if line.len() > bare.len() {
                // The message already ends its line.
                plain.pop();
                plain.push('\n');
            }
        } else {
            plain.push_str(line);
        }
    }
    Cow::Owned(plain)
}

/// Returns whether a line is a string or an object of JSON, with something to unescape.
fn is_escaped(line: &str) -> bool {
    let line = line.trim_start();
    let is_object = line.starts_with("{\"");
    let is_string =
        line.starts_with(['"', '\'', '{', '[']) || line.starts_with("b'") || line.contains("=\"");
    is_object && MESSAGES.iter().any(|key| value_of(line, key).is_some())
        || is_string && line.contains("\\n")
}

/// Adds the unescaped message of a line, or the whole unescaped line if it has none.
fn decode(line: &str, plain: &mut String) {
    let Some(message) = MESSAGES.iter().find_map(|key| value_of(line, key)) else {
        unescape(line, plain);
        return;
    };
    if message.contains("NVRM: ") || message.contains("nvidia-nvswitch") {
        let micros = value_of(line, "__REALTIME_TIMESTAMP").and_then(|micros| micros.parse().ok());
        let stamp = micros.map(|micros: u64| Timestamp(micros / 1000).to_string());
        let stamp = stamp.or_else(|| {
            let time = TIMES.iter().find_map(|key| value_of(line, key))?;
            time.starts_with(|c: char| c.is_ascii_digit()).then(|| time.to_owned())
        });
        // A message with its own date keeps it.
        let dated = matches!(stamp::of_line(message), Some(Stamp::Zoned(..) | Stamp::Local(_)));
        if let Some(stamp) = stamp.filter(|_| !dated) {
            plain.push_str(&stamp);
            plain.push_str(" kernel: ");
        }
    }
    unescape(message, plain);
}

/// Returns the string value of a key, still escaped.
fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let quoted = format!("\"{key}\"");
    let (_, rest) = line.split_once(&quoted)?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let mut is_escape = false;
    let end = value.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escape;
        is_escape = byte == b'\\' && !is_escape;
        ends
    });
    // A text cut in the middle of a string lacks the closing quote.
    Some(&value[..end.unwrap_or(value.len())])
}

fn unescape(text: &str, plain: &mut String) {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        let mut ahead = chars.clone();
        let replaced = match ahead.next() {
            Some('n') => Some('\r'),
            Some('t') => Some('\t'),
            Some('r') => Some('\u{200b}'),
            Some(c @ ('"' | '\\' | '/' | '\'')) => Some(c),
            Some('u') => code(&mut ahead, 4),
            Some('x') => code(&mut ahead, 2),
            _ => None,
        };
        match replaced {
            Some(c) => {
                plain.push(c);
                chars = ahead;
            }
            None => plain.push('\\'),
        }
    }
}

/// Returns the character of a code with this many hexadecimal digits.
fn code(chars: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    let code: String = chars.by_ref().take(digits).collect();
    let is_whole = code.len() == digits && code.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(&code, 16).ok().filter(|_| is_whole).and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hint, Kind, parse};
    use proptest::prelude::*;

    #[test]
    fn messages_replace_their_objects() {
        for (text, plain) in [
            (r#"{"log":"a \"b\"\n","stream":"stdout","time":"2025-01-01T00:00:00Z"}"#, "a \"b\"\r"),
            (r#"{"level":"info", "msg" : "a\tb\\n\u001b[1mc\x1b[m"}"#, "a\tb\\n\x1b[1mc\x1b[m"),
            (r#"  "message": "a\nb","#, "a\rb"),
            (r#"'a\nb'"#, "'a\rb'"),
            (r#"time=1 msg="a\nb""#, "time=1 msg=\"a\rb\""),
            (r#"{"log":"a\n"#, "a\r"),
            (r#"{"log":"a\u00"#, "a\\u00"),
            (
                r#"{"MESSAGE":"NVRM: x","__REALTIME_TIMESTAMP":"1740996000123456"}"#,
                "2025-03-03T10:00:00.123Z kernel: NVRM: x",
            ),
            (
                r#"{"log":"NVRM: x\n","time":"2025-03-03T10:00:00Z"}"#,
                "2025-03-03T10:00:00Z kernel: NVRM: x\r",
            ),
            (
                r#"{"log":"[ 8.5] NVRM: x","time":"2025-03-03T10:00:00Z"}"#,
                "2025-03-03T10:00:00Z kernel: [ 8.5] NVRM: x",
            ),
            (
                r#"{"log":"2025-01-01T00:00:00Z NVRM: x","time":"2025-03-03T10:00:00Z"}"#,
                "2025-01-01T00:00:00Z NVRM: x",
            ),
            (r#"{"a":"b"}"#, r#"{"a":"b"}"#),
            (r"C:\new\table", r"C:\new\table"),
            ("| a |", "| a |"),
        ] {
            assert_eq!(unescaped(text), plain, "{text}");
        }
        assert_eq!(unescaped("{\"log\":\"a\\n\"}\n{\"log\":\"b\\n\"}\n"), "a\nb\n");
    }

    #[test]
    fn table_of_container_log_is_parsed() {
        let table = "\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 515.1        Driver Version: 515.1        CUDA Version: 11.7     |
|===============================+======================+======================|
|   0  Example 9000        On   | 00000000:0A:00.0 Off |                   On |
| N/A   31C    P0    44W / 300W |     45MiB / 81920MiB |      7%      Default |
+-------------------------------+----------------------+----------------------+
";
        let one =
            format!("{{\"log\": \"{}\", \"stream\": \"stdout\"}}\n", table.replace('\n', "\\n"));
        let each: String = table
            .lines()
            .map(|line| format!("{{\"log\":\"{line}\\r\\n\",\"stream\":\"stdout\"}}\n"))
            .collect();
        for text in [one, each, format!("\"\\u001b[1m{}\"", table.replace('\n', "\\n"))] {
            let document = parse(text.as_bytes(), &Hint::default()).unwrap();
            assert_eq!((document.kind, document.gpus.len()), (Kind::Table, 1), "{text}");
            assert_eq!(document.gpus[0].memory_used_mib, Ok(45), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics_and_grows_little(text in any::<String>(), inner in "[\\\\nutx0-9a\"é]{0,40}") {
            for text in [text, format!("{{\"log\":\"{inner}"), format!("\"\\n{inner}")] {
                let plain = unescaped(&text);
                prop_assert!(plain.len() <= text.len() * 2 + 64);
            }
        }
    }
}
