//! `gpuws mem env --json`.

use super::Version;
use super::names::Origin;
use gpu_core::{Bytes, Snapshot};
use gpu_memory_advice::environment::{self, Advice, Framework, Snippet, Variable};
use serde::Serialize;
use std::path::Path;

/// What a limit depends on, beside the program.
pub struct Seen<'a> {
    /// The look at the machine, where there was one.
    pub snapshot: Option<&'a Snapshot>,
    /// All memory of each device; empty where that is not known.
    pub totals: &'a [Bytes],
    /// There is an MPS server.
    pub is_served: bool,
}

/// What a program uses, and how that is known.
pub struct Known<'a> {
    /// Each framework, with its version as the name of its directory has it.
    pub used: Vec<(environment::Used, Option<&'a str>)>,
    /// The interpreter whose packages were looked through.
    pub python: Option<&'a Path>,
}

/// The settings that keep a program within a memory limit.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bounded<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data about the machine comes from. Null if no machine was queried.
    pub origin: Option<Origin>,
    /// Limit on each GPU, in bytes.
    pub limit_bytes: u64,
    /// Part of the limit that is reserved for the CUDA context and libraries, in bytes.
    pub context_bytes: u64,
    /// Total memory of each GPU, in bytes. Null if unknown.
    pub device_memory_bytes: Option<Vec<u64>>,
    /// Whether an MPS server is running.
    pub mps_server: bool,
    /// Path of the Python interpreter whose packages were inspected. Null if none was.
    pub python: Option<String>,
    /// The frameworks that the settings are for.
    pub frameworks: Vec<Used<'a>>,
    /// Environment variables to set, by name.
    pub variables: &'a [Variable],
    /// Code to add for frameworks without such variables.
    pub code: &'a [Snippet],
    /// What is not limited, and what was left unchanged, one sentence fragment each.
    pub notes: &'a [String],
}

/// A framework.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Used<'a> {
    /// The framework.
    pub framework: Framework,
    /// Major and minor version, such as 2.10. Null if unknown.
    pub version: Option<String>,
    /// Full version of the installed package. Null if none was found.
    pub installed: Option<&'a str>,
}

impl<'a> Bounded<'a> {
    /// Returns the object for a limit and the part of it that the CUDA context takes.
    pub fn of(
        (limit, context): (Bytes, Bytes),
        known: &Known<'a>,
        seen: &Seen<'a>,
        advice: &'a Advice,
    ) -> Self {
        let used = known.used.iter().map(|(used, installed)| Used {
            framework: used.framework,
            version: used.version.map(|version| format!("{}.{}", version.major, version.minor)),
            installed: *installed,
        });
        Bounded {
            schema: Version,
            origin: seen.snapshot.map(|snapshot| Origin::from(&snapshot.origin)),
            limit_bytes: limit.0,
            context_bytes: context.0,
            device_memory_bytes: (!seen.totals.is_empty())
                .then(|| seen.totals.iter().map(|total| total.0).collect()),
            mps_server: seen.is_served,
            python: known.python.map(|path| path.display().to_string()),
            frameworks: used.collect(),
            variables: &advice.variables,
            code: &advice.code,
            notes: &advice.notes,
        }
    }
}
