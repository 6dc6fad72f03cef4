//! One file per command.

pub(crate) mod claim;
pub(crate) mod completions;
pub(crate) mod demo;
mod device_lines;
pub(crate) mod doctor;
pub(crate) mod front;
pub(crate) mod holders;
pub(crate) mod leases;
pub(crate) mod man;
pub(crate) mod mem;
pub(crate) mod parse;
mod paste;
pub(crate) mod query;
pub(crate) mod reap;
pub(crate) mod record;
mod repeat;
pub(crate) mod reset;
pub(crate) mod run;
pub(crate) mod shim;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod topo;

use crate::exit::Exit;
use crate::failure::Failure;

/// Makes sure that the machine has the devices that were named by index.
///
/// # Errors
/// When it lacks one, with those that it has.
fn devices_exist(asked: &[u32], known: &[u32]) -> Result<(), Failure> {
    let Some(index) = asked.iter().find(|index| !known.contains(index)) else { return Ok(()) };
    Err(Failure::new(Exit::Usage, format!("find GPU {index} on this machine"))
        .with_hint(crate::words::machine_has(known)))
}
