//! Text and paths of SVG.

use std::fmt::Write;

/// Escapes external text for an element or an attribute: at most `most` characters, without markup,
/// characters that XML forbids, and characters that change how others are displayed.
pub(super) fn escape(text: &str, most: usize) -> String {
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

/// Returns whether a character must not appear in a picture: a control or formatting character, or
/// a noncharacter.
fn is_harmful(character: char) -> bool {
    gpu_core::acts(character)
        || matches!(character, '\u{fdd0}'..='\u{fdef}' | '\u{fff9}'..='\u{ffff}')
        || u32::from(character) & 0xfffe == 0xfffe
}

/// A path whose coordinates are tenths of a unit of the picture.
#[derive(Debug, Default)]
pub(super) struct Path {
    text: String,
    at: (i64, i64),
}

impl Path {
    pub(super) fn move_to(&mut self, x: i64, y: i64) {
        let _ = write!(self.text, "M{} {}", Tenths(x), Tenths(y));
        self.at = (x, y);
    }

    /// Draws a horizontal line to `x`.
    pub(super) fn across(&mut self, x: i64) {
        if x != self.at.0 {
            let _ = write!(self.text, "h{}", Tenths(x - self.at.0));
            self.at.0 = x;
        }
    }

    /// Draws a vertical line to `y`.
    pub(super) fn upright(&mut self, y: i64) {
        if y != self.at.1 {
            let _ = write!(self.text, "v{}", Tenths(y - self.at.1));
            self.at.1 = y;
        }
    }

    pub(super) fn close(&mut self) {
        self.text.push('z');
    }

    /// Adds a rectangle.
    pub(super) fn rectangle(&mut self, x: i64, y: i64, width: i64, height: i64) {
        self.move_to(x, y);
        self.across(x + width);
        self.upright(y + height);
        self.across(x);
        self.close();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns it as the `d` attribute of an element.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// A number of tenths, formatted in units.
pub(super) struct Tenths(pub(super) i64);

impl std::fmt::Display for Tenths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.unsigned_abs() / 10, self.0.unsigned_abs() % 10);
        match (whole, rest) {
            (whole, 0) => write!(f, "{sign}{whole}"),
            (0, rest) => write!(f, "{sign}.{rest}"),
            (whole, rest) => write!(f, "{sign}{whole}.{rest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        for (text, safe) in [
            ("</script>", "&lt;/script&gt;"),
            ("\"><img onerror='x'>", "&quot;&gt;&lt;img onerror=&#39;x&#39;&gt;"),
            ("a&amp;b", "a&amp;amp;b"),
            ("\x1b[2J\0\n", "\\u{1b}[2J\\u{0}\\u{a}"),
            ("exe\u{202e}gpj\u{2066}\u{ffff}", "exe\\u{202e}gpj\\u{2066}\\u{ffff}"),
            ("训练 µ", "训练 µ"),
            ("]]>", "]]&gt;"),
        ] {
            assert_eq!(escape(text, 100), safe);
        }
        assert_eq!(escape("<<<<", 2), "&lt;&lt;…");
        assert_eq!(escape("ab", 2), "ab");
    }

    #[test]
    fn paths_are_relative_and_skip_empty_moves() {
        let mut path = Path::default();
        path.rectangle(105, -3, 10, 0);
        path.move_to(0, 0);
        path.across(0);
        path.upright(-15);
        assert_eq!(path.text(), "M10.5 -.3h1h-1zM0 0v-1.5");
    }

    #[test]
    fn characters_that_act_or_are_none_are_shown_by_number() {
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

    #[test]
    fn tenths_are_short() {
        for (tenths, text) in
            [(0, "0"), (5, ".5"), (-5, "-.5"), (10, "1"), (-10, "-1"), (-123, "-12.3")]
        {
            assert_eq!(Tenths(tenths).to_string(), text);
        }
    }
}
