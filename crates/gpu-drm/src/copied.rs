//! The devices and processes of a copied machine, from its files below a directory.

use crate::deadline::{now, start};
use crate::{Clients, Drm, Root, Tree, cards, clients, driver};
use gpu_core::{
    Absent, Access, DeviceFile, DeviceFiles, DeviceInfo, DeviceKey, DriverMessage, DriverView,
    Error, ErrorKind, FileRole, HeldFile, Holder, HolderScan, LeaseId, Origin, Pid, ProcessDetail,
    ProcessFault, ProcessHandle, ProcessInfo, ProcessKey, ProcessList, ProcessTable, Reading,
    Result, StartTime, Unreadable,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The devices and processes of the files below a directory: its `sys` and its `proc`. Nothing can
/// be ended or reset there.
#[derive(Clone)]
pub struct CopiedMachine {
    tree: Arc<dyn Tree>,
    devices: Drm,
    origin: Origin,
    deadline: Duration,
    /// Something was not read in time.
    late: Arc<AtomicBool>,
}

/// The longest file of a process that is read.
const MAX_TEXT: usize = 64 << 10;

/// The longest command line that is kept, as of a live process.
const MAX_COMMAND: usize = 4 << 10;

impl CopiedMachine {
    /// Opens the machine below a directory. Each search of it may take until `deadline`, because it
    /// may be on a file system that never answers.
    ///
    /// # Errors
    /// When it is not a directory that the caller can open.
    pub fn open(root: &Path, deadline: Duration) -> Result<Self> {
        let what = || format!("open the copied tree '{}'", root.display());
        let tree = Root::open(root)
            .map_err(|error| Error::new(ErrorKind::Invalid, what()).with_source(error))?;
        let origin = Origin::Copied(root.display().to_string());
        let tree: Arc<dyn Tree> = Arc::new(tree);
        let devices = Drm::new(Arc::clone(&tree), origin.clone()).with_deadline(deadline);
        Ok(CopiedMachine { tree, devices, origin, deadline, late: Arc::default() })
    }

    /// Reads the tree in time; after the first failure to do so, not at all.
    fn in_time<T: Send + 'static>(
        &self,
        what: &str,
        read: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let this = self.clone();
        let end = if self.late.load(Relaxed) { Duration::ZERO } else { now() + self.deadline };
        let answer = start(move || read(&this)).wait(end, || what.to_owned());
        self.late.fetch_or(answer.is_err(), Relaxed);
        answer?
    }

    /// Returns its devices.
    pub fn devices(&self) -> Drm {
        self.devices.clone()
    }

    fn tree(&self) -> &dyn Tree {
        &*self.tree
    }

    fn clients(&self) -> Result<Clients> {
        let unlisted = |reason| match reason {
            Absent::NotSupported => {
                Error::new(Absent::NotRecorded, "find 'proc' in the copied tree; copy /proc too")
            }
            reason => Error::new(reason, "list the processes of the copied tree"),
        };
        clients(self.tree()).map_err(unlisted)
    }

    fn read_process(&self, pid: Pid) -> Result<ProcessInfo> {
        let status = self.tree().read(&format!("proc/{pid}/status"), MAX_TEXT);
        let name = self.tree().text(&format!("proc/{pid}/comm"));
        let Ok(status) = status.or(name.as_ref().map(|_| Vec::new()).map_err(|reason| *reason))
        else {
            return Err(Error::new(ProcessFault::Gone, format!("inspect process {pid}")));
        };
        let status = String::from_utf8_lossy(&status);
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = |name: &str, at: usize| -> Reading<u32> {
            let value = field(name).ok_or(Absent::NotRecorded)?;
            value
                .split_whitespace()
                .nth(at)
                .and_then(|word| word.parse().ok())
                .ok_or(Absent::Implausible)
        };
        let name = name.or_else(|_| {
            field("Name").map(|name| name.trim().to_owned()).ok_or(Absent::NotRecorded)
        });
        let words = self.tree().read(&format!("proc/{pid}/cmdline"), MAX_COMMAND);
        let words = words.map_err(|_| Absent::NotRecorded).map(|words| {
            let words = String::from_utf8_lossy(&words).into_owned();
            words.trim_end_matches('\0').split('\0').map(str::to_owned).collect()
        });
        Ok(ProcessInfo {
            key: self.key(pid),
            command_line: words,
            uid: number("Uid", 1),
            parent: number("PPid", 0).map(Pid),
            ..ProcessInfo::from_name(pid, name.unwrap_or_default())
        })
    }

    fn key(&self, pid: Pid) -> ProcessKey {
        let stat = self.tree().text(&format!("proc/{pid}/stat")).unwrap_or_default();
        // The name, in parentheses, may contain anything.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let start = after.split_whitespace().nth(19).and_then(|ticks| ticks.parse().ok());
        // In a copy, the PID alone identifies the process.
        ProcessKey { pid, start: Some(StartTime(start.unwrap_or(0))) }
    }
}

