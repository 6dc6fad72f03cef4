//! The machine that the command line names.

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::progress;
use crate::wording::shell_word;
use gpu_core::{Groups, Origin};
pub(crate) use gpu_machine::{CLAIMS, Source, roots};
use gpu_machine::{MachineError, Options};

/// Opens the machine that the command line names.
///
/// # Errors
/// As [`Source::open`].
pub(crate) fn open(global: &Global) -> Result<Source, MachineError> {
    Source::open(&options(global))
}

/// Opens the machine that the command line names, to look next at these groups.
///
/// # Errors
/// As [`Source::open_to_look`].
pub(crate) fn open_to_look(
    global: &Global,
    groups: Groups,
    once: bool,
) -> Result<Source, MachineError> {
    Source::open_to_look(&options(global), groups, once)
}

fn options(global: &Global) -> Options<'_> {
    Options {
        sim: global.sim.as_deref(),
        nvml: global.nvml.as_deref(),
        deadline: global.deadline,
        tell: progress,
    }
}

/// Returns the option that names this machine on a command line, to go into the next command.
/// Within a session none is needed: what is typed there finds its machine as this program did.
pub(crate) fn sim_option(origin: &Origin, global: &Global) -> String {
    match (origin, &global.sim) {
        (Origin::Simulated(_), None) if gpu_machine::is_in_session() => String::new(),
        (Origin::Simulated(_), Some(path)) => {
            format!("--sim {} ", shell_word(&path.to_string_lossy()))
        }
        (Origin::Simulated(name), None) => format!("--sim {} ", shell_word(name)),
        _ => String::new(),
    }
}

/// Says which machines there are.
pub(crate) fn unknown_machine(machine: &str) -> Failure {
    let names: Vec<&str> = gpu_sim::machines().iter().map(|machine| machine.name).collect();
    Failure::new(Exit::Usage, format!("find machine '{machine}'"))
        .with_source("no built-in machine, directory or file has this name")
        .with_hint(format!("available: {}", names.join(", ")))
}
