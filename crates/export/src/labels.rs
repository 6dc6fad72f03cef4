//! The identity of a GPU: its labels, and the UUIDs by which leases name it.

use gpu_core::{DeviceId, DeviceState, DeviceUuid};
use std::borrow::Cow;

/// The labels that identify a GPU.
pub(crate) struct Labels {
    index: String,
    uuid: String,
}

impl Labels {
    pub(crate) fn of(id: &DeviceId) -> Self {
        let uuid = id.uuid.as_ref().map(|uuid| uuid.0.clone()).unwrap_or_default();
        Labels { index: id.index.to_string(), uuid }
    }

    pub(crate) fn only(&self) -> [(&'static str, &str); 2] {
        [("gpu", &self.index), ("uuid", &self.uuid)]
    }

    pub(crate) fn and<'a>(
        &'a self,
        name: &'static str,
        value: &'a str,
    ) -> [(&'static str, &'a str); 3] {
        let [index, uuid] = self.only();
        [index, uuid, (name, value)]
    }
}

/// Returns the keys of a device and of its parts.
pub(crate) fn names_of(device: &DeviceState) -> impl Iterator<Item = Cow<'_, DeviceUuid>> {
    let parts = device.partitions.iter().flatten().filter_map(|part| part.uuid.as_ref().ok());
    device.id().lease_key().ok().into_iter().chain(parts.map(Cow::Borrowed))
}
