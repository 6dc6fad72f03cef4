//! `gpuws status --format gpustat-json`: prints the JSON of gpustat.

use super::StatusArgs;
use crate::args::Global;
use crate::commands::{query, repeat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::Screen;
use gpu_core::selector::select;
use gpu_report::gpustat;

pub(super) fn run(
    args: &StatusArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open_for_query(global, gpustat::groups(), args.repeat.is_once())?;
    repeat::name_origin(&source);
    repeat::show(&args.repeat, &source, screen, |screen| {
        let at = source.clock.wall();
        let machine = gpu_core::take_inventory(&*source.backend, &*source.host, gpustat::groups());
        let devices = match query::shown(&machine.driver, &machine.devices, &args.only.devices)? {
            devices if devices.is_empty() && !args.only.devices.is_empty() => {
                select(machine.devices.clone(), &args.only.devices)?
            }
            devices => devices,
        };
        let processes = gpustat::Processes::look_up(
            &devices,
            |pid| source.listed_process(pid),
            || source.clock.sleep(gpustat::CPU_WINDOW),
        );
        let view = gpustat::Machine::of(
            source.host.hostname(),
            &machine,
            &devices,
            &processes,
            at,
            &crate::local_time::zone(),
        );
        screen.json_as_python(&view)?;
        Ok(Exit::Done)
    })
}
