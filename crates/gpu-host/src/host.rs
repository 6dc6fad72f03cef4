//! The port [`Host`], for this machine.

use crate::boot::Booted;
use crate::context::Context;
use crate::file_index::Targets;
use crate::handle::LinuxProcess;
use crate::namespace::{require_own_namespace, shows_own_namespace};
use crate::parallel::Work;
use crate::proc_dir::{ProcRoot, number};
use crate::roots::Roots;
use crate::users::Users;
use crate::walk::Walker;
use crate::{
    bpf, driver, fault, file_activity, files, hidepid, inherited, kernel_log, load, meminfo,
    parallel, process,
};
use gpu_core::{
    Absent, DeviceFile, DeviceFiles, DeviceId, DeviceInfo, DriverMessage, DriverView, Error,
    FileActivity, HolderScan, HostLoad, HostMemory, KernelDriver, LeaseId, Origin, Pid,
    ProcessDetail, ProcessHandle, ProcessInfo, ProcessKey, ProcessList, ProcessTable, Reading,
    Result, Unreadable,
};
use rustix::io::Errno;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Inode of the initial PID namespace (`PROC_PID_INIT_INO` of the kernel's proc_ns.h).
const FIRST_PID_NAMESPACE: &[u8] = b"pid:[4026531836]";

/// The first process of a PID namespace, which lives as long as the namespace.
const FIRST: u32 = 1;

/// No process has more ancestors; a fake /proc could have a cycle.
const ANCESTORS: usize = 1 << 16;

/// A Linux machine, read through its `/proc`.
///
/// With other roots it shows another machine, or one made of files for a test; signals are then
/// refused, because the PIDs there are not this machine's processes.
#[derive(Clone)]
pub struct LinuxHost {
    context: Arc<Context>,
    uses_bpf: bool,
    /// Device files to use instead of those below `/dev`.
    files: Option<Arc<[DeviceFile]>>,
}

impl LinuxHost {
    /// Returns the machine with these roots, where no driver is known. Nothing is read yet.
    pub fn new(roots: Roots) -> Self {
        LinuxHost::with_drivers(roots, Arc::new([]))
    }

    /// Returns the machine with these roots and the devices and device files of these drivers.
    /// Nothing is read yet.
    pub fn with_drivers(roots: Roots, drivers: Arc<[Arc<dyn KernelDriver>]>) -> Self {
        let context = Arc::new(Context {
            roots,
            drivers,
            users: Users::default(),
            stats: Mutex::default(),
            booted: Booted::default(),
            sees_host_pids: OnceLock::new(),
        });
        LinuxHost { context, uses_bpf: true, files: None }
    }

    /// Returns the machine with a search for holders that avoids bpf(2), which some hosts audit.
    /// The result is the same, but takes several times as long.
    pub fn without_bpf(self) -> Self {
        LinuxHost { uses_bpf: false, ..self }
    }

    /// Returns the machine with these device files instead of those in its device directory: the
    /// caller knows them from another source, such as a scheduler.
    pub fn with_device_files(self, files: Vec<DeviceFile>) -> Self {
        LinuxHost { files: Some(files.into()), ..self }
    }

    /// Returns the PIDs of all processes that may hold one of these files, and perhaps of others.
    fn candidates(
        &self,
        root: &ProcRoot,
        targets: &Targets<'_>,
        has_own_numbers: bool,
    ) -> Result<Vec<u32>> {
        // The kernel's tables have the numbers of the caller's namespace, and hide no process.
        if self.uses_bpf
            && has_own_numbers
            && first(root).is_ok()
            && let Some(users) = bpf::device_users(targets.ids(), &self.context.roots.sys)
        {
            return Ok(users.into_iter().collect());
        }
        self.context.pids(root)
    }
}

impl ProcessTable for LinuxHost {
    fn origin(&self) -> Origin {
        Origin::Live
    }

    fn hostname(&self) -> Reading<String> {
        let root = ProcRoot::open(&self.context.roots.proc).map_err(fault::absent)?;
        let name = root.read("sys/kernel/hostname", 256).map_err(fault::absent)?;
        let name = String::from_utf8_lossy(name.trim_ascii()).into_owned();
        if name.is_empty() { Err(Absent::NotFound) } else { Ok(name) }
    }

    fn load(&self) -> HostLoad {
        match ProcRoot::open(&self.context.roots.proc) {
            Ok(root) => {
                let memory = self.host_memory(None).map_err(|error| error.kind().absent());
                load::read(
                    &root,
                    memory.map(|is| (is.total.saturating_sub(is.available), is.total)),
                )
            }
            Err(error) => HostLoad::absent(fault::absent(error)),
        }
    }

    /// The first process identifies the `/proc`; if its namespace is closed to the caller, the
    /// caller's own is used.
    fn sees_host_pids(&self) -> Reading<bool> {
        let known = &self.context.sees_host_pids;
        if let Some(known) = known.get() {
            return Ok(*known);
        }
        let root = ProcRoot::open(&self.context.roots.proc).map_err(fault::absent)?;
        let namespace = root.link("1/ns/pid").or_else(|_| root.link("self/ns/pid"));
        let is_first = namespace.map_err(fault::absent)? == FIRST_PID_NAMESPACE;
        Ok(*known.get_or_init(|| is_first))
    }

    fn is_root(&self) -> Reading<bool> {
        Ok(rustix::process::geteuid().is_root())
    }

    fn account(&self, name: &str) -> Reading<u32> {
        crate::users::account(name)
    }

    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        let root = self.context.root()?;
        let dir = root.process(pid.0);
        let booted_at = self.context.booted.at(&root);
        dir.and_then(|dir| process::read(&dir, booted_at, &self.context.users))
            .map_err(|errno| fault::process(format!("inspect process {pid}"), errno))
    }

    /// Reads the processes on all cores.
    fn processes_of(&self, pids: &[Pid], detail: ProcessDetail) -> Vec<Result<ProcessInfo>> {
        let inspect =
            |pid: Pid| move |errno| fault::process(format!("inspect process {pid}"), errno);
        let root = match self.context.root() {
            Ok(root) => root,
            Err(_) => return pids.iter().map(|pid| self.process(*pid)).collect(),
        };
        let booted_at = self.context.booted.at(&root);
        let indexes: Vec<u32> = (0..).take(pids.len()).collect();
        let shares = parallel::over(Work::Files, &indexes, Vec::new, |own, index| {
            let pid = pids[index as usize];
            let users = &self.context.users;
            let info = root.process(pid.0).and_then(|dir| match detail {
                ProcessDetail::Whole => process::read(&dir, booted_at, users),
                ProcessDetail::Outline => process::read_outline(&dir, booted_at, users, false),
                ProcessDetail::WithJob => process::read_outline(&dir, booted_at, users, true),
            });
            own.push((index, info.map_err(inspect(pid))));
        });
        let mut all: Vec<_> = shares.into_iter().flatten().collect();
        all.sort_unstable_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, info)| info).collect()
    }

    /// Reads only `stat` of a process that executes the same program as before, and not even that
    /// if it has been idle, for a few seconds at most.
    fn processes_again(
        &self,
        known: Vec<Arc<ProcessInfo>>,
        detail: ProcessDetail,
    ) -> Vec<Result<Arc<ProcessInfo>>> {
        let anew = |pid| self.processes_of(&[pid], detail).remove(0).map(Arc::new);
        let Ok(root) = self.context.root() else {
            return known.iter().map(|known| anew(known.key.pid)).collect();
        };
        let mut stats = self.context.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.begin(&root);
        let again = |mut known: Arc<ProcessInfo>| {
            let pid = known.key.pid;
            match stats.update(&root, &mut known) {
                Ok(true) => Ok(known),
                Ok(false) => anew(pid),
                Err(errno) => Err(fault::process(format!("inspect process {pid}"), errno)),
            }
        };
        known.into_iter().map(again).collect()
    }

    fn processes(&self) -> Result<ProcessList> {
        let root = self.context.root()?;
        let pids = self.context.pids(&root)?;
        let booted_at = self.context.booted.at(&root);
        let shares = parallel::over(Work::Files, &pids, ProcessList::default, |list, pid| {
            let dir = root.process(pid);
            match dir.and_then(|dir| process::read(&dir, booted_at, &self.context.users)) {
                Ok(info) => list.processes.push(info),
                Err(Errno::NOENT | Errno::SRCH) => {}
                Err(errno) => list.unreadable.count(fault::absent(errno)),
            }
        });
        let mut all = ProcessList { processes: Vec::new(), unreadable: hidden(&root) };
        for share in shares {
            all.processes.extend(share.processes);
            add(&mut all.unreadable, share.unreadable);
        }
        all.processes.sort_unstable_by_key(|process| process.key.pid);
        Ok(all)
    }

    fn pids(&self) -> Result<Vec<Pid>> {
        let root = self.context.root()?;
        Ok(self.context.pids(&root)?.into_iter().map(Pid).collect())
    }

    /// An ancestor that `hidepid` hides (proc(5)) is left out, and so are its ancestors, unless the
    /// kernel lists it as a child of a visible process. A caller cannot signal a process that is
    /// hidden from it.
    fn own_ancestry(&self) -> Result<Vec<ProcessKey>> {
        let root = self.context.root()?;
        let failed = |errno| fault::process("read the caller's process ancestry", errno);
        let own = root.link("self").map_err(failed)?;
        let mut pid = number(&own).ok_or(Errno::INVAL).map_err(failed)?;
        let mut line: Vec<ProcessKey> = Vec::new();
        while pid != 0 {
            let read = |dir| Ok((process::read_key(&dir)?, process::read_parent(&dir)?));
            pid = match root.process(pid).and_then(read) {
                Ok((key, parent)) => {
                    line.push(key);
                    parent
                }
                // Ancestors above it may be visible, if the kernel reveals them.
                Err(errno) if !line.is_empty() && hidepid::hides(&root, pid, errno) => {
                    hidepid::parent(&root, pid).unwrap_or(0)
                }
                Err(errno) => return Err(failed(errno)),
            };
            if line.len() > ANCESTORS {
                return Err(failed(Errno::LOOP));
            }
        }
        Ok(line)
    }

    fn inherited_leases(&self) -> Vec<(LeaseId, u32)> {
        let namespace = self.context.root().map(|root| root.link("self/ns/pid"));
        match namespace {
            Ok(Ok(first)) if first == FIRST_PID_NAMESPACE => Vec::new(),
            _ => inherited::leases(&self.context.roots.proc),
        }
    }

    /// Opens a process of this machine. If the PIDs shown are not those of the caller's own PID
    /// namespace, the result is `Unsupported`, because a signal uses the latter.
    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        let root = self.context.root()?;
        require_own_namespace(&root, &self.context.roots.proc, &format!("open process {pid}"))?;
        Ok(Box::new(LinuxProcess::open(&root, pid, Arc::clone(&self.context))?))
    }
}

