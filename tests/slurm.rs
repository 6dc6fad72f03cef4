//! `gpuws slurm` under a real slurmctld and slurmd, in separate namespaces.
//!
//! `cargo xtask slurm` fetches Slurm and runs 200 jobs. If Slurm has been fetched, this test runs a
//! few jobs (200 with `GPUWS_DEEP`). It starts this program again inside the namespaces.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(well) = xtask::run_if_inside() {
        return exit_code(well);
    }
    let name = "leftovers_of_jobs_are_ended_and_nothing_else";
    let skipped = |why: &str| {
        say(&format!("test {name} ... skipped: {why}"));
        ExitCode::SUCCESS
    };
    if std::env::args().any(|argument| argument == "--list") {
        say(&format!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if !rustix::process::geteuid().is_root() {
        return skipped("Slurm's daemons need root");
    }
    let Some(tree) = xtask::unpacked(xtask::workspace_root()) else {
        return skipped("no Slurm here; cargo xtask slurm fetches it");
    };
    let Some(gpuws) = program() else {
        return skipped("gpuws is not built beside this test; cargo build -p gpuws");
    };
    let jobs = if gpuws_tests::is_deep() { 200 } else { 12 };
    let well = xtask::run_jobs(&tree, &gpuws, jobs).expect("namespaces can be made");
    say(&format!("test {name} ... {}", if well { "ok" } else { "FAILED" }));
    exit_code(well)
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output can be written");
}

fn exit_code(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the program that cargo built next to this test.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let dir = own.parent()?.parent()?;
    Some(dir.join("gpuws")).filter(|path| path.is_file())
}
