//! A module is one idea: at most 800 lines, with unit tests counted separately.

use crate::code::test_ranges;
use crate::tree::File;
use crate::{Tree, Violation};

const MAX: usize = 800;
const MANY: usize = 400;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    lengths(tree)
        .filter(|(_, lines)| *lines > MAX)
        .map(|(file, lines)| Violation {
            path: file.path.clone(),
            line: 1,
            what: format!("{lines} lines without tests, more than {MAX}"),
            remedy: "move its second concern to its own module".to_owned(),
        })
        .collect()
}

/// Returns the files that are long but within the limit.
pub(super) fn long_files(tree: &Tree) -> Vec<String> {
    lengths(tree)
        .filter(|(_, lines)| (MANY + 1..=MAX).contains(lines))
        .map(|(file, lines)| format!("{}: {lines} lines without tests", file.path))
        .collect()
}

/// Returns the source files with their line counts, without unit tests.
pub(super) fn lengths(tree: &Tree) -> impl Iterator<Item = (&File, usize)> {
    tree.files().iter().filter(|file| file.is_rust()).map(|file| {
        let of_tests: usize = test_ranges(file.masked())
            .into_iter()
            .map(|range| file.text[range].lines().count())
            .sum();
        (file, file.text.lines().count().saturating_sub(of_tests))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_is_not_counted() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn t() {}\n".repeat(900));
        let long = "fn f() {}\n".repeat(800);
        let too_long = "fn f() {}\n".repeat(801);
        let tree = Tree::of(&[
            ("a.rs", &format!("{long}{tests}")),
            ("b.rs", &format!("{too_long}{tests}")),
            ("c.rs", &"fn f() {}\n".repeat(400)),
            ("d.md", &"text\n".repeat(2000)),
        ]);
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "b.rs");
        assert_eq!(long_files(&tree), ["a.rs: 800 lines without tests"]);
    }
}
