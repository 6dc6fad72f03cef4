//! Errors of the TOML parser, in plain language.

use strsim::osa_distance;

/// The maximum length of an unknown name to compare, in characters.
const LONGEST: usize = 64;

/// Rewrites a message of serde: quotes names and adds a suggestion for an unknown name.
pub(crate) fn plain(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let known = ["unknown field", "unknown variant"].iter().find(|k| message.starts_with(**k));
    let (Some(kind), Some((unknown, expected))) = (known, quoted.split_first()) else {
        return message.replace('`', "'");
    };
    let kind = if *kind == "unknown variant" { "unknown word" } else { kind };
    let hint = match nearest(unknown, expected) {
        Some(name) => format!("did you mean '{name}'?"),
        None if expected.is_empty() => "no fields are allowed here".to_owned(),
        None => format!("expected one of {}", expected.join(", ")),
    };
    format!("{kind} '{unknown}'; {hint}")
}

/// Returns the closest known name.
pub(crate) fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let unknown: String = unknown.chars().take(LONGEST).collect();
    let known = known.iter().map(|name| (osa_distance(&unknown, name), *name));
    let near = known.filter(|(distance, name)| *distance <= name.len().max(unknown.len()) / 2);
    near.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_suggested() {
        let message = "unknown field `memry`, expected one of `pid`, `name`, `memory`";
        assert_eq!(plain(message), "unknown field 'memry'; did you mean 'memory'?");
        let message = "unknown variant `ignors`, expected `ignores` or `stuck`";
        assert_eq!(plain(message), "unknown word 'ignors'; did you mean 'ignores'?");
        let message = "unknown field `colour`, expected `pid` or `gpu`";
        assert_eq!(plain(message), "unknown field 'colour'; expected one of pid, gpu");
        let message = "unknown field `a`, there are no fields";
        assert_eq!(plain(message), "unknown field 'a'; no fields are allowed here");
        assert_eq!(plain("missing field `pid`"), "missing field 'pid'");
        // At most half of the characters may differ.
        assert_eq!((nearest("abxy", &["abcd"]), nearest("axy", &["abc"])), (Some("abcd"), None));
    }
}
