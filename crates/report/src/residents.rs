//! The memory of a machine and its residents, for explanations of out-of-memory messages.

use crate::wording;
use gpu_core::{Bytes, Snapshot};
use gpu_memory_advice::explain::{Device, Now, Resident};

/// The longest name of a resident, in characters.
const NAME: usize = 60;

/// Returns the state of the memory in a snapshot. `ghost` returns the memory of the device with an
/// index that no listed process accounts for, if known.
pub fn memory_now(snapshot: &Snapshot, ghost: impl Fn(u32) -> Option<Bytes>) -> Now {
    let devices = snapshot.devices.iter().filter_map(|device| {
        let index = device.id().index;
        let (total, free) = (device.memory_total().ok()?, device.memory_free().ok()?);
        Some(Device { index, total, free, ghost: ghost(index) })
    });
    let residents = snapshot.devices.iter().flat_map(|device| {
        let listed = device.processes.iter().flatten();
        listed.map(move |process| Resident {
            pid: process.pid,
            name: wording::command(snapshot.process(process.pid), None)
                .chars()
                .take(NAME)
                .collect(),
            owner: wording::user(snapshot.process(process.pid)).into_owned(),
            device: device.id().index,
            memory: process.memory.ok(),
        })
    });
    Now { devices: devices.collect(), residents: residents.collect() }
}
