//! The machine that the command line selects.

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::progress;
use crate::wording::{path_word, shell_word};
use gpu_core::{Groups, Origin};
use gpu_machine::Options;
pub(crate) use gpu_machine::{CLAIMS, Source, roots};
use gpu_sim::Machine;
use std::path::Path;

/// Opens the machine that the command line selects.
pub(crate) fn open(global: &Global) -> Result<Source, Failure> {
    Source::open(&options(global)).map_err(|error| opening(global.sim.as_deref(), error))
}

/// Opens the machine that the command line selects, for a query of these groups next.
pub(crate) fn open_for_query(
    global: &Global,
    groups: Groups,
    once: bool,
) -> Result<Source, Failure> {
    Source::open_for_query(&options(global), groups, once)
        .map_err(|error| opening(global.sim.as_deref(), error))
}

/// Opens the machine that the command line selects, for repeated snapshots, with another function
/// for messages about waits. A view keeps NVML open ([`Source::open_to_watch`]); a program that
/// runs for days does not, because that would block resets.
pub(crate) fn open_to_watch(
    global: &Global,
    keeps_open: bool,
    progress: fn(&str),
) -> Result<Source, Failure> {
    let open = if keeps_open { Source::open_to_watch } else { Source::open_to_observe };
    open(&Options { progress, warn: progress, ..options(global) })
        .map_err(|error| opening(global.sim.as_deref(), error))
}

/// Returns the failure to open a machine; lists the machines if none has this name.
pub(crate) fn opening(machine: Option<&Path>, error: impl Into<Failure>) -> Failure {
    match machine {
        Some(machine) if Machine::name_of(machine).is_none() => {
            let crowd = "and e.g. crowd:8x32 (8 GPUs with 32 processes each)";
            let machines = gpu_sim::machines();
            let names = machines.iter().map(|machine| machine.name).chain([crowd]);
            error.into().with_list("machines", names.collect::<Vec<_>>().join(", "))
        }
        _ => error.into(),
    }
}

/// Returns the machine that the command line selects.
pub(crate) fn options(global: &Global) -> Options<'_> {
    Options {
        sim: global.sim.as_deref(),
        root: global.root.as_deref(),
        nvml: global.nvml.as_deref(),
        deadline: global.deadline,
        progress,
        warn: crate::terminal::warn,
        program: None,
    }
}

/// Returns the option that selects this machine, for a suggested command. A session needs none: the
/// command finds the machine as this program did.
pub(crate) fn sim_option(origin: &Origin, global: &Global) -> String {
    match (origin, &global.sim) {
        (Origin::Simulated(_), None) if gpu_machine::is_in_session() => String::new(),
        (Origin::Simulated(_), Some(path)) => format!("--sim {} ", path_word(path)),
        (Origin::Simulated(name), None) => format!("--sim {} ", shell_word(name)),
        _ => String::new(),
    }
}

/// Rejects `--sim`, which starts no real processes.
///
/// # Errors
/// With `--sim`.
pub(crate) fn real_processes(global: &Global) -> Result<(), Failure> {
    match &global.sim {
        None => Ok(()),
        Some(machine) => Err(only_simulated(&machine.to_string_lossy())),
    }
}

/// Returns the start of a command line that runs jobs on the selected machine, because a simulated
/// one needs real processes.
pub(crate) fn within(global: &Global) -> String {
    let start = |machine| format!("gpuws sim {} --live -- ", path_word(machine));
    global.sim.as_deref().map_or(String::new(), start)
}

/// Returns the failure for a machine without real processes.
pub(crate) fn only_simulated(machine: &str) -> Failure {
    let machine = shell_word(machine);
    Failure::new(Exit::Usage, "run jobs on a simulated machine without real processes")
        .with_hint(format!("use a live simulation: gpuws sim {machine} --live -- gpuws run …"))
}
