//! `cargo xtask tidy`: prints every violation of the repository's rules, then fails.

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if (arguments.next().as_deref(), arguments.next()) != (Some("tidy"), None) {
        writeln!(io::stderr(), "usage: cargo xtask tidy")?;
        return Ok(ExitCode::from(2));
    }
    let report = xtask::tidy(xtask::workspace_root())?;
    let mut out = io::stdout().lock();
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for violation in &report.violations {
        writeln!(out, "{violation}")?;
    }
    writeln!(
        out,
        "tidy: {} checks over {} files, {} violations",
        report.checks,
        report.files,
        report.violations.len()
    )?;
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
