//! The table of the users of the devices.

use super::layout::Areas;
use super::paint::{Paint, Tone, columns_of};
use crate::frame::Frame;
use crate::rows::{Column, Row, Subject};
use crate::state::State;
use gpu_report::fault::driver_remedy;
use gpu_report::text::{Line, Tone as Plain, wrapped};
use gpu_report::wording;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use std::borrow::Cow;

/// A column on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnSpan {
    pub(super) column: Column,
    pub(super) x: u16,
    pub(super) width: u16,
}

/// The narrowest and the widest column of users.
const USER: (usize, usize) = (4, 14);

/// The narrowest and the widest column of notes.
const NOTE: (usize, usize) = (9, 13);

/// The width of the mark of tagged rows, left of all other columns while a row is tagged.
const MARK: u16 = 2;
/// The narrowest column of commands next to others.
const COMMAND: u16 = 10;
/// The room that must be left for the command if a column is shown on a screen narrower than usual
/// for it.
const COMMAND_ROOM: u16 = 30;
/// The width of the column of devices, without MIG devices.
const GPU: u16 = 3;
/// The width of the column of jobs.
const JOB: u16 = 16;

/// Returns the columns that fit, from left to right.
pub(super) fn spans(state: &State, area: Rect) -> Vec<ColumnSpan> {
    let rows = state.frame.as_deref().map_or(&[][..], |frame| &frame.rows[..]);
    let has_jobs = rows.iter().any(|row| !row.job.is_empty());
    let least = |column| match column {
        Column::Gpu | Column::Pid | Column::Memory | Column::Command => 0,
        Column::User => 36,
        Column::Sm => 44,
        Column::Age => 60,
        Column::Note => 66,
        Column::Kind => 76,
        Column::Cpu => 96,
        Column::Host => 106,
        Column::Job => {
            if has_jobs {
                100
            } else {
                u16::MAX
            }
        }
    };
    let chosen = &state.options.columns;
    let mut shown = chosen.clone();
    shown.sort_by_key(|column| least(*column));
    // Tags and user names do not affect this.
    let mut taken = MARK + if chosen.contains(&Column::Command) { COMMAND_ROOM } else { 0 };
    shown.retain(|column| {
        let widest = if *column == Column::User { USER.1 as u16 } else { width(state, *column) };
        let (least, after) = (least(*column), taken + widest + 1);
        let fits = area.width >= least || (after <= area.width && least < u16::MAX);
        taken = if fits { after } else { taken };
        fits
    });
    let shown = chosen.iter().filter(|column| shown.contains(column));
    let widths: Vec<(Column, u16)> = shown.map(|column| (*column, width(state, *column))).collect();
    let others: u16 = widths.iter().map(|(_, width)| width + 1).sum();
    // The sort mark may replace the gap after a title.
    let gap = u16::from(widths.last().is_some_and(|(last, _)| *last == Column::Command));
    let mut x = area.x + if state.tagged.is_empty() { 0 } else { MARK };
    let rest = area.right().saturating_sub(x).saturating_sub(others - others.min(gap));
    let mut spans = Vec::new();
    for (column, width) in widths {
        // The command gets the remaining width.
        let width = if column == Column::Command { rest.max(COMMAND) } else { width };
        let width = width.min(area.right().saturating_sub(x));
        if width == 0 {
            break;
        }
        spans.push(ColumnSpan { column, x, width });
        x = x.saturating_add(width + 1);
    }
    spans
}

/// Returns the width of a column; 0 for the command.
fn width(state: &State, column: Column) -> u16 {
    match column {
        Column::Gpu => gpu_width(state),
        Column::User => user_width(state),
        Column::Pid => 7,
        Column::Sm => 4,
        Column::Cpu => 5,
        Column::Kind => 4,
        Column::Age => 6,
        Column::Note => note_width(state),
        Column::Job => JOB,
        Column::Memory | Column::Host => 9,
        Column::Command => 0,
    }
}

fn gpu_width(state: &State) -> u16 {
    let rows = state.frame.as_deref().map_or(&[][..], |frame| &frame.rows[..]);
    let parts = rows.iter().filter(|row| row.mig.is_some());
    parts.map(|row| row.device_label().len() as u16).max().unwrap_or(0).max(GPU)
}

fn user_width(state: &State) -> u16 {
    let rows = state.frame.as_deref().map_or(&[][..], |frame| &frame.rows[..]);
    let longest = rows.iter().map(|row| columns_of(&row.user)).max().unwrap_or(0);
    longest.clamp(USER.0, USER.1) as u16
}

/// Returns the width of the column of notes: 9 unless one is longer.
fn note_width(state: &State) -> u16 {
    let rows = state.frame.as_deref().map_or(&[][..], |frame| &frame.rows[..]);
    let longest = rows.iter().map(|row| columns_of(row.note())).max().unwrap_or(0);
    longest.clamp(NOTE.0, NOTE.1) as u16
}

fn is_right(column: Column) -> bool {
    !matches!(column, Column::User | Column::Kind | Column::Note | Column::Job | Column::Command)
}

