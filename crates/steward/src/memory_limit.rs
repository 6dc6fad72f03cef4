//! Settings that keep a job within its share of each device's memory.
//!
//! The size of a device, and with it the share's fraction of the device, is known only once devices
//! are granted.

use crate::grant::Grant;
use gpu_core::{Bytes, DeviceState, Share, Snapshot, is_mps_program};
use gpu_memory_advice::environment::{Advice, Bound, MPS_PIPES, Used};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// The data about a program that its memory limit depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The part of the share that is reserved for the CUDA context and libraries.
    pub context: Bytes,
    /// The frameworks of the program.
    pub used: Vec<Used>,
    /// The variables of [`READ`](gpu_memory_advice::environment::READ) in the program's
    /// environment.
    pub inherited: BTreeMap<String, String>,
}

impl MemoryLimit {
    /// Returns the settings that keep the program within its share; `None` if it has whole devices,
    /// or if the share is the whole device.
    pub fn advice(&self, grant: &Grant) -> Option<Advice> {
        let Share::Memory(limit) = grant.entry.claim.share else { return None };
        let devices: Vec<Option<&DeviceState>> =
            grant.entry.devices.iter().map(|uuid| grant.context.find(uuid)).collect();
        let total = |device: &Option<&DeviceState>| device.as_ref()?.memory_total().ok();
        let totals: Option<Vec<Bytes>> = devices.iter().map(total).collect();
        // The server starts with its first client, so the variable alone implies a server.
        let is_served = self.inherited.contains_key(MPS_PIPES)
            || devices.iter().flatten().any(|device| serves(&grant.context.snapshot, device));
        let inherited = |name: &str| self.inherited.get(name).cloned();
        let bound = Bound {
            limit,
            context: self.context,
            totals: &totals.unwrap_or_default(),
            mps: is_served.then_some(devices.len()),
            inherited: &inherited,
        };
        (!bound.is_whole()).then(|| bound.advice(&self.used))
    }
}

/// Returns whether the driver lists an MPS server on the device.
pub fn serves(snapshot: &Snapshot, device: &DeviceState) -> bool {
    let listed = device.processes.iter().flatten();
    let mut listed = listed.filter_map(|process| snapshot.process(process.pid).ok());
    listed.any(|process| is_mps_program(&process.name))
}

/// Returns the variables of an advice in the form for a program.
pub fn variables(advice: &Advice) -> impl Iterator<Item = (OsString, OsString)> {
    advice.variables.iter().map(|variable| (variable.name.into(), variable.value.as_str().into()))
}
