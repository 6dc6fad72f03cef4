//! `gpuws status -L`: lists the devices as nvidia-smi does.

use super::StatusArgs;
use crate::args::Global;
use crate::commands::{query, repeat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::{Line, Screen};
use gpu_core::Groups;
use gpu_report::smi;

pub(super) fn run(
    args: &StatusArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open_for_query(global, Groups::NONE, true)?;
    repeat::name_origin(&source);
    let machine = gpu_core::look_at_devices(&*source.backend, &*source.host, Groups::NONE);
    let devices = query::shown(&machine, &args.only.devices)?;
    screen.print_all(smi::list(&devices).into_iter().map(|line| Line::new().plain(line)))?;
    Ok(Exit::Done)
}
