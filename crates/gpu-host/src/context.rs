//! The shared state of queries about processes.

use crate::boot::Booted;
use crate::fault;
use crate::files::Drivers;
use crate::kept_stats::KeptStats;
use crate::proc_dir::{ProcDir, ProcRoot};
use crate::process;
use crate::roots::Roots;
use crate::users::Users;
use crate::walk::Walker;
use gpu_core::{Holder, HolderScan, Pid, Reading, Result, Timestamp, UnreadProcess};
use rustix::io::Errno;
use std::sync::{Mutex, OnceLock};

/// Shared state of queries about processes.
pub(crate) struct Context {
    pub(crate) roots: Roots,
    pub(crate) drivers: Drivers,
    pub(crate) users: Users,
    /// The `stat` files of processes that are read repeatedly.
    pub(crate) stats: Mutex<KeptStats>,
    pub(crate) booted: Booted,
    /// The PID namespace of this process, which never changes, is the first one.
    pub(crate) sees_host_pids: OnceLock<bool>,
}

impl Context {
    pub(crate) fn root(&self) -> Result<ProcRoot> {
        let path = &self.roots.proc;
        ProcRoot::open(path)
            .map_err(|errno| fault::file(format!("open '{}'", path.display()), errno))
    }

    pub(crate) fn pids(&self, root: &ProcRoot) -> Result<Vec<u32>> {
        let what = || format!("list '{}'", self.roots.proc.display());
        root.pids().map_err(|errno| fault::file(what(), errno))
    }

    /// Checks whether one process is a holder, and counts it if it cannot be read.
    pub(crate) fn check_holder(
        &self,
        walker: &mut Walker<'_>,
        root: &ProcRoot,
        pid: u32,
        scan: &mut HolderScan,
    ) {
        let dir = match root.process(pid) {
            Ok(dir) => dir,
            Err(errno) => return self.count(errno, (pid, None), false, scan),
        };
        let seen = match walker.scan(&dir, pid) {
            Ok(seen) => seen,
            Err(errno) => return self.count(errno, (pid, Some(&dir)), false, scan),
        };
        if let Some(errno) = seen.blocked {
            self.count(errno, (pid, Some(&dir)), seen.open_files_read, scan);
        }
        if seen.findings.is_empty() {
            return;
        }
        match process::read_key(&dir) {
            Ok(process) => scan.holders.push(Holder {
                process,
                held: seen
                    .findings
                    .into_held(walker.targets(), &self.drivers, &|fd| dir.fdinfo(fd)),
                through_thread: seen.through_thread,
            }),
            Err(errno) => self.count(errno, (pid, None), false, scan),
        }
    }

    /// Counts an unreadable process, unless it is gone or has no files, and names the first ones.
    pub(crate) fn count(
        &self,
        errno: Errno,
        (pid, dir): (u32, Option<&ProcDir>),
        open_files_read: bool,
        scan: &mut HolderScan,
    ) {
        if matches!(errno, Errno::NOENT | Errno::SRCH) || dir.is_some_and(process::is_bare) {
            return;
        }
        let reason = fault::absent(errno);
        scan.unreadable.count(reason);
        if scan.unread.len() < HolderScan::NAMED {
            let (name, user) = match dir {
                Some(dir) => process::read_name(dir, &self.users),
                None => (Err(reason), Err(reason)),
            };
            scan.unread.push(UnreadProcess { pid: Pid(pid), name, user, reason, open_files_read });
        }
    }

    pub(crate) fn booted_at(&self) -> Reading<Timestamp> {
        self.booted.at(&ProcRoot::open(&self.roots.proc).map_err(fault::absent)?)
    }
}