impl DeviceFiles for LinuxHost {
    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        if let Some(files) = &self.files {
            return Ok(files.to_vec());
        }
        let Context { roots, drivers, .. } = &*self.context;
        files::device_files(&roots.dev, &roots.sys, drivers)
    }

    fn file_activity(&self, files: &[DeviceFile]) -> Option<Box<dyn FileActivity>> {
        file_activity::watch(files)
    }

    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        let targets = Targets::new(files);
        if targets.is_empty() {
            return Ok(HolderScan::default());
        }
        let root = self.context.root()?;
        let has_own_numbers = shows_own_namespace(&root) == Ok(true);
        let pids = self.candidates(&root, &targets, has_own_numbers)?;
        let start = || (Walker::new(&targets, has_own_numbers), HolderScan::default());
        let shares = parallel::over(Work::Descriptors, &pids, start, |(walker, scan), pid| {
            self.context.check_holder(walker, &root, pid, scan);
        });
        let mut all = HolderScan { unreadable: hidden(&root), ..HolderScan::default() };
        for (_, share) in shares {
            all.holders.extend(share.holders);
            add(&mut all.unreadable, share.unreadable);
            all.unread.extend(share.unread);
        }
        all.holders.sort_unstable_by_key(|holder| holder.process.pid);
        all.unread.sort_unstable_by_key(|process| process.pid);
        all.unread.truncate(HolderScan::NAMED);
        Ok(all)
    }
}

