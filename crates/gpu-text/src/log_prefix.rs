//! Text before a driver message in a line: nothing, or what a log, an exporter or an event listing
//! adds. Prose and user-chosen names are not such a prefix.

use crate::driver_line::MAX_PREFIX;
use crate::escaped::MESSAGES;
use crate::stamp::{self, Stamp};

/// Keys at the start of a line with user-chosen values.
const NAMES: [&str; 2] = ["Name", "Process name"];

const QUOTES: [char; 3] = ['"', '\'', '`'];

/// Returns the message after this prefix, without closing characters that belong to the prefix,
/// such as a quotation mark; `None` if no log has such a prefix.
pub(crate) fn after<'a>(before: &str, message: &'a str) -> Option<&'a str> {
    let bare = before.trim();
    if bare.len() > MAX_PREFIX || NAMES.iter().any(|name| bare.starts_with(name)) {
        return None;
    }
    let Some(last) = bare.chars().next_back() else { return Some(message) };
    let outer = &bare[..bare.len() - last.len_utf8()];
    match last {
        ']' | ':' | '>' | 'Z' | '}' | '0'..='9' => Some(message),
        '=' => is_message_key(outer).then_some(message),
        _ if QUOTES.contains(&last) => is_quoted(outer).then(|| up_to_quote(message, last, outer)),
        // nvidia-smi prints other cells between its bars and a name.
        '|' | '\u{2502}' => {
            let end = message.find(&format!(" {last}")).unwrap_or(message.len());
            Some(message[..end].trim_end())
        }
        // NVIDIA's tools print a blank after each comma.
        ',' => (before.ends_with(',') && is_dated(bare)).then_some(message),
        _ => is_columns(before).then_some(message),
    }
}

/// Returns whether quoted text after `before` is a message: the value of a message key, an item of
/// a list, or text after another prefix.
fn is_quoted(before: &str) -> bool {
    let before = before.trim_end_matches('\\').trim_end();
    match before.strip_suffix(['=', ':']) {
        Some(key) => is_message_key(key),
        None if before.ends_with(QUOTES) => false,
        None => before.ends_with([',', '[', '(']) || after(before, "").is_some(),
    }
}

/// Returns whether a text ends with the key of a message: `msg`, `"message"`, `_raw`.
fn is_message_key(text: &str) -> bool {
    let key = text.trim_end().trim_end_matches(['"', '\'', '\\']);
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let key = key.rsplit(|c| !is_part(c)).next().unwrap_or_default().to_ascii_lowercase();
    key.ends_with("message") || key == "raw" || MESSAGES.contains(&key.as_str())
}

fn up_to_quote<'a>(message: &'a str, quote: char, before: &str) -> &'a str {
    if quote == '\'' {
        // The driver's own text can end with these too.
        let bare = message.trim_end_matches([',', '}', ']', ')', ' ']);
        return bare.strip_suffix(quote).unwrap_or(message);
    }
    let is_escaped = before.ends_with('\\');
    let end = message.match_indices(quote).map(|(at, _)| at);
    let mut end = end.filter(|at| message[..*at].ends_with('\\') == is_escaped);
    end.next().map_or(message, |at| message[..at].trim_end_matches('\\'))
}

/// Returns whether the last words before a message are columns or log fields rather than prose: a
/// wide gap, a word that never occurs in a sentence, or few words after a date.
fn is_columns(before: &str) -> bool {
    let bare = before.trim();
    if bare.starts_with(['|', '\u{2502}']) || bare.ends_with(['.', ',', ';', '!', '?', '(']) {
        return false;
    }
    let is_prose = |word: &str| word.chars().all(|c| c.is_alphabetic() || "'\u{2019}".contains(c));
    let last = bare.split_whitespace().next_back().unwrap_or_default();
    if let Some((key, _)) = last.split_once('=') {
        return !["name", "comm", "process", "cmd", "exe"].iter().any(|part| key.contains(part));
    }
    let gap = &before[before.trim_end().len()..];
    let few = || bare.split_whitespace().filter(|word| is_prose(word)).count() <= 2;
    gap.len() > 1 || gap == "\t" || last == "kernel" || !is_prose(last) || (few() && is_dated(bare))
}

