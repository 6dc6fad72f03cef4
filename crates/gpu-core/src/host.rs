//! The ports to the operating system: processes and signals, and everything a machine has besides
//! its devices.

#[cfg(feature = "mock")]
pub(crate) mod mock;

use crate::absent::{Absent, Reading};
use crate::device_files::DeviceFiles;
use crate::driver_view::DriverView;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::file::DeviceFile;
use crate::holder::{HeldFile, Unreadable};
use crate::id::{Pid, ProcessKey, Uids};
use crate::lease::LeaseId;
use crate::load::HostLoad;
use crate::process::{ProcessDetail, ProcessInfo, shared};
use crate::snapshot::Origin;
use crate::token::ActToken;
use std::fmt;
use std::sync::Arc;

/// A signal sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Signal {
    /// Asks the process to end.
    #[cfg_attr(feature = "serde", serde(rename = "SIGTERM"))]
    Term,
    /// Ends the process.
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

/// Every readable process of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessList {
    /// The processes, by PID.
    pub processes: Vec<ProcessInfo>,
    /// Those that exist and could not be read.
    pub unreadable: Unreadable,
}

/// Everything that a snapshot of a machine needs besides its devices.
pub trait Host: ProcessTable + DeviceFiles + DriverView {}

impl<T: ProcessTable + DeviceFiles + DriverView + ?Sized> Host for T {}

/// Reads the processes of a machine.
pub trait ProcessTable: Send + Sync {
    /// Returns the machine of these processes. A process of one machine is never signalled because
    /// of a device of another.
    fn origin(&self) -> Origin;

    /// Returns the hostname.
    fn hostname(&self) -> Reading<String>;

    /// Returns the load. A machine without one, such as a simulated one, does not support it.
    fn load(&self) -> HostLoad {
        HostLoad::absent(Absent::NotSupported)
    }

    /// Returns whether the caller sees every process under the PID that the driver uses: whether it
    /// is in the initial PID namespace.
    fn sees_host_pids(&self) -> Reading<bool>;

    /// Returns whether the caller is root, and cannot be advised to get more rights.
    fn is_root(&self) -> Reading<bool>;

    /// Returns the UID of an account by its name: `NotFound` if this machine has none. User names can
    /// be reassigned; do not cache the answer.
    fn account(&self, name: &str) -> Reading<u32> {
        let everyone = self.processes().map_err(|error| error.kind().absent())?.processes;
        let mut named = everyone.iter().filter(|info| info.user.as_deref() == Ok(name));
        named.find_map(|info| info.uid.ok()).ok_or(Absent::NotFound)
    }

    /// Returns one process.
    ///
    /// # Errors
    /// `Process(Gone)` when it does not exist.
    fn process(&self, pid: Pid) -> Result<ProcessInfo>;

    /// Returns several processes, in the order of `pids`: an implementation reads what they share
    /// once. It may read more than `detail`.
    ///
    /// # Errors
    /// As [`process`](ProcessTable::process), for each of them.
    fn processes_of(&self, pids: &[Pid], _detail: ProcessDetail) -> Vec<Result<ProcessInfo>> {
        pids.iter().map(|pid| self.process(*pid)).collect()
    }

    /// Returns the current state of processes known in this detail, in the same order. An
    /// implementation may read only what changes all the time and keep the rest, or keep everything
    /// of a process that has been idle for a few seconds. If another process has the PID or another
    /// program is executed, all of it is read.
    ///
    /// # Errors
    /// As [`process`](ProcessTable::process), for each of them.
    fn processes_again(
        &self,
        known: Vec<Arc<ProcessInfo>>,
        detail: ProcessDetail,
    ) -> Vec<Result<Arc<ProcessInfo>>> {
        let pids: Vec<Pid> = known.iter().map(|known| known.key.pid).collect();
        shared(self.processes_of(&pids, detail))
    }

    /// Returns every process.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn processes(&self) -> Result<ProcessList>;

    /// Returns the PIDs of all visible processes, without any other data: it reads nothing that a
    /// process could delay.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn pids(&self) -> Result<Vec<Pid>> {
        Ok(self.processes()?.processes.into_iter().map(|process| process.key.pid).collect())
    }

    /// Returns the calling process and all its visible ancestors, nearest first.
    ///
    /// # Errors
    /// `Process` when one of them cannot be read: without its own ancestry the caller cannot spare
    /// itself.
    fn own_ancestry(&self) -> Result<Vec<ProcessKey>>;

    /// Returns the leases whose file the caller has inherited, each with the user who owns the
    /// file: a job inherits the open file that keeps its lease alive. The caller then descends from
    /// the job, or a process of the job passed the file on.
    ///
    /// Empty if [`own_ancestry`](ProcessTable::own_ancestry) reaches the first process of the machine,
    /// because it is then the better evidence.
    fn inherited_leases(&self) -> Vec<(LeaseId, u32)>;

    /// Opens a process, so that all later calls refer to this process, even if its PID is reused.
    ///
    /// # Errors
    /// `Process(Gone)` when it does not exist; `Unsupported` if the kernel lacks pidfd.
    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>>;
}

/// One opened process: a pidfd on Linux.
///
/// The PID may have been reused before the process was opened; [`info`] identifies the process, and
/// all later calls refer to the same one.
///
/// [`info`]: ProcessHandle::info
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait ProcessHandle: Send {
    /// Returns the process as it is now, without its command line. That is in the process's own
    /// memory, so a process could block the reader.
    ///
    /// # Errors
    /// `Process(Gone)` when the opened process has ended, even if its PID was reused.
    fn info(&self) -> Result<ProcessInfo>;

    /// Returns its UIDs. A host without setuid programs returns its user three times.
    ///
    /// # Errors
    /// As [`info`](Self::info), and `Field` when they are unknown.
    fn uids(&self) -> Result<Uids> {
        let user = self.info()?.uid;
        let user = user.map_err(|absent| Error::new(absent, "read the UIDs of a process"))?;
        Ok(Uids { real: user, effective: user, saved: user })
    }

    /// Returns which of `files` it has now; none if it has released all of them.
    ///
    /// # Errors
    /// `Process(Gone)` when it has ended, `Process(NotPermitted)` when the caller may not see them.
    fn held(&self, files: &[DeviceFile]) -> Result<Vec<HeldFile>>;

    /// Returns its environment, at most [`Environment::LIMIT`] bytes of it. That is in the process's
    /// own memory, so a process could block the reader.
    ///
    /// # Errors
    /// `Process(Gone)` when it has ended, `Process(NotPermitted)` when the caller may not see it,
    /// `Unsupported` for a process that has none, such as a simulated one.
    fn environment(&self) -> Result<Environment> {
        Err(Error::new(ErrorKind::Unsupported, "read the environment of a simulated process"))
    }

    /// Returns whether it has ended, with all its threads.
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
