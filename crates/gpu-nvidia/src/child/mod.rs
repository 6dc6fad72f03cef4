//! NVML in a separate process, with a deadline for each query.
//!
//! A call into a driver that has lost its device may never return. The calling thread, and with it
//! its process, then cannot be ended, not even by SIGKILL. So the program never makes such a call.
//! It starts a child, [`serve`], sends requests over a socket, receives replies over a pipe, sends
//! orders over another pipe, and abandons the child at the deadline. The child sends a snapshot part
//! by part, so that the parts before the hanging call are kept.
//!
//! A child that cannot be ended is harmless because it holds no resources of others: no descriptor
//! except those of the protocol and its own files (no lease, no terminal), and `/` as its current
//! directory. It renames itself to `gpuws-stuck` and locks a byte of its program's file. If that
//! byte is locked, later programs search for such a process, and while one hangs they send no
//! request: a child that was already started has only loaded the library, and is ended.
//!
//! Every wait is bounded, except for starting another program as the child if the kernel must read
//! it from its file.

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

/// How to start the child: a program that first calls [`serve`].
///
/// A program may name itself, with an argument that makes it call [`serve`]; a program that embeds
/// this crate may name `gpu-nvidia-helper`.
#[derive(Clone, Debug)]
pub struct Helper {
    /// The program: a path, or a name that is searched for in `PATH`.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
    /// The library to load, passed as the last argument; `None` for the installed one.
    pub library: Option<PathBuf>,
    /// Whether this program may be forked instead of starting another one, which takes a fraction
    /// of the time. Only for a program that names itself and has not used NVML or CUDA. With other
    /// threads or signal handlers, the program is started nevertheless.
    pub forks: bool,
    /// The `/proc` in which children of earlier queries are searched for.
    pub proc: PathBuf,
}

impl Helper {
    /// Returns a helper without arguments, for the installed library.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let (arguments, library, proc) = (Vec::new(), None, "/proc".into());
        Helper { program: program.into(), arguments, library, forks: false, proc }
    }
}

/// A query that takes long; reported once a second.
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
    // Neither part is negative on this clock.
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
