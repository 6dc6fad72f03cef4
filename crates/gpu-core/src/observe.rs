//! The first step of every walk: ask the ports, get plain data.

use crate::backend::GpuBackend;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Fault, Reach, Result};
use crate::host::Host;
use crate::id::Pid;
use crate::snapshot::{DeviceState, Process, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// How often a question is put again that the machine could not answer *this* time.
const TRIES: usize = 4;

/// Looks once at a machine.
///
/// It never fails: what could not be learned is a fault at the place that it spoils, and all else
/// is kept. A machine without a driver still tells who holds its device files.
pub fn observe(backend: &dyn GpuBackend, host: &dyn Host, clock: &dyn Clock) -> Snapshot {
    let taken_at = clock.wall();
    let mut driver = ask(|| backend.driver());
    let devices = match ask(|| backend.devices()) {
        Ok(infos) => infos
            .into_iter()
            .map(|info| DeviceState {
                sample: ask(|| backend.sample(&info.id)),
                processes: ask(|| backend.processes(&info.id)),
                mig: ask(|| backend.mig_instances(&info.id)).unwrap_or_default(),
                info,
            })
            .collect(),
        Err(fault) => {
            driver = Err(fault);
            Vec::new()
        }
    };
    // Processes come after devices: one that ends in between is then seen as gone, not as held.
    let files = ask(|| host.device_files());
    let scan = files.and_then(|files| Ok((ask(|| host.holders(&files))?, files)));
    let (holders, unreadable, files) = match scan {
        Ok((scan, files)) => (Ok(scan.holders), scan.unreadable, files),
        Err(fault) => (Err(fault), Default::default(), Vec::new()),
    };
    let mut snapshot = Snapshot {
        taken_at,
        origin: backend.origin(),
        hostname: host.hostname(),
        driver,
        devices,
        files,
        holders,
        unreadable,
        processes: BTreeMap::new(),
        sees_host_pids: host.sees_host_pids(),
    };
    snapshot.processes = named_pids(&snapshot)
        .into_iter()
        .map(|pid| (pid, Process(ask(|| host.process(pid)).map_err(|fault| fault.kind.absent()))))
        .collect();
    snapshot
}

fn named_pids(snapshot: &Snapshot) -> BTreeSet<Pid> {
    let listed = snapshot.devices.iter().filter_map(|device| device.processes.as_ref().ok());
    let listed = listed.flatten().map(|process| process.pid);
    listed.chain(snapshot.holders().iter().map(|holder| holder.process.pid)).collect()
}

fn ask<T>(question: impl Fn() -> Result<T>) -> Result<T, Fault> {
    let mut answer = question();
    for _ in 1..TRIES {
        match &answer {
            Err(error) if error.kind().reach() == Reach::Again => answer = question(),
            _ => break,
        }
    }
    answer.map_err(|error| match error.kind() {
        ErrorKind::Again => {
            Error::new(ErrorKind::TimedOut, format!("{error}, {TRIES} times in a row")).fault()
        }
        _ => error.fault(),
    })
}
