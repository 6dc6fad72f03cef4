//! Numbers as C parses them.

/// Parses the number at the beginning of a text as `strtol` with base 0, without blanks: an optional
/// sign, then decimal digits, hexadecimal ones after `0x` or octal ones after `0`. Returns it with
/// the rest of the text; `None` for a number below 0 and without digits.
pub(super) fn number(text: &str) -> Option<(usize, &str)> {
    let (is_negative, unsigned) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let after = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    let is_hexadecimal = |digits: &&str| digits.starts_with(|c: char| c.is_ascii_hexdigit());
    let (digits, base) = match after.filter(is_hexadecimal) {
        Some(digits) => (digits, 16),
        None if unsigned.starts_with('0') => (unsigned, 8),
        None => (unsigned, 10),
    };
    let (digits, rest) =
        digits.split_at(digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len()));
    let number = usize::from_str_radix(digits, base).ok()?;
    (!is_negative || number == 0).then_some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c() {
        for (text, want) in [
            ("12", Some((12, ""))),
            ("+3x", Some((3, "x"))),
            ("-0", Some((0, ""))),
            ("0x1F", Some((31, ""))),
            ("0X", Some((0, "X"))),
            ("017", Some((15, ""))),
            ("08", Some((0, "8"))),
            ("-1", None),
            ("++1", None),
            ("0x+1", Some((0, "x+1"))),
            ("", None),
            ("x", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(number(text), want, "{text}");
        }
    }
}
