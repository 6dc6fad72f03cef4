//! All values of a device beyond a sample, in groups that are read one by one.

mod accounting;
mod activity;
mod event;
mod group;
mod health;
mod links;
mod modes;
mod peak;
mod power;
mod product;
mod readings;
#[cfg(feature = "serde")]
mod shown;
mod virtualization;

pub use accounting::{AccountedProcess, Accounting};
#[cfg(feature = "schema")]
pub(crate) use activity::ThrottleReason;
pub use activity::{
    Activity, ApplicationClocks, ClockChoice, Clocks, Engines, SupportedClocks, ThrottleReasons,
    ThrottleTimes,
};
pub use event::{DeviceEvent, DeviceEventKind};
pub use group::{Group, Groups};
pub use health::{
    ErrorsByPlace, MemoryErrors, MemoryHealth, RecoveryAction, ResetStatus, RetiredPage, SramErrors,
};
pub use links::{Fabric, FabricState, NvLink, Pcie, PcieThroughput, Platform};
pub use modes::{AddressingMode, ComputeMode, Modes, OperationMode, OperationModes, RareModes};
pub use power::{ModulePower, Power, PowerReadings, Thermal};
pub use product::{GspFirmware, Inforom, Product};
pub use virtualization::{ProtectedMemory, VirtualGpus};

use crate::absent::Absent;
use readings::Readings;
#[cfg(feature = "serde")]
use shown::{Reasons, Shown};

