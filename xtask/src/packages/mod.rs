//! The program as people install it: one that runs on old distributions too, and a Debian package.
//!
//! The program itself makes its manual pages and completions, so a package never has those of
//! another version.

mod clean_root;
mod contents;
mod deb;
mod portable;

pub use clean_root::CleanRoot;
pub use contents::{Programs, fill};
pub use deb::{CargoDeb, deb};
pub use portable::portable;

use std::io::{self, Error};
use std::process::Command;

/// Runs a program and returns its standard output.
fn output_of(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |why: &dyn std::fmt::Display| format!("failed to run {program}: {why}");
    let output = command.output().map_err(|error| Error::new(error.kind(), failed(&error)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(Error::other(failed(&format_args!("{}: {}", output.status, stderr.trim()))));
    }
    String::from_utf8(output.stdout).map_err(|error| Error::other(failed(&error)))
}