impl ProcessTable for CopiedMachine {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn hostname(&self) -> Reading<String> {
        let read = |this: &Self| Ok(this.tree().text("proc/sys/kernel/hostname"));
        let read = self.in_time("read the name of the copied machine", read);
        read.unwrap_or_else(|error| Err(error.kind().absent()))
    }

    fn sees_host_pids(&self) -> Reading<bool> {
        Ok(true)
    }

    fn is_root(&self) -> Reading<bool> {
        Err(Absent::NotRecorded)
    }

    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        self.in_time("read a process of the copied tree", move |this| this.read_process(pid))
    }

    fn processes_of(&self, pids: &[Pid], _: ProcessDetail) -> Vec<Result<ProcessInfo>> {
        let asked = pids.to_vec();
        let read = move |this: &Self| Ok(asked.iter().map(|pid| this.read_process(*pid)).collect());
        let answers = self.in_time("read the processes of the copied tree", read);
        let late = |error: Error| {
            let again = || Error::new(error.kind(), "read a process of the copied tree");
            pids.iter().map(|_| Err(again())).collect()
        };
        answers.unwrap_or_else(late)
    }

    fn processes(&self) -> Result<ProcessList> {
        self.in_time("list the processes of the copied tree", |this| {
            let clients = this.clients()?;
            let processes = clients.processes.keys().filter_map(|pid| this.read_process(*pid).ok());
            Ok(ProcessList { processes: processes.collect(), unreadable: unreadable(&clients) })
        })
    }

    fn own_ancestry(&self) -> Result<Vec<ProcessKey>> {
        Ok(Vec::new())
    }

    fn inherited_leases(&self) -> Vec<(LeaseId, u32)> {
        Vec::new()
    }

    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        Err(Error::new(ErrorKind::Unsupported, format!("open process {pid} of a {}", self.origin)))
    }
}

/// Counts the processes whose clients are not all known.
fn unreadable(clients: &Clients) -> Unreadable {
    let mut unreadable = Unreadable::default();
    clients.unreadable.iter().for_each(|_| unreadable.count(Absent::NotPermitted));
    unreadable
}

impl DeviceFiles for CopiedMachine {
    /// Returns the nodes of the GPUs, with the names that they have in `/dev/dri`.
    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        let read = |this: &Self| Ok(cards(this.tree()).unwrap_or_default());
        let cards = self.in_time("list the cards of the copied tree", read)?;
        let files = cards.iter().flat_map(|card| {
            card.paths().map(|path| DeviceFile {
                path: path.into(),
                role: FileRole::Compute,
                device: Some(DeviceKey::Pci(card.bus)),
                id: Err(Absent::NotRecorded),
            })
        });
        Ok(files.collect())
    }

    /// Returns the processes with clients of the devices. A copy has no descriptors that say which
    /// node a client has opened, so the first node of its device stands for it.
    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        let files = files.to_vec();
        self.in_time("search the processes of the copied tree", move |this| this.scan(&files))
    }
}

impl CopiedMachine {
    fn scan(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        let clients = self.clients()?;
        let cards = cards(self.tree()).unwrap_or_default();
        let mut held: BTreeMap<Pid, Vec<HeldFile>> = BTreeMap::new();
        for card in &cards {
            let key = Some(DeviceKey::Pci(card.bus));
            let Some(file) = files.iter().find(|file| file.device == key) else { continue };
            let integrated = card.is_integrated(self.tree());
            for one in clients.on(card.bus) {
                let client = driver::client(&one.client, integrated, false);
                for pid in &one.holders {
                    let held = held.entry(*pid).or_default();
                    let at = held.iter().position(|held| held.device == key).unwrap_or_else(|| {
                        held.push(HeldFile::of(file, Access::OPEN, Vec::new()));
                        held.len() - 1
                    });
                    held[at].clients.push(client);
                }
            }
        }
        let holders = held.into_iter().map(|(pid, mut held)| {
            held.iter_mut().for_each(|file| file.memory = driver::memory_use(&file.clients));
            Holder { process: self.key(pid), held, through_thread: None }
        });
        Ok(HolderScan {
            holders: holders.collect(),
            unreadable: unreadable(&clients),
            unread: Vec::new(),
        })
    }
}

impl DriverView for CopiedMachine {
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        Err(Error::new(Absent::NotFound, "read the kernel log of a copied tree"))
    }
}