fn is_dated(before: &str) -> bool {
    !matches!(stamp::of_prefix(before), None | Some(Stamp::Boot(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "NVRM: Xid (PCI:0000:3b:00): 61, pid='<unknown>', name=<unknown>, x \"y\"";

    #[test]
    fn prefixes_of_logs_and_listings_are_known() {
        for before in [
            "",
            "[   12.5] ",
            "<4>1 2026-02-03T04:05:06.700001+01:00 box7 kernel - - - ",
            "1 2026-02-03T04:05:06Z box7 kernel - - - ",
            "2026-02-03T04:05:06Z box7 kernel - - - ",
            "<4>1 2026-02-03T04:05:06Z box7 kernel 0 - [origin x=\"1\"] ",
            "Warning   XidError   5m (x3 over 9m)   node-problem-detector   ",
            "Warning XidError 5m node-problem-detector ",
            "default   7m   Warning   XidError   node/box7   ",
            "12s\tWarning\tXidError\t",
            "gpu-pod-1  | ",
            "| 2026-02-03 04:05:06 | box7 | ",
            "2026-02-03T04:05:06Z,box7,",
            "2026-02-03 04:05:06 ERROR gpu ",
            "2026-02-03T04:05:06Z {app=\"x\"} ",
            "    MESSAGE=",
            "level=err host=box7 ",
            "box7 kernel ",
            "- ",
            "* ",
        ] {
            assert_eq!(after(before, TEXT), Some(TEXT), "{before}");
        }
    }

    #[test]
    fn closing_characters_of_prefix_are_removed() {
        for (before, opened, closed) in [
            ("time=2026-02-03T04:05:06Z level=err msg=\"", "NVRM: x \\\"y\\\" z", "\" host=box7"),
            ("{\"a\":1,\"Message\": \"", "NVRM: x", "\",\"b\":2}"),
            ("2026-02-03T04:05:06Z stderr F {\"log\":\"", "NVRM: x", "\"}"),
            ("{\"log\":\"{\\\"msg\\\":\\\"", "NVRM: x", "\\\"}\"}"),
            ("[\"1770000000000000000\",\"", "NVRM: x", "\"]"),
            ("\"2026-02-03T04:05:06Z\",\"box7\",\"", "NVRM: x", "\""),
            ("message: '", "NVRM: pid='<unknown>', x", "'"),
            ("`", "NVRM: x", "`"),
            ("| box7 | ", "NVRM: x  y", " | critical |"),
            ("\u{2502} box7 \u{2502} ", "NVRM: x", " \u{2502}"),
        ] {
            assert_eq!(after(before, &format!("{opened}{closed}")), Some(opened), "{before}");
        }
    }

    #[test]
    fn prose_and_names_are_not_prefixes() {
        for before in [
            "we saw ",
            "Last week box7 died with ",
            "2026-02-03 04:05:06 alice wrote that it said ",
            "we saw `",
            "it died. ",
            "it died (",
            "Name                  : ",
            "Process name : x ",
            "name=x ",
            "name=",
            "\"name\":\"",
            "\"process_name\": \"",
            "7, ",
            "2026/02/03 04:05:06.789, 7, ",
            "| x ",
            "|    0   N/A  N/A      4631      C   ",
            "it's ",
        ] {
            assert_eq!(after(before, TEXT), None, "{before}");
        }
        assert_eq!(after(&"1 ".repeat(MAX_PREFIX), TEXT), None);
        assert_eq!(after(&"\"".repeat(MAX_PREFIX), TEXT), None);
    }

    proptest! {
        #[test]
        fn arbitrary_prefix_never_panics(before in any::<String>(), end in "[\"'`|=,\\\\ é]{0,3}", message in any::<String>()) {
            if let Some(kept) = after(&format!("{before}{end}"), &message) {
                prop_assert!(message.starts_with(kept));
            }
        }
    }
}
