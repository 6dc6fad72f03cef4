//! `gpuws status --json`.

use super::leases::OnDevice;
use super::names::HolderSearch;
use super::{Failure, Head, Process, known};
use crate::View;
use gpu_core::{Absent, DetailsView, DeviceState, Snapshot};
use gpu_reaper::{Role, User};
use serde::Serialize;
use std::collections::BTreeMap;

/// The GPUs of the machine and the processes that use them.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The source of the data.
    #[serde(flatten)]
    pub head: Head,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// Indexes of the GPUs that programs started here see, in the order of CUDA_VISIBLE_DEVICES;
    /// all if it is not set. Null if it is ambiguous, or the status is of a recording.
    pub visible_gpus: Option<Vec<u32>>,
    /// Processes that have a GPU device file open or mapped. Null if unknown.
    pub holders: Option<Vec<Holder>>,
    /// Outcome of the search for these processes.
    pub holder_search: HolderSearch,
    /// Why the search failed. Null if it did not fail.
    pub holder_error: Option<Failure>,
    /// Number of processes that --user, --mine or --pid left out, counted on each GPU or, if no GPU
    /// could be queried, of the holders. Null without these options.
    pub left_out_process_count: Option<usize>,
    /// Number of findings of this snapshot. gpuws doctor may have more: it also reads the links,
    /// the throttling and the driver's log. Null if no GPU could be queried.
    pub finding_count: Option<usize>,
    /// Number of these findings that are only possible: a healthy machine has such findings too.
    /// Null if no GPU could be queried.
    pub possible_finding_count: Option<usize>,
    /// Why the leases are unknown. Null if they are known.
    pub lease_error: Option<Failure>,
}

/// A process that has a GPU device file open or mapped.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The device files that it has.
    pub files: Vec<HeldFile>,
}

/// A device file that a process has.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldFile {
    /// Path of the file.
    pub path: String,
    /// Kinds of access, in fuser's letters: f open, F open for writing, r root directory, c current
    /// directory, e executable, m mapped; a dot for each that does not apply.
    pub access: String,
}

/// A MIG device.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MigDevice {
    /// Index among the MIG devices of the GPU.
    pub mig_index: u32,
    /// UUID of the MIG device. Null if unknown.
    pub uuid: Option<String>,
    /// Profile of the MIG device, such as 1g.5gb. Null if the driver did not report it.
    pub profile: Option<String>,
    /// ID of the GPU instance. Null if unknown.
    pub gpu_instance_id: Option<u32>,
    /// ID of the compute instance. Null if unknown.
    pub compute_instance_id: Option<u32>,
    /// Memory in use, in bytes. Null if the driver did not report it.
    pub memory_used_bytes: Option<u64>,
    /// Total memory, in bytes. Null if the driver did not report it.
    pub memory_total_bytes: Option<u64>,
    /// Memory in use in the GPU instance that neither listed processes nor the driver account for,
    /// in bytes. Null if the memory of a GPU instance or the GPU instance of a process is unknown.
    pub memory_unexplained_bytes: Option<u64>,
}

