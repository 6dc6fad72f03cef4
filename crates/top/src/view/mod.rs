//! Drawing: a pure function from the state to a buffer.

mod devices;
mod graph;
mod layout;
mod overlay;
mod pages;
mod paint;
mod table;

use crate::dialog::Dialog;
use crate::frame::Frame;
use crate::keys::{Action, Binding, Scope};
use crate::more;
use crate::options::{Marker, Options};
use crate::overlay::Overlay;
use crate::replay::Playback;
use crate::rows::Column;
use crate::state::State;
use gpu_core::clean;
use gpu_report::{ascii, local_time, wording};
use layout::Areas;
use paint::{Paint, Tone, columns_of};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

pub use pages::view_pages;

impl State {
    /// Draws the state on the whole area.
    pub fn drawn(&self) -> Buffer {
        let mut buffer = Buffer::empty(self.area());
        view(self, self.area(), &mut buffer);
        buffer
    }
}

/// Draws the state on an area of a buffer. The area may have any size, even zero.
pub fn view(state: &State, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(*buffer.area());
    if area.is_empty() {
        return;
    }
    let areas = Areas::of(state, area);
    let mut paint = Paint { buffer, theme: state.options.theme };
    let spans = table::spans(state, areas.rows);
    header(&mut paint, state, areas.header, &spans);
    if let Some(frame) = state.frame.as_deref().filter(|_| areas.host.height > 0) {
        let text = format!(" {}", more::host(frame.load, frame.busy));
        paint.pieces(areas.host, &[(Tone::Plain, text)]);
    }
    devices::draw(&mut paint, state, &areas);
    table::draw(&mut paint, state, &areas, &spans);
    overlay::draw(&mut paint, state, &areas);
    footer(&mut paint, state, areas.footer);
    if state.marker == Marker::Ascii {
        to_ascii(buffer, area);
    }
}

/// Returns the text of a buffer, without its styles and without spaces at the ends of lines.
pub fn text(buffer: &Buffer) -> String {
    let area = *buffer.area();
    let mut text = String::new();
    for y in area.top()..area.bottom() {
        let begin = text.len();
        let mut x = area.left();
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            text.push_str(symbol);
            // A wide character covers the next cell as well.
            x += u16::try_from(columns_of(symbol)).unwrap_or(1).max(1);
        }
        text.truncate(begin + text[begin..].trim_end().len());
        text.push('\n');
    }
    text
}

fn header(paint: &mut Paint<'_>, state: &State, area: Rect, spans: &[table::ColumnSpan]) {
    let mut right = Vec::new();
    let sort = state.sort().0;
    if state.frame.is_some() && !spans.iter().any(|span| span.column == sort) {
        right.push((Tone::Dim, format!("  sorted by {}", sort.title())));
    }
    if !state.tagged.is_empty() {
        right.push((Tone::Accent, format!("  {} tagged", state.tagged.len())));
    }
    if state.paused {
        right.push((Tone::Accent, "  paused".to_owned()));
    }
    let playback = state.playback.iter().flat_map(played);
    right.extend(playback.map(|what| (Tone::Accent, format!("  {what}"))));
    if let Some(key) = state.followed {
        let what = if state.exists(key) { "  following " } else { "  has ended: " };
        right.push((Tone::Accent, format!("{what}{key}")));
    }
    let closed = state.dialog.as_ref().filter(|_| state.overlay != Some(Overlay::Ending));
    if let Some(notice) = closed.and_then(Dialog::notice) {
        right.push((Tone::Accent, format!("  {notice}")));
    }
    let mut left: Vec<(Tone, String)> = Vec::new();
    let frame = state.frame.as_deref();
    if let Some((what, since)) = &state.waiting {
        // Outdated information is left out, but not the name of the machine.
        left.extend(frame.and_then(Frame::label).map(|label| (Tone::Strong, label + " · ")));
        left.push((
            Tone::Accent,
            if what.is_empty() {
                format!("no answer from the machine for {} s", since.as_secs())
            } else {
                what.clone()
            },
        ));
    } else if let Some(frame) = frame {
        let time = local_time::readable(frame.snapshot.taken_at, &state.options.zone);
        let short = time.get(11..).unwrap_or_default();
        let room = usize::from(area.width).saturating_sub(width(&right) + short.len() + 2);
        left = description(frame, room, &state.options);
        let room = usize::from(area.width).saturating_sub(width(&right) + width(&left));
        // The date only if it fits; the time is cut to the remaining room.
        let shown = if room >= time.len() + 2 { &time } else { short };
        right.push((Tone::Dim, format!("  {shown}")));
    }
    let width = u16::try_from(width(&right)).unwrap_or(u16::MAX).min(area.width);
    paint.pieces(Rect { width: area.width - width, ..area }, &left);
    paint.pieces(Rect { x: area.right() - width, width, ..area }, &right);
}

