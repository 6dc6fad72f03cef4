//! Everything that a device tells beyond a sample, in groups that are asked for one by one.

use crate::absent::{Absent, Reading};
use crate::id::{PciBusId, Pid};
use crate::units::{Bytes, Celsius, Milliwatts, Percent};

/// A group of values that is asked for as a whole.
///
/// Each costs calls of its own, and some take their time: a throughput is measured for 20 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// [`Product`]
    Product,
    /// [`Modes`]
    Modes,
    /// [`Inforom`]
    Inforom,
    /// [`OperationModes`]
    OperationModes,
    /// [`Activity`]
    Activity,
    /// [`Engines`]
    Engines,
    /// [`Clocks`]
    Clocks,
    /// [`Power`]
    Power,
    /// [`PowerReadings`]
    PowerReadings,
    /// [`Thermal`]
    Thermal,
    /// [`Pcie`]
    Pcie,
    /// [`PcieThroughput`]
    PcieThroughput,
    /// [`MemoryHealth`]
    MemoryHealth,
    /// [`NvLink`]s
    NvLinks,
    /// [`Accounting`]
    Accounting,
}

/// A set of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Groups(u16);

impl Groups {
    /// No group: a look costs what the plain view needs.
    pub const NONE: Groups = Groups(0);

    /// Returns every group.
    pub fn all() -> Self {
        Group::ALL.into_iter().collect()
    }

    /// Tells whether a group is in the set.
    pub const fn has(self, group: Group) -> bool {
        self.0 & (1 << group as u16) != 0
    }

    /// Tells whether no group is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Group> for Groups {
    fn from_iter<I: IntoIterator<Item = Group>>(groups: I) -> Self {
        Groups(groups.into_iter().fold(0, |set, group| set | (1 << group as u16)))
    }
}

impl Group {
    /// Every group, in the order of `nvidia-smi -q`.
    pub const ALL: [Group; 15] = [
        Group::Product,
        Group::Modes,
        Group::Inforom,
        Group::OperationModes,
        Group::Activity,
        Group::Engines,
        Group::Clocks,
        Group::Power,
        Group::PowerReadings,
        Group::Thermal,
        Group::Pcie,
        Group::PcieThroughput,
        Group::MemoryHealth,
        Group::NvLinks,
        Group::Accounting,
    ];
}

/// Defines groups of readings: each field is absent with `NotSupported` until somebody says
/// otherwise, and so is a field that a file leaves out.
macro_rules! groups {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $( $(#[$field_doc:meta])* $field:ident $(as $key:literal)? : $type:ty ),* $(,)?
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[cfg_attr(feature = "serde", serde(with = "crate::reading" $(, rename = $key)?))]
                pub $field: Reading<$type>,
            )*
        }

        impl $name {
            /// Returns the group with every value absent for `reason`.
            pub fn absent(reason: Absent) -> Self {
                $name { $( $field: Err(reason), )* }
            }

            /// Takes what `told` tells: its values, and its reasons of absence but `NotSupported`.
            pub fn overlay(&mut self, told: &Self) {
                $( overlay(&mut self.$field, &told.$field); )*
            }

            /// Gives `to` as the reason of absence wherever it is `from`.
            pub fn restate(&mut self, from: Absent, to: Absent) {
                $( restate(&mut self.$field, from, to); )*
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name::absent(Absent::NotSupported)
            }
        }
    )* };
}

fn overlay<T: Clone>(reading: &mut Reading<T>, told: &Reading<T>) {
    if !matches!(told, Err(Absent::NotSupported)) {
        reading.clone_from(told);
    }
}

fn restate<T>(reading: &mut Reading<T>, from: Absent, to: Absent) {
    if reading.as_ref().is_err_and(|absent| *absent == from) {
        *reading = Err(to);
    }
}

