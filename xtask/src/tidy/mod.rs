//! Runs all checks.

mod core_io;
mod length;
mod links;
mod machines;
mod names;
mod sizes;
mod unsafety;
mod words;

use crate::{Tree, Violation, layering};
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
}

type Check = fn(&Tree) -> Vec<Violation>;

const CHECKS: &[Check] = &[
    core_io::check,
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
    violations.extend(CHECKS.iter().flat_map(|check| check(&tree)));
    violations.sort();
    Ok(Report {
        violations,
        notes: length::long_files(&tree),
        checks: CHECKS.len() + 1,
        files: tree.files().len(),
    })
}
