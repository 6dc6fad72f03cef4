//! Names from files: escaped for display, and never paths.

/// The maximum number of characters of a name in an error.
const SHOWN: usize = 80;

/// Returns a name from a file for an error: escaped, and shortened to 80 characters.
pub(crate) fn shown(name: &str) -> String {
    let mut characters = name.chars();
    let start: String = characters.by_ref().take(SHOWN).collect();
    let mut shown = gpu_core::clean(&start).into_owned();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Returns whether a name is a plain file name that cannot lead to another directory.
pub(crate) fn is_plain(name: &str) -> bool {
    let harmless = |c: char| !matches!(c, '/' | '\\' | ':' | '\0') && !gpu_core::acts(c);
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && name.chars().all(harmless)
}

/// Returns the prefix, the number (counted from 1) and the count in a name without its extension,
/// such as `model-00001-of-00003`.
pub(crate) fn numbered(stem: &str) -> Option<(&str, u64, u64)> {
    let digits = |text: &str| {
        let plain = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (start, count) = stem.rsplit_once("-of-")?;
    let (prefix, number) = start.rsplit_once('-')?;
    let (number, count) = (digits(number)?, digits(count)?);
    (!prefix.is_empty() && 1 <= number && number <= count).then_some((prefix, number, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_and_escapes_names() {
        assert_eq!(shown("a\u{1b}[2Jb"), "a\\x1b[2Jb");
        assert_eq!(shown(&"x".repeat(81)), format!("{}…", "x".repeat(80)));
    }

    #[test]
    fn names_with_paths_are_not_plain() {
        assert!(is_plain("model-00001-of-00002.safetensors"));
        for name in ["", "..", ".hidden", "/etc/passwd", "a/b", "..\\b", "C:x", "a\0b", "a\nb"] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(!is_plain(&"x".repeat(256)));
    }
}
