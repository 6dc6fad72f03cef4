//! Columns for clocks.

use crate::csv::field::{Field, detail, plain};

/// Makes a column for a clock, in MHz.
macro_rules! clock {
    ($name:literal, $about:literal, $value:ident $(, $other:literal)?) => {
        detail!($name, $about, Clocks: clocks.$value, plain).unit("MHz").or(&[$($other)?])
    };
}

/// Makes a column for an applications clock, in MHz.
macro_rules! application_clock {
    ($name:literal, $about:literal, $value:ident, $other:literal) => {
        detail!($name, $about, ApplicationClocks: application_clocks.$value, plain)
            .unit("MHz")
            .or(&[$other])
    };
}

/// The columns from `edpp_multiplier` on.
pub(super) const FIELDS: &[Field] = &[
    detail!(
        "edpp_multiplier", "share of the peak power that the GPU may draw for a short time",
        PowerReadings: power_readings.peak_share, |share| format!("{share}.00")
    )
    .unit("%"),
    clock!("clocks.current.graphics", "graphics clock", graphics, "clocks.gr"),
    clock!("clocks.current.sm", "SM clock", sm, "clocks.sm"),
    clock!("clocks.current.memory", "memory clock", memory, "clocks.mem"),
    clock!("clocks.current.video", "video clock", video, "clocks.video"),
    application_clock!(
        "clocks.applications.graphics",
        "applications graphics clock",
        graphics,
        "clocks.applications.gr"
    ),
    application_clock!(
        "clocks.applications.memory",
        "applications memory clock",
        memory,
        "clocks.applications.mem"
    ),
    application_clock!(
        "clocks.default_applications.graphics",
        "default applications graphics clock",
        default_graphics,
        "clocks.default_applications.gr"
    ),
    application_clock!(
        "clocks.default_applications.memory",
        "default applications memory clock",
        default_memory,
        "clocks.default_applications.mem"
    ),
    clock!("clocks.max.graphics", "maximum graphics clock", graphics_max, "clocks.max.gr"),
    clock!("clocks.max.sm", "maximum SM clock", sm_max),
    clock!("clocks.max.memory", "maximum memory clock", memory_max, "clocks.max.mem"),
];
