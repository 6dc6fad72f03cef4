//! JSON Schemas of units and identifiers: those of the numbers and texts that they serialize to.

use crate::details::{ThrottleReason, ThrottleReasons};
use crate::id::{PciBusId, Pid, StartTime};
use crate::units::{Bytes, Celsius, Milliwatts, Percent};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

macro_rules! schema_as {
    ($($unit:ty: $plain:ty,)*) => { $(
        impl JsonSchema for $unit {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($unit).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$plain>::json_schema(generator)
            }
        }
    )* };
}

schema_as! {
    Pid: u32,
    StartTime: u64,
    PciBusId: String,
    Bytes: u64,
    Milliwatts: u64,
    Celsius: i32,
    Percent: u8,
    ThrottleReasons: u64,
}

impl JsonSchema for ThrottleReason {
    fn schema_name() -> Cow<'static, str> {
        "ThrottleReason".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = ThrottleReasons::NAMED.map(|(_, name)| name);
        json_schema!({
            "description": "Reason for reduced clocks, as nvidia-smi names it.",
            "type": "string",
            "enum": names,
        })
    }
}
