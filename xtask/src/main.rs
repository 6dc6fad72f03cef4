//! `cargo xtask TASK`: prints every violation or difference, then fails.

use std::io::{self, Write};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy [--sizes]
       cargo xtask peers [--install-only]
       cargo xtask hw
       cargo xtask plot CRITERION-DIR
       cargo xtask dist
       cargo xtask portable
       cargo xtask deb
       cargo xtask boot
       cargo xtask slurm [JOBS]
       cargo xtask podman
       cargo xtask wheel [PROFILE]
       cargo xtask python [PYTEST-ARGUMENTS]
       cargo xtask mutants [REVISION]
       cargo xtask api [--check]";

/// The default number of jobs on a cluster.
const JOBS: usize = 200;

fn main() -> ExitCode {
    if let Some(well) = xtask::run_if_inside() {
        return if well { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    run().unwrap_or_else(|error| {
        // If standard error is closed, only the exit code shows the failure.
        let _ = writeln!(io::stderr(), "xtask: {error}");
        ExitCode::FAILURE
    })
}

fn run() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = xtask::workspace_root();
    let mut out = io::stdout().lock();
    let well = match arguments[..] {
        ["tidy"] => tidy(false, &mut out)?,
        ["tidy", "--sizes"] => tidy(true, &mut out)?,
        ["peers"] => xtask::peers(root, false, &mut out)?,
        ["peers", "--install-only"] => xtask::peers(root, true, &mut out)?,
        ["hw"] => xtask::hw(root, &mut out)?,
        ["mutants"] => xtask::mutants(root, None, &mut out)?,
        ["mutants", since] => xtask::mutants(root, Some(since), &mut out)?,
        ["api"] => xtask::api(root, false, &mut out)?,
        ["api", "--check"] => xtask::api(root, true, &mut out)?,
        ["slurm"] => xtask::slurm(root, JOBS, &mut out)?,
        ["slurm", jobs] if jobs.parse::<usize>().is_ok() => {
            xtask::slurm(root, jobs.parse().unwrap_or(JOBS), &mut out)?
        }
        ["podman"] => xtask::podman(root, &mut out)?,
        ["dist"] => xtask::dist(root, &mut out)?,
        ["portable"] => xtask::packages::portable(root, &mut out)?,
        ["deb"] => xtask::packages::deb(root, &mut out)?,
        ["boot"] => xtask::boot(root, &mut out)?,
        // `dist` runs this command on a simulated machine.
        ["trace", functions, program, ref command @ ..] => {
            xtask::trace(functions.as_ref(), program, command)?
        }
        ["wheel"] => xtask::wheel(root, "dist", &mut out)?,
        ["wheel", profile] => xtask::wheel(root, profile, &mut out)?,
        ["python", ref arguments @ ..] => xtask::python(root, arguments, &mut out)?,
        ["plot", criterion] => xtask::plot(root, criterion.as_ref(), &mut out)?,
        _ => {
            writeln!(io::stderr(), "{USAGE}")?;
            return Ok(ExitCode::from(2));
        }
    };
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tidy(sizes: bool, out: &mut dyn Write) -> io::Result<bool> {
    let report = xtask::tidy(xtask::workspace_root())?;
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for violation in &report.violations {
        writeln!(out, "{violation}")?;
    }
    if sizes {
        writeln!(out, "{:24}{:>9}{:>9}", "crate", "lines", "public")?;
        for size in &report.sizes {
            writeln!(out, "{:24}{:9}{:9}", size.dir, size.lines, size.public_items)?;
        }
    }
    let lines: usize = report.sizes.iter().map(|size| size.lines).sum();
    let items: usize = report.sizes.iter().map(|size| size.public_items).sum();
    writeln!(
        out,
        "tidy: {} checks over {} files, {} violations; {lines} lines of code and {items} public \
         items in crates/*/src",
        report.checks,
        report.files,
        report.violations.len()
    )?;
    Ok(report.violations.is_empty())
}
