//! `gpuws mem env --json`.

use super::Version;
use super::names::{Framework, Keeper, Origin};
use gpu_core::{Bytes, Snapshot};
use gpu_memory_advice::environment::{self, Advice};
use serde::Serialize;
use std::path::Path;

/// What a limit depends on, beside the program.
pub struct Seen<'a> {
    /// The look at the machine, where there was one.
    pub look: Option<&'a Snapshot>,
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
    pub variables: Vec<Variable<'a>>,
    /// Code to add for frameworks without such variables.
    pub code: Vec<Snippet<'a>>,
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

/// An environment variable to set.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Variable<'a> {
    /// Name of the variable.
    pub name: &'a str,
    /// Value of the variable, which includes the settings that it already has.
    pub value: &'a str,
    /// What then enforces the limit.
    pub kept_by: Keeper,
}

/// Code to add to a program.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snippet<'a> {
    /// The framework whose API the code uses.
    pub framework: Framework,
    /// Lines of Python.
    pub lines: &'a [String],
}

impl<'a> Bounded<'a> {
    /// Returns what is told of a limit, of which so much is left to the CUDA context.
    pub fn of(
        (limit, context): (Bytes, Bytes),
        known: &Known<'a>,
        seen: &Seen<'a>,
        advice: &'a Advice,
    ) -> Self {
        let used = known.used.iter().map(|(used, installed)| Used {
            framework: used.framework.into(),
            version: used.version.map(|version| format!("{}.{}", version.major, version.minor)),
            installed: *installed,
        });
        let variable = |variable: &'a environment::Variable| Variable {
            name: variable.name,
            value: &variable.value,
            kept_by: variable.kept_by.into(),
        };
        let snippet = |snippet: &'a environment::Snippet| Snippet {
            framework: snippet.framework.into(),
            lines: &snippet.lines,
        };
        Bounded {
            schema: Version,
            origin: seen.look.map(|look| Origin::from(&look.origin)),
            limit_bytes: limit.0,
            context_bytes: context.0,
            device_memory_bytes: (!seen.totals.is_empty())
                .then(|| seen.totals.iter().map(|total| total.0).collect()),
            mps_server: seen.is_served,
            python: known.python.map(|path| path.display().to_string()),
            frameworks: used.collect(),
            variables: advice.variables.iter().map(variable).collect(),
            code: advice.code.iter().map(snippet).collect(),
            notes: &advice.notes,
        }
    }
}
