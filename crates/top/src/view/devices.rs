//! The devices: with graphs if they are few, otherwise as a grid with bars.

use super::graph;
use super::layout::{Areas, INLINE, Level};
use super::paint::{Paint, Tone, columns_of};
use crate::history::Measure;
use crate::options::Attention;
use crate::rows::Device;
use crate::state::State;
use gpu_core::Milliwatts;
use gpu_report::wording;
use ratatui_core::layout::Rect;
use std::borrow::Cow;

/// The graphs of a device, each with the minimum screen width, in columns, from which it is shown.
const GRAPHS: [(Measure, &str, u16); 3] = [
    (Measure::Utilization, "util", 0),
    (Measure::Memory, "mem", 40),
    (Measure::Power, "power", 60),
];

/// The columns of a graph's label, including the gap after it.
const LABEL: u16 = 6;

/// The widest column of names.
const NAME: usize = 30;
/// The narrowest bar of the memory next to a name, including the gap after it.
const BAR: u16 = 9;
/// The narrowest column of uses, and the columns that a long name leaves for it.
const USE: (usize, u16) = (7, 10);

pub(super) fn draw(paint: &mut Paint<'_>, state: &State, areas: &Areas) {
    let (area, grid) = (areas.devices, areas.grid);
    let Some(frame) = state.frame.as_deref() else {
        let what = match (state.options.replays, &state.playback) {
            (false, _) => "looking …",
            (true, None) => "loading …",
            // There is a frame before it.
            (true, Some(_)) => "no sample near this time can be read",
        };
        paint.pieces(area, &[(Tone::Dim, what.to_owned())]);
        return;
    };
    if frame.devices.is_empty() {
        let what = frame.driver().err().unwrap_or_else(|| "no GPU is shown".to_owned());
        paint.pieces(area, &[(Tone::Accent, what)]);
        return;
    }
    let lines = usize::from(area.height / grid.lines.max(1));
    let columns = usize::from(grid.columns);
    let first = first_shown(state, lines, columns);
    let width = grid.column(area.width);
    let longest = frame.devices.iter().map(|device| columns_of(&device.name)).max().unwrap_or(0);
    let name = longest.min(NAME) as u16;
    let label = frame.devices.iter().map(|device| device.label().len()).max().unwrap_or(0);
    let used = frame.devices.iter().map(|device| columns_of(&usage(device).0)).max().unwrap_or(0);
    let (label, usage) = ((label as u16).max(2), used.max(USE.0) as u16);
    let common = Common { label, name, usage, limits: state.options.attention };
    let devices = frame.devices.iter().skip(first).take(lines * columns);
    for (index, device) in devices.enumerate() {
        // From top to bottom, then the next column, the usual reading order of lists.
        let (column, line) = (index / lines.max(1), index % lines.max(1));
        let (column, line) = (column as u16, line as u16);
        let gap = u16::from(column + 1 < grid.columns);
        let cell = Rect::new(
            area.x + column * width,
            area.y + line * grid.lines,
            width.saturating_sub(gap),
            grid.lines,
        );
        let mut head = cell;
        if grid.has_inline(area.width) {
            let history = Rect { height: 1, ..beside(cell) };
            let graph = if device.mig.is_some() { GRAPHS[1] } else { GRAPHS[0] };
            graph_of(paint, state, device, graph, history);
            head.width = INLINE.0;
        }
        device_line(paint, head, device, grid.level, common);
        let own = grid.lines - grid.graphs;
        if own > 1 {
            more_line(paint, state, device, Rect { y: head.y + 1, ..head });
        }
        let below = Rect { y: cell.y + own, height: grid.graphs, ..cell };
        for (at, graph) in graph_areas(below).filter(|_| grid.graphs > 0) {
            graph_of(paint, state, device, GRAPHS[at], graph);
        }
    }
    if areas.axis.height > 0 {
        axes(paint, state, areas);
    }
    let more = frame.devices.len().saturating_sub(lines * columns);
    if more > 0 {
        let has_parts = frame.devices.iter().any(|device| device.mig.is_some());
        let text = if has_parts { format!(" +{more} ") } else { format!(" +{more} GPUs ") };
        paint.put_right(area.x, area.right(), area.bottom().saturating_sub(1), &text, Tone::Accent);
    }
}

