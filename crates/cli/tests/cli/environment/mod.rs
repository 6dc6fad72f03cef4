//! `gpuws` in surroundings that another user controls (`$HOME`, `$XDG_RUNTIME_DIR`, links, pipes),
//! or that lack something (`ulimit -f`, `ulimit -n`, `hidepid`): real processes and users, within
//! sessions of the simulated NVML.

mod hidepid;
mod limits;
mod outputs;
mod places;

use std::io::Write;
use std::path::Path;

/// The user that nobody is.
const NOBODY: u32 = 65534;

/// Tells whether the tests are run by root, and says so where they are not.
fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(test, "needs root");
    }
    is_root
}

/// Says on the descriptor itself that a test is skipped: one that passes says nothing else.
fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Gives a file, or the link itself, to [`NOBODY`].
fn give_to_nobody(path: &Path) {
    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}
