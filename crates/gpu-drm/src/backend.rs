//! The devices: `GpuBackend`.

use crate::deadline::{now, start};
use crate::differences::Differences;
use crate::{
    Card, CardDriver, KfdNode, KfdProcess, KfdTopology, Root, Tree, cards, details, links,
    processes, product_names, topology,
};
use gpu_core::visible::intel::LEVEL_ZERO;
use gpu_core::visible::rocm::ROCM;
use gpu_core::visible::{UNLISTED, Visibility};
use gpu_core::{
    Absent, ActToken, Bytes, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess,
    DeviceProcessKind, DeviceSample, DeviceState, DeviceUuid, Driver, Error, ErrorKind, Fault,
    GpuBackend, Groups, Inventory, Origin, Partition, PciBusId, PidNamespace, Reading, Result,
    Topology, ask,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The GPUs of AMD and Intel of one machine: those of KFD in its order, in which programs of ROCm
/// count them, then the others by PCI address.
///
/// It lists no processes: the search for holders of the device files does, with the `fdinfo` of each.
#[derive(Clone)]
pub struct Drm {
    tree: Arc<dyn Tree>,
    origin: Origin,
    /// How long a snapshot may take; `None`: the tree always answers.
    deadline: Option<Duration>,
    /// What KFD had when the snapshot began that this value takes.
    snapshot: Option<Arc<Kfd>>,
    /// The cards that are being read, by index.
    silent: Arc<Mutex<BTreeSet<u32>>>,
    /// The devices as last listed.
    known: Arc<Mutex<Vec<Device>>>,
    differences: Arc<Differences>,
    /// Writes `1` into a `reset` file; `None` if the devices of the machine cannot be reset.
    write: Option<Arc<Write>>,
}

/// Writes `1` into the file at a path.
type Write = dyn Fn(&str) -> Reading<()> + Send + Sync;

/// Stands for the list of all cards among the indexes of those that are being read.
const ALL: u32 = u32::MAX;

/// What KFD has; `None` without it.
struct Kfd {
    topology: Option<KfdTopology>,
    /// `None` also if their PIDs are of another namespace than those of `/proc`.
    processes: Option<Vec<KfdProcess>>,
}

impl Kfd {
    fn read(tree: &dyn Tree) -> Self {
        let topology = topology(tree).ok();
        let has_processes = topology.is_some() && shows_initial_pids(tree);
        Kfd { processes: has_processes.then(|| processes(tree).ok()).flatten(), topology }
    }
}

/// A card, and what does not change while it works.
#[derive(Clone)]
struct Device {
    card: Card,
    info: DeviceInfo,
    is_integrated: bool,
}

impl Drm {
    /// Returns the GPUs of a machine, which cannot be reset.
    pub fn new(tree: Arc<dyn Tree>, origin: Origin) -> Self {
        let (known, differences) = (Arc::default(), Arc::default());
        Drm {
            tree,
            origin,
            deadline: None,
            snapshot: None,
            silent: Arc::default(),
            known,
            differences,
            write: None,
        }
    }

    /// Returns the GPUs of this machine; `root` has its files.
    pub fn live(root: Arc<Root>) -> Self {
        let tree: Arc<dyn Tree> = root.clone();
        Drm::new(tree, Origin::Live).resettable(Arc::new(move |path| root.write(path, b"1")))
    }

    /// Returns these GPUs with a function that writes `1` into the file `reset` at a path.
    #[must_use]
    pub fn resettable(self, write: Arc<Write>) -> Self {
        Drm { write: Some(write), ..self }
    }

    /// Limits the time of a snapshot: a card that does not answer until then is reported as such.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Drm { deadline: Some(deadline), ..self }
    }

    /// Returns the indexes of the cards that are being read.
    fn silent(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Vec<Device>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what KFD has: that of the snapshot, or of now.
    fn kfd(&self) -> Arc<Kfd> {
        self.snapshot.clone().unwrap_or_else(|| Arc::new(Kfd::read(&*self.tree)))
    }

    fn list(&self) -> Result<Vec<Device>> {
        let cards = match cards(&*self.tree) {
            // A machine without DRM.
            Err(Absent::NotSupported) => Vec::new(),
            cards => {
                cards.map_err(|reason| Error::new(reason, "list the cards in /sys/class/drm"))?
            }
        };
        let kfd = self.kfd();
        let kfd = kfd.topology.as_ref();
        let cards = in_order(cards, kfd);
        let known = self.known().clone();
        if known.iter().map(|device| &device.card).eq(&cards) {
            return Ok(known);
        }
        // Without the lock, because a card may never answer.
        let names = self.names(&cards);
        let device = |(index, (card, name)): (u32, (Card, _))| Device {
            is_integrated: card.is_integrated(&*self.tree),
            info: DeviceInfo {
                visibility: visibility(&card, kfd),
                ..info(&*self.tree, &card, index, name)
            },
            card,
        };
        let devices: Vec<Device> = (0..).zip(cards.into_iter().zip(names)).map(device).collect();
        self.known().clone_from(&devices);
        Ok(devices)
    }

    /// Returns the product names, for a copied tree without lists by those of this machine. A card
    /// that no list has is named by its PCI IDs.
    fn names(&self, cards: &[Card]) -> Vec<Reading<String>> {
        let tree = &*self.tree;
        let mut names = product_names(tree, tree, cards);
        if names.iter().any(Result::is_err)
            && matches!(self.origin, Origin::Copied(_))
            && let Ok(own) = Root::open(Path::new("/"))
        {
            names = product_names(tree, &own, cards);
        }
        let ids = |card: &Card| {
            card.ids.device.map(|(vendor, device)| format!("GPU {vendor:04x}:{device:04x}"))
        };
        names.into_iter().zip(cards).map(|(name, card)| name.or_else(|_| ids(card))).collect()
    }

    fn find(&self, id: &DeviceId) -> Result<Device> {
        let is_it = |device: &&Device| device.info.id.same_device(id);
        let known = self.known().iter().find(is_it).cloned();
        let gone = || Error::new(ErrorKind::Invalid, format!("find the card of {id}"));
        match known {
            Some(known) => Ok(known),
            None => self.list()?.iter().find(is_it).cloned().ok_or_else(gone),
        }
    }
}

fn in_order(mut cards: Vec<Card>, kfd: Option<&KfdTopology>) -> Vec<Card> {
    let node = |card: &Card| {
        let node = kfd.and_then(|kfd| of_chip(kfd, Ok(card.bus)).first().map(|node| node.number));
        node.unwrap_or(u32::MAX)
    };
    // The sort is stable.
    cards.sort_by_key(node);
    cards
}

/// Returns how programs see a card. ROCm has no card without a node of KFD.
fn visibility(card: &Card, kfd: Option<&KfdTopology>) -> Visibility {
    match card.driver {
        CardDriver::I915 | CardDriver::Xe => LEVEL_ZERO,
        CardDriver::Amdgpu if kfd.is_some_and(|kfd| !of_chip(kfd, Ok(card.bus)).is_empty()) => ROCM,
        CardDriver::Amdgpu | CardDriver::Radeon => UNLISTED,
    }
}

fn info(tree: &dyn Tree, card: &Card, index: u32, name: Reading<String>) -> DeviceInfo {
    let id = DeviceId {
        uuid: details::unique_id(tree, card).map(|id| DeviceUuid(format!("GPU-{id:016x}"))),
        bus: Ok(card.bus),
        node: Err(Absent::NotSupported),
        index,
    };
    let mode = tree.text(&format!("{}/current_compute_partition", card.dir));
    DeviceInfo {
        name,
        persistence: Err(Absent::NotSupported),
        display_active: Err(Absent::NotSupported),
        partitioned: mode.map(|mode| mode != "SPX"),
        pid_namespace: PidNamespace::Caller,
        ..DeviceInfo::unknown(id)
    }
}

impl GpuBackend for Drm {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    /// The drivers are parts of the kernel, so their version is the kernel's.
    fn driver(&self) -> Result<Driver> {
        if self.list()?.is_empty() {
            let error = Error::new(ErrorKind::Unsupported, "find a GPU of AMD or Intel");
            return Err(error.with_source("no card below /sys/class/drm has one of their drivers"));
        }
        let version = self.tree.text("proc/sys/kernel/osrelease");
        Ok(Driver { version, cuda: Err(Absent::NotSupported) })
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(self.list()?.into_iter().map(|device| device.info).collect())
    }

    fn sample(&self, id: &DeviceId) -> Result<DeviceSample> {
        let device = self.find(id)?;
        let sample = details::sample(&*self.tree, &device.card, device.is_integrated);
        // The counters of a copy do not move.
        Ok(match self.origin {
            Origin::Copied(_) => sample,
            _ => self.differences.complete(&*self.tree, &device.card, sample),
        })
    }

    /// Returns the processes that KFD knows, also those of other users. Without it, only the search
    /// for holders finds processes.
    ///
    /// # Errors
    /// `NotRequested` without KFD.
    fn processes(&self, id: &DeviceId) -> Result<Vec<DeviceProcess>> {
        let kfd = self.kfd();
        let nodes = kfd.topology.as_ref().map(|kfd| of_chip(kfd, id.bus)).unwrap_or_default();
        let Some(processes) = kfd.processes.as_ref().filter(|_| !nodes.is_empty()) else {
            let what = "list processes without a search for holders";
            return Err(Error::new(ErrorKind::NotRequested, what));
        };
        let is_divided = nodes.len() > 1;
        let on = |node: &&KfdNode| {
            let gpu_id = node.gpu_id.ok();
            let partition = node.partition.ok().filter(|_| is_divided);
            let of = move |process: &KfdProcess| listed(process, gpu_id?, partition);
            processes.iter().filter_map(of).collect::<Vec<_>>()
        };
        Ok(nodes.iter().flat_map(on).collect())
    }

    fn partitions(&self, id: &DeviceId) -> Result<Vec<Partition>> {
        let kfd = self.kfd();
        let nodes = kfd.topology.as_ref().map(|kfd| of_chip(kfd, id.bus)).unwrap_or_default();
        let parts = if nodes.len() < 2 { Vec::new() } else { nodes };
        Ok((0..).zip(parts).map(|(index, node)| partition(index, node)).collect())
    }

    fn details(&self, id: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        let device = self.find(id)?;
        Ok(details::details(&*self.tree, &device.card, groups))
    }

    fn topology(&self) -> Result<Topology> {
        let cards: Vec<Card> = self.list()?.into_iter().map(|device| device.card).collect();
        Ok(links::topology(&*self.tree, &cards, self.kfd().topology.as_ref()))
    }

    fn events(&self, _: Duration) -> Result<Vec<DeviceEvent>> {
        Err(Error::new(ErrorKind::Unsupported, "wait for events of AMD and Intel GPUs"))
    }

    /// Reads the cards at the same time, each in a thread of its own, if there is a deadline: a card
    /// that has left the bus may never answer.
    fn inventory(&self, groups: Groups) -> Inventory {
        let Some(deadline) = self.deadline else {
            let (driver, infos) = listed_devices(self);
            let infos = infos.unwrap_or_default().into_iter();
            let devices = infos.map(|info| DeviceState::ask(self, info, groups)).collect();
            return Inventory { driver, devices };
        };
        let end = now().saturating_add(deadline);
        let this = self.clone();
        let list = move || {
            let this = Drm { snapshot: Some(this.kfd()), ..this };
            let (driver, infos) = listed_devices(&this);
            this.silent().remove(&ALL);
            (this, driver, infos)
        };
        // A read that has not returned is not repeated.
        let is_read = self.silent().insert(ALL);
        let listed = if is_read {
            start(list).wait(end, || "list the cards".to_owned())
        } else {
            Err(Error::new(ErrorKind::TimedOut, "list the cards"))
        };
        let (this, driver, infos) = match listed {
            Ok(listed) => listed,
            Err(error) => return Inventory { driver: Err(error.fault()), devices: Vec::new() },
        };
        let begin = |info: DeviceInfo| {
            let (this, asked) = (this.clone(), info.clone());
            let is_read = self.silent().insert(info.id.index);
            let read = move || {
                let state = DeviceState::ask(&this, asked, groups);
                this.silent().remove(&state.info.id.index);
                state
            };
            (info, is_read.then(|| start(read)))
        };
        let pending: Vec<_> = infos.unwrap_or_default().into_iter().map(begin).collect();
        let devices = pending.into_iter().map(|(info, state)| {
            let what = || format!("read the files of {}", info.id);
            let late = || Err(Error::new(ErrorKind::TimedOut, what()));
            let state = state.map_or_else(late, |state| state.wait(end, what));
            state.unwrap_or_else(|error| DeviceState::unanswered(info, groups, &error.fault()))
        });
        Inventory { driver, devices: devices.collect() }
    }

    /// Has the kernel reset the PCI device, with its first method. The files of debugfs, which reset
    /// through the driver, are not used.
    ///
    /// # Errors
    /// `Unsupported` for a copied machine and for a card for which the kernel has no method,
    /// `NotPermitted` without root; or the kernel's reason.
    fn reset(&self, id: &DeviceId, _: &ActToken) -> Result<()> {
        let what = || format!("reset {id}");
        let unsupported = |why| Error::new(ErrorKind::Unsupported, what()).with_source(why);
        let write = self.write.as_ref().ok_or_else(|| unsupported("it is not of this machine"))?;
        // The numbers of cards can have changed since they were listed.
        self.list()?;
        let dir = self.find(id)?.card.dir;
        let methods = self.tree.text(&format!("{dir}/reset_method"));
        if methods == Err(Absent::NotSupported) {
            return Err(unsupported("the kernel has no method to reset it (reset_method)"));
        }
        methods.map_err(|reason| Error::new(reason, what()))?;
        write(&format!("{dir}/reset")).map_err(|reason| Error::new(reason, what()))
    }
}

/// Returns whether the PIDs of `/proc` are those of the initial PID namespace, as KFD's are: always
/// for a copied tree, which has no `self`. `PROC_PID_INIT_INO` of the kernel is 0xEFFFFFFC.
fn shows_initial_pids(tree: &dyn Tree) -> bool {
    tree.target("proc/self/ns/pid").is_ok_and(|namespace| namespace == "pid:[4026531836]")
        || tree.target("proc/self").is_err()
}

/// Returns the entry of a process on a GPU or partition; `None` if it uses nothing there.
fn listed(process: &KfdProcess, gpu_id: u32, partition: Option<u32>) -> Option<DeviceProcess> {
    let memory = process.memory(gpu_id);
    let mut queues = process.queues.iter().flatten();
    let computes = queues.any(|queue| queue.gpu_id == Ok(gpu_id));
    (computes || memory != Ok(Bytes(0))).then_some(DeviceProcess {
        pid: process.pid,
        kind: DeviceProcessKind::Compute,
        memory,
        utilization: Err(Absent::NotSupported),
        name: Err(Absent::NotSupported),
        gpu_instance: partition,
        compute_instance: None,
    })
}

/// Returns the driver and the devices, or why they are not known.
fn listed_devices(drm: &Drm) -> (Result<Driver, Fault>, Result<Vec<DeviceInfo>, Fault>) {
    (ask(|| drm.driver()), ask(|| drm.devices()))
}

/// Returns the nodes of a GPU: more than one if it is partitioned.
fn of_chip(kfd: &KfdTopology, bus: Reading<PciBusId>) -> Vec<&KfdNode> {
    kfd.nodes.iter().filter(|node| node.is_gpu && bus.is_ok() && node.bus == bus).collect()
}

/// Returns a partition as a device. AMD's has no UUID of its own in the kernel: all share that of
/// the chip.
fn partition(index: u32, node: &KfdNode) -> Partition {
    Partition {
        index,
        uuid: Err(Absent::NotSupported),
        profile: Err(Absent::NotSupported),
        gpu_instance: node.partition.ok(),
        compute_instance: None,
        memory: node.memory(),
    }
}