groups! {
    /// What the device is and which firmware it runs.
    Product {
        /// Product line, such as `Tesla` or `GeForce`.
        brand: String,
        /// Architecture, such as `Ampere`.
        architecture: String,
        /// Serial number, printed on the board.
        serial: String,
        /// Part number of the board.
        part_number: String,
        /// Version of the video BIOS.
        vbios: String,
        /// CUDA compute capability, major and minor.
        compute_capability: (u32, u32),
        /// Number of CUDA cores.
        cores: u32,
        /// Width of the memory interface.
        memory_bus_width as "memory_bus_width_bits": u32,
        /// NUMA node of the host that is nearest.
        numa_node: u32,
    }

    /// How the device is set up.
    Modes {
        /// Who may make a CUDA context.
        compute_mode: ComputeMode,
        /// A display can be connected (`display_mode`).
        display_attached: bool,
        /// Errors in memory are corrected, from the last reset on.
        ecc: bool,
        /// The same, from the next reset on.
        ecc_pending: bool,
        /// MIG from the next reset on.
        mig_pending: bool,
        /// The device records what processes use over their life.
        accounting: bool,
    }

    /// What is written into the memory of the board that holds its own settings.
    Inforom {
        /// Version of the image as a whole.
        image: String,
    }

    /// What the device was set up to be good at.
    OperationModes {
        /// From the last reset on.
        current: OperationMode,
        /// From the next reset on.
        pending: OperationMode,
    }

    /// How busy the parts of the device are.
    Activity {
        /// Share of the sample window in which memory was read or written.
        memory as "memory_percent": Percent,
        /// Share in which the video encoder worked.
        encoder as "encoder_percent": Percent,
        /// Share in which the video decoder worked.
        decoder as "decoder_percent": Percent,
        /// Performance state: 0 is the fastest, 15 the slowest.
        performance_state: u8,
        /// Reasons for clocks below what was asked for.
        throttle: ThrottleReasons,
        /// Encoder sessions.
        encoder_sessions: u32,
        /// Frames per second over all encoder sessions.
        encoder_fps: u32,
        /// Mean latency of the encoder.
        encoder_latency as "encoder_latency_us": u32,
    }

    /// How busy the engines for pictures are, in share of the sample window.
    Engines {
        /// The decoder of JPEG.
        jpeg as "jpeg_percent": Percent,
        /// What finds the movement between two pictures (optical flow accelerator).
        ofa as "ofa_percent": Percent,
    }

    /// Clocks, in MHz.
    Clocks {
        /// Graphics (shader) clock.
        graphics as "graphics_mhz": u32,
        /// Streaming multiprocessors.
        sm as "sm_mhz": u32,
        /// Memory.
        memory as "memory_mhz": u32,
        /// Video engines.
        video as "video_mhz": u32,
        /// Highest graphics clock.
        graphics_max as "graphics_max_mhz": u32,
        /// Highest clock of the multiprocessors.
        sm_max as "sm_max_mhz": u32,
        /// Highest memory clock.
        memory_max as "memory_max_mhz": u32,
        /// Highest clock of the video engines.
        video_max as "video_max_mhz": u32,
    }

    /// Power and its limits; draw and the limit in force are in the sample.
    Power {
        /// Limit that was asked for.
        limit as "limit_mw": Milliwatts,
        /// Limit after a reset.
        default_limit as "default_limit_mw": Milliwatts,
        /// Lowest limit that can be set.
        limit_min as "limit_min_mw": Milliwatts,
        /// Highest limit that can be set.
        limit_max as "limit_max_mw": Milliwatts,
        /// Energy used since the driver was loaded.
        energy as "energy_mj": u64,
    }

    /// What is read of power beside the draw in the sample, which is of the one kind or the other.
    PowerReadings {
        /// The device keeps to a limit.
        managed: bool,
        /// Drawn at this moment.
        instant as "instant_mw": Milliwatts,
        /// Drawn over the last second.
        average as "average_mw": Milliwatts,
    }

    /// Fans and temperatures; that of the chip is in the sample.
    Thermal {
        /// Speed that the first fan is meant to have, in percent of its highest. Can be above 100.
        fan_speed as "fan_speed_percent": u32,
        /// Temperature of the memory.
        memory as "memory_c": Celsius,
        /// Clocks fall from here on.
        slowdown as "slowdown_c": Celsius,
        /// The device switches itself off.
        shutdown as "shutdown_c": Celsius,
    }

    /// The PCI Express link.
    Pcie {
        /// Generation in use.
        generation: u32,
        /// Highest generation of device and slot.
        generation_max: u32,
        /// Lanes in use.
        width: u32,
        /// Highest number of lanes.
        width_max: u32,
        /// Packets sent again since the last reset.
        replays: u32,
        /// Vendor and device number.
        device_id: u32,
        /// Vendor and device number of the board.
        subsystem_id: u32,
        /// Memory of the device that the processor can reach at once (BAR1).
        bar1_total as "bar1_total_bytes": Bytes,
        /// How much of it is mapped.
        bar1_used as "bar1_used_bytes": Bytes,
    }

    /// Traffic on the PCI Express link over 20 ms.
    PcieThroughput {
        /// To the host.
        sent as "sent_kib_s": u32,
        /// From the host.
        received as "received_kib_s": u32,
    }

    /// Errors of device memory and what was done about them.
    MemoryHealth {
        /// Corrected errors since the driver was loaded.
        corrected: u64,
        /// Uncorrected errors since the driver was loaded.
        uncorrected: u64,
        /// Corrected errors in the device's life.
        corrected_lifetime: u64,
        /// Uncorrected errors in the device's life.
        uncorrected_lifetime: u64,
        /// Pages retired after several single-bit errors.
        retired_single_bit: u32,
        /// Pages retired after a double-bit error.
        retired_double_bit: u32,
        /// A page waits for a reset to be retired.
        retired_pending: bool,
        /// Rows remapped after corrected errors.
        remapped_corrected: u32,
        /// Rows remapped after uncorrected errors.
        remapped_uncorrected: u32,
        /// A row waits for a reset to be remapped.
        remapped_pending: bool,
        /// A row could not be remapped: the device is to be replaced.
        remapped_failure: bool,
    }

    /// One NVLink; the speed and counters of its own side.
    NvLink {
        /// The link works.
        active: bool,
        /// Version of NVLink, such as 3.
        version: u32,
        /// What is at the other end.
        remote: PciBusId,
        /// Packets sent again.
        replays: u64,
        /// Recoveries from an error.
        recoveries: u64,
        /// CRC errors in flits.
        crc_errors: u64,
    }

    /// What a process used over its life, kept by the driver after its end.
    AccountedProcess {
        /// Its number on the host, which another one may have got since.
        pid: Pid,
        /// It still runs.
        running: bool,
        /// Highest use of memory.
        memory_max as "memory_max_bytes": Bytes,
        /// Share of its life in which its kernels ran.
        utilization as "utilization_percent": Percent,
        /// How long its context lived.
        time as "time_ms": u64,
    }
}