/// Defines the details of a device by their groups: the name of each in the set, and its field.
macro_rules! details {
    ($( $(#[$doc:meta])* $group:ident => $field:ident: $readings:ty, )*) => {
        /// The requested groups; `None` for a group that was not requested.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        pub struct DeviceDetails {
            $(
                $(#[$doc])*
                #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
                pub $field: Option<$readings>,
            )*
        }

        impl DeviceDetails {
            /// Returns whether no group was requested.
            pub fn is_empty(&self) -> bool {
                *self == DeviceDetails::default()
            }

            /// Takes the values of `reported`, and its reasons of absence except `NotSupported`;
            /// its NVLinks as a whole.
            pub fn overlay(&mut self, reported: &DeviceDetails) {
                $(
                    if let Some(reported) = &reported.$field {
                        self.$field.get_or_insert_default().overlay(reported);
                    }
                )*
            }

            /// Replaces the reason of absence `from` by `to` in the groups that are present.
            pub fn restate(&mut self, from: Absent, to: Absent) {
                $( self.$field.iter_mut().for_each(|readings| readings.restate(from, to)); )*
            }

            /// Returns these groups, with every value `NotSupported`.
            pub fn not_supported(groups: Groups) -> Self {
                DeviceDetails {
                    $( $field: groups.has(Group::$group).then(Default::default), )*
                }
            }

            /// Keeps the groups of a set.
            #[must_use]
            pub fn only(mut self, groups: Groups) -> Self {
                $(
                    if !groups.has(Group::$group) {
                        self.$field = None;
                    }
                )*
                self
            }
        }

        /// Details of a GPU, by group.
        #[cfg(feature = "serde")]
        #[derive(serde::Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Details"))]
        pub struct DetailsView {
            $(
                $(#[$doc])*
                #[doc = " Null if the driver did not report it."]
                $field: Option<<$readings as Shown>::View>,
            )*
            /// Why values are null, by group and field name, such as "clocks.sm_mhz". The name
            /// "details" means that no group could be queried.
            absent: Reasons,
        }

        #[cfg(feature = "serde")]
        impl DeviceDetails {
            /// Returns the object of the details in JSON.
            pub fn view(self) -> DetailsView {
                let mut absent = Reasons::new();
                DetailsView {
                    $( $field: self.$field.map(|group| group.shown(stringify!($field), &mut absent)), )*
                    absent,
                }
            }
        }
    };
}

#[cfg(feature = "serde")]
impl DetailsView {
    /// Returns the object without groups, and the reason why none could be queried.
    pub fn unknown(reason: Absent) -> Self {
        let mut view = DeviceDetails::default().view();
        view.absent.insert("details".to_owned(), reason);
        view
    }
}

details! {
    /// The identity of the GPU.
    Product => product: Product,
    /// Configuration of the GPU.
    Modes => modes: Modes,
    /// Versions of the contents of the inforom.
    Inforom => inforom: Inforom,
    /// Firmware of the GPU system processor (GSP).
    GspFirmware => gsp_firmware: GspFirmware,
    /// Which kinds of virtual GPUs can coexist.
    VirtualGpus => virtual_gpus: VirtualGpus,
    /// Whether the GPU needs a reset.
    ResetStatus => reset_status: ResetStatus,
    /// GPU operation mode.
    OperationModes => operation_modes: OperationModes,
    /// Modes that few GPUs have.
    RareModes => rare_modes: RareModes,
    /// How busy the GPU is, and what reduces its clocks.
    Activity => activity: Activity,
    /// Time with reduced clocks, by reason.
    ThrottleTimes => throttle_times: ThrottleTimes,
    /// Utilisation of the image engines.
    Engines => engines: Engines,
    /// Clocks.
    Clocks => clocks: Clocks,
    /// Application clocks.
    ApplicationClocks => application_clocks: ApplicationClocks,
    /// Clocks that can be set.
    SupportedClocks => supported_clocks: SupportedClocks,
    /// Power limits and energy.
    Power => power: Power,
    /// Readings of the power draw.
    PowerReadings => power_readings: PowerReadings,
    /// Power of the module.
    ModulePower => module_power: ModulePower,
    /// Fan and temperatures.
    Thermal => thermal: Thermal,
    /// PCI Express link.
    Pcie => pcie: Pcie,
    /// Traffic on the PCI Express link.
    PcieThroughput => pcie_throughput: PcieThroughput,
    /// Protected memory (confidential computing).
    ProtectedMemory => protected_memory: ProtectedMemory,
    /// Errors of the memory and repairs.
    MemoryHealth => memory_health: MemoryHealth,
    // Boxed, because there are 28 of them and few callers need them.
    /// Errors of the memories, by location.
    MemoryErrors => memory_errors: Box<MemoryErrors>,
    /// Uncorrected errors of the SRAM.
    SramErrors => sram_errors: SramErrors,
    // By link number; empty if there are none.
    /// NVLinks.
    NvLinks => nvlinks: Vec<NvLink>,
    /// NVLink fabric.
    Fabric => fabric: Fabric,
    /// Place of the GPU in its rack.
    Platform => platform: Platform,
    /// Accounting data of processes.
    Accounting => accounting: Accounting,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreported(reason: Absent) -> DeviceDetails {
        DeviceDetails {
            product: Some(Product::absent(reason)),
            modes: Some(Modes::absent(reason)),
            inforom: Some(Inforom::absent(reason)),
            gsp_firmware: Some(GspFirmware::absent(reason)),
            virtual_gpus: Some(VirtualGpus::absent(reason)),
            reset_status: Some(ResetStatus::absent(reason)),
            operation_modes: Some(OperationModes::absent(reason)),
            rare_modes: Some(RareModes::absent(reason)),
            activity: Some(Activity::absent(reason)),
            throttle_times: Some(ThrottleTimes::absent(reason)),
            engines: Some(Engines::absent(reason)),
            clocks: Some(Clocks::absent(reason)),
            application_clocks: Some(ApplicationClocks::absent(reason)),
            supported_clocks: Some(SupportedClocks::absent(reason)),
            power: Some(Power::absent(reason)),
            power_readings: Some(PowerReadings::absent(reason)),
            module_power: Some(ModulePower::absent(reason)),
            thermal: Some(Thermal::absent(reason)),
            pcie: Some(Pcie::absent(reason)),
            pcie_throughput: Some(PcieThroughput::absent(reason)),
            protected_memory: Some(ProtectedMemory::absent(reason)),
            memory_health: Some(MemoryHealth::absent(reason)),
            memory_errors: Some(Box::new(MemoryErrors::absent(reason))),
            sram_errors: Some(SramErrors::absent(reason)),
            nvlinks: Some(vec![NvLink::absent(reason)]),
            fabric: Some(Fabric::absent(reason)),
            platform: Some(Platform::absent(reason)),
            accounting: Some(Accounting {
                buffer_size: Err(reason),
                processes: Ok(vec![AccountedProcess::absent(reason)]),
            }),
        }
    }

    #[test]
    fn overlay_prefers_values_over_not_supported() {
        let (not, old) = (unreported(Absent::NotSupported), unreported(Absent::TooOld));
        for (below, above, expected) in [
            (&not, &old, &old),
            (&not, &DeviceDetails::default(), &not),
            (&DeviceDetails::default(), &old, &old),
        ] {
            let mut details = below.clone();
            details.overlay(above);
            assert_eq!(details, *expected);
        }
        let reported = |mhz| Clocks { graphics: mhz, ..Clocks::default() };
        let mut clocks = reported(Ok(1410));
        clocks.overlay(&reported(Err(Absent::NotSupported)));
        assert_eq!(clocks, reported(Ok(1410)));
        clocks.overlay(&reported(Ok(210)));
        assert_eq!(clocks, reported(Ok(210)));
    }

    #[test]
    fn absence_reason_is_replaced_in_every_group() {
        let mut details = unreported(Absent::NotRecorded);
        details.restate(Absent::TooOld, Absent::Failed);
        assert_eq!(details, unreported(Absent::NotRecorded));
        details.restate(Absent::NotRecorded, Absent::NotSupported);
        assert_eq!(details, unreported(Absent::NotSupported));
    }
}
