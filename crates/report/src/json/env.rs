//! `gpuws mem env --json`.

use super::SCHEMA;
use gpu_core::{Bytes, Snapshot};
use gpu_memory_advice::environment::{self, Advice, Framework, Snippet, Variable};
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

/// The environment that makes a program keep a limit.
#[derive(Serialize)]
pub struct Bounded<'a> {
    schema: u32,
    /// `live` or `simulated`; null where nothing was looked at.
    origin: Option<&'static str>,
    limit_bytes: Bytes,
    context_bytes: Bytes,
    /// Of each device; null where it is not known.
    device_memory_bytes: Option<&'a [Bytes]>,
    mps_server: bool,
    /// The interpreter whose packages were looked through.
    python: Option<String>,
    frameworks: Vec<Used<'a>>,
    variables: &'a [Variable],
    code: &'a [Snippet],
    notes: &'a [String],
}

#[derive(Serialize)]
struct Used<'a> {
    framework: Framework,
    /// Null where it is not known.
    version: Option<String>,
    /// As the name of its directory has it; null where none was found.
    installed: Option<&'a str>,
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
            framework: used.framework,
            version: used.version.map(|version| format!("{}.{}", version.major, version.minor)),
            installed: *installed,
        });
        Bounded {
            schema: SCHEMA,
            origin: seen.look.map(|look| super::origin(&look.origin)),
            limit_bytes: limit,
            context_bytes: context,
            device_memory_bytes: Some(seen.totals).filter(|totals| !totals.is_empty()),
            mps_server: seen.is_served,
            python: known.python.map(|path| path.display().to_string()),
            frameworks: used.collect(),
            variables: &advice.variables,
            code: &advice.code,
            notes: &advice.notes,
        }
    }
}
