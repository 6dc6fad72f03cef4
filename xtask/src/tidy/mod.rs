//! All checks, run together.

mod core_io;
mod json_names;
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

/// What one run of all checks found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Every place that breaks a rule, by path and line.
    pub violations: Vec<Violation>,
    /// What deserves a look and fails nothing.
    pub notes: Vec<String>,
    /// How many checks ran.
    pub checks: usize,
    /// How many files they read.
    pub files: usize,
}

type Check = fn(&Tree) -> Vec<Violation>;

const CHECKS: &[Check] = &[
    core_io::check,
    json_names::check,
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
/// When the repository cannot be read or `cargo tree` fails.
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
