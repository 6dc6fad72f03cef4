//! The processes that NVML lists on a device.

use crate::drift::Drift;
use crate::machine::{Device, Holding};
use crate::process_table::Living;
use crate::state::State;
use gpu_core::{Absent, DeviceProcess, DeviceProcessKind, Percent, Reading};
use std::collections::BTreeMap;

impl State {
    /// Returns the processes that NVML lists on a device: with host PIDs for any viewer, without
    /// names, and once per instance.
    ///
    /// Per-process utilisation is reported for all processes of a device or none, and never in MIG
    /// mode.
    pub(crate) fn listed(&self, device: &Device) -> Vec<DeviceProcess> {
        let mut listed = BTreeMap::new();
        let mut unreported = (device.info.partitioned == Ok(true)).then_some(Absent::NotSupported);
        let drift = self.drift(device);
        for (living, holding) in self.holdings_on(device.info.id.index) {
            let Some(entry) = entry(living, holding, drift) else { continue };
            unreported = unreported.or(entry.utilization.err());
            let key = (entry.pid, entry.gpu_instance, entry.compute_instance);
            match listed.get_mut(&key) {
                Some(known) => merge(known, &entry),
                None => {
                    listed.insert(key, entry);
                }
            }
        }
        let mut listed: Vec<DeviceProcess> = listed.into_values().collect();
        if let Some(reason) = unreported {
            listed.iter_mut().for_each(|process| process.utilization = Err(reason));
        }
        listed
    }
}

fn entry(living: &Living, holding: &Holding, drift: Drift) -> Option<DeviceProcess> {
    let load = drift.part(u64::from(holding.load));
    let load = Percent::new(load).ok_or(Absent::Implausible);
    Some(DeviceProcess {
        pid: living.process.pid(),
        kind: holding.listed?,
        memory: holding.memory_untold.map_or(Ok(holding.memory), Err),
        utilization: holding.load_untold.map_or(load, Err),
        name: Err(Absent::NotSupported),
        gpu_instance: holding.gpu_instance,
        compute_instance: holding.compute_instance,
    })
}

/// Merges another use of the device into a listed process.
fn merge(known: &mut DeviceProcess, more: &DeviceProcess) {
    known.kind = both(known.kind, more.kind);
    known.memory = sum(known.memory, more.memory, |a, b| a + b);
    known.utilization = sum(known.utilization, more.utilization, |a, b| {
        Percent::new((u64::from(a.get()) + u64::from(b.get())).min(100)).unwrap_or(a)
    });
}

fn sum<T>(a: Reading<T>, b: Reading<T>, add: impl Fn(T, T) -> T) -> Reading<T> {
    Ok(add(a?, b?))
}

/// Returns the kind of a process that uses a device in two ways: graphics combined with any other
/// kind is both.
fn both(a: DeviceProcessKind, b: DeviceProcessKind) -> DeviceProcessKind {
    use DeviceProcessKind::{Compute, ComputeAndGraphics, Graphics, Mps, Unknown};
    match (a, b) {
        _ if a == b => a,
        (Unknown, known) | (known, Unknown) => known,
        (Graphics | ComputeAndGraphics, _) | (_, Graphics | ComputeAndGraphics) => {
            ComputeAndGraphics
        }
        (Compute | Mps, Compute | Mps) => Mps,
    }
}
