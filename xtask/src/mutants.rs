//! Tests mutants of the lines that a change touches: each must make a test of its crate fail.

use crate::cargo;
use std::fs;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The version of cargo-mutants to install if it is missing.
const VERSION: &str = "27.1.0";

/// The maximum number of mutants in one run, at several seconds each; larger changes are sampled
/// evenly.
const MOST: usize = 40;

/// The maximum time for one run, in seconds; the remaining mutants are then skipped.
const SECONDS: &str = "480";

/// The exit codes of timeout(1) after the time limit, and if SIGINT did not end the run.
const TIME_OVER: [Option<i32>; 2] = [Some(124), Some(137)];

/// Runs timeout(1) as a child of bash, which, as the first process of a PID namespace, reaps
/// orphans.
const CHILD: &str = "timeout --signal INT --kill-after 60 \"$@\"; exit $?";

/// Exit codes of `cargo mutants` (its manual, "Exit codes") if every mutant was caught, or if some
/// tests timed out, which also distinguishes the mutant.
const CAUGHT: [Option<i32>; 2] = [Some(0), Some(3)];

/// Tests the mutants of the changes since a revision; returns whether all were caught. The default
/// revision is the point at which the branch left `origin/HEAD`, otherwise the parent of the last
/// commit.
///
/// # Errors
/// If git or cargo fails, or a file cannot be written.
pub fn mutants(root: &Path, since: Option<&str>, out: &mut dyn Write) -> io::Result<bool> {
    let since = match since {
        Some(revision) => revision.to_owned(),
        None => base(root)?,
    };
    let dir = cargo::target_dir(root).join("mutants");
    fs::create_dir_all(&dir)?;
    let change = dir.join("change.diff");
    let diff = git(root, &["diff", &since, "--", "crates"])?;
    if diff.is_empty() {
        writeln!(out, "mutants: no crate has changed since {since}")?;
        return Ok(true);
    }
    fs::write(&change, diff)?;

    let program = installed(root, out)?;
    let mut list = Command::new(&program);
    list.current_dir(root).args(["mutants", "--list", "--in-diff"]).arg(&change);
    let listed = checked(list.stderr(Stdio::inherit()).output()?, "cargo mutants")?;
    let count = String::from_utf8_lossy(&listed).lines().count();
    let shards = count.div_ceil(MOST);
    match shards {
        0 => {
            writeln!(out, "mutants: no mutants in the lines changed since {since}")?;
            return Ok(true);
        }
        1 => writeln!(out, "mutants: {count} in the lines changed since {since}")?,
        _ => writeln!(out, "mutants: testing one in {shards} of {count} since {since}")?,
    }
    let shard = format!("0/{shards}");
    let mut run = contained();
    run.current_dir(root).arg(SECONDS).arg(&program).arg("mutants").arg("--in-diff").arg(&change);
    run.args(["--no-times", "--shard", &shard, "--sharding=round-robin", "--output"]).arg(&dir);
    let code = run.status()?.code();
    if !TIME_OVER.contains(&code) {
        return Ok(CAUGHT.contains(&code));
    }
    let missed = fs::read_to_string(dir.join("mutants.out").join("missed.txt"))?;
    writeln!(out, "mutants: stopped after {SECONDS} s; the rest was not tested")?;
    Ok(missed.is_empty())
}

/// Returns a command that runs its further arguments for a number of seconds, its first argument.
///
/// A mutant of code that sends signals may send them to every process, so it runs in its own PID
/// namespace if the caller may create one.
fn contained() -> Command {
    let isolated = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command
    };
    let probe = isolated().arg("true").stderr(Stdio::null()).status();
    let may = probe.is_ok_and(|status| status.success());
    let mut command = if may { isolated() } else { Command::new("env") };
    command.args(["bash", "-c", CHILD, "timeout"]);
    command
}

/// Returns the revision that the checked-out change is based on.
pub(crate) fn base(root: &Path) -> io::Result<String> {
    let revision = |arguments: &[&str]| {
        git(root, arguments).map(|out| String::from_utf8_lossy(&out).trim().to_owned())
    };
    let head = revision(&["rev-parse", "HEAD"])?;
    match revision(&["merge-base", "HEAD", "origin/HEAD"]) {
        Ok(base) if base != head => Ok(base),
        _ => revision(&["rev-parse", "HEAD~1"]),
    }
}

pub(crate) fn git(root: &Path, arguments: &[&str]) -> io::Result<Vec<u8>> {
    let output = Command::new("git").current_dir(root).args(arguments).output()?;
    checked(output, "git")
}

fn checked(output: Output, program: &str) -> io::Result<Vec<u8>> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::other(format!("failed to run {program}: {}", stderr.trim())))
}

/// Returns the path of cargo-mutants. Installs it into `tools` of the build directory unless it is
/// on the PATH.
fn installed(root: &Path, out: &mut dyn Write) -> io::Result<PathBuf> {
    const NAME: &str = "cargo-mutants";
    let runs = |program: &Path| {
        let mut command = Command::new(program);
        command.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let tools = cargo::target_dir(root).join("tools");
    let own = tools.join("bin").join(NAME);
    if let Some(found) = [PathBuf::from(NAME), own.clone()].into_iter().find(|path| runs(path)) {
        return Ok(found);
    }
    writeln!(out, "mutants: installing {NAME} {VERSION} into {}", tools.display())?;
    cargo::install(root, NAME, VERSION, &tools)?;
    Ok(own)
}