/// A GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// NVML index of the GPU.
    pub index: u32,
    /// UUID of the GPU. Null if unknown.
    pub uuid: Option<String>,
    /// PCI bus ID of the GPU. Null if unknown.
    pub bus_id: Option<String>,
    /// Minor number N of the device file /dev/nvidiaN. Null if unknown.
    pub minor: Option<u32>,
    /// Product name. Null if the driver did not report it.
    pub name: Option<String>,
    /// Temperature of the GPU, in degrees Celsius. Null if the driver did not report it.
    pub temperature_c: Option<i32>,
    /// Power draw, in milliwatts. Null if the driver did not report it.
    pub power_draw_mw: Option<u64>,
    /// Enforced power limit, in milliwatts. Null if the driver did not report it.
    pub power_limit_mw: Option<u64>,
    /// Percentage of the sample period in which a kernel was running. Null if the driver did not
    /// report it.
    pub utilization_percent: Option<u8>,
    /// Memory in use as the driver reports it, in bytes; of a NUMA node with page cache. Null if the
    /// driver did not report it.
    pub memory_used_bytes: Option<u64>,
    /// Total memory as the driver reports it, in bytes. Null if the driver did not report it.
    pub memory_total_bytes: Option<u64>,
    /// Where the memory is: "dedicated"; "host", the memory of the host; "carve-out", the memory of
    /// the host, although the driver reports a part as the GPU's; "numa-node", a NUMA node of the
    /// host; "virtual-gpu"; "wddm", shared with Windows. Null if the GPU could not be queried.
    pub memory_kind: Option<&'static str>,
    /// Memory of the processes that the driver lists, in bytes: the least that is in use. Null if it
    /// did not report that of all.
    pub memory_listed_bytes: Option<u64>,
    /// Total less the memory in use, in bytes; of the host's memory, what the kernel can make
    /// available, less what claims leave to the host. Null if unknown.
    pub memory_free_bytes: Option<u64>,
    /// Memory reserved by the driver and firmware, in bytes. Null if the driver did not report it.
    pub memory_reserved_bytes: Option<u64>,
    /// Memory in use that neither listed processes nor the driver account for, in bytes. Null if
    /// the memory or the processes of the GPU are unknown.
    pub memory_unexplained_bytes: Option<u64>,
    /// Whether persistence mode is enabled. Null if the driver did not report it.
    pub persistence: Option<bool>,
    /// Whether a display is active. Null if the driver did not report it.
    pub display_active: Option<bool>,
    /// Whether MIG mode is enabled. Null if the driver did not report it.
    pub mig_enabled: Option<bool>,
    /// Whether the GPU is fit for jobs, no lease is on it, and only display servers, monitors and
    /// daemons use it.
    pub free: bool,
    /// Defects that the GPU reports, and changes that take effect at a reset.
    pub defects: Vec<String>,
    /// Leases on the GPU or on parts of it. Null if unknown.
    pub leases: Option<Vec<OnDevice>>,
    /// MIG devices of the GPU. Null if they could not be queried.
    pub mig_devices: Option<Vec<MigDevice>>,
    /// Processes that use the GPU.
    pub processes: Vec<DeviceProcess>,
    /// Processes that the driver lists by PIDs that are invalid here: gpuws runs in a separate PID
    /// namespace, as in a container.
    pub foreign_processes: Vec<ForeignProcess>,
    /// Why the GPU, or only its list of processes, could not be queried. Null if it could.
    pub error: Option<Failure>,
    /// Details of the GPU. Missing without the option -q.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<DetailsView>,
    /// Why values are null, by field name. The name "processes" means that the driver's list of
    /// processes could not be read, and that those shown were found by their open files.
    pub absent: BTreeMap<&'static str, Absent>,
}

/// A process that uses a GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceProcess {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// Memory that the process uses on the GPU, in bytes. Null if the driver did not report it.
    pub memory_bytes: Option<u64>,
    /// Percentage of the sample period in which a kernel of the process was running. Null if the
    /// driver did not report it.
    pub utilization_percent: Option<u8>,
    /// Whether the driver lists the process. Null if its list could not be read or has PIDs that
    /// are invalid here. A process that is not listed was found by its mapped device file.
    pub listed: Option<bool>,
    /// ID of the MIG GPU instance that the process runs in. Null if the driver did not report one.
    pub gpu_instance_id: Option<u32>,
    /// ID of the MIG compute instance that the process runs in. Null if the driver did not report
    /// one.
    pub compute_instance_id: Option<u32>,
    /// Host memory of the process (resident set size), in bytes. Null if unknown.
    pub resident_bytes: Option<u64>,
    /// systemd service that the process belongs to. Null if it belongs to none.
    pub service: Option<String>,
    /// Role of the process.
    pub role: Role,
    /// Why values about the process on this GPU are null, by field name.
    pub absent: BTreeMap<&'static str, Absent>,
}

/// A process that is not visible in the PID namespace of gpuws.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForeignProcess {
    /// PID in the namespace of the host. Another process may have it here.
    pub host_pid: u32,
    /// Memory that the process uses on the GPU, in bytes. Null if the driver did not report it.
    pub memory_bytes: Option<u64>,
}

impl View<'_> {
    /// Returns the object of `status --json`.
    pub fn json(&self, with_details: bool) -> Status {
        Status::of(self, with_details)
    }
}

