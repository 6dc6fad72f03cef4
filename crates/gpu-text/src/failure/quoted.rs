//! Lines that quote a message instead of reporting it: source code, code inside a sentence, and
//! conditions.

use std::borrow::Cow;

/// The marks before and after code or a quotation.
const MARKS: [(char, char); 3] = [('`', '`'), ('"', '"'), ('\u{201c}', '\u{201d}')];

/// Fewer words around a quotation are a label, not a sentence.
const MIN_WORDS: usize = 3;

/// A shorter quotation names something, such as a program.
const MIN_QUOTED: usize = 3;

/// Returns the part of a line that may report a failure.
pub(super) fn reported(line: &str) -> Cow<'_, str> {
    if is_source_code(line.trim()) || is_condition(line) {
        return Cow::Borrowed("");
    }
    without_quotations(line)
}

/// Returns a line without the messages that its sentence quotes. Logs quote messages too, as the
/// value of a key or after a colon, and have no sentence around them.
fn without_quotations(line: &str) -> Cow<'_, str> {
    let (mut kept, mut rest) = (String::new(), line);
    while let Some((before, quoted, after)) = quotation(rest) {
        let is_inside = before.trim_end().ends_with(char::is_alphanumeric)
            || after.starts_with(' ') && after.split_whitespace().next().is_some_and(is_word);
        let is_short = quoted.split_whitespace().nth(MIN_QUOTED - 1).is_none();
        let end = rest.len() - after.len();
        kept.push_str(if is_inside && !is_short { before } else { &rest[..end] });
        rest = after;
    }
    kept.push_str(rest);
    if kept.len() == line.len()
        || kept.split_whitespace().filter(|it| is_word(it)).count() < MIN_WORDS
    {
        return Cow::Borrowed(line);
    }
    Cow::Owned(kept)
}

/// Returns what is before, inside and after the first quotation.
fn quotation(text: &str) -> Option<(&str, &str, &str)> {
    let (start, mark) =
        text.char_indices().find(|(_, c)| MARKS.iter().any(|(open, _)| open == c))?;
    let (_, close) = MARKS.iter().find(|(open, _)| *open == mark)?;
    let inside = &text[start + mark.len_utf8()..];
    let (quoted, after) = inside.split_once(*close)?;
    Some((&text[..start], quoted, after))
}

/// Returns whether this is a word of a sentence, not a label, a key or a level such as `ERROR`.
fn is_word(word: &str) -> bool {
    let bare = word.trim_end_matches(['.', ',', ';', '?', '!']);
    bare.chars().all(|c| c.is_alphabetic() || "'\u{2019}".contains(c))
        && bare.contains(char::is_lowercase)
}

/// Returns whether a line is a sentence about what may happen.
fn is_condition(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    ["If", "When", "Whenever", "Unless"].contains(&first)
}

/// Returns whether a line is a statement of Python, C++, JavaScript or a shell that handles or
/// prints a message. A traceback has such lines too; the message follows them.
fn is_source_code(line: &str) -> bool {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    match word {
        "try" | "except" | "finally" | "if" | "elif" | "else" | "for" | "while" | "with"
        | "def" | "class" | "catch" => line.ends_with([':', '{']),
        "raise" | "throw" => rest.contains('('),
        "print" | "printf" => rest.starts_with('('),
        "logger" | "logging" | "console" => rest.starts_with('.'),
        "echo" => rest.trim_start().starts_with(['"', '\'']),
        _ => line.starts_with("//") || line.starts_with("/*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_code_reports_nothing() {
        for line in [
            "except safe_gpu.NvidiasmiError:",
            "  raise RuntimeError(\"No CUDA GPUs are available\")",
            "print('CUDA out of memory')",
            "logger.error('No devices were found')",
            "throw std::runtime_error(\"CUDA out of memory\");",
            "if (err == cudaErrorMemoryAllocation) {",
            "echo \"No devices were found\"",
            "// CUDA out of memory",
            "If nvidia-smi fails, the library raises an error:",
        ] {
            assert_eq!(reported(line), "", "{line}");
        }
        for line in [
            "RuntimeError: No CUDA GPUs are available",
            "echo: write error: No space left on device",
            "print server: No devices were found",
            "raise the limit: CUDA out of memory",
        ] {
            assert_eq!(reported(line), line);
        }
    }

    #[test]
    fn sentence_does_not_report_what_it_quotes() {
        for (line, want) in [
            ("Reboot soon after `No devices were found`, please.", "Reboot soon after , please."),
            ("We now show \"No devices were found\".", "We now show ."),
            ("- Fixed: \u{201c}CUDA out of memory\u{201d} is an error.", "- Fixed:  is an error."),
            ("It prints \"No devices were found\" and \"GPU is lost\".", "It prints  and ."),
        ] {
            let sentence = format!("{want} So it is.");
            assert_eq!(reported(&format!("{line} So it is.")), sentence);
        }
        for line in [
            "`No devices were found`",
            "Error: `No devices were found`",
            "Probe failed: \"No devices were found\"",
            "{\"level\": \"error\", \"msg\": \"No devices were found\", \"n\": 1}",
            "time=9 level=error msg=\"No devices were found\" error=\"exit status 6\"",
            "unable to start the container: stderr: \"No devices were found\"",
            "cannot run the program \"nvidia-smi\" because the executable file was not found",
            "an inch is \" and the GPU is lost",
            "find `lib' now",
        ] {
            assert_eq!(reported(line), line);
        }
    }
}
