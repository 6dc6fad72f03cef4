//! The parser of each kind of text.

use crate::command;
use crate::document::{Document, Kind};
use crate::text::Text;
use crate::{
    csv, failure, fuser, gpustat, gpustat_json, kernel_log, list, lsof, mig_list, monitor, other,
    placement, q, table, tensorflow, topology, xml,
};

/// Parses a text of a known kind; `fields` has the columns if it has no header.
pub(crate) fn of_kind(text: &Text, kind: Kind, fields: Option<&[String]>) -> Document {
    let mut document = match kind {
        Kind::Table => table::parse(text),
        Kind::Q => q::parse(text),
        Kind::Xml => xml::parse(text),
        Kind::QueryGpu | Kind::QueryApps => csv::parse(text, kind, fields),
        Kind::List => list::parse(text),
        Kind::Pmon | Kind::Dmon => monitor::parse(text, kind, fields),
        Kind::Topo if text.lines().any(|(_, line)| tensorflow::is_row(line)) => {
            tensorflow::parse(text)
        }
        Kind::Topo | Kind::P2p => topology::parse(text, kind),
        Kind::Mig => mig_list::parse(text),
        Kind::Gpustat => gpustat_json::parse(text).unwrap_or_else(|| gpustat::parse(text)),
        Kind::Fuser => fuser::parse(text),
        Kind::Lsof => lsof::parse(text),
        Kind::KernelLog => kernel_log::parse(text),
        Kind::Placement => placement::parse(text),
        Kind::Error => failure::parse(text),
        Kind::Other => other::parse(text),
    };
    text.lines().for_each(|(_, line)| document.times.take_line(line));
    if !matches!(kind, Kind::KernelLog | Kind::Xml) {
        kernel_log::take_unread(text, &mut document);
    }
    // Shell output around the text is not part of it.
    document.unread.retain(|unread| !command::is_between(&unread.text));
    if text.is_cut() {
        let last = text.lines().map(|(number, _)| number).last().unwrap_or(0);
        document.note_unread(last, "", "the text exceeds the size limit");
    }
    if is_silent(&document) {
        for (number, line) in text.lines().filter(|(_, line)| !line.trim().is_empty()) {
            document.note_unread(number, line, "not a line of this kind");
        }
    }
    document
}

/// Returns whether a parser found no data of its kind and no statement that there is none.
fn is_silent(document: &Document) -> bool {
    let Document { gpus, processes, mig_devices, columns, rows, topology, holders, .. } = document;
    let found = gpus.is_empty() && processes.is_none() && mig_devices.is_empty();
    found
        && columns.is_empty()
        && rows.is_empty()
        && topology.is_none()
        && holders.is_empty()
        && document.errors.is_empty()
        && document.driver_messages.is_empty()
        && document.placements.is_empty()
        && document.driver_version.is_none()
        && document.unread.is_empty()
}
