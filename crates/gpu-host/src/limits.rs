//! Resource limits inherited from the shell.
//!
//! A limit must not stop the clean-up: beyond `ulimit -f` a write must fail, and a small `ulimit
//! -n` is raised. Programs started later get both unchanged: execve(2) resets a caught signal, and
//! [`OpenFiles`] restores its limit while a program is started.

use crate::proc_dir::ProcRoot;
use crate::supervise::{ignored, is_in};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Makes a write beyond the file size limit (`RLIMIT_FSIZE`, setrlimit(2)) fail with `EFBIG`; the
/// signal that usually ends the process then has no effect from now on.
///
/// If the process was started with that signal ignored, it stays ignored.
///
/// # Errors
/// When the kernel refuses, or `/proc` at `proc` does not show which signals are ignored.
pub fn ignore_file_size_signal(proc: &Path) -> io::Result<()> {
    let root = ProcRoot::open(proc)?;
    if !is_in(ignored(&root)?, SIGXFSZ) {
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    }
    Ok(())
}

/// Raises the soft limit on open files to the hard limit, for this process and for programs that it
/// starts.
pub fn raise_open_file_limit() {
    OpenFiles::raise();
}

/// The limit that this process started with, set once the limit was raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Returns the soft limit on open files of programs that are started under the original limit;
/// `None` if there is no limit.
pub(crate) fn of_programs() -> Option<u64> {
    BEFORE.get().copied().unwrap_or_else(|| getrlimit(Resource::Nofile)).current
}

/// The limit on open files that this process was started with (`RLIMIT_NOFILE`, setrlimit(2)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFiles {
    before: Rlimit,
}

impl OpenFiles {
    /// Raises the soft limit to the hard one.
    pub(crate) fn raise() -> Self {
        let before = getrlimit(Resource::Nofile);
        // If several callers raise it, the first one saw the limit that this process started with.
        let _ = BEFORE.set(before);
        let raised = OpenFiles { before };
        raised.set_raised();
        raised
    }

    /// Runs an action, such as starting a program, under the original limit.
    pub(crate) fn as_before<T>(&self, act: impl FnOnce() -> T) -> T {
        // It was in force before, so it can be set again.
        let _ = setrlimit(Resource::Nofile, self.before);
        let done = act();
        self.set_raised();
        done
    }

    fn set_raised(&self) {
        let raised = Rlimit { current: self.before.maximum, ..self.before };
        // If the kernel refuses (`fs.nr_open` was lowered since), the limit stays unchanged.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
