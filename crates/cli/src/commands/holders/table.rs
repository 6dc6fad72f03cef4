//! The table with a row for each file and holder.

use crate::terminal::{Align, Line, Table};
use gpu_core::{DeviceFile, HeldFile};
use gpu_report::json::FoundHolder;

/// The maximum number of descriptors in a row.
const DESCRIPTORS: usize = 6;

pub(super) fn table(files: &[DeviceFile], found: &[FoundHolder]) -> Table {
    let mut table = Table::new(&[
        ("FILE", Align::Left),
        ("USER", Align::Left),
        ("PID", Align::Right),
        ("ACCESS", Align::Left),
        ("FD", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    for file in files {
        let mut path = Line::new().plain(&file.path);
        for process in found {
            let Some(held) = process.holder.held.iter().find(|held| held.path == file.path) else {
                continue;
            };
            let mut command = Line::new().plain(process.command());
            if let Some(thread) = process.holder.through_thread {
                command = command.dim(format!(" (through thread {thread})"));
            }
            table.row([
                std::mem::take(&mut path),
                Line::new().plain(process.user()),
                Line::new().plain(process.pid().to_string()),
                Line::new().plain(held.access.to_string()),
                Line::new().plain(descriptors(held)),
                command,
            ]);
        }
        if path != Line::new() {
            let who =
                file.id.map_or_else(|absent| format!("({absent})"), |_| "(no holder)".to_owned());
            table.row([path, Line::new().dim(who)]);
        }
    }
    table
}

fn descriptors(held: &HeldFile) -> String {
    let shown: Vec<String> =
        held.descriptors.iter().take(DESCRIPTORS).map(ToString::to_string).collect();
    match held.descriptors.len().saturating_sub(DESCRIPTORS) {
        0 => shown.join(","),
        more => format!("{} +{more}", shown.join(",")),
    }
}
