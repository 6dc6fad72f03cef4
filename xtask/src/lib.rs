//! Checks of the repository itself, which no compiler and no lint makes, and five tasks that need
//! more than the repository: other tools, machines with a GPU, the results of a bench, how the
//! program runs, and how well the tests test.
//!
//! The main decision is that a check is a function from plain data to violations: from the tree of
//! files, or from the figures that a tool showed. So each check is shown to fail by a few lines of
//! made-up data beside it, and one run names every violation before it fails.

mod cargo;
mod code;
mod dist;
mod hw;
pub mod layering;
mod mutants;
mod peers;
mod plot;
mod tidy;
mod tree;

pub use dist::{dist, trace};
pub use hw::hw;
pub use mutants::mutants;
pub use peers::peers;
pub use plot::plot;
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
