//! `gpuws mem env --json`.

use super::SCHEMA;
use crate::args::EnvArgs;
use crate::commands::mem::Known;
use gpu_core::{Bytes, Snapshot};
use gpu_memory_advice::environment::{Advice, Framework, Snippet, Variable};
use serde::Serialize;

/// What a limit depends on, beside the program.
pub(crate) struct Seen<'a> {
    pub(crate) look: Option<&'a Snapshot>,
    /// All memory of each device; empty where that is not known.
    pub(crate) totals: &'a [Bytes],
    /// There is an MPS server.
    pub(crate) is_served: bool,
}

/// The environment that makes a program keep a limit.
#[derive(Serialize)]
pub(crate) struct Bounded<'a> {
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
    /// As the name of its folder has it; null where none was found.
    installed: Option<&'a str>,
}

impl<'a> Bounded<'a> {
    pub(crate) fn of(
        args: &EnvArgs,
        known: &'a Known,
        seen: &Seen<'a>,
        advice: &'a Advice,
    ) -> Self {
        let used = known.used.iter().map(|used| Used {
            framework: used.framework,
            version: used.version.map(|version| format!("{}.{}", version.major, version.minor)),
            installed: known.installed_version(used.framework),
        });
        Bounded {
            schema: SCHEMA,
            origin: seen.look.map(|look| super::origin(&look.origin)),
            limit_bytes: args.limit,
            context_bytes: args.keep.context,
            device_memory_bytes: Some(seen.totals).filter(|totals| !totals.is_empty()),
            mps_server: seen.is_served,
            python: known.python.as_ref().map(|path| path.display().to_string()),
            frameworks: used.collect(),
            variables: &advice.variables,
            code: &advice.code,
            notes: &advice.notes,
        }
    }
}
