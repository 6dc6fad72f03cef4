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
mod virtualization;

pub use accounting::{AccountedProcess, Accounting};
pub use activity::{Activity, ApplicationClocks, Clocks, Engines, ThrottleReasons};
pub use event::{DeviceEvent, DeviceEventKind};
pub use group::{Group, Groups};
pub use health::{ErrorsByPlace, MemoryErrors, MemoryHealth, RecoveryAction, ResetStatus};
pub use links::{Fabric, FabricState, NvLink, Pcie, PcieThroughput};
pub use modes::{AddressingMode, ComputeMode, Modes, OperationMode, OperationModes};
pub use power::{Power, PowerReadings, Thermal};
pub use product::{GspFirmware, Inforom, Product};
pub use virtualization::{ProtectedMemory, VirtualGpus};

use crate::absent::Absent;
use readings::Readings;

/// Defines the details of a device by their groups: the name of each in the set, and its field.
macro_rules! details {
    ($( $(#[$doc:meta])* $group:ident => $field:ident: $readings:ty, )*) => {
        /// The requested groups; `None` for a group that was not requested.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        #[allow(missing_docs)] // Each is documented at its type.
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
    };
}

details! {
    Product => product: Product,
    Modes => modes: Modes,
    Inforom => inforom: Inforom,
    GspFirmware => gsp_firmware: GspFirmware,
    VirtualGpus => virtual_gpus: VirtualGpus,
    ResetStatus => reset_status: ResetStatus,
    OperationModes => operation_modes: OperationModes,
    Activity => activity: Activity,
    Engines => engines: Engines,
    Clocks => clocks: Clocks,
    ApplicationClocks => application_clocks: ApplicationClocks,
    Power => power: Power,
    PowerReadings => power_readings: PowerReadings,
    Thermal => thermal: Thermal,
    Pcie => pcie: Pcie,
    PcieThroughput => pcie_throughput: PcieThroughput,
    ProtectedMemory => protected_memory: ProtectedMemory,
    MemoryHealth => memory_health: MemoryHealth,
    /// Boxed, because there are 28 of them and few callers need them.
    MemoryErrors => memory_errors: Box<MemoryErrors>,
    /// By link number; empty if there are none.
    NvLinks => nvlinks: Vec<NvLink>,
    Fabric => fabric: Fabric,
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
            activity: Some(Activity::absent(reason)),
            engines: Some(Engines::absent(reason)),
            clocks: Some(Clocks::absent(reason)),
            application_clocks: Some(ApplicationClocks::absent(reason)),
            power: Some(Power::absent(reason)),
            power_readings: Some(PowerReadings::absent(reason)),
            thermal: Some(Thermal::absent(reason)),
            pcie: Some(Pcie::absent(reason)),
            pcie_throughput: Some(PcieThroughput::absent(reason)),
            protected_memory: Some(ProtectedMemory::absent(reason)),
            memory_health: Some(MemoryHealth::absent(reason)),
            memory_errors: Some(Box::new(MemoryErrors::absent(reason))),
            nvlinks: Some(vec![NvLink::absent(reason)]),
            fabric: Some(Fabric::absent(reason)),
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
