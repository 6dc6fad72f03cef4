//! Rust source as text: distinguishes code, comments, literals and tests.

use std::ops::Range;

/// Returns the source with comments, strings and character literals blanked, with the same length
/// in bytes and the same line ends.
pub(crate) fn mask(source: &str) -> String {
    blank(source, |_| true)
}

/// Returns the number of lines of code: without blank lines, comments and tests.
pub(crate) fn code_lines(source: &str, masked: &str) -> usize {
    let tests = test_ranges(masked);
    let uncommented = blank(source, |text| text.starts_with(b"/"));
    without(&uncommented, tests).lines().filter(|line| !line.trim().is_empty()).count()
}

/// Returns the number of items of masked source, outside tests, that are `pub` without a restriction, other than
/// `use` and fields.
pub(crate) fn public_items(masked: &str) -> usize {
    const KINDS: &[&str] = &[
        "async", "const", "enum", "extern", "fn", "mod", "static", "struct", "trait", "type",
        "union", "unsafe",
    ];
    let code = without_tests(masked);
    find_word(&code, "pub")
        .filter_map(|at| code[at + 3..].split_whitespace().next())
        .filter(|word| KINDS.contains(word))
        .count()
}

/// Blanks the comments and literals that are selected by their text.
fn blank(source: &str, selects: impl Fn(&[u8]) -> bool) -> String {
    let bytes = source.as_bytes();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end > at && selects(&bytes[at..end]) {
            ranges.push(at..end);
        }
        at = end.max(at + 1);
    }
    without(source, ranges)
}

/// Blanks ranges of whole characters, except line ends.
fn without(text: &str, ranges: Vec<Range<usize>>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in ranges {
        for byte in &mut bytes[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the end of the comment or literal that begins at `at`; `at` if none begins there.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_word = at > 0 && is_word(bytes[at - 1]);
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return at + block_comment(rest);
    }
    match rest[0] {
        b'"' => at + string(rest),
        b'r' | b'b' | b'c' if !after_word => {
            let prefix = rest.iter().take_while(|b| b.is_ascii_lowercase()).count();
            let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
            let raw = rest[..prefix].contains(&b'r');
            match rest.get(prefix + hashes) {
                Some(b'"') if raw && prefix <= 2 => at + raw_string(rest, prefix + hashes, hashes),
                Some(b'"') if hashes == 0 && prefix == 1 => at + prefix + string(&rest[prefix..]),
                Some(b'\'') if hashes == 0 && rest[..prefix] == *b"b" => {
                    at + prefix + character(&rest[prefix..])
                }
                _ => at,
            }
        }
        b'\'' => at + character(rest),
        _ => at,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8], quote: usize, hashes: usize) -> usize {
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[quote + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    end.map_or(rest.len(), |end| quote + 1 + end + close.len())
}

/// Returns the length of a character literal, 0 for a lifetime or a label.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|b| *b == b'\'');
        return end.map_or(0, |end| end + 4);
    }
    let width = match rest.get(1) {
        Some(first) if *first >= 0xf0 => 4,
        Some(first) if *first >= 0xe0 => 3,
        Some(first) if *first >= 0xc0 => 2,
        _ => 1,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the offsets of `word` as a whole word; a word that ends in punctuation, such as `dbg!`,
/// needs no boundary there.
pub(crate) fn find_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).and_then(|i| text.as_bytes().get(i));
        let after = text.as_bytes().get(at + word.len());
        let ends_as_word = word.bytes().last().is_some_and(is_word);
        let continues = |byte: Option<&u8>| byte.is_some_and(|b| is_word(*b));
        !(continues(before) || ends_as_word && continues(after))
    })
}

/// Returns the line of an offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
}

/// Returns the end of the bracket that opens at `open`, after its closing character.
pub(crate) fn bracket_end(masked: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in masked.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    masked.len()
}

/// Returns the ranges of items under `#[cfg(test)]`, including the attribute.
pub(crate) fn test_ranges(masked: &str) -> Vec<Range<usize>> {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (start, _) in masked.match_indices(ATTRIBUTE) {
        if ranges.last().is_some_and(|last| last.contains(&start)) {
            continue;
        }
        let mut at = start + ATTRIBUTE.len();
        let end = loop {
            match masked.as_bytes().get(at) {
                None => break masked.len(),
                Some(b';') => break at + 1,
                Some(b'{') => break bracket_end(masked, at),
                Some(b'(' | b'[') => at = bracket_end(masked, at),
                Some(_) => at += 1,
            }
        };
        ranges.push(start..end);
    }
    ranges
}

/// Returns masked source with its tests also blanked.
pub(crate) fn without_tests(masked: &str) -> String {
    without(masked, test_ranges(masked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        for (source, masked) in [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("a \" b", 1)"#, "f(        , 1)"),
            (r##"f(r#"a " b"#, 1)"##, "f(          , 1)"),
            (r#"f(b"ab", br"c", c"d")"#, "f(     ,      ,     )"),
            (r"f('{', '\'', '\u{7f}', b'}')", "f(   ,     ,         ,     )"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("'é' 'outer: loop", "     'outer: loop"),
            ("for_r\"x\"", "for_r   "),
            ("\"open", "     "),
        ] {
            assert_eq!(mask(source), masked, "{source}");
            assert_eq!(mask(source).len(), source.len(), "{source}");
        }
    }

    #[test]
    fn lines_and_public_items_are_counted_outside_tests() {
        let source = "//! Doc.\n\npub struct A {\n    pub a: u8, // one\n}\n/* b\nc */\n\
                      pub(crate) fn b() {\n    c(\"//\n    d\n\")\n}\n\
                      impl A {\n    /// Doc.\n    pub const fn c() {}\n}\n\
                      pub use a::A;\npub unsafe fn d() {}\n\
                      #[cfg(test)]\nmod tests {\n    pub fn e() {}\n}\n";
        assert_eq!(code_lines(source, &mask(source)), 13);
        assert_eq!(public_items(&mask(source)), 3);
    }

    #[test]
    fn find_word_matches_whole_words() {
        let found = |text, word| find_word(text, word).collect::<Vec<_>>();
        assert_eq!(found("unsafe unsafe_code xunsafe", "unsafe"), [0]);
        assert_eq!(found("dbg!() mydbg!()", "dbg!"), [0]);
    }

    #[test]
    fn test_items_are_found_completely() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { {} }\n}\nfn c() {}\n";
        let ranges = test_ranges(source);
        assert_eq!(ranges.len(), 1);
        assert_eq!(&source[ranges[0].end..], "\nfn c() {}\n");
        assert!(!without_tests(source).contains("fn b"));
        assert!(without_tests(source).contains("fn c"));
        assert_eq!(test_ranges("#[cfg(test)]\nuse x::{a, b};\nfn d() {}").len(), 1);
    }
}
