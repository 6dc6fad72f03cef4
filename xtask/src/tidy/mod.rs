//! Runs all checks.

mod contents;
mod core_io;
mod cycles;
mod length;
mod links;
mod machines;
mod names;
mod sizes;
mod unsafety;
mod words;

use crate::code::{code_lines, public_items};
use crate::modules::sources;
use crate::tree::File;
use crate::{Tree, Violation, layering, plain, subjects};
use std::io;
use std::path::Path;

/// The result of all checks.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All violations, by path and line.
    pub violations: Vec<Violation>,
    /// Notes that do not cause a failure.
    pub notes: Vec<String>,
    /// The number of checks.
    pub checks: usize,
    /// The number of files read.
    pub files: usize,
    /// The size of each library and of the program.
    pub sizes: Vec<Size>,
}

/// The size of a crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its directory.
    pub dir: String,
    /// Lines of code, without blank lines, comments and tests.
    pub lines: usize,
    /// Public items, without fields and re-exports.
    pub public_items: usize,
}

type Check = fn(&Tree) -> Vec<Violation>;

const CHECKS: &[Check] = &[
    contents::check,
    core_io::check,
    cycles::check,
    length::check,
    links::check,
    machines::check,
    names::check,
    sizes::check,
    unsafety::check,
    words::check,
];

/// Runs every check over the repository at `root`.
///
/// # Errors
/// If the repository cannot be read or `cargo tree` fails.
pub fn tidy(root: &Path) -> io::Result<Report> {
    let tree = Tree::read(root)?;
    let mut violations = layering::check(&layering::read(root)?, &tree);
    violations.extend(plain::check(&plain::read(root)?));
    violations.extend(CHECKS.iter().flat_map(|check| check(&tree)));
    let mut notes = length::long_files(&tree);
    match subjects::read(root) {
        Ok(log) => violations.extend(subjects::check(&log)),
        Err(error) => notes.push(format!("skipped: the subjects of commits: {error}")),
    }
    violations.sort();
    Ok(Report {
        violations,
        notes,
        checks: CHECKS.len() + 3,
        files: tree.files().len(),
        sizes: sizes_of(&tree),
    })
}

fn sizes_of(tree: &Tree) -> Vec<Size> {
    let size = |(dir, files): (&str, Vec<&File>)| Size {
        dir: dir.to_owned(),
        lines: files.iter().map(|file| code_lines(&file.text, file.masked())).sum(),
        public_items: files.iter().map(|file| public_items(file.masked())).sum(),
    };
    sources(tree).into_iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_sources() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "pub mod b;\n#[cfg(test)]\nmod c;\n"),
            ("crates/a/src/b.rs", "// Comment\npub fn b() {}\n"),
            ("crates/a/src/c.rs", "pub fn c() {}\n"),
            ("crates/a/tests/d.rs", "pub fn d() {}\n"),
            ("crates/e/src/main.rs", "fn main() {}\n"),
        ]);
        let size = |dir: &str, lines, public_items| Size { dir: dir.into(), lines, public_items };
        assert_eq!(sizes_of(&tree), [size("crates/a", 2, 2), size("crates/e", 1, 0)]);
    }
}
