//! The first step of every walk: ask the ports, get plain data.

use crate::absent::Absent;
use crate::backend::GpuBackend;
use crate::clock::Clock;
use crate::details::Groups;
use crate::host::Host;
use crate::id::{Pid, ProcessKey};
use crate::inventory::{Inventory, ask};
use crate::snapshot::{Process, Snapshot};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

/// Looks once at a machine.
///
/// It never fails: what could not be learned is a fault at the place that it spoils, and all else
/// is kept. A machine without a driver still tells who holds its device files.
pub fn observe(backend: &dyn GpuBackend, host: &dyn Host, clock: &dyn Clock) -> Snapshot {
    observe_in_detail(backend, host, clock, Groups::NONE)
}

/// Looks once at a machine, as [`observe`] does, and asks every device for these groups too.
pub fn observe_in_detail(
    backend: &dyn GpuBackend,
    host: &dyn Host,
    clock: &dyn Clock,
    groups: Groups,
) -> Snapshot {
    let taken_at = clock.wall();
    let Inventory { driver, devices } = backend.look(groups);
    let unasked = match devices.is_empty() {
        true => ask(|| host.driver_devices()).unwrap_or_default(),
        false => Vec::new(),
    };
    // Processes come after devices: one that ends in between is then seen as gone, not as held.
    let files = ask(|| host.device_files());
    let scan = files.clone().and_then(|files| ask(|| host.holders(&files)));
    let (holders, unreadable) = match scan {
        Ok(scan) => (Ok(scan.holders), scan.unreadable),
        Err(fault) => (Err(fault), Default::default()),
    };
    let mut snapshot = Snapshot {
        taken_at,
        origin: backend.origin(),
        hostname: host.hostname(),
        driver,
        devices,
        unasked,
        files: files.unwrap_or_default(),
        holders,
        unreadable,
        processes: BTreeMap::new(),
        sees_host_pids: host.sees_host_pids(),
    };
    look_up(host, &mut snapshot, named_pids);
    look_up(host, &mut snapshot, relatives);
    snapshot
}

fn look_up(host: &dyn Host, snapshot: &mut Snapshot, which: fn(&Snapshot) -> BTreeSet<Pid>) {
    let wanted = which(snapshot);
    let holders = snapshot.holders.as_deref().unwrap_or_default();
    let walked: BTreeMap<Pid, ProcessKey> =
        holders.iter().map(|holder| (holder.process.pid, holder.process)).collect();
    for pid in wanted {
        let Entry::Vacant(place) = snapshot.processes.entry(pid) else { continue };
        let mut answer = ask(|| host.process(pid)).map_err(|fault| fault.kind.absent());
        if let (Ok(info), Some(holder)) = (&answer, walked.get(&pid))
            && !info.key.surely_same(holder)
        {
            // The holder has ended since the walk and its number is another's now.
            answer = Err(Absent::NotFound);
        }
        place.insert(Process(answer));
    }
}

/// The processes that a device lists or that hold a file. The driver's numbers are the host's: in
/// a PID namespace of our own they would name strangers.
fn named_pids(snapshot: &Snapshot) -> BTreeSet<Pid> {
    let ours = snapshot.sees_host_pids != Ok(false);
    let listed = snapshot.devices.iter().filter_map(|device| device.processes.as_ref().ok());
    let listed = listed.flatten().filter(|_| ours).map(|process| process.pid);
    listed.chain(snapshot.holders().iter().map(|holder| holder.process.pid)).collect()
}

/// Their parents and the leaders of their groups and sessions: who lacks them is an orphan.
fn relatives(snapshot: &Snapshot) -> BTreeSet<Pid> {
    let known = snapshot.processes.values().filter_map(|process| process.0.as_ref().ok());
    let pids = known.flat_map(|info| [info.parent, info.group, info.session]);
    pids.filter_map(|pid| pid.ok().filter(|pid| pid.0 != 0)).collect()
}