/// Returns the first device on the screen: if not all fit, that of the selected row is visible.
fn first_shown(state: &State, lines: usize, columns: usize) -> usize {
    let devices = state.frame.as_deref().map_or(&[][..], |frame| &frame.devices[..]);
    let room = (lines * columns).max(1);
    let chosen = state.selected_row().and_then(|row| Some((row.key.gpu?, row.mig)));
    let is_it = |device: &Device| Some((device.index, device.mig)) == chosen;
    let at = devices.iter().position(is_it).unwrap_or(0);
    (at + 1).saturating_sub(room).min(devices.len().saturating_sub(room))
}

/// Writes the time axis below the graphs of each column of devices.
fn axes(paint: &mut Paint<'_>, state: &State, areas: &Areas) {
    let (grid, all) = (areas.grid, areas.axis);
    let width = grid.column(all.width);
    for column in 0..grid.columns {
        let gap = u16::from(column + 1 < grid.columns);
        let (x, width) = (all.x + column * width, width.saturating_sub(gap));
        let below = Rect { x, width, ..all };
        let graphs: Vec<Rect> = match grid.has_inline(all.width) {
            true => vec![beside(below)],
            false => graph_areas(below).map(|(_, area)| area).collect(),
        };
        for graph in graphs.into_iter().map(right_of_label) {
            let axis = super::axis(state, graph.width);
            paint.put(graph.x, graph.y, graph.width, &axis, Tone::Dim);
        }
    }
}

/// Returns the areas of the graphs side by side, each with its index in [`GRAPHS`].
fn graph_areas(area: Rect) -> impl Iterator<Item = (usize, Rect)> {
    let count = GRAPHS.iter().filter(|(.., least)| area.width >= *least).count();
    let width = area.width / count.max(1) as u16;
    (0..count).map(move |at| {
        let x = area.x + at as u16 * width;
        (at, Rect { x, width: width.saturating_sub(1), ..area })
    })
}

/// Returns the area of the graph in the line of a device.
fn beside(cell: Rect) -> Rect {
    Rect { x: cell.x + INLINE.0, width: cell.width.saturating_sub(INLINE.0), ..cell }
}

/// Returns the area of a graph without that of its label.
fn right_of_label(area: Rect) -> Rect {
    let left = LABEL.min(area.width);
    Rect { x: area.x + left, width: area.width - left, ..area }
}

/// The indentation of the second line.
const INDENT: u16 = 3;

/// Writes the second line of a device: the parts that fit.
fn more_line(paint: &mut Paint<'_>, state: &State, device: &Device, area: Rect) {
    if device.mig.is_some() {
        return;
    }
    let (mut x, right) = (area.x + INDENT, area.right());
    for part in device.more.parts() {
        let width = part.width() as u16;
        if x + width <= right {
            paint.put(x, area.y, width, &part.text(state.options.replays), Tone::Plain);
            x += width + 2;
        }
    }
}

/// Draws a graph with its label on the left.
fn graph_of(
    paint: &mut Paint<'_>,
    state: &State,
    device: &Device,
    (measure, label, _): (Measure, &str, u16),
    area: Rect,
) {
    let past = &state.shown_past().devices;
    let Some(history) = past.get(&(device.index, device.mig)) else { return };
    let graph = right_of_label(area);
    let end = graph.x.saturating_sub(1).max(area.x);
    paint.put_right(area.x, end, area.y, label, Tone::Dim);
    graph::draw(paint, graph, state.marker, |age| history.back(measure, age));
}

/// The common layout of all device lines.
#[derive(Clone, Copy)]
struct Common {
    /// The width of the longest label.
    label: u16,
    /// The width of the longest name.
    name: u16,
    /// The width of the longest word about the use.
    usage: u16,
    limits: Attention,
}

fn is_over<T: Into<i64>>(value: Option<T>, limit: Option<u8>) -> bool {
    value.zip(limit).is_some_and(|(value, limit)| value.into() >= limit.into())
}