impl Status {
    /// Returns the object for a snapshot; of the GPUs, the details only if requested.
    pub(crate) fn of(view: &View<'_>, with_details: bool) -> Self {
        let snapshot = view.snapshot;
        let shows = |pid| view.filter.shows(snapshot, pid);
        let gpu = |device| {
            let gpu = Gpu::of(view, device);
            Gpu { details: gpu.details.filter(|_| with_details), ..gpu }
        };
        let holder_search = HolderSearch::from(snapshot);
        let fault = snapshot.holders.as_ref().err();
        let holder_error = fault.filter(|_| holder_search == HolderSearch::Failed).map(Failure::of);
        Status {
            head: Head::of(snapshot),
            gpus: snapshot.devices.iter().map(gpu).collect(),
            visible_gpus: view.seen.as_ref().and_then(|seen| seen.devices.clone()),
            holders: snapshot.holders.as_ref().ok().map(|holders| {
                let shown = holders.iter().filter(|holder| shows(holder.process.pid));
                shown.map(|holder| Holder::of(snapshot, holder)).collect()
            }),
            holder_search,
            holder_error,
            left_out_process_count: view.left_out_count(),
            finding_count: (!snapshot.devices.is_empty()).then_some(view.diagnosis.findings.len()),
            possible_finding_count: (!snapshot.devices.is_empty())
                .then(|| view.diagnosis.possible_count()),
            lease_error: view.leased.fault().map(Failure::of),
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
    fn of(view: &View<'_>, device: &DeviceState, instance: &gpu_core::Partition) -> Self {
        let account = |id| view.usage.account_of_instance(device.id(), id);
        MigDevice {
            mig_index: instance.index,
            profile: instance.profile.clone().ok(),
            memory_unexplained_bytes: instance.gpu_instance.and_then(account).map(|bytes| bytes.0),
            uuid: instance.uuid.as_ref().ok().map(ToString::to_string),
            gpu_instance_id: instance.gpu_instance,
            compute_instance_id: instance.compute_instance,
            memory_used_bytes: instance.memory.used.ok().map(|bytes| bytes.0),
            memory_total_bytes: instance.memory.total.ok().map(|bytes| bytes.0),
        }
    }
}

impl Gpu {
    fn of(view: &View<'_>, device: &DeviceState) -> Self {
        let View { snapshot, usage, leased, .. } = view;
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
            minor: known(&mut absent, "minor", info.id.minor()),
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
            memory_kind: device.sample.as_ref().ok().map(|sample| sample.source.kind.name()),
            memory_listed_bytes: device.memory_listed().map(|bytes| bytes.0),
            memory_free_bytes: device.memory_free().ok().map(|bytes| bytes.0),
            memory_reserved_bytes: known(
                &mut absent,
                "memory_reserved_bytes",
                sample.memory.reserved,
            )
            .map(|bytes| bytes.0),
            memory_unexplained_bytes: usage.account(device.id()).map(|bytes| bytes.0),
            persistence: known(&mut absent, "persistence", info.persistence),
            display_active: known(&mut absent, "display_active", info.display_active),
            mig_enabled: known(&mut absent, "mig_enabled", info.partitioned),
            free: leased.is_free(device, usage),
            defects: gpu_reaper::defects(device).iter().map(ToString::to_string).collect(),
            leases: leased.fault().is_none().then(|| {
                leased.on(device).map(|lease| OnDevice::of(lease, device, view.name)).collect()
            }),
            mig_devices: device
                .partitions
                .as_ref()
                .ok()
                .map(|all| all.iter().map(|mig| MigDevice::of(view, device, mig)).collect()),
            processes: usage
                .on(device.id())
                .iter()
                .filter(|user| view.filter.shows(snapshot, user.pid))
                .map(|user| DeviceProcess::of(snapshot, user))
                .collect(),
            foreign_processes: usage.foreign(device.id()).iter().map(ForeignProcess::of).collect(),
            error: device.sample.as_ref().err().or(list).map(Failure::of),
            details: details_of(device),
            absent,
        }
    }
}

/// Returns the details of a device; `None` if none were queried.
fn details_of(device: &DeviceState) -> Option<DetailsView> {
    match &device.details {
        Ok(details) => (!details.is_empty()).then(|| details.clone().view()),
        Err(fault) => Some(DetailsView::unknown(fault.kind.absent())),
    }
}

impl ForeignProcess {
    fn of(process: &gpu_core::DeviceProcess) -> Self {
        let memory = process.memory.ok();
        ForeignProcess { host_pid: process.pid.0, memory_bytes: memory.map(|bytes| bytes.0) }
    }
}

impl DeviceProcess {
    fn of(snapshot: &Snapshot, user: &User) -> Self {
        let info = snapshot.process(user.pid);
        let mut process = Process::of(snapshot, user.pid);
        process.name = process.name.or_else(|| user.name.clone());
        let mut absent = BTreeMap::new();
        DeviceProcess {
            process,
            memory_bytes: known(&mut absent, "memory_bytes", user.memory).map(|bytes| bytes.0),
            utilization_percent: known(&mut absent, "utilization_percent", user.utilization)
                .map(|utilization| utilization.get()),
            listed: known(&mut absent, "listed", user.listed),
            gpu_instance_id: user.gpu_instance,
            compute_instance_id: user.compute_instance,
            resident_bytes: known(&mut absent, "resident_bytes", info.and_then(|i| i.resident))
                .map(|bytes| bytes.0),
            service: info.ok().and_then(|info| Some(info.service()?.name.to_owned())),
            role: user.role,
            absent,
        }
    }
}