impl DriverView for LinuxHost {
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        let Context { roots, drivers, .. } = &*self.context;
        driver::devices(&roots.proc, &roots.sys, drivers)
    }

    fn sleeping_devices(&self) -> Option<Vec<DeviceId>> {
        driver::sleeping(&self.context.roots.sys, &self.context.drivers)
    }

    fn host_memory(&self, node: Option<u32>) -> Result<HostMemory> {
        let Context { roots, .. } = &*self.context;
        meminfo::host_memory(&roots.proc, &roots.sys, node)
    }

    /// Reads `/dev/kmsg`, and so the messages of this boot that its buffer still has. Earlier ones
    /// in the journal are not read, because that requires another program.
    fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        let booted = self.context.booted_at().map_err(|absent| {
            Error::new(absent, "read the kernel log").with_source("the time of boot is unknown")
        });
        let Context { roots, drivers, .. } = &*self.context;
        kernel_log::driver_messages(&roots.dev, booted?, drivers)
    }
}

/// Counts the processes that `hidepid` hides from the list. Their number is unknown, but the first
/// process of a namespace lives as long as the namespace: a list without it lacks at least one.
fn hidden(root: &ProcRoot) -> Unreadable {
    let mut unreadable = Unreadable::default();
    // If the type of `/proc` is unknown, it may be the real one, and the list incomplete.
    if root.is_real_proc() != Ok(false) && first(root) == Err(Errno::NOENT) {
        unreadable.count(Absent::NotPermitted);
    }
    unreadable
}

fn first(root: &ProcRoot) -> rustix::io::Result<ProcessKey> {
    root.process(FIRST).and_then(|dir| process::read_key(&dir))
}

fn add(sum: &mut Unreadable, more: Unreadable) {
    for (reason, count) in more.0 {
        sum.add(reason, count);
    }
}
