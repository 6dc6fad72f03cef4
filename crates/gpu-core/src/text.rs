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

/// Escapes external text for an element or an attribute of SVG or HTML: at most `most` characters,
/// without markup, characters that XML forbids, and characters that change how others are displayed.
pub fn escape_markup(text: &str, most: usize) -> String {
    let mut safe = String::with_capacity(text.len().min(4 * most) + 8);
    for (count, character) in text.chars().enumerate() {
        if count == most {
            safe.push('…');
            break;
        }
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if is_harmful(c) => {
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Returns whether a character must not appear in an SVG or HTML text: a control or formatting
/// character, or a noncharacter.
fn is_harmful(character: char) -> bool {
    acts(character)
        || matches!(character, '\u{fdd0}'..='\u{fdef}' | '\u{fff9}'..='\u{ffff}')
        || u32::from(character) & 0xfffe == 0xfffe
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

    #[test]
    fn markup_is_escaped() {
        for (text, safe) in [
            ("</script>", "&lt;/script&gt;"),
            ("\"><img onerror='x'>", "&quot;&gt;&lt;img onerror=&#39;x&#39;&gt;"),
            ("a&amp;b", "a&amp;amp;b"),
            ("\x1b[2J\0\n", "\\u{1b}[2J\\u{0}\\u{a}"),
            ("exe\u{202e}gpj\u{2066}\u{ffff}", "exe\\u{202e}gpj\\u{2066}\\u{ffff}"),
            ("训练 µ", "训练 µ"),
            ("]]>", "]]&gt;"),
        ] {
            assert_eq!(escape_markup(text, 100), safe);
        }
        assert_eq!(escape_markup("<<<<", 2), "&lt;&lt;…");
        assert_eq!(escape_markup("ab", 2), "ab");
    }

    #[test]
    fn control_characters_and_noncharacters_are_shown_by_number() {
        for (character, is) in [
            ('a', false),
            ('\u{7f}', true),
            ('\u{200b}', true),
            ('\u{fdcf}', false),
            ('\u{fdd0}', true),
            ('\u{fdef}', true),
            ('\u{fdf0}', false),
            ('\u{fff9}', true),
            ('\u{1fffd}', false),
            ('\u{1fffe}', true),
            ('\u{1ffff}', true),
            ('\u{10fffe}', true),
        ] {
            assert_eq!(is_harmful(character), is, "{:x}", u32::from(character));
        }
    }
}
