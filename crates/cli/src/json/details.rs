//! What `gpuws status -q --json` tells of a device beyond the plain view.

use super::status::known;
use gpu_core::{
    Absent, ComputeMode, DeviceDetails, DeviceState, MemoryHealth, NvLink as Link, OperationMode,
    Reading, ThrottleReasons,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// All groups of details. A value that is null has its reason under `absent`, by group and name;
/// a whole group that could not be asked for, by the group's name.
#[derive(Serialize)]
pub(super) struct Details {
    product: Option<Product>,
    modes: Option<Modes>,
    inforom: Option<Inforom>,
    operation_modes: Option<OperationModes>,
    activity: Option<Activity>,
    engines: Option<Engines>,
    clocks: Option<Clocks>,
    power: Option<Power>,
    power_readings: Option<PowerReadings>,
    thermal: Option<Thermal>,
    pcie: Option<Pcie>,
    pcie_throughput: Option<PcieThroughput>,
    memory_health: Option<Health>,
    nvlinks: Option<Vec<NvLink>>,
    accounting: Option<Accounting>,
    absent: BTreeMap<&'static str, Absent>,
}

#[derive(Serialize)]
struct Product {
    brand: Option<String>,
    architecture: Option<String>,
    serial: Option<String>,
    part_number: Option<String>,
    vbios: Option<String>,
    compute_capability: Option<String>,
    core_count: Option<u32>,
    memory_bus_width_bits: Option<u32>,
    numa_node_id: Option<u32>,
}

#[derive(Serialize)]
struct Modes {
    compute_mode: Option<ComputeMode>,
    display_attached: Option<bool>,
    ecc: Option<bool>,
    ecc_pending: Option<bool>,
    mig_pending: Option<bool>,
    accounting: Option<bool>,
}

#[derive(Serialize)]
struct Inforom {
    image: Option<String>,
}

#[derive(Serialize)]
struct OperationModes {
    current: Option<OperationMode>,
    pending: Option<OperationMode>,
}

#[derive(Serialize)]
struct Activity {
    memory_percent: Option<u8>,
    encoder_percent: Option<u8>,
    decoder_percent: Option<u8>,
    performance_state: Option<String>,
    /// Reasons for clocks below what was asked for; empty where there is none.
    throttle_reasons: Option<Vec<&'static str>>,
    /// The same as NVML's bits, a reason without a name among them.
    throttle_code: Option<u64>,
    encoder_session_count: Option<u32>,
    encoder_frames_per_s: Option<u32>,
    encoder_latency_us: Option<u32>,
}

#[derive(Serialize)]
struct Engines {
    jpeg_percent: Option<u8>,
    ofa_percent: Option<u8>,
}

#[derive(Serialize)]
struct Clocks {
    graphics_mhz: Option<u32>,
    sm_mhz: Option<u32>,
    memory_mhz: Option<u32>,
    video_mhz: Option<u32>,
    graphics_max_mhz: Option<u32>,
    sm_max_mhz: Option<u32>,
    memory_max_mhz: Option<u32>,
    video_max_mhz: Option<u32>,
}

#[derive(Serialize)]
struct Power {
    limit_mw: Option<u64>,
    default_limit_mw: Option<u64>,
    limit_min_mw: Option<u64>,
    limit_max_mw: Option<u64>,
    energy_mj: Option<u64>,
}

#[derive(Serialize)]
struct PowerReadings {
    managed: Option<bool>,
    instant_mw: Option<u64>,
    average_mw: Option<u64>,
}

#[derive(Serialize)]
struct Thermal {
    fan_speed_percent: Option<u32>,
    memory_c: Option<i32>,
    slowdown_c: Option<i32>,
    shutdown_c: Option<i32>,
}

#[derive(Serialize)]
struct Pcie {
    generation: Option<String>,
    generation_max: Option<String>,
    lane_count: Option<u32>,
    lane_max_count: Option<u32>,
    replay_count: Option<u32>,
    device_id: Option<u32>,
    subsystem_id: Option<u32>,
    bar1_total_bytes: Option<u64>,
    bar1_used_bytes: Option<u64>,
}

#[derive(Serialize)]
struct PcieThroughput {
    sent_kib_per_s: Option<u32>,
    received_kib_per_s: Option<u32>,
}

#[derive(Serialize)]
struct Health {
    corrected_count: Option<u64>,
    uncorrected_count: Option<u64>,
    corrected_lifetime_count: Option<u64>,
    uncorrected_lifetime_count: Option<u64>,
    retired_single_bit_count: Option<u32>,
    retired_double_bit_count: Option<u32>,
    retired_pending: Option<bool>,
    remapped_corrected_count: Option<u32>,
    remapped_uncorrected_count: Option<u32>,
    remapped_pending: Option<bool>,
    remapped_failure: Option<bool>,
}

#[derive(Serialize)]
struct NvLink {
    link_index: usize,
    active: Option<bool>,
    version: Option<String>,
    remote_bus_id: Option<String>,
    replay_count: Option<u64>,
    recovery_count: Option<u64>,
    crc_error_count: Option<u64>,
}

#[derive(Serialize)]
struct Accounting {
    buffer_count: Option<u32>,
    processes: Option<Vec<AccountedProcess>>,
}

#[derive(Serialize)]
struct AccountedProcess {
    pid: Option<u32>,
    running: Option<bool>,
    memory_max_bytes: Option<u64>,
    utilization_percent: Option<u8>,
    time_ms: Option<u64>,
}

/// Makes a view of a group; a value that is not there is noted with its reason.
macro_rules! view {
    ($absent:ident, $prefix:literal, $view:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $view { $($field: known($absent, concat!($prefix, ".", stringify!($field)), $value)),* }
    };
}

impl Details {
    /// Returns the details of a device; `None` where none were asked for.
    pub(super) fn of(device: &DeviceState) -> Option<Self> {
        let mut absent = BTreeMap::new();
        let details = match &device.details {
            Ok(details) if details.is_empty() => return None,
            Ok(details) => details.clone(),
            Err(fault) => {
                absent.insert("details", fault.kind.absent());
                DeviceDetails::default()
            }
        };
        let noted = &mut absent;
        Some(Details {
            product: details.product.map(|group| product(noted, group)),
            modes: details.modes.map(|group| {
                view!(
                    noted,
                    "modes",
                    Modes {
                        compute_mode: group.compute_mode,
                        display_attached: group.display_attached,
                        ecc: group.ecc,
                        ecc_pending: group.ecc_pending,
                        mig_pending: group.mig_pending,
                        accounting: group.accounting,
                    }
                )
            }),
            inforom: details
                .inforom
                .map(|group| view!(noted, "inforom", Inforom { image: group.image })),
            operation_modes: details.operation_modes.map(|group| {
                view!(
                    noted,
                    "operation_modes",
                    OperationModes { current: group.current, pending: group.pending }
                )
            }),
            activity: details.activity.map(|group| activity(noted, group)),
            engines: details.engines.map(|group| {
                view!(
                    noted,
                    "engines",
                    Engines {
                        jpeg_percent: group.jpeg.map(gpu_core::Percent::get),
                        ofa_percent: group.ofa.map(gpu_core::Percent::get),
                    }
                )
            }),
            clocks: details.clocks.map(|group| {
                view!(
                    noted,
                    "clocks",
                    Clocks {
                        graphics_mhz: group.graphics,
                        sm_mhz: group.sm,
                        memory_mhz: group.memory,
                        video_mhz: group.video,
                        graphics_max_mhz: group.graphics_max,
                        sm_max_mhz: group.sm_max,
                        memory_max_mhz: group.memory_max,
                        video_max_mhz: group.video_max,
                    }
                )
            }),
            power: details.power.map(|group| {
                view!(
                    noted,
                    "power",
                    Power {
                        limit_mw: group.limit.map(|power| power.0),
                        default_limit_mw: group.default_limit.map(|power| power.0),
                        limit_min_mw: group.limit_min.map(|power| power.0),
                        limit_max_mw: group.limit_max.map(|power| power.0),
                        energy_mj: group.energy,
                    }
                )
            }),
            power_readings: details.power_readings.map(|group| {
                view!(
                    noted,
                    "power_readings",
                    PowerReadings {
                        managed: group.managed,
                        instant_mw: group.instant.map(|power| power.0),
                        average_mw: group.average.map(|power| power.0),
                    }
                )
            }),
            thermal: details.thermal.map(|group| {
                view!(
                    noted,
                    "thermal",
                    Thermal {
                        fan_speed_percent: group.fan_speed,
                        memory_c: group.memory.map(|at| at.0),
                        slowdown_c: group.slowdown.map(|at| at.0),
                        shutdown_c: group.shutdown.map(|at| at.0),
                    }
                )
            }),
            pcie: details.pcie.map(|group| pcie(noted, group)),
            pcie_throughput: details.pcie_throughput.map(|group| {
                view!(
                    noted,
                    "pcie_throughput",
                    PcieThroughput {
                        sent_kib_per_s: group.sent,
                        received_kib_per_s: group.received,
                    }
                )
            }),
            memory_health: details.memory_health.map(|group| health(noted, group)),
            nvlinks: details
                .nvlinks
                .map(|links| links.iter().enumerate().map(NvLink::of).collect()),
            accounting: details.accounting.map(|group| Accounting {
                buffer_count: known(noted, "accounting.buffer_count", group.buffer_size),
                processes: known(noted, "accounting.processes", group.processes)
                    .map(|processes| processes.iter().map(AccountedProcess::of).collect()),
            }),
            absent,
        })
    }
}

type Noted = BTreeMap<&'static str, Absent>;

fn product(noted: &mut Noted, group: gpu_core::Product) -> Product {
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    view!(
        noted,
        "product",
        Product {
            brand: group.brand,
            architecture: group.architecture,
            serial: group.serial,
            part_number: group.part_number,
            vbios: group.vbios,
            compute_capability: group.compute_capability.map(version),
            core_count: group.cores,
            memory_bus_width_bits: group.memory_bus_width,
            numa_node_id: group.numa_node,
        }
    )
}

fn activity(noted: &mut Noted, group: gpu_core::Activity) -> Activity {
    let percent = |share: Reading<gpu_core::Percent>| share.map(gpu_core::Percent::get);
    view!(
        noted,
        "activity",
        Activity {
            memory_percent: percent(group.memory),
            encoder_percent: percent(group.encoder),
            decoder_percent: percent(group.decoder),
            performance_state: group.performance_state.map(|state| format!("P{state}")),
            throttle_reasons: group.throttle.map(|reasons| reasons.names().collect()),
            throttle_code: group.throttle.map(|ThrottleReasons(bits)| bits),
            encoder_session_count: group.encoder_sessions,
            encoder_frames_per_s: group.encoder_fps,
            encoder_latency_us: group.encoder_latency,
        }
    )
}

fn pcie(noted: &mut Noted, group: gpu_core::Pcie) -> Pcie {
    view!(
        noted,
        "pcie",
        Pcie {
            generation: group.generation.map(|number| number.to_string()),
            generation_max: group.generation_max.map(|number| number.to_string()),
            lane_count: group.width,
            lane_max_count: group.width_max,
            replay_count: group.replays,
            device_id: group.device_id,
            subsystem_id: group.subsystem_id,
            bar1_total_bytes: group.bar1_total.map(|bytes| bytes.0),
            bar1_used_bytes: group.bar1_used.map(|bytes| bytes.0),
        }
    )
}

fn health(noted: &mut Noted, group: MemoryHealth) -> Health {
    view!(
        noted,
        "memory_health",
        Health {
            corrected_count: group.corrected,
            uncorrected_count: group.uncorrected,
            corrected_lifetime_count: group.corrected_lifetime,
            uncorrected_lifetime_count: group.uncorrected_lifetime,
            retired_single_bit_count: group.retired_single_bit,
            retired_double_bit_count: group.retired_double_bit,
            retired_pending: group.retired_pending,
            remapped_corrected_count: group.remapped_corrected,
            remapped_uncorrected_count: group.remapped_uncorrected,
            remapped_pending: group.remapped_pending,
            remapped_failure: group.remapped_failure,
        }
    )
}

impl NvLink {
    fn of((link_index, link): (usize, &Link)) -> Self {
        NvLink {
            link_index,
            active: link.active.ok(),
            version: link.version.ok().map(|version| version.to_string()),
            remote_bus_id: link.remote.ok().map(|bus| bus.to_string()),
            replay_count: link.replays.ok(),
            recovery_count: link.recoveries.ok(),
            crc_error_count: link.crc_errors.ok(),
        }
    }
}

impl AccountedProcess {
    fn of(process: &gpu_core::AccountedProcess) -> Self {
        AccountedProcess {
            pid: process.pid.ok().map(|pid| pid.0),
            running: process.running.ok(),
            memory_max_bytes: process.memory_max.ok().map(|bytes| bytes.0),
            utilization_percent: process.utilization.ok().map(gpu_core::Percent::get),
            time_ms: process.time.ok(),
        }
    }
}
