//! Text about placed graphs.

use crate::text::{Align, Line, Table, flowed};
use crate::wording::short_names;
use gpu_graph::placer::Placement;
use gpu_graph::{DeviceSet, Graph};

/// The operations that a summary lists for each device.
const LISTED: usize = 4;

/// Returns a line for each device with the number of its operations and the first of them, wrapped
/// to `width`.
pub fn summary(
    graph: &Graph,
    placement: &Placement,
    devices: &DeviceSet,
    width: usize,
) -> Vec<Line> {
    let mut on: Vec<Vec<&str>> = vec![Vec::new(); devices.names().len()];
    for id in placement.order() {
        let node = placement.node(graph, *id);
        if let (Some(names), Some(node)) = (on.get_mut(placement.device(*id)), node) {
            names.push(&node.name);
        }
    }
    let lines = devices.names().iter().zip(&on).flat_map(|(device, names)| {
        let head = Line::new().plain(format_args!("  {device}  ")).accent(names.len());
        let mut listed = names.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
        if names.len() > LISTED {
            listed.push_str(", …");
        }
        flowed(head.plain("  "), &listed, width)
    });
    lines.collect()
}

/// Returns a row for each operation with its device and the reason, in the order of placement,
/// within `room` columns.
pub fn reasons(
    graph: &Graph,
    placement: &Placement,
    devices: &DeviceSet,
    room: usize,
) -> Vec<Line> {
    let mut table = Table::new(&[
        ("  operation", Align::Left),
        ("device", Align::Left),
        ("reason", Align::Left),
    ]);
    let names = short_names(devices.names().iter().map(String::as_str));
    for id in placement.order() {
        let Some(node) = placement.node(graph, *id) else { continue };
        let device = names.get(placement.device(*id)).copied().unwrap_or_default();
        table.row([
            Line::new().plain(format_args!("  {} ({})", node.name, node.op)),
            Line::new().accent(device),
            Line::new().dim(placement.explain(graph, *id)),
        ]);
    }
    table.lines(room)
}
