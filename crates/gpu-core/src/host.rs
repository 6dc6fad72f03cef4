//! The port to the operating system: who holds a file, what a process is, how it is signalled.

use crate::absent::Reading;
use crate::device::DeviceInfo;
use crate::error::Result;
use crate::file::DeviceFile;
use crate::holder::{HeldFile, HolderScan, Unreadable};
use crate::id::{Pid, ProcessKey};
use crate::lease::LeaseId;
use crate::process::ProcessInfo;
use crate::snapshot::Origin;
use crate::token::ActToken;
use std::fmt;

/// A signal that the reaper sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Signal {
    /// Asks a process to end.
    #[cfg_attr(feature = "serde", serde(rename = "SIGTERM"))]
    Term,
    /// Ends a process.
    #[cfg_attr(feature = "serde", serde(rename = "SIGKILL"))]
    Kill,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Term => "SIGTERM",
            Signal::Kill => "SIGKILL",
        })
    }
}

/// Every process of the machine that could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessList {
    /// The processes, by number.
    pub processes: Vec<ProcessInfo>,
    /// Those that exist and could not be read.
    pub unreadable: Unreadable,
}

/// Looks at the processes of a machine.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Host: Send + Sync {
    /// Returns which machine's processes these are. Nothing is done to a process of one machine
    /// for the sake of a device of another.
    fn origin(&self) -> Origin;

    /// Returns the machine's name.
    fn hostname(&self) -> Reading<String>;

    /// Returns whether the one who looks sees every process by the number that the driver uses:
    /// whether it lives in the first PID namespace.
    fn sees_host_pids(&self) -> Reading<bool>;

    /// Returns the devices that the kernel module names, without asking it for anything else: what
    /// is left to tell when the driver does not answer. In NVML's order, none without the module.
    ///
    /// # Errors
    /// `Io` when the module's list cannot be read.
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Returns the GPU device files that exist.
    ///
    /// # Errors
    /// `Io` when the device folder cannot be read.
    fn device_files(&self) -> Result<Vec<DeviceFile>>;

    /// Returns every process that has one of `files` open, mapped, or as executable, current or
    /// root directory. A process that ends during the walk is left out.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan>;

    /// Returns one process.
    ///
    /// # Errors
    /// `Process(Gone)` when it does not exist.
    fn process(&self, pid: Pid) -> Result<ProcessInfo>;

    /// Returns every process.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn processes(&self) -> Result<ProcessList>;

    /// Returns the calling process and all its ancestors that it may see, nearest first.
    ///
    /// # Errors
    /// `Process` when one of them cannot be read: who does not know its own line must not act.
    fn own_ancestry(&self) -> Result<Vec<ProcessKey>>;

    /// Returns the leases that the caller was given the file of, each with the user whose file it
    /// is: a job inherits the open file that keeps its lease alive. It says that the caller descends
    /// from the job, or that somebody of the job handed it over.
    ///
    /// None where [`own_ancestry`](Host::own_ancestry) goes up to the first process of the machine, and so
    /// tells better whom the caller descends from.
    fn inherited_leases(&self) -> Vec<(LeaseId, u32)>;

    /// Opens a process, so that every later word is to it and never to one that got its number.
    ///
    /// # Errors
    /// `Process(Gone)` when it does not exist; `Unsupported` where the kernel lacks pidfd.
    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>>;
}

/// One opened process: a pidfd on Linux.
///
/// Opening by number may have caught another process than the one meant; [`look`] tells which,
/// and every later call is to that same one.
///
/// [`look`]: ProcessHandle::look
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait ProcessHandle: Send {
    /// Returns the process as it is now, without its command line, which lies in the process's own
    /// memory: a process could make whoever reads it wait.
    ///
    /// # Errors
    /// `Process(Gone)` when the opened process has ended, even if its number lives on.
    fn look(&self) -> Result<ProcessInfo>;

    /// Returns which of `files` it has now; none when it has let go of all of them.
    ///
    /// # Errors
    /// `Process(Gone)` when it has ended, `Process(NotPermitted)` when that may not be seen.
    fn held(&self, files: &[DeviceFile]) -> Result<Vec<HeldFile>>;

    /// Returns whether it has ended, all its threads included.
    ///
    /// # Errors
    /// `Io` when the kernel does not answer.
    fn has_exited(&self) -> Result<bool>;

    /// Sends a signal to it, and to no other.
    ///
    /// # Errors
    /// `Process(Gone)` when it has ended, `Process(NotPermitted)` when the caller may not.
    fn signal(&self, signal: Signal, token: &ActToken) -> Result<()>;
}
