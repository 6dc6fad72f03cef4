//! Arguments in the text form of protocol 0.

use super::Value;
use std::borrow::Cow;

/// Parses a decimal integer of at most 64 bits; Python 2 appended `L` to some.
pub(super) fn number(line: &[u8]) -> Option<Value<'static>> {
    let digits = std::str::from_utf8(line.strip_suffix(b"L").unwrap_or(line)).ok()?.trim_ascii();
    let int = digits.parse().map(Value::Int);
    int.or_else(|_| digits.parse().map(Value::Huge)).ok()
}

/// Parses a float.
pub(super) fn float(line: &[u8]) -> Option<f64> {
    std::str::from_utf8(line).ok()?.trim_ascii().parse().ok()
}

/// Decodes the argument of `UNICODE`: Latin-1 with escapes of `\u` and four, `\U` and eight
/// hexadecimal digits. A lone surrogate becomes U+FFFD.
pub(super) fn raw_unicode(line: &[u8]) -> Option<Cow<'_, [u8]>> {
    if line.iter().all(|&byte| byte.is_ascii() && byte != b'\\') {
        return Some(Cow::Borrowed(line));
    }
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                text.push(char::from(byte));
                rest = after;
                continue;
            }
        };
        text.push(escaped(after.get(1..1 + digits)?)?);
        rest = &after[1 + digits..];
    }
    Some(Cow::Owned(text.into_bytes()))
}

/// Decodes the argument of `STRING`: a string literal of Python 2.
pub(super) fn quoted(line: &[u8]) -> Option<Cow<'_, [u8]>> {
    let line = line.trim_ascii();
    let (&quote, rest) = line.split_first()?;
    let mut rest = rest.strip_suffix(&[quote]).filter(|_| quote == b'\'' || quote == b'"')?;
    if !rest.contains(&b'\\') {
        return Some(Cow::Borrowed(rest));
    }
    let mut text = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = after;
        match escape {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'x' => {
                text.push(u8::try_from(hexadecimal(rest.get(..2)?)?).ok()?);
                rest = &rest[2..];
            }
            b'\\' | b'\'' | b'"' => text.push(escape),
            other => text.extend([b'\\', other]),
        }
    }
    Some(Cow::Owned(text))
}

fn escaped(digits: &[u8]) -> Option<char> {
    let number = hexadecimal(digits)?;
    (number <= 0x10_ffff).then(|| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let all = digits.iter().all(u8::is_ascii_hexdigit);
    all.then(|| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_malformed_ones_rejected() {
        assert_eq!(raw_unicode(b"a\\u20ac\\U0001f600\xe9").unwrap()[..], *"a€😀é".as_bytes());
        assert_eq!(raw_unicode(b"\\ud800\\n").unwrap()[..], *"\u{fffd}\\n".as_bytes());
        for broken in [&b"\\u12"[..], b"\\U00110000", b"\\u+123"] {
            assert_eq!(raw_unicode(broken), None);
        }
        assert_eq!(quoted(b"'it\\'s\\n\\x41\\q'").unwrap()[..], *b"it's\nA\\q");
        for broken in [&b""[..], b"'", b"'a\"", b"a", b"'\\'", b"'\\x4'", b"'\\x+1'"] {
            assert_eq!(quoted(broken), None, "{}", broken.escape_ascii());
        }
    }

    #[test]
    fn numbers_are_limited_to_64_bits() {
        assert_eq!(number(b"9223372036854775807L"), Some(Value::Int(i64::MAX)));
        assert_eq!(number(b"-5"), Some(Value::Int(-5)));
        assert_eq!(number(b"9223372036854775808"), Some(Value::Huge(1 << 63)));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(float(b"0.25"), Some(0.25));
    }
}
