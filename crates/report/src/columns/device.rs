//! Columns of a device.

use super::{Column, DeviceColumn};
use crate::readings::{details, sample, text};
use crate::smi::compute_mode;
use crate::text::Align;
use crate::wording;
use gpu_core::{Absent, Group};

/// Makes a column.
macro_rules! column {
    ($name:literal, $title:literal, $align:ident, $group:expr, $cell:expr) => {
        Column { name: $name, title: ($title, Align::$align), group: $group, cell: $cell }
    };
}

/// Makes a column for a value in a group of details.
macro_rules! detail {
    ($name:literal, $title:literal, $group:ident: $field:ident . $value:ident, $format:expr) => {
        column!($name, $title, Right, Some(Group::$group), |device| {
            details(device)?.$field.as_ref().ok_or(Absent::NotRecorded)?.$value.map($format)
        })
    };
}

pub(super) const COLUMNS: &[DeviceColumn] = &[
    column!("name", "NAME", Left, None, |device| {
        device.info.name.as_deref().map(product).map_err(|absent| *absent)
    }),
    column!("temp", "TEMP", Right, None, |device| text(sample(device)?.temperature)),
    column!("power", "POWER", Right, None, |device| text(sample(device)?.power_draw)),
    column!("power-limit", "LIMIT", Right, None, |device| text(sample(device)?.power_limit)),
    column!("util", "UTIL", Right, None, |device| text(sample(device)?.utilization)),
    column!("memory", "MEMORY", Right, None, |device| {
        let memory = sample(device)?.memory;
        Ok(wording::used_of(memory.used?, memory.total?, (0, 0)))
    }),
    detail!("fan", "FAN", Thermal: thermal.fan_speed, |percent| format!("{percent} %")),
    detail!("pstate", "PSTATE", Activity: activity.performance_state, |state| format!("P{state}")),
    detail!("sm-clock", "SM CLOCK", Clocks: clocks.sm, mhz),
    detail!("memory-clock", "MEMORY CLOCK", Clocks: clocks.memory, mhz),
    detail!("memory-util", "MEMORY UTIL", Activity: activity.memory, |share| share.to_string()),
    detail!("encoder", "ENCODER", Activity: activity.encoder, |share| share.to_string()),
    detail!("decoder", "DECODER", Activity: activity.decoder, |share| share.to_string()),
    column!("bus-id", "BUS ID", Left, None, |device| text(device.id().bus)),
    column!("persistence", "PERSISTENCE", Left, None, |device| device.info.persistence.map(on)),
    column!("display", "DISPLAY", Left, None, |device| device.info.display_active.map(on)),
    detail!("ecc", "ECC ERRORS", MemoryHealth: memory_health.uncorrected, |count| count.to_string()),
    detail!("compute-mode", "COMPUTE MODE", Modes: modes.compute_mode, |mode| {
        compute_mode(mode).to_owned()
    }),
];

fn product(name: &str) -> String {
    crate::wording::product(name).to_owned()
}

fn on(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

fn mhz(clock: u32) -> String {
    format!("{clock} MHz")
}
