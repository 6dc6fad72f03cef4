//! `gpuws` in an environment that another user controls (`$HOME`, `$XDG_RUNTIME_DIR`, links,
//! pipes), or that is restricted (`ulimit -f`, `ulimit -n`, `hidepid`): real processes and users,
//! in sessions of the simulated NVML.

mod hidepid;
mod limits;
mod outputs;
mod places;

use std::io::Write;
use std::path::Path;

/// The user ID of nobody.
const NOBODY: u32 = 65534;

/// Returns whether root runs the tests; prints a note if not.
fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(test, "needs root");
    }
    is_root
}

/// Prints on standard error that a test is skipped; the harness hides the output of passing tests.
fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Changes the owner of a file, or of the link itself, to [`NOBODY`].
fn give_to_nobody(path: &Path) {
    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}