/// Processes that the driver keeps account of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Accounting {
    /// How many it can keep; the oldest is overwritten.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub buffer_size: Reading<u32>,
    /// Those that it has, by number; none where accounting is off.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub processes: Reading<Vec<AccountedProcess>>,
}

impl Default for Accounting {
    fn default() -> Self {
        Accounting { buffer_size: Err(Absent::NotSupported), processes: Err(Absent::NotSupported) }
    }
}

/// The groups that were asked for; `None` for one that was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[allow(missing_docs)] // Each is documented at its type.
pub struct DeviceDetails {
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub product: Option<Product>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub modes: Option<Modes>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub inforom: Option<Inforom>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub operation_modes: Option<OperationModes>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub activity: Option<Activity>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub engines: Option<Engines>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub clocks: Option<Clocks>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub power: Option<Power>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub power_readings: Option<PowerReadings>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub thermal: Option<Thermal>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub pcie: Option<Pcie>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub pcie_throughput: Option<PcieThroughput>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub memory_health: Option<MemoryHealth>,
    /// By number of the link; empty where there are none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub nvlinks: Option<Vec<NvLink>>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub accounting: Option<Accounting>,
}

impl DeviceDetails {
    /// Tells whether no group was asked for.
    pub fn is_empty(&self) -> bool {
        *self == DeviceDetails::default()
    }

