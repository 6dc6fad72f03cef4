//! One of many processes that claim devices of the same simulated machine, hold them briefly and
//! release them, until the stop file exists.
//!
//! It logs its actions as JSON lines to a file that all contenders share.
//!
//! Arguments: the directory of leases, the machine, the log, the stop file, a unique seed, and and
//! `queue`, or `meet` for claims that mostly do not wait and use a stale snapshot, so that their
//! attempts collide.

use gpu_claim::{Chosen, ClaimRequest, TakeError, Wait, take};
use gpu_core::{
    Bytes, Claim, Clock, DeviceUuid, EntryKind, GpuBackend, LeaseEntry, LeaseGuard, LeaseId,
    LeaseStore, Pid, ProcessTable, QueuePlace, Result, SafeGpuGuard, SafeGpuHolder, Share,
    Timestamp, Waiter,
};
use gpu_host::{FileLeaseStore, LeaseLocation, LinuxHost, Roots, SafeGpuFiles, SystemClock};
use gpu_sim::Simulation;
use gpuws_tests::Chance;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The devices with their memory.
type Devices = Vec<(DeviceUuid, Bytes)>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, machine, log, stop, seed, mode] = &arguments[..] else {
        panic!("expected six arguments")
    };
    let log = File::options().append(true).open(log).expect("the log exists");
    let locks = LoggedLocks {
        locks: FileLeaseStore::new(
            LeaseLocation::dir(dir),
            SafeGpuFiles::below(Path::new(dir)),
            roots(),
        ),
        log: Log { file: Arc::new(log), process: seed.clone() },
        meet: mode == "meet",
    };
    let simulation = Simulation::named(Path::new(machine)).expect("the machine can be read");
    let host = LinuxHost::new(roots());
    let own = host.process(Pid(std::process::id())).expect("the own process is visible");
    let mut chance = Chance::new(seed.parse().expect("a seed is a number"));
    let stop = PathBuf::from(stop);
    let clock = SystemClock::new();
    while !stop.exists() {
        let devices = list_devices(&simulation).expect("the machine responds");
        // Waiting claims do not collide with each other; the others do.
        let wait = match chance.below(if locks.meet { 2 } else { 10 }) {
            0 => Wait::No,
            1 => Wait::For(Duration::from_millis(200)),
            _ => Wait::Forever,
        };
        let ask = ClaimRequest {
            claim: claim(&mut chance, &devices),
            root: own.key,
            within: None,
            parts_of: Vec::new(),
            command: if wait == Wait::Forever { "waits" } else { "tries" }.to_owned(),
            pace: Duration::from_millis(100),
            wait,
            holds_back_safe_gpu: false,
        };
        let mut observe = || list_devices(&simulation);
        let mut watch = |_: &gpu_claim::Waiting<'_>| {
            if stop.exists() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match take(&locks, &clock, &ask, &mut observe, &choose, &mut watch) {
            Ok(taken) => {
                locks.log.write("hold", &taken.entry);
                clock.sleep(Duration::from_millis(chance.below(20)));
                locks.log.write("drop", &taken.entry);
            }
            Err(TakeError::NotNow(_) | TakeError::TimedOut(_) | TakeError::Stopped) => {}
            Err(TakeError::Never) => panic!("the machine has the requested devices"),
            Err(TakeError::Failed(error)) => panic!("failed to {}", error.fault()),
        }
    }
}

fn roots() -> Roots {
    Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() }
}

fn list_devices(simulation: &Simulation) -> Result<Devices> {
    let devices = GpuBackend::devices(simulation)?;
    let device = |device: gpu_core::DeviceInfo| {
        let total = simulation.sample(&device.id)?.memory.total.unwrap_or_default();
        Ok((device.id.uuid.expect("each device has a UUID"), total))
    };
    devices.into_iter().map(device).collect()
}

/// Returns a claim for one to four devices: whole devices in two thirds of the cases, and sometimes
/// only among some devices.
fn claim(chance: &mut Chance, devices: &Devices) -> Claim {
    let mut claim = Claim::whole(1 + u32::try_from(chance.below(4)).expect("the number is small"));
    if chance.below(3) == 0 {
        let quarters = 1 + chance.below(3);
        claim.share = Share::Memory(Bytes(devices[0].1.0 / 4 * quarters));
    }
    if chance.below(5) == 0 {
        let start = usize::try_from(chance.below(5)).expect("the number is small");
        claim.among = devices[start..start + 4].iter().map(|(uuid, _)| uuid.clone()).collect();
    }
    claim
}

