//! The outputs of nvidia-smi: its table, `status -L` and `status -q -x`.

use super::StatusArgs;
use crate::args::Global;
use crate::commands::{query, repeat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::local_time::zone;
use crate::source;
use crate::terminal::Screen;
use gpu_core::{Groups, Snapshot, observe_users, take_inventory};
use gpu_report::csv::Subject;
use gpu_report::smi;

pub(super) fn run(
    args: &StatusArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let groups = match (args.list_gpus, args.xml) {
        (true, _) => Groups::NONE,
        (_, true) => Groups::all(),
        _ => smi::table_groups(),
    };
    let source = source::open_for_query(global, groups, args.repeat.is_once())?;
    repeat::name_origin(&source);
    repeat::show(&args.repeat, &source, screen, |screen| {
        // The list needs no processes.
        let snapshot = if args.list_gpus {
            let machine = take_inventory(&*source.backend, &*source.host, groups);
            let empty = Snapshot::empty(source.backend.origin(), source.clock.wall());
            Snapshot { driver: machine.driver, devices: machine.devices, ..empty }
        } else {
            observe_users(&*source.backend, &*source.host, &*source.clock, groups)
        };
        let devices = query::shown(&snapshot.driver, &snapshot.devices, &args.only.devices)?;
        if devices.is_empty() {
            return query::none_found(screen);
        }
        let text = match (args.list_gpus, args.xml) {
            (true, _) => smi::list(&devices).join("\n") + "\n",
            (_, true) => smi::document(&snapshot, &devices, &zone()),
            _ => smi::table(&snapshot, &devices, &zone()),
        };
        screen.raw(text.as_bytes())?;
        Ok(query::unanswered(&devices, Subject::Gpu).unwrap_or(Exit::Done))
    })
}
