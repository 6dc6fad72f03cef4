//! Text for a terminal that does not show UTF-8.

/// Returns whether these values of `LC_ALL`, `LC_CTYPE` and `LANG` name a character set other than
/// UTF-8; the first that is set takes precedence (locale(7)). If none is, as in many containers,
/// UTF-8 is assumed.
pub fn is_needed(values: [Option<&str>; 3]) -> bool {
    let locale = values.into_iter().flatten().find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

/// Replaces each character by one of ASCII of the same width; `?` for one without an equivalent.
pub fn ascii(text: &str) -> String {
    text.chars().map(equivalent).collect()
}

fn equivalent(c: char) -> char {
    match c {
        c if c.is_ascii() => c,
        '█' | '▉' | '▊' | '▋' | '▌' => '#',
        '│' => '|',
        '┌' | '┐' | '└' | '┘' | '├' => '+',
        '▲' => '^',
        '▼' => 'v',
        '▍' | '▎' | '▏' | '–' | '—' | '─' | '·' => '-',
        '░' | '…' => '.',
        '×' => 'x',
        '°' | '\u{a0}' => ' ',
        '→' => '>',
        '←' => '<',
        '“' | '”' => '"',
        '‘' | '’' => '\'',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_set_variable_decides() {
        for (values, needed) in [
            ([None, None, None], false),
            ([None, None, Some("")], false),
            ([None, None, Some("C")], true),
            ([None, None, Some("POSIX")], true),
            ([None, None, Some("de_DE.ISO-8859-1")], true),
            ([None, None, Some("C.UTF-8")], false),
            ([None, None, Some("en_US.utf8")], false),
            ([None, Some("C"), Some("en_US.UTF-8")], true),
            ([Some("en_US.UTF-8"), Some("C"), Some("C")], false),
            ([Some(""), None, Some("C")], true),
        ] {
            assert_eq!(is_needed(values), needed, "{values:?}");
        }
    }

    #[test]
    fn width_stays_the_same() {
        let text = " 0  A100  54°C  ██▌▏░░  0–3 · bob → ←  é";
        let shown = ascii(text);
        assert_eq!(shown, " 0  A100  54 C  ###-..  0-3 - bob > <  ?");
        assert_eq!(shown.chars().count(), text.chars().count());
    }
}
