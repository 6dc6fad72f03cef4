//! `gpuws status --json`.

use super::claims::OnDevice;
use super::details::Details;
use super::{Failure, Head, Process};
use crate::wording::claims::User as UserName;
use gpu_core::{Absent, DeviceState, Reading, Snapshot};
use gpu_reaper::{Diagnosis, Usage, User};
use gpu_steward::DeviceLeases;
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole machine.
#[derive(Serialize)]
pub struct Status {
    #[serde(flatten)]
    head: Head,
    gpus: Vec<Gpu>,
    /// Who has a GPU device file; null where that is not known.
    holders: Option<Vec<Holder>>,
    /// Null where no device could be asked.
    finding_count: Option<usize>,
    /// Why it is not known who has claimed devices.
    lease_error: Option<Failure>,
}

#[derive(Serialize)]
struct Holder {
    #[serde(flatten)]
    process: Process,
    files: Vec<HeldFile>,
}

#[derive(Serialize)]
struct HeldFile {
    path: String,
    /// fuser's letters.
    access: String,
}

#[derive(Serialize)]
struct MigDevice {
    mig_index: u32,
    uuid: Option<String>,
    gpu_instance_id: Option<u32>,
    compute_instance_id: Option<u32>,
    memory_used_bytes: Option<u64>,
    memory_total_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Gpu {
    index: u32,
    uuid: Option<String>,
    bus_id: Option<String>,
    minor: Option<u32>,
    name: Option<String>,
    temperature_c: Option<i32>,
    power_draw_mw: Option<u64>,
    power_limit_mw: Option<u64>,
    utilization_percent: Option<u8>,
    memory_used_bytes: Option<u64>,
    memory_total_bytes: Option<u64>,
    memory_reserved_bytes: Option<u64>,
    /// Beyond what listed processes and the driver account for.
    memory_unexplained_bytes: Option<u64>,
    persistence: Option<bool>,
    display_active: Option<bool>,
    mig_enabled: Option<bool>,
    /// Nobody but displays, monitors and daemons uses it, and nobody has claimed it.
    free: bool,
    /// Who has claimed it, or a part of it; null where that is not known.
    leases: Option<Vec<OnDevice>>,
    /// Null where they could not be asked for.
    mig_devices: Option<Vec<MigDevice>>,
    processes: Vec<DeviceProcess>,
    /// Why the device could not be asked, or else not for its processes.
    error: Option<Failure>,
    /// With `-q` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    /// For each value above that is null, why; and for the processes where NVML's list of them
    /// could not be read, so that they are those found by their device files.
    absent: BTreeMap<&'static str, Absent>,
}

#[derive(Serialize)]
struct DeviceProcess {
    #[serde(flatten)]
    process: Process,
    memory_bytes: Option<u64>,
    utilization_percent: Option<u8>,
    /// NVML lists it; otherwise, and where that is not known, it was found by the device file that
    /// it has mapped.
    listed: Option<bool>,
    role: gpu_reaper::Role,
    /// For each value of the device's above that is null, why.
    absent: BTreeMap<&'static str, Absent>,
}

impl Status {
    /// Returns what is told of a look; `name` names the owners of leases by number.
    pub fn of(
        snapshot: &Snapshot,
        diagnosis: &Diagnosis,
        leased: &DeviceLeases,
        name: UserName<'_>,
    ) -> Self {
        let usage = Usage::of(snapshot);
        let gpu = |device| Gpu::of(snapshot, &usage, (leased, name), device);
        Status {
            head: Head::of(snapshot),
            gpus: snapshot.devices.iter().map(gpu).collect(),
            holders: snapshot
                .holders
                .as_ref()
                .ok()
                .map(|holders| holders.iter().map(|holder| Holder::of(snapshot, holder)).collect()),
            finding_count: (!snapshot.devices.is_empty()).then_some(diagnosis.findings.len()),
            lease_error: leased.fault().map(Failure::of),
        }
    }
}

impl Holder {
    fn of(snapshot: &Snapshot, holder: &gpu_core::Holder) -> Self {
        let file = |held: &gpu_core::HeldFile| HeldFile {
            path: held.path.to_string(),
            access: held.access.to_string(),
        };
        Holder {
            process: Process::of(snapshot, holder.process.pid),
            files: holder.held.iter().map(file).collect(),
        }
    }
}

impl MigDevice {
    fn of(instance: &gpu_core::MigInstance) -> Self {
        MigDevice {
            mig_index: instance.index,
            uuid: instance.uuid.as_ref().ok().map(ToString::to_string),
            gpu_instance_id: instance.gpu_instance,
            compute_instance_id: instance.compute_instance,
            memory_used_bytes: instance.memory.used.ok().map(|bytes| bytes.0),
            memory_total_bytes: instance.memory.total.ok().map(|bytes| bytes.0),
        }
    }
}

impl Gpu {
    fn of(
        snapshot: &Snapshot,
        usage: &Usage,
        (leased, name): (&DeviceLeases, UserName<'_>),
        device: &DeviceState,
    ) -> Self {
        let mut absent = BTreeMap::new();
        let sample = device
            .sample
            .clone()
            .unwrap_or_else(|fault| gpu_core::DeviceSample::absent(fault.kind.absent()));
        let info = &device.info;
        let list = device.processes.as_ref().err();
        absent.extend(list.map(|fault| ("processes", fault.kind.absent())));
        absent.extend(leased.fault().map(|fault| ("leases", fault.kind.absent())));
        Gpu {
            index: info.id.index,
            uuid: known(&mut absent, "uuid", info.id.uuid.clone()).map(|uuid| uuid.0),
            bus_id: known(&mut absent, "bus_id", info.id.bus).map(|bus| bus.to_string()),
            minor: known(&mut absent, "minor", info.id.minor),
            name: known(&mut absent, "name", info.name.clone()),
            temperature_c: known(&mut absent, "temperature_c", sample.temperature).map(|t| t.0),
            power_draw_mw: known(&mut absent, "power_draw_mw", sample.power_draw).map(|p| p.0),
            power_limit_mw: known(&mut absent, "power_limit_mw", sample.power_limit).map(|p| p.0),
            utilization_percent: known(&mut absent, "utilization_percent", sample.utilization)
                .map(|utilization| utilization.get()),
            memory_used_bytes: known(&mut absent, "memory_used_bytes", sample.memory.used)
                .map(|bytes| bytes.0),
            memory_total_bytes: known(&mut absent, "memory_total_bytes", sample.memory.total)
                .map(|bytes| bytes.0),
            memory_reserved_bytes: known(
                &mut absent,
                "memory_reserved_bytes",
                sample.memory.reserved,
            )
            .map(|bytes| bytes.0),
            memory_unexplained_bytes: usage.unexplained(device.id()).map(|bytes| bytes.0),
            persistence: known(&mut absent, "persistence", info.persistence),
            display_active: known(&mut absent, "display_active", info.display_active),
            mig_enabled: known(&mut absent, "mig_enabled", info.mig_enabled),
            free: leased.is_free(device, usage),
            leases: leased.fault().is_none().then(|| {
                leased.on(device).map(|lease| OnDevice::of(lease, device, name)).collect()
            }),
            mig_devices: device
                .mig
                .as_ref()
                .ok()
                .map(|instances| instances.iter().map(MigDevice::of).collect()),
            processes: usage
                .on(device.id())
                .iter()
                .map(|user| DeviceProcess::of(snapshot, user))
                .collect(),
            error: device.sample.as_ref().err().or(list).map(Failure::of),
            details: Details::of(device),
            absent,
        }
    }
}

impl DeviceProcess {
    fn of(snapshot: &Snapshot, user: &User) -> Self {
        let mut process = Process::of(snapshot, user.pid);
        process.name = process.name.or_else(|| user.name.clone());
        let mut absent = BTreeMap::new();
        DeviceProcess {
            process,
            memory_bytes: known(&mut absent, "memory_bytes", user.memory).map(|bytes| bytes.0),
            utilization_percent: known(&mut absent, "utilization_percent", user.utilization)
                .map(|utilization| utilization.get()),
            listed: known(&mut absent, "listed", user.listed),
            role: user.role,
            absent,
        }
    }
}

/// Returns the value, or notes why there is none.
pub(super) fn known<T>(
    absent: &mut BTreeMap<&'static str, Absent>,
    name: &'static str,
    reading: Reading<T>,
) -> Option<T> {
    reading.map_err(|reason| absent.insert(name, reason)).ok()
}
