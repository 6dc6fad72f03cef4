//! External text.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns whether a character is a control or format character: controls (C0, DEL, C1), line and
/// paragraph separators, and Unicode's format characters, including those that override text
/// direction, have no width, or hide text in tags.
pub fn acts(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns the text with every character escaped that could act on a terminal, end a line, or
/// show text in another order than it has: `\n`, `\x1b`, `\u{202e}`.
pub fn clean(text: &str) -> Cow<'_, str> {
    let printable = |byte: u8| matches!(byte, b' '..=b'~');
    if text.bytes().all(printable) || !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            c if !acts(c) => safe.push(c),
            c if c.is_ascii() => {
                let _ = write!(safe, "\\x{:02x}", u32::from(c));
            }
            c => {
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
            }
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_printable_kept() {
        for (text, safe) in [
            ("python train.py", "python train.py"),
            ("GPU µ 训练 °C", "GPU µ 训练 °C"),
            ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
            ("a\nb\tc\rd\0\x7f", "a\\nb\\tc\\rd\\x00\\x7f"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("exe\u{202e}gpj\u{2066}", "exe\\u{202e}gpj\\u{2066}"),
            ("a\u{200b}b\u{feff}c\u{2028}d\u{e0041}", "a\\u{200b}b\\u{feff}c\\u{2028}d\\u{e0041}"),
        ] {
            assert_eq!(clean(text), safe);
        }
    }

    #[test]
    fn no_control_character_remains() {
        for code in 0..=0x10ffff {
            if let Some(character) = char::from_u32(code) {
                let text = character.to_string();
                assert!(!clean(&text).contains(char::is_control), "{code:x}");
            }
        }
    }
}
