//! One opened process: a pidfd, and a directory of the same process.

use crate::context::Context;
use crate::fault;
use crate::file_index::Targets;
use crate::proc_dir::{ProcDir, ProcRoot};
use crate::process;
use crate::walk::Walker;
use gpu_core::{
    ActToken, DeviceFile, Environment, Error, HeldFile, Pid, ProcessFault, ProcessHandle,
    ProcessInfo, Result, Signal, Uids,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use std::sync::Arc;

/// An opened process, and never one that reuses its PID.
pub(crate) struct LinuxProcess {
    pid: Pid,
    pidfd: OwnedFd,
    dir: ProcDir,
    context: Arc<Context>,
}

impl LinuxProcess {
    /// Opens the process that has this PID now.
    ///
    /// The pidfd comes first, then the directory, then the check that the process behind the pidfd
    /// still lives. A PID is reused only after its process has ended and was reaped. So if the
    /// process lives at the end, it had its PID all the time in between, and the directory, opened
    /// by PID in that time, belongs to it. From then on neither can change hands: a pidfd and a
    /// directory of /proc belong to a process, not to a PID. In any other order the two could
    /// belong to different processes, and what is read would prove nothing about what is signalled.
    pub(crate) fn open(root: &ProcRoot, pid: Pid, context: Arc<Context>) -> Result<Self> {
        let what = || format!("open process {pid}");
        let number = raw(pid.0).ok_or_else(|| Error::new(ProcessFault::Gone, what()))?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(|errno| match errno {
            // The number of a thread.
            Errno::INVAL => Error::new(ProcessFault::Gone, what()).with_source(errno),
            errno => fault::pidfd(what(), errno),
        })?;
        let dir = root
            .process(pid.0)
            .map_err(|errno| fault::process(what(), unless_hidden(&pidfd, errno)))?;
        let opened = LinuxProcess { pid, pidfd, dir, context };
        opened.still_lives("open")?;
        Ok(opened)
    }

    fn still_lives(&self, act: &str) -> Result<()> {
        if self.has_exited()? {
            return Err(Error::new(ProcessFault::Gone, format!("{act} process {}", self.pid)));
        }
        Ok(())
    }

    fn failed(&self, act: &str) -> impl Fn(Errno) -> Error {
        let what = format!("{act} process {}", self.pid);
        move |errno| fault::process(what.clone(), unless_hidden(&self.pidfd, errno))
    }
}

impl ProcessHandle for LinuxProcess {
    fn info(&self) -> Result<ProcessInfo> {
        let booted_at = self.context.booted_at();
        let info = process::read_known(&self.dir, booted_at, &self.context.users)
            .map_err(self.failed("inspect"))?;
        self.still_lives("inspect")?;
        Ok(info)
    }

    fn uids(&self) -> Result<Uids> {
        let act = "read the UIDs of";
        let uids = process::uids(&self.dir);
        self.still_lives(act)?;
        uids.map_err(|absent| Error::new(absent, format!("{act} process {}", self.pid)))
    }

    fn held(&self, files: &[DeviceFile]) -> Result<Vec<HeldFile>> {
        let act = "inspect the files of";
        let targets = Targets::new(files);
        let seen =
            Walker::new(&targets, true).scan(&self.dir, self.pid.0).map_err(self.failed(act))?;
        self.still_lives(act)?;
        match seen.blocked {
            // The process seems to hold no file, but not everything was readable, so the answer is
            // not 'none'. The kernel refuses a closed process with EACCES; EPERM comes from a
            // filter or a security module and says nothing about the process.
            Some(Errno::PERM) if seen.findings.is_empty() => {
                Err(fault::file(format!("{act} process {}", self.pid), Errno::PERM))
            }
            Some(errno) if seen.findings.is_empty() => Err(self.failed(act)(errno)),
            _ => Ok(seen
                .findings
                .into_held(&targets, &self.context.drivers, &|fd| self.dir.fdinfo(fd))),
        }
    }

    fn environment(&self) -> Result<Environment> {
        let act = "read the environment of";
        let bytes = self.dir.read("environ", Environment::LIMIT + 1).map_err(self.failed(act))?;
        self.still_lives(act)?;
        Ok(Environment::parse(&bytes))
    }

    /// A pidfd becomes readable once every thread has ended; a zombie first thread with live others
    /// does not count.
    fn has_exited(&self) -> Result<bool> {
        has_ended(&self.pidfd)
            .map_err(|errno| fault::file(format!("watch process {}", self.pid), errno))
    }

    fn signal(&self, signal: Signal, _token: &ActToken) -> Result<()> {
        let number = match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        let failed =
            |errno| fault::process(format!("send {signal} to process {}", self.pid), errno);
        pidfd_send_signal(&self.pidfd, number).map_err(failed)
    }
}

/// Returns a PID in the kernel's type.
pub(crate) fn raw(pid: u32) -> Option<rustix::process::Pid> {
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)
}

/// Returns whether the process behind a pidfd has ended, with all its threads.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> rustix::io::Result<bool> {
    loop {
        // It may fail with EINTR if nothing is ready: repeat it.
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&Timespec::default())) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

/// A process that /proc does not show and that has not ended is hidden (`hidepid`, and a program
/// that gained rights through execve): not permitted, and not gone.
fn unless_hidden(pidfd: &OwnedFd, errno: Errno) -> Errno {
    match errno {
        Errno::NOENT | Errno::SRCH if has_ended(pidfd) != Ok(true) => Errno::PERM,
        errno => errno,
    }
}