/// Returns the description of the playback.
fn played(playback: &Playback) -> impl Iterator<Item = String> {
    let state = match (playback.plays, playback.at_end) {
        (false, _) => Some("paused".to_owned()),
        (true, true) => Some("end".to_owned()),
        (true, false) => (playback.speed != 1.0).then(|| format!("×{}", playback.speed)),
    };
    let damaged = (playback.damaged > 0).then(|| {
        let samples = wording::count(playback.damaged, "sample", "samples");
        format!("{samples} damaged")
    });
    damaged.into_iter().chain(state)
}

fn width(pieces: &[(Tone, String)]) -> usize {
    pieces.iter().map(|(_, text)| columns_of(text)).sum()
}

/// Returns the header's description of a machine, without the parts that do not fit: first the
/// number of devices is left out, then the driver.
fn description(frame: &Frame, room: usize, options: &Options) -> Vec<(Tone, String)> {
    let mut parts = Vec::new();
    let label = frame.label();
    let names: Vec<String> = match (frame.host(), label) {
        // A simulated machine often has its own name as host name.
        (Some(host), Some(label)) if label.ends_with(&format!(" {host}")) => vec![label],
        (host, label) => host.into_iter().chain(label).collect(),
    };
    let mut names = names.into_iter();
    if options.replays {
        let first = names.next().unwrap_or_else(|| "an unknown machine".to_owned());
        parts.push((0, Tone::Strong, format!("recording of {first}")));
    }
    parts.extend(names.map(|name| (0, Tone::Strong, name)));
    if let Some(at) = frame.as_of {
        let time = local_time::readable(at, &options.zone);
        let time = time.get(11..).unwrap_or_default();
        parts.push((0, Tone::Accent, format!("GPUs as of {time}")));
    }
    match frame.driver() {
        Ok(driver) => {
            parts.push((1, Tone::Plain, driver));
            // If they come from an earlier snapshot, it is unknown which of them are free.
            parts.extend(frame.as_of.is_none().then(|| (2, Tone::Plain, frame.summary())));
        }
        // Without devices, the error is shown in their place.
        Err(_) if frame.devices.is_empty() => {}
        Err(why) => parts.push((0, Tone::Accent, why)),
    }
    let (confident, possible) =
        (frame.diagnosis.confident().count(), frame.diagnosis.possible_count());
    if confident > 0 {
        parts.push((0, Tone::Accent, wording::findings_at_least(confident as u64)));
    }
    let joined = |most: u8| {
        let kept = parts.iter().filter(|(rank, ..)| *rank <= most);
        let pieces =
            kept.flat_map(|(_, tone, text)| [(Tone::Dim, " · ".to_owned()), (*tone, text.clone())]);
        let between = if confident > 0 { ", " } else { " · " };
        let possible = (possible > 0).then(|| (Tone::Dim, format!("{between}{possible} possible")));
        pieces.skip(1).chain(possible).collect::<Vec<_>>()
    };
    [2, 1].into_iter().map(joined).find(|pieces| width(pieces) <= room).unwrap_or_else(|| joined(0))
}

fn footer(paint: &mut Paint<'_>, state: &State, area: Rect) {
    if area.height == 0 {
        return;
    }
    if let Some(text) = &state.timecode {
        let hint = match &state.objection {
            Some(objection) => (Tone::Accent, format!("  {}", clean(objection))),
            None => (Tone::Dim, "  10:00, -5m from the end, 2025-03-03T10:00".to_owned()),
        };
        let pieces = [
            (Tone::Strong, "time: ".to_owned()),
            (Tone::Plain, clean(text).into_owned()),
            (Tone::Accent, "█".to_owned()),
            hint,
        ];
        paint.pieces(area, &pieces);
        return;
    }
    if let Some(objection) = &state.objection {
        paint.pieces(area, &[(Tone::Accent, clean(objection).into_owned())]);
        return;
    }
    let text = state.filter.text();
    if state.editing || !text.is_empty() {
        let all = state.frame.as_deref().map_or(0, |frame| frame.rows.len());
        let count = format!(" {} of {}", state.matching, wording::count(all, "row", "rows"));
        let room = area.width.saturating_sub(count.len() as u16);
        let mut after = vec![if state.editing {
            (Tone::Accent, "█".to_owned())
        } else {
            (Tone::Dim, "  / edits, Esc clears".to_owned())
        }];
        if let Some(word) = state.filter.incomplete() {
            after.push((Tone::Accent, format!("  not used: {word}")));
        }
        let name = (Tone::Strong, "filter: ".to_owned());
        let left = usize::from(room).saturating_sub(name.1.len() + width(&after));
        let mut pieces = vec![name, (Tone::Plain, tail(text, left.max(usize::from(room) / 2)))];
        pieces.append(&mut after);
        paint.pieces(Rect { width: room, ..area }, &pieces);
        paint.put_right(area.x + room, area.right(), area.y, &count, Tone::Dim);
        return;
    }
    words(paint, area, state.scope(), |action| state.offers(action));
}