fn device_line(paint: &mut Paint<'_>, cell: Rect, device: &Device, level: Level, common: Common) {
    let Common { label, name, usage, limits } = common;
    let is_full = is_over(device.memory_percent(), limits.memory);
    let (x, y, right) = (cell.x, cell.y, cell.right());
    let utilization = device.utilization.map(|share| format!("{share} %"));
    match level {
        Level::Full => {
            // The rest of the line is for the name, the use and the bar.
            let fixed = label + 1 + 6 + 10 + 6 + 16 + 2;
            let rest = cell.width.saturating_sub(fixed);
            let name = name.min(rest.saturating_sub(BAR + usage.min(USE.1)));
            let bar = (rest - name).saturating_sub(usage).clamp(BAR, 40);
            paint.put_right(x, x + label, y, &device.label(), Tone::Strong);
            paint.put(x + label + 1, y, name, &device.name, Tone::Plain);
            let mut at = x + label + 1 + name;
            let degrees = device.temperature.map(|degrees| format!("{degrees}°C"));
            at = cell_in(paint, at, y, 6, degrees, is_over(device.temperature, limits.temperature));
            let is_high = is_over(device.power_percent(), limits.power);
            at = cell_in(paint, at, y, 10, power(device), is_high);
            at = cell_right(paint, at, y, 6, utilization);
            at = memory_bar(paint, at + 1, y, bar.saturating_sub(1), device);
            at = cell_in(paint, at, y, 16, memory(device), is_full);
            put_usage(paint, at + 2, right, y, device);
        }
        Level::Medium => {
            let bar = cell.width.saturating_sub(label + 6 + 1 + 15 + 1 + usage).clamp(4, 20);
            paint.put_right(x, x + label, y, &device.label(), Tone::Strong);
            let at = cell_right(paint, x + label, y, 6, utilization);
            let at = memory_bar(paint, at + 1, y, bar, device);
            let at = cell_in(paint, at, y, 15, memory(device), is_full);
            put_usage(paint, at + 1, right, y, device);
        }
        Level::Compact => {
            let flag = 1;
            let label = label.max(3);
            paint.put_right(x, x + label, y, &device.label(), Tone::Strong);
            let at = cell_right(paint, x + label, y, 6, utilization);
            let bar = right.saturating_sub(at + 1 + 1 + flag);
            let at = memory_bar(paint, at + 1, y, bar, device);
            let (tone, sign) = match device {
                Device { findings, .. } if !findings.is_empty() => (Tone::Accent, "!"),
                Device { leased_by, .. } if !leased_by.is_empty() => (Tone::Plain, "L"),
                _ => (Tone::Plain, ""),
            };
            paint.put(at + 1, y, flag, sign, tone);
        }
    }
}

/// Writes a value right-aligned in a column, or a dash if it is unknown.
fn cell_right(paint: &mut Paint<'_>, x: u16, y: u16, width: u16, text: Option<String>) -> u16 {
    cell_in(paint, x, y, width, text, false)
}

/// Writes a value that may need attention.
fn cell_in(
    paint: &mut Paint<'_>,
    x: u16,
    y: u16,
    width: u16,
    text: Option<String>,
    needs_attention: bool,
) -> u16 {
    let tone = if needs_attention { Tone::Accent } else { Tone::Plain };
    match text {
        Some(text) => paint.put_right(x, x + width, y, &text, tone),
        None => paint.put_right(x, x + width, y, "–", Tone::Dim),
    }
    x + width
}

fn memory_bar(paint: &mut Paint<'_>, x: u16, y: u16, width: u16, device: &Device) -> u16 {
    let used = device.memory_used.filter(|_| !device.is_memory_floor);
    if let (Some(used), Some(total)) = (used, device.memory_total) {
        paint.bar(x, y, width, used.0, total.0);
    }
    x + width
}

fn memory(device: &Device) -> Option<String> {
    let used = device.memory_used?;
    let used = match device.memory_total {
        Some(total) => wording::used_of(used, total, (0, 0)),
        None => wording::memory(used).into_owned(),
    };
    Some(if device.is_memory_floor { format!("≥{used}") } else { used })
}

fn power(device: &Device) -> Option<String> {
    let draw = Milliwatts(device.power?).to_string();
    Some(match device.power_limit {
        Some(limit) => format!("{}/{}", draw.trim_end_matches(" W"), Milliwatts(limit)),
        None => draw,
    })
}

/// Returns the findings about the device, or else who leases it, or else whether it is free.
fn usage(device: &Device) -> (Cow<'_, str>, Tone) {
    let more = |count: usize| if count > 1 { format!(" +{}", count - 1) } else { String::new() };
    match (&device.findings[..], &device.leased_by[..]) {
        ([found], _) => (Cow::Borrowed(found), Tone::Accent),
        ([found, ..], _) => {
            (format!("{found}{}", more(device.findings.len())).into(), Tone::Accent)
        }
        ([], [owner, ..]) => {
            (format!("leased {owner}{}", more(device.leased_by.len())).into(), Tone::Plain)
        }
        ([], []) if device.is_free => ("free".into(), Tone::Good),
        ([], []) => ("".into(), Tone::Plain),
    }
}

fn put_usage(paint: &mut Paint<'_>, x: u16, right: u16, y: u16, device: &Device) {
    let (text, tone) = usage(device);
    paint.put(x, y, right.saturating_sub(x), &text, tone);
}
