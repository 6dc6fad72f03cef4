//! The columns of `--query-gpu`.

mod activity;
mod clocks;
mod device;
mod errors;
mod fabric;
mod power;

use super::field::{Field, Row, plain};
use gpu_core::{Absent, PciBusId, Reading};

pub(super) use errors::REMAPPED_ROWS;

/// All columns of nvidia-smi 535 to 610, in the order of its help.
pub(super) const FIELDS: &[&[Field]] = &[
    device::FIELDS,
    activity::FIELDS,
    errors::MODES,
    errors::CORRECTED,
    errors::CORRECTED_LIFETIME,
    errors::UNCORRECTED,
    errors::UNCORRECTED_LIFETIME,
    errors::SRAM,
    errors::RETIRED_PAGES,
    errors::REMAPPED_ROWS,
    power::FIELDS,
    power::SMOOTHING,
    clocks::FIELDS,
    fabric::FIELDS,
];

pub(super) fn name(row: &Row<'_>) -> Reading<String> {
    row.device.info.name.clone()
}

pub(super) fn serial(row: &Row<'_>) -> Reading<String> {
    row.details()?.product.as_ref().ok_or(Absent::NotRecorded)?.serial.clone()
}

pub(super) fn uuid(row: &Row<'_>) -> Reading<String> {
    row.device.id().uuid.as_ref().map(plain).map_err(|absent| *absent)
}

pub(super) fn bus_id(row: &Row<'_>) -> Reading<String> {
    bus(row).map(|bus| bus.to_string())
}

fn bus(row: &Row<'_>) -> Reading<PciBusId> {
    row.device.id().bus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csv::field::Item;
    use gpu_core::{
        DeviceDetails, DeviceId, DeviceInfo, DeviceSample, DeviceState, Groups, Inventory,
    };

    fn device(details: DeviceDetails) -> DeviceState {
        DeviceState {
            info: DeviceInfo::unknown(DeviceId::from_index(0)),
            sample: Ok(DeviceSample::absent(Absent::NotSupported)),
            processes: Ok(vec![]),
            partitions: Ok(vec![]),
            details: Ok(details),
        }
    }

    /// Returns all groups, with each value `NotSupported`. A column that reads another group than
    /// its own yields `NotRecorded`.
    fn all_groups() -> DeviceDetails {
        DeviceDetails {
            product: Some(Default::default()),
            modes: Some(Default::default()),
            inforom: Some(Default::default()),
            gsp_firmware: Some(Default::default()),
            virtual_gpus: Some(Default::default()),
            reset_status: Some(Default::default()),
            operation_modes: Some(Default::default()),
            rare_modes: Some(Default::default()),
            activity: Some(Default::default()),
            throttle_times: Some(Default::default()),
            engines: Some(Default::default()),
            clocks: Some(Default::default()),
            application_clocks: Some(Default::default()),
            supported_clocks: Some(Default::default()),
            power: Some(Default::default()),
            power_readings: Some(Default::default()),
            module_power: Some(Default::default()),
            thermal: Some(Default::default()),
            pcie: Some(Default::default()),
            pcie_throughput: Some(Default::default()),
            protected_memory: Some(Default::default()),
            memory_health: Some(Default::default()),
            memory_errors: Some(Default::default()),
            sram_errors: Some(Default::default()),
            nvlinks: Some(vec![]),
            fabric: Some(Default::default()),
            platform: Some(Default::default()),
            accounting: Some(Default::default()),
        }
    }

    #[test]
    fn columns_request_the_groups_they_read() {
        let machine = Inventory {
            driver: Ok(gpu_core::Driver {
                version: Err(Absent::NotRecorded),
                cuda: Ok("12".into()),
            }),
            devices: vec![],
        };
        for field in FIELDS.iter().copied().flatten() {
            let groups: Groups = field.group.into_iter().collect();
            let device = device(all_groups().only(groups));
            let row = Row { machine: &machine, device: &device, time: "now", item: Item::Device };
            let value = (field.get)(&row);
            if field.group.is_some() {
                assert_eq!(value, Err(Absent::NotSupported), "{}", field.name);
            }
        }
    }

    #[test]
    fn column_names_are_unique() {
        let mut names: Vec<&str> =
            FIELDS.iter().copied().flatten().flat_map(Field::names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
