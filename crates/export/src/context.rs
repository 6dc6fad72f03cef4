//! A snapshot with the data derived from it, for all families.

use crate::jobs::JobsOf;
use crate::labels::Labels;
use gpu_claim::Ledger;
use gpu_core::{DeviceState, LeaseEntry, LeaseId, Snapshot};
use gpu_reaper::{Diagnosis, Usage};
use gpu_steward::LeaseUser;
use std::collections::BTreeMap;

/// A snapshot with the data derived from it.
pub(crate) struct Context<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) diagnosis: &'a Diagnosis,
    pub(crate) ledger: Option<&'a Ledger>,
    /// The leases that were not taken out of others.
    pub(crate) top: Vec<LeaseEntry>,
    /// The processes that use devices under leases, by lease and owner.
    pub(crate) used: BTreeMap<(&'a LeaseId, u32), Vec<LeaseUser>>,
    pub(crate) usage: Usage,
    pub(crate) jobs: Option<JobsOf>,
    /// The labels of each device.
    pub(crate) labels: Vec<Labels>,
    /// The names of users.
    pub(crate) names: BTreeMap<u32, String>,
}

impl<'a> Context<'a> {
    /// Returns the devices with their labels.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&'a DeviceState, &Labels)> {
        self.snapshot.devices.iter().zip(&self.labels)
    }

    /// Returns the name of the user of a process or a lease; an unknown UID has none.
    pub(crate) fn user(&self, uid: Option<u32>) -> &str {
        uid.and_then(|uid| self.names.get(&uid)).map_or("(unknown)", String::as_str)
    }
}
