//! All details of the devices, as text.

use crate::failure::{Failure, brief, driver_remedy};
use crate::terminal::{Line, Screen};
use gpu_core::Snapshot;
use gpu_report::details::{self, Entry, Value};

/// The column of the colon after a name.
const COLON: usize = 38;

/// Prints the details of the machine, then those of each device.
pub(crate) fn show(
    screen: &mut Screen,
    snapshot: &Snapshot,
    attached: usize,
    quiet: bool,
) -> Result<(), Failure> {
    let label = Line::new().accent(snapshot.origin.to_string());
    screen.origin(&snapshot.origin, label, quiet)?;
    let head = details::head(snapshot, attached, &crate::local_time::zone());
    head.iter().try_for_each(|entry| print(screen, entry, 0))?;
    if let Err(fault) = &snapshot.driver {
        screen.print(&Line::new().accent(format!("cannot query any GPU: {}", brief(fault))))?;
        if let Some(remedy) = driver_remedy(fault.kind).filter(|_| !quiet) {
            screen.print(&Line::new().dim("remedy: ").plain(remedy))?;
        }
    }
    for device in &snapshot.devices {
        screen.print(&Line::new())?;
        let name = match device.id().bus {
            Ok(bus) => format!("GPU {bus}"),
            Err(_) => format!("GPU {}", device.id().index),
        };
        screen.print(&Line::new().accent(name))?;
        if let Err(fault) = &device.sample {
            screen.print(&Line::new().plain("    ").accent(brief(fault)))?;
        }
        let entries = details::entries(snapshot, device);
        entries.iter().try_for_each(|entry| print(screen, entry, 1))?;
    }
    Ok(())
}

fn print(screen: &mut Screen, entry: &Entry, depth: usize) -> Result<(), Failure> {
    let head = Line::new().plain("    ".repeat(depth)).plain(&entry.name);
    let colon = |head: Line| head.padded_to(COLON).plain(": ");
    match &entry.value {
        Value::Known(text) => screen.print(&colon(head).plain(text)),
        Value::Absent(absent) => screen.print(&colon(head).dim(format!("N/A ({absent})"))),
        Value::Group(entries) if entries.is_empty() => screen.print(&colon(head).plain("None")),
        Value::Group(entries) => {
            screen.print(&head)?;
            entries.iter().try_for_each(|entry| print(screen, entry, depth + 1))
        }
    }
}
