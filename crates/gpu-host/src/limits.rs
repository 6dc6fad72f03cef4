//! Limits of the shell that this program was started from.
//!
//! A limit must not end what is there to clean up: beyond `ulimit -f` a write is to fail, and
//! beyond a small `ulimit -n` there is more to be had. What is started next gets both as they
//! were: a signal that is caught is as usual after execve(2), and [`OpenFiles`] puts its limit
//! back for as long as a program is started.

use crate::proc_dir::ProcRoot;
use crate::supervise::{ignored, is_in};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Makes a write beyond the limit on the size of files (`RLIMIT_FSIZE`, setrlimit(2)) fail with
/// `EFBIG`; the signal that usually ends the process at that moment does nothing from now on.
///
/// Where the process was started with that signal ignored, it stays so.
///
/// # Errors
/// When the kernel refuses, or `/proc` at `proc` does not tell what is ignored.
pub fn ignore_file_size_signal(proc: &Path) -> io::Result<()> {
    let root = ProcRoot::open(proc)?;
    if !is_in(ignored(&root)?, SIGXFSZ) {
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    }
    Ok(())
}

/// Lets this process have as many files open as its hard limit allows, and whatever it starts as
/// well.
pub fn raise_open_file_limit() {
    OpenFiles::raise();
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
        let raised = OpenFiles { before };
        raised.set_raised();
        raised
    }

    /// Does something, such as to start a program, under the limit of before.
    pub(crate) fn as_before<T>(&self, act: impl FnOnce() -> T) -> T {
        // It was in force before, and so it can be set again.
        let _ = setrlimit(Resource::Nofile, self.before);
        let done = act();
        self.set_raised();
        done
    }

    fn set_raised(&self) {
        let raised = Rlimit { current: self.before.maximum, ..self.before };
        // Where the kernel refuses (`fs.nr_open` was lowered since), the limit stays as it is.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
