//! Words that promise later work; unfinished work belongs in an issue, not in a file.

use crate::code::{find_word, line_of};
use crate::{Tree, Violation};

const FORBIDDEN: &[&str] =
    &["FIXME", "TODO", "XXX", "HACK", "todo!", "unimplemented!", "for now", "For now"];

/// This file must contain the words.
const ITSELF: &str = "xtask/src/tidy/words.rs";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.files().iter().filter(|file| file.path != ITSELF) {
        for word in FORBIDDEN {
            violations.extend(find_word(&file.text, word).map(|at| Violation {
                path: file.path.clone(),
                line: line_of(&file.text, at),
                what: format!("'{word}'"),
                remedy: "finish it or file an issue".to_owned(),
            }));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_reported_in_code_and_documents() {
        let found = check(&Tree::of(&[
            ("crates/a/src/lib.rs", "fn f() {\n    todo!()\n}\n// mytodo!\n"),
            ("README.md", "one\ntwo\nThis will do for now.\n"),
            ("docs/a.md", "for nowhere, a hack of no kind\n"),
        ]));
        let locations: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.line)).collect();
        assert_eq!(locations, [("crates/a/src/lib.rs", 2), ("README.md", 3)]);
    }
}
