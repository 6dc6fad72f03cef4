//! NVML in a process of its own, with a deadline for each question.
//!
//! A call into a driver that has lost its device may never return, and the thread that made it
//! then cannot be ended, not even by SIGKILL, and with it the process that it belongs to. So the
//! program never makes such a call. It starts a child, [`serve`], asks it over a socket and a pipe, and
//! gives it up at the deadline; the child streams a look part by part, so that what was learned
//! before the call that hangs is kept.
//!
//! A child that cannot be ended is harmless because it holds nothing of anybody's: no descriptor but
//! the ends of the conversation and files of its own (no lease, no terminal), no current directory
//! but `/`. It takes the name `gpuws-stuck`, and locks a byte of its program's file; who finds that
//! byte locked looks for such a process, and who finds one that hangs asks the driver nothing: a
//! child that was started meanwhile has only loaded the library, and is ended.
//!
//! No wait is without a bound. What cannot be bounded is the start of another program as the child,
//! which the kernel ends when that is read from its file.

mod assemble;
mod backend;
mod fork;
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

/// How to start the child: a program that calls [`serve`] before it does anything else.
///
/// A program may name itself, with an argument that leads it to [`serve`]; a program that embeds
/// this crate may name `gpu-nvidia-helper`.
#[derive(Clone, Debug)]
pub struct Helper {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
    /// The library to load, the argument that follows; `None` for the machine's own.
    pub library: Option<PathBuf>,
    /// Whether this program may be copied instead of another started, which takes a fraction of
    /// the time: for a program that would name itself, and that has not used NVML or CUDA. Beside
    /// other threads or handlers of signals the program is started all the same.
    pub forks: bool,
    /// The root of the `/proc` in which a child of an earlier look is looked for.
    pub proc: PathBuf,
}

impl Helper {
    /// Returns a helper without arguments, for the machine's own library.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let (arguments, library, proc) = (Vec::new(), None, "/proc".into());
        Helper { program: program.into(), arguments, library, forks: false, proc }
    }
}

/// Says that the driver takes its time, after the first second and then each second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The call that has not returned, such as `nvmlInit_v2`, where the child says it.
    pub call: Option<String>,
    /// How long the question has been waiting.
    pub elapsed: Duration,
    /// When it will be given up, counted from the same moment.
    pub deadline: Duration,
}

/// Returns the time since some fixed point; never goes back.
pub(crate) fn moment() -> Duration {
    // Neither part is negative on this clock.
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