    /// Takes what `told` tells: its values, and its reasons of absence but `NotSupported`; its
    /// NVLinks all together.
    pub fn overlay(&mut self, told: &DeviceDetails) {
        macro_rules! each {
            ($($group:ident)*) => { $(
                if let Some(told) = &told.$group {
                    self.$group.get_or_insert_default().overlay(told);
                }
            )* };
        }
        each!(product modes inforom operation_modes activity engines clocks power power_readings
            thermal pcie pcie_throughput memory_health);
        if told.nvlinks.is_some() {
            self.nvlinks.clone_from(&told.nvlinks);
        }
        if let Some(told) = &told.accounting {
            let accounting = self.accounting.get_or_insert_default();
            overlay(&mut accounting.buffer_size, &told.buffer_size);
            overlay(&mut accounting.processes, &told.processes);
        }
    }

    /// Gives `to` as the reason of absence wherever it is `from`, in the groups that are there.
    pub fn restate(&mut self, from: Absent, to: Absent) {
        macro_rules! each {
            ($($group:ident)*) => { $( self.$group.iter_mut().for_each(|g| g.restate(from, to)); )* };
        }
        each!(product modes inforom operation_modes activity engines clocks power power_readings
            thermal pcie pcie_throughput memory_health);
        self.nvlinks.iter_mut().flatten().for_each(|link| link.restate(from, to));
        if let Some(accounting) = &mut self.accounting {
            restate(&mut accounting.buffer_size, from, to);
            restate(&mut accounting.processes, from, to);
            let kept = accounting.processes.iter_mut().flatten();
            kept.for_each(|process| process.restate(from, to));
        }
    }

    /// Keeps the groups of a set.
    #[must_use]
    pub fn only(mut self, groups: Groups) -> Self {
        fn drop_unless<T>(keep: bool, group: &mut Option<T>) {
            if !keep {
                *group = None;
            }
        }
        drop_unless(groups.has(Group::Product), &mut self.product);
        drop_unless(groups.has(Group::Modes), &mut self.modes);
        drop_unless(groups.has(Group::Inforom), &mut self.inforom);
        drop_unless(groups.has(Group::OperationModes), &mut self.operation_modes);
        drop_unless(groups.has(Group::Activity), &mut self.activity);
        drop_unless(groups.has(Group::Engines), &mut self.engines);
        drop_unless(groups.has(Group::Clocks), &mut self.clocks);
        drop_unless(groups.has(Group::Power), &mut self.power);
        drop_unless(groups.has(Group::PowerReadings), &mut self.power_readings);
        drop_unless(groups.has(Group::Thermal), &mut self.thermal);
        drop_unless(groups.has(Group::Pcie), &mut self.pcie);
        drop_unless(groups.has(Group::PcieThroughput), &mut self.pcie_throughput);
        drop_unless(groups.has(Group::MemoryHealth), &mut self.memory_health);
        drop_unless(groups.has(Group::NvLinks), &mut self.nvlinks);
        drop_unless(groups.has(Group::Accounting), &mut self.accounting);
        self
    }
}

/// Who may make a CUDA context on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ComputeMode {
    /// Everybody.
    Default,
    /// One thread of one process; no longer made by drivers of today.
    ExclusiveThread,
    /// Nobody.
    Prohibited,
    /// One process.
    ExclusiveProcess,
}

