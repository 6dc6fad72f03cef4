//! The package sources for apt: only those configured on the machine.
//!
//! The entries of the running release are kept unchanged, including mirrors and keys, with the
//! components of the tools added. Other entries (of a vendor or a language) are irrelevant to the
//! tools and are omitted.

/// The components of a release with the tools.
const COMPONENTS: &str = "main contrib non-free";

/// Returns the entries for a release from a file in apt's one-line format.
pub(super) fn of_lines(text: &str, release: &str) -> String {
    let mut kept = String::new();
    for line in text.lines().filter(|line| line.trim_start().starts_with("deb ")) {
        let (options, rest) = match line.split_once(']') {
            Some((options, rest)) => (format!("{options}]"), rest),
            None => ("deb".to_owned(), line.trim_start().trim_start_matches("deb ")),
        };
        let mut words = rest.split_whitespace();
        if let (Some(mirror), Some(suite)) = (words.next(), words.next())
            && is_of(suite, release)
        {
            kept.push_str(&format!("{} {mirror} {suite} {COMPONENTS}\n", options.trim_start()));
        }
    }
    kept
}

/// Returns the entries for a release from a file in apt's deb822 format.
pub(super) fn of_paragraphs(text: &str, release: &str) -> String {
    let mut kept = String::new();
    for paragraph in text.split("\n\n") {
        let lines = || paragraph.lines().filter(|line| !line.starts_with('#'));
        let field = |name: &str| {
            lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let suites: Vec<&str> = field("Suites").map_or(Vec::new(), |suites| {
            suites.split_whitespace().filter(|suite| is_of(suite, release)).collect()
        });
        let off = field("Enabled").is_some_and(|enabled| enabled.eq_ignore_ascii_case("no"));
        let binary =
            field("Types").is_some_and(|types| types.split_whitespace().any(|t| t == "deb"));
        if suites.is_empty() || off || !binary {
            continue;
        }
        for line in lines() {
            match line.split(':').next() {
                Some("Types") => kept.push_str("Types: deb"),
                Some("Suites") => kept.push_str(&format!("Suites: {}", suites.join(" "))),
                Some("Components") => kept.push_str(&format!("Components: {COMPONENTS}")),
                _ => kept.push_str(line),
            }
            kept.push('\n');
        }
        kept.push('\n');
    }
    kept
}

/// Returns whether a suite is the release itself or a part of it, such as its updates.
fn is_of(suite: &str, release: &str) -> bool {
    suite.strip_prefix(release).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_lines_are_kept_with_options() {
        let text = "# deb http://off.example/debian bookworm main\n\
                    deb http://a.example/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/k.gpg] http://b.example/debian bookworm-updates main\n\
                    deb-src http://a.example/debian bookworm main\n\
                    deb http://cloud.example/apt cloud-bookworm main\n";
        assert_eq!(
            of_lines(text, "bookworm"),
            "deb http://a.example/debian bookworm main contrib non-free\n\
             deb [arch=amd64 signed-by=/k.gpg] http://b.example/debian bookworm-updates \
             main contrib non-free\n"
        );
    }

    #[test]
    fn release_paragraphs_are_kept_with_keys() {
        let text = "Types: deb deb-src\n# a note\nURIs: http://a.example/debian\n\
                    Suites: bookworm bookworm-updates trixie\nComponents: main\nSigned-By:\n key\n .\n\n\
                    Types: deb\nURIs: http://n.example\nSuites: nodistro\nComponents: main\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://c.example\nSuites: bookworm\n";
        assert_eq!(
            of_paragraphs(text, "bookworm"),
            "Types: deb\nURIs: http://a.example/debian\nSuites: bookworm bookworm-updates\n\
             Components: main contrib non-free\nSigned-By:\n key\n .\n\n"
        );
        assert_eq!(of_paragraphs(text, "sid"), "");
    }
}
