//! What makes a job keep its share of each device's memory.
//!
//! How large a device is, and so what part of it a share is, is known once devices are granted.

use crate::grant::Grant;
use gpu_core::{Bytes, DeviceState, Share, Snapshot};
use gpu_memory_advice::environment::{Advice, Bound, MPS_PIPES, Used};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// The beginning of the names of MPS's programs, as far as the kernel keeps it.
const MPS: &str = "nvidia-cuda-mps";

/// What is known of a program that is to keep a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimit {
    /// What of the share is left to the CUDA context and to libraries.
    pub context: Bytes,
    /// The frameworks that the program uses.
    pub used: Vec<Used>,
    /// What the program's environment has of
    /// [`READ`](gpu_memory_advice::environment::READ).
    pub inherited: BTreeMap<String, String>,
}

impl MemoryLimit {
    /// Returns what is to be done for the program to keep its share; `None` where it has whole
    /// devices, or a share that is no less.
    pub fn advice(&self, grant: &Grant) -> Option<Advice> {
        let Share::Memory(limit) = grant.entry.claim.share else { return None };
        let devices: Vec<Option<&DeviceState>> =
            grant.entry.devices.iter().map(|uuid| grant.scene.find(uuid)).collect();
        let total = |device: &Option<&DeviceState>| device.as_ref()?.memory_total().ok();
        let totals: Option<Vec<Bytes>> = devices.iter().map(total).collect();
        // Its server starts with its first client, so who is told where to find one has one.
        let is_served = self.inherited.contains_key(MPS_PIPES)
            || devices.iter().flatten().any(|device| serves(&grant.scene.snapshot, device));
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

/// Returns whether an MPS server is among those that are listed with the device.
pub fn serves(look: &Snapshot, device: &DeviceState) -> bool {
    let listed = device.processes.iter().flatten();
    let mut listed = listed.filter_map(|process| look.process(process.pid).ok());
    listed.any(|process| process.name.starts_with(MPS))
}

/// Returns the variables of an advice as a program is given them.
pub fn variables(advice: &Advice) -> impl Iterator<Item = (OsString, OsString)> {
    advice.variables.iter().map(|variable| (variable.name.into(), variable.value.as_str().into()))
}