pub(super) fn draw(paint: &mut Paint<'_>, state: &State, areas: &Areas, spans: &[ColumnSpan]) {
    titles(paint, state, areas.titles, spans);
    let Some(frame) = state.frame.as_deref() else { return };
    let selected = state.selected();
    let rows = state.rows().skip(state.top).take(usize::from(areas.rows.height));
    let branches = state.order.iter().skip(state.top);
    for ((line, row), branch) in rows.enumerate().zip(branches) {
        let y = areas.rows.y + line as u16;
        for span in spans {
            cell(paint, span, y, row, &branch.lines);
        }
        if matches!(row.key.subject, Subject::Process(key) if state.tagged.contains(&key)) {
            paint.put(areas.rows.x, y, 1, "*", Tone::Accent);
        }
        if selected == Some(row.key) {
            let area = Rect::new(areas.rows.x, y, areas.rows.width, 1);
            paint.buffer.set_style(area, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    let shown = state.order.len().saturating_sub(state.top);
    let mut rest = areas.rows;
    rest.y = rest.y.saturating_add(u16::try_from(shown).unwrap_or(u16::MAX));
    let width = usize::from(rest.width).saturating_sub(2).max(1);
    for (tone, text) in notes(state, frame) {
        for line in wrapped(Line::new(), Plain::Plain, &text, width) {
            if !areas.rows.contains(rest.as_position()) {
                return;
            }
            paint.put(rest.x + 1, rest.y, rest.width.saturating_sub(1), line.text(), tone);
            rest.y += 1;
        }
    }
}

/// Returns the notes below the rows.
fn notes(state: &State, frame: &Frame) -> Vec<(Tone, String)> {
    let mut notes = Vec::new();
    if !state.filter.is_empty() && state.order.is_empty() {
        notes.push((Tone::Dim, "no row matches the filter".to_owned()));
    } else if frame.rows.is_empty()
        && frame.unknown.is_empty()
        && frame.only.is_none()
        && !frame.devices.is_empty()
    {
        notes.push((Tone::Dim, "no process uses these GPUs".to_owned()));
    }
    notes.extend(frame.only.iter().map(|only| (Tone::Dim, only.clone())));
    let driver = frame.snapshot.driver.as_ref().err();
    let remedy =
        driver.filter(|_| frame.devices.is_empty()).and_then(|fault| driver_remedy(fault.kind));
    notes.extend(remedy.map(|remedy| (Tone::Plain, format!("remedy: {remedy}"))));
    notes.extend(frame.unknown.iter().map(|text| (Tone::Accent, text.clone())));
    let possible = frame.diagnosis.possible_count();
    if possible > 0 {
        let doctor = format!("gpuws {}doctor", state.options.sim);
        notes.push((Tone::Dim, wording::possible(possible, &doctor)));
    }
    let unread = frame.snapshot.unreadable.total();
    if unread > 0 {
        let unread = wording::count(unread as usize, "process", "processes");
        notes.push((Tone::Dim, format!("{unread} could not be inspected")));
    }
    notes
}

fn titles(paint: &mut Paint<'_>, state: &State, area: Rect, spans: &[ColumnSpan]) {
    if area.height == 0 {
        return;
    }
    let (sort, reversed) = state.sort();
    for span in spans {
        let is_sorted = span.column == sort;
        let falling = sort.is_largest_first() != reversed;
        let mut title = span.column.title().to_owned();
        // The mark replaces the gap if the title fills its column.
        if is_sorted {
            title.push(if falling { '▼' } else { '▲' });
        }
        let tone = if is_sorted { Tone::Strong } else { Tone::Dim };
        let width = span.width.max(columns_of(&title) as u16);
        match is_right(span.column) && columns_of(&title) <= usize::from(span.width) {
            true => paint.put_right(span.x, span.x + span.width, area.y, &title, tone),
            false => {
                paint.put(span.x, area.y, width, &title, tone);
            }
        }
    }
    let style = Style::new().add_modifier(Modifier::UNDERLINED);
    paint.buffer.set_style(area, style);
}

fn cell(paint: &mut Paint<'_>, span: &ColumnSpan, y: u16, row: &Row, branch: &str) {
    let unlisted = row.key.subject == Subject::Unlisted;
    let number = |share: u32| Cow::Owned(share.to_string());
    let (text, tone) = match span.column {
        Column::Gpu => (row.key.gpu.map(|_| row.device_label().into()), Tone::Plain),
        Column::Pid => (row.pid().map(|pid| number(pid.0)), Tone::Plain),
        Column::User => (Some(Cow::Borrowed(&*row.user)), Tone::Plain),
        Column::Memory => {
            (row.memory.map(wording::memory), if unlisted { Tone::Accent } else { Tone::Plain })
        }
        Column::Sm => (row.sm.map(|share| number(share.into())), Tone::Plain),
        Column::Cpu => (row.cpu.map(number), Tone::Plain),
        Column::Host => (row.host.map(wording::memory), Tone::Plain),
        Column::Age => (row.age.map(|age| wording::age(age).into()), Tone::Dim),
        Column::Kind => (Some(row.kind.into()), Tone::Dim),
        Column::Note => (
            Some(row.note().into()),
            if row.finding.is_some() || unlisted { Tone::Accent } else { Tone::Plain },
        ),
        Column::Job => (Some((&*row.job).into()), Tone::Plain),
        Column::Command => (
            Some(if branch.is_empty() {
                (&*row.command).into()
            } else {
                format!("{branch}{}", row.command).into()
            }),
            if unlisted { Tone::Accent } else { Tone::Plain },
        ),
    };
    let (text, tone) = text.map_or(("–".into(), Tone::Dim), |text| (text, tone));
    if is_right(span.column) {
        paint.put_right(span.x, span.x + span.width, y, &text, tone)
    } else {
        paint.put(span.x, y, span.width, &text, tone);
    }
}
