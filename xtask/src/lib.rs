//! Checks of the repository itself: what no compiler and no lint sees.
//!
//! The main decision is that a check is a function from the tree of files, as plain data, to
//! violations. So each check is shown to fail by a few lines of made-up files beside it, and one
//! run names every violation with its place and its remedy before it fails.

mod code;
pub mod layering;
mod tidy;
mod tree;

pub use tidy::{Report, tidy};
pub use tree::Tree;

use std::fmt;
use std::path::Path;

/// Returns the folder of the workspace.
pub fn workspace_root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path from the workspace's folder.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}", self.path, self.line, self.what)?;
        write!(f, "    remedy: {}", self.remedy)
    }
}
