//! The status of a machine whose driver does not answer.

use crate::failure::{Failure, account, driver_remedy};
use crate::terminal::{Line, Screen, packed};
use crate::wording;
use gpu_core::{DeviceInfo, Holder, Snapshot};
use gpu_report::ProcessFilter;

/// Prints the cause, the remedy, and the information from /proc about the selected processes.
pub(crate) fn without_driver(
    screen: &mut Screen,
    snapshot: &Snapshot,
    fault: &gpu_core::Fault,
    filter: &ProcessFilter,
    quiet: bool,
) -> Result<(), Failure> {
    wording::flow(screen, Line::new().accent("cannot query any GPU: "), &account(fault))?;
    if let Some(remedy) = driver_remedy(fault.kind).filter(|_| !quiet) {
        // On one line, so that a command in it can be copied.
        wording::flow(screen, Line::new().dim("remedy: "), remedy)?;
    }
    for device in &snapshot.unasked {
        let (head, indent) = (Line::new().dim("module: "), 8);
        let lines = packed(head, unasked(device), "  ", indent, screen.room(0));
        screen.print_all(lines)?;
    }
    match &snapshot.holders {
        Err(fault) => wording::flow(screen, Line::new().dim("/proc:  "), &account(fault)),
        Ok(_) if snapshot.files.is_empty() => {
            screen.print(&Line::new().dim("/proc:  ").plain("no GPU device files found"))
        }
        Ok(holders) => {
            let head = wording::count(holders.len(), "process has", "processes have");
            screen
                .print(&Line::new().dim("/proc:  ").plain(format!("{head} a GPU device file")))?;
            let mut shown = holders.iter().filter(|h| filter.shows(snapshot, h.process.pid));
            shown.try_for_each(|holder| print_holder(screen, snapshot, holder))
        }
    }
}

/// Formats `GPU 0 Tesla P100-PCIE-16GB  00000000:04:00.0  /dev/nvidia0`, in pieces.
fn unasked(device: &DeviceInfo) -> Vec<Line> {
    let name = device.name.as_deref().map_or("?", wording::product);
    let mut pieces = vec![Line::new().plain(format!("GPU {} {name}", device.id.index))];
    pieces.extend(device.id.bus.map(|bus| Line::new().plain(bus)));
    pieces.extend(device.id.minor().map(|minor| Line::new().plain(format!("/dev/nvidia{minor}"))));
    pieces
}

fn print_holder(screen: &mut Screen, snapshot: &Snapshot, holder: &Holder) -> Result<(), Failure> {
    let process = snapshot.process(holder.process.pid);
    let files: Vec<String> = holder
        .held
        .iter()
        .map(|held| format!("{} {}", held.path.rsplit('/').next().unwrap_or_default(), held.access))
        .collect();
    let head = Line::new().plain("    ").plain(wording::user(process)).padded_to(15).plain(
        wording::process(holder.process.pid, process.map_or("?", |info| info.name.as_str())),
    );
    wording::flow(screen, head.plain("  "), &files.join("  "))
}
