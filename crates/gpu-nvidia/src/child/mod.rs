//! NVML in a separate process, with a deadline for each query.
//!
//! A call into a driver that has lost its device may never return. Then not even SIGKILL ends the
//! calling thread and its process. Therefore the program never makes such a call itself. It starts
//! a child, [`serve`], sends requests over a socket, receives replies over a pipe, sends orders
//! over another pipe, and abandons the child at the deadline. The child sends a snapshot part by
//! part, so the parts before a hanging call are kept.
//!
//! A child that cannot be killed is harmless because it holds no foreign resources: no descriptors
//! except its own files and those of the protocol (no lease, no terminal), and `/` as its current
//! directory. It renames itself to `gpuws-stuck` and locks a byte of its program's file. If that
//! byte is locked, later programs search for such a process. While one hangs, they send no request;
//! a child that has already started has only loaded the library, and is killed.
//!
//! Every wait is bounded, with one exception: the kernel may have to read the program of the child
//! from its file.

mod assemble;
mod backend;
mod fork;
mod line;
mod mark;
mod process;
mod request;
mod serve;
mod stuck;
mod wire;

pub use backend::NvmlChild;
pub use serve::serve;

use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Describes how to start the child: a program that calls [`serve`] first.
///
/// A program can name itself, with an argument that makes it call [`serve`]; a program that embeds
/// this crate can name `gpu-nvidia-helper`.
#[derive(Clone, Debug)]
pub struct Helper {
    /// The program: a path, or a name to look up in `PATH`.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
    /// The library to load, passed as the last argument; `None` for the installed one.
    pub library: Option<PathBuf>,
    /// Whether this program may be forked, which takes a fraction of the time of starting another
    /// one. Set it only for a program that names itself and has not used NVML or CUDA. With other
    /// threads or signal handlers, the program is started anyway.
    pub forks: bool,
    /// The `/proc` to search for children of earlier queries.
    pub proc: PathBuf,
}

impl Helper {
    /// Returns a helper without arguments, for the installed library.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let (arguments, library, proc) = (Vec::new(), None, "/proc".into());
        Helper { program: program.into(), arguments, library, forks: false, proc }
    }
}

/// A slow query, reported once a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The call that has not returned, such as `nvmlInit_v2`, if the child reports it.
    pub call: Option<String>,
    /// The time since the query started.
    pub elapsed: Duration,
    /// The time limit of the query.
    pub deadline: Duration,
}

/// Returns the time of a monotonic clock.
pub(crate) fn moment() -> Duration {
    // Neither part of this clock is negative.
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