/// Writes the keys that have a word, as far as there is room.
fn words(paint: &mut Paint<'_>, area: Rect, scope: Scope, offers: impl Fn(Action) -> bool) {
    let mut x = area.x;
    let is_shown = |binding: &&Binding| !binding.word.is_empty() && offers(binding.action);
    for binding in scope.bindings().filter(is_shown) {
        let Some(key) = scope.keys(binding).next() else { continue };
        let key = key.name();
        let width = (key.len() + 1 + binding.word.len()) as u16;
        if x + width > area.right() {
            break;
        }
        x = paint.put(x, area.y, area.width, &key, Tone::Strong);
        x = paint.put(x + 1, area.y, area.right().saturating_sub(x + 1), binding.word, Tone::Dim)
            + 2;
    }
}

/// Returns the end of a text that fits, after an ellipsis if the text was cut.
fn tail(text: &str, columns: usize) -> String {
    if columns_of(text) <= columns {
        return text.to_owned();
    }
    let starts = text.char_indices().map(|(start, _)| &text[start..]);
    let end = starts.into_iter().find(|end| columns_of(end) < columns).unwrap_or_default();
    format!("…{end}")
}

/// Returns the time axis below graphs of this width.
fn axis(state: &State, width: u16) -> String {
    // A recording, and a screen that is paused, do not show the present.
    let end = if state.options.replays || state.paused { "0s" } else { "now" };
    let interval = state.options.interval;
    let snapshot = |age| state.shown_past().snapshot_of(age, interval);
    graph::axis(width, state.marker, end, snapshot)
}

/// Replaces characters that ASCII lacks, cell by cell.
fn to_ascii(buffer: &mut Buffer, area: Rect) {
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            let cell = &mut buffer[(x, y)];
            if !cell.symbol().is_ascii() {
                let shown = ascii::ascii(cell.symbol());
                cell.set_symbol(shown.get(..1).unwrap_or("?"));
            }
        }
    }
}

/// The target of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The title of a column.
    Title(Column),
    /// The row at this index in the order.
    Row(usize),
}

/// Returns the target at a position of the screen.
pub(crate) fn target(state: &State, x: u16, y: u16) -> Option<Target> {
    let areas = Areas::of(state, state.area());
    if areas.titles.contains((x, y).into()) {
        let spans = table::spans(state, areas.rows);
        let is_here = |span: &&table::ColumnSpan| (span.x..=span.x + span.width).contains(&x);
        return spans.iter().find(is_here).map(|span| Target::Title(span.column));
    }
    let index = state.top + usize::from(y.checked_sub(areas.rows.y)?);
    let hit = areas.rows.contains((x, y).into()) && index < state.order.len();
    hit.then_some(Target::Row(index))
}

/// Returns how many rows of the table fit.
pub(crate) fn rows_on_screen(state: &State) -> usize {
    Areas::of(state, state.area()).rows.height.into()
}

/// Returns the columns of the table that fit.
pub(crate) fn columns_on_screen(state: &State) -> Vec<Column> {
    let spans = table::spans(state, Areas::of(state, state.area()).rows);
    spans.iter().map(|span| span.column).collect()
}

/// Returns whether the terminal has enough room to read a plan before it is confirmed.
pub(crate) fn is_legible(state: &State) -> bool {
    overlay::is_legible(&Areas::of(state, state.area()))
}

/// Returns the number of lines of an overlay, and how many fit.
pub(crate) fn overlay_length(state: &State, overlay: Overlay) -> (usize, usize) {
    overlay::length(state, overlay, &Areas::of(state, state.area()))
}