/// What a device is set up to be good at (GPU operation mode), on the few that can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum OperationMode {
    /// Everything.
    AllOn,
    /// Computing: graphics are off.
    Compute,
    /// Graphics, which need little double precision.
    LowDoublePrecision,
}

/// Reasons for clocks below what was asked for: a set of bits with NVML's meaning
/// (`nvmlClocksThrottleReasons`, later `nvmlClocksEventReasons`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct ThrottleReasons(pub u64);

impl ThrottleReasons {
    /// The reasons that have a name, each with its bit and the name that nvidia-smi gives it.
    pub const NAMED: [(u64, &'static str); 9] = [
        (0x001, "idle"),
        (0x002, "applications clocks setting"),
        (0x004, "software power cap"),
        (0x008, "hardware slowdown"),
        (0x010, "sync boost"),
        (0x020, "software thermal slowdown"),
        (0x040, "hardware thermal slowdown"),
        (0x080, "hardware power brake slowdown"),
        (0x100, "display clock setting"),
    ];

    /// Returns the names of the reasons in force; a bit without a name is left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMED.into_iter();
        named.filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

/// Something that a device reported by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceEvent {
    /// NVML's index of the device; `None` where the driver did not say which.
    pub device: Option<u32>,
    /// What.
    pub kind: DeviceEventKind,
}

/// What a device reports by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", tag = "kind", content = "xid"))]
pub enum DeviceEventKind {
    /// A critical error, by its number in NVIDIA's list of XIDs.
    Xid(u64),
    /// A corrected error of memory.
    SingleBitEcc,
    /// An uncorrected error of memory.
    DoubleBitEcc,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn untold(reason: Absent) -> DeviceDetails {
        DeviceDetails {
            product: Some(Product::absent(reason)),
            modes: Some(Modes::absent(reason)),
            inforom: Some(Inforom::absent(reason)),
            operation_modes: Some(OperationModes::absent(reason)),
            activity: Some(Activity::absent(reason)),
            engines: Some(Engines::absent(reason)),
            clocks: Some(Clocks::absent(reason)),
            power: Some(Power::absent(reason)),
            power_readings: Some(PowerReadings::absent(reason)),
            thermal: Some(Thermal::absent(reason)),
            pcie: Some(Pcie::absent(reason)),
            pcie_throughput: Some(PcieThroughput::absent(reason)),
            memory_health: Some(MemoryHealth::absent(reason)),
            nvlinks: Some(vec![NvLink::absent(reason)]),
            accounting: Some(Accounting {
                buffer_size: Err(reason),
                processes: Ok(vec![AccountedProcess::absent(reason)]),
            }),
        }
    }

    #[test]
    fn what_is_told_goes_before_what_is_not_supported() {
        let (not, old) = (untold(Absent::NotSupported), untold(Absent::TooOld));
        for (below, above, expected) in [
            (&not, &old, &old),
            (&not, &DeviceDetails::default(), &not),
            (&DeviceDetails::default(), &old, &old),
        ] {
            let mut details = below.clone();
            details.overlay(above);
            assert_eq!(details, *expected);
        }
        let told = |mhz| Clocks { graphics: mhz, ..Clocks::default() };
        let mut clocks = told(Ok(1410));
        clocks.overlay(&told(Err(Absent::NotSupported)));
        assert_eq!(clocks, told(Ok(1410)));
        clocks.overlay(&told(Ok(210)));
        assert_eq!(clocks, told(Ok(210)));
    }

    #[test]
    fn a_reason_is_restated_in_every_group() {
        let mut details = untold(Absent::NotRecorded);
        details.restate(Absent::TooOld, Absent::Failed);
        assert_eq!(details, untold(Absent::NotRecorded));
        details.restate(Absent::NotRecorded, Absent::NotSupported);
        assert_eq!(details, untold(Absent::NotSupported));
    }
}
