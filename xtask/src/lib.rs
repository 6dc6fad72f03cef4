//! Repository checks beyond the compiler and lints, and tasks that need other tools, a machine with
//! a GPU, benchmark results, or a trace of the program.
//!
//! A check is a function from plain data (the file tree or the output of a tool) to violations. A
//! few lines of synthetic data therefore suffice to show that each check can fail, and a run lists
//! every violation before it fails.

mod api;
mod boot;
mod cargo;
mod code;
mod debian;
mod dist;
mod hw;
pub mod layering;
mod modules;
mod mutants;
pub mod packages;
mod peers;
mod plain;
mod plot;
mod podman;
mod program;
mod python;
mod slurm;
mod subjects;
mod tidy;
mod tree;
mod venv;

pub use api::api;
pub use boot::boot;
pub use dist::{dist, trace};
pub use hw::hw;
pub use mutants::mutants;
pub use peers::peers;
pub use plot::plot;
pub use podman::{podman, run_containers, unpacked_podman};
pub use python::{python, wheel};
pub use slurm::{run_if_inside, run_jobs, slurm, unpacked};
pub use tidy::{Report, Size, tidy};
pub use tree::Tree;

use std::fmt;
use std::path::Path;

/// Returns the workspace directory.
pub fn workspace_root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path relative to the workspace.
    pub path: String,
    /// Line, counted from 1.
    pub line: usize,
    /// The problem.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}", self.path, self.line, self.what)?;
        write!(f, "    remedy: {}", self.remedy)
    }
}
