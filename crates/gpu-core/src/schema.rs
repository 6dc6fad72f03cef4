//! JSON Schemas of identifiers: those of the numbers that they serialize to.

use crate::id::{Pid, StartTime};
use schemars::{JsonSchema, Schema, SchemaGenerator};
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
}
