//! Devices of any vendor, for tests.

use super::{GivenList, Visibility};
use crate::device::{DeviceInfo, DeviceSample, Partition};
use crate::id::{DeviceId, DeviceUuid};
use crate::memory_source::{MemoryKind, MemorySource};
use crate::snapshot::DeviceState;
use crate::{Absent, DeviceDetails};
use std::borrow::Cow;

/// A device with this many partitions. Without a UUID, it has only a PCI address. The key of a
/// partition is that of the device with `/N`.
pub(super) fn device(
    index: u32,
    visibility: Visibility,
    uuid: Option<&str>,
    partitions: u32,
) -> DeviceState {
    let bus = format!("0000:{:02x}:00.0", index + 1).parse().map_err(|_| Absent::Failed);
    let uuid = uuid.map(|uuid| DeviceUuid(uuid.to_owned())).ok_or(Absent::NotSupported);
    let id = DeviceId { uuid, bus, ..DeviceId::from_index(index) };
    let sample = DeviceSample::absent(Absent::NotRecorded);
    let part = |number| Partition {
        index: number,
        uuid: Ok(DeviceUuid(format!("{}/{number}", id.lease_key().unwrap()))),
        profile: Err(Absent::NotSupported),
        gpu_instance: None,
        compute_instance: None,
        memory: sample.memory,
    };
    let partitions = (0..partitions).map(part).collect();
    DeviceState {
        info: DeviceInfo { visibility, ..DeviceInfo::unknown(id) },
        sample: Ok(sample),
        processes: Ok(Vec::new()),
        partitions: Ok(partitions),
        details: Ok(DeviceDetails::default()),
    }
}

/// The same device, as part of the processor.
pub(super) fn integrated(mut device: DeviceState) -> DeviceState {
    if let Ok(sample) = &mut device.sample {
        sample.source = MemorySource::of(MemoryKind::Host);
    }
    device
}

/// The key of a device.
pub(super) fn key(device: &DeviceState) -> DeviceUuid {
    device.id().lease_key().map(Cow::into_owned).unwrap()
}

/// Describes lists: the variable, the keys of its devices, and the entry that ended it.
pub(super) fn described(lists: Vec<GivenList>) -> Vec<String> {
    let one = |list: GivenList| match list.resolved {
        Ok(resolved) => {
            let keys: Vec<String> = resolved.uuids().into_iter().map(|uuid| uuid.0).collect();
            let end = resolved.ended_at.map(|at| format!(" !{at}")).unwrap_or_default();
            format!("{} {}{end}", list.variable, keys.join(" "))
        }
        Err(_) => format!("{} unknown", list.variable),
    };
    lists.into_iter().map(one).collect()
}

/// The value of a variable among these.
pub(super) fn value(variables: &[(&str, &str)], name: &str) -> Option<String> {
    let found = variables.iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| (*value).to_owned())
}