/// Chooses the first devices that suffice, unlike gpu-placement, which spreads claims over the best
/// devices. Here all contenders want the same devices, so that as many attempts as possible
/// collide. The chooser is a port of gpu-claim, and no device may be granted twice with any
/// chooser. The tests of gpu-placement compare its choice with exhaustive search.
fn choose(devices: &Devices, claim: &Claim, others: &[LeaseEntry]) -> Chosen {
    let wanted = |uuid: &DeviceUuid| claim.among.is_empty() || claim.among.contains(uuid);
    let could = devices.iter().filter(|(uuid, _)| wanted(uuid));
    let is_free = |(uuid, total): &&(DeviceUuid, Bytes)| {
        let mut shared = 0;
        for lease in others.iter().filter(|lease| lease.has(uuid)) {
            match (lease.claim.share, claim.share) {
                (Share::Memory(memory), Share::Memory(_)) => shared += memory.0,
                _ => return false,
            }
        }
        match claim.share {
            Share::Whole => true,
            Share::Memory(memory) => shared + memory.0 <= total.0,
        }
    };
    let count = usize::try_from(claim.count).expect("the number is small");
    let uuid = |(uuid, _): &(DeviceUuid, Bytes)| uuid.clone();
    let free: Vec<_> = could.clone().filter(is_free).take(count).map(uuid).collect();
    if free.len() == count {
        Chosen::Devices(free)
    } else if could.clone().count() < count {
        Chosen::Never
    } else {
        Chosen::NotNow { could: could.map(uuid).collect() }
    }
}

/// The log of all contenders; each line is one append to the file.
#[derive(Clone)]
struct Log {
    file: Arc<File>,
    /// The seed, because it is unique, whereas PIDs are reused.
    process: String,
}

impl Log {
    /// Records that the next step draws a ticket.
    fn draw(&self) {
        let line = serde_json::json!({ "event": "draw", "process": self.process });
        (&*self.file).write_all(format!("{line}\n").as_bytes()).expect("the log can be written");
    }

    fn write(&self, event: &str, entry: &LeaseEntry) {
        let memory = match entry.claim.share {
            Share::Whole => None,
            Share::Memory(memory) => Some(memory.0),
        };
        let line = serde_json::json!({
            "event": event,
            "process": self.process,
            "id": entry.id,
            "ticket": entry.ticket,
            "count": entry.claim.count,
            "memory": memory,
            "among": entry.claim.among,
            "devices": entry.devices,
            "waits": entry.command == "waits",
        });
        (&*self.file).write_all(format!("{line}\n").as_bytes()).expect("the log can be written");
    }
}

/// The locks, with a log line for each entry that appears or disappears.
struct LoggedLocks {
    locks: FileLeaseStore,
    log: Log,
    meet: bool,
}

struct Logged {
    held: Option<Box<dyn LeaseGuard>>,
    log: Log,
    kind: EntryKind,
    entry: LeaseEntry,
}

impl Logged {
    fn held(&self) -> &dyn LeaseGuard {
        &**self.held.as_ref().expect("held until the end")
    }
}

impl LeaseGuard for Logged {
    fn confirm(&mut self) -> Result<()> {
        self.held.as_mut().expect("held until the end").confirm()?;
        self.kind = EntryKind::Lease;
        self.log.write("lease", &self.entry);
        Ok(())
    }
    fn inherit(&self, yes: bool) -> Result<()> {
        self.held().inherit(yes)
    }
    fn renew(&self) -> Result<bool> {
        self.held().renew()
    }
    fn leave(mut self: Box<Self>) {
        self.held.take().expect("held until the end").leave();
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let event = match self.kind {
            EntryKind::Attempt => "withdraw",
            EntryKind::Lease => "end",
            EntryKind::Waiter => "leave",
        };
        self.log.write(event, &self.entry);
        self.held = None;
    }
}

impl LeaseStore for LoggedLocks {
    fn entries(&self, kind: EntryKind) -> Result<Vec<LeaseEntry>> {
        self.locks.entries(kind)
    }
    fn queue(&self) -> Result<Vec<QueuePlace>> {
        self.locks.queue()
    }
    fn waiter(&self, place: &QueuePlace) -> Result<Option<Waiter>> {
        self.locks.waiter(place)
    }
    fn publish(&self, kind: EntryKind, entry: &LeaseEntry) -> Result<Box<dyn LeaseGuard>> {
        if self.meet && kind == EntryKind::Attempt {
            // The delay makes the decision stale before the attempt is published.
            SystemClock::new().sleep(Duration::from_millis(2));
        }
        let held = self.locks.publish(kind, entry)?;
        if kind == EntryKind::Waiter {
            self.log.write("queue", entry);
        }
        let log = self.log.clone();
        Ok(Box::new(Logged { held: Some(held), log, kind, entry: entry.clone() }))
    }
    fn owner(&self) -> u32 {
        self.locks.owner()
    }
    fn new_id(&self) -> Result<LeaseId> {
        self.locks.new_id()
    }
    fn ticket(&self) -> Result<u64> {
        self.log.draw();
        self.locks.ticket()
    }
    fn wait(&self, at_most: Duration) -> Result<bool> {
        self.locks.wait(at_most)
    }
    fn wait_for(&self, place: &QueuePlace, at_most: Duration) -> Result<bool> {
        self.locks.wait_for(place, at_most)
    }
    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp> {
        self.locks.last_leased()
    }
    fn hold_back_safe_gpu(&self, patience: Duration) -> Result<Box<dyn SafeGpuGuard>> {
        self.locks.hold_back_safe_gpu(patience)
    }
    fn safe_gpu_holder(&self) -> Option<SafeGpuHolder> {
        self.locks.safe_gpu_holder()
    }
}
