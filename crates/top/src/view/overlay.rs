//! The help and the details of a row, in a box over the devices and the table.

use super::graph;
use super::layout::Areas;
use super::paint::{Paint, Tone};
use crate::dialog::Dialog;
use crate::frame::Frame;
use crate::history::{PROCESS_SAMPLES, Use};
use crate::inquiry;
use crate::keys::{Scope, Stroke};
use crate::overlay::Overlay;
use crate::rows::{Row, Subject, ancestry};
use crate::state::State;
use gpu_core::{Pid, ProcessInfo, clean};
use gpu_reaper::Finding;
use gpu_report::text::{Line, Tone as Plain, packed, wrapped};
use gpu_report::wording::reap::Paragraph;
use gpu_report::{local_time, wording};
use ratatui_core::layout::{Margin, Rect};
use unicode_width::UnicodeWidthChar;

/// Lines of pieces.
type Text = Vec<Vec<(Tone, String)>>;

/// The width, in columns, of the name of a value.
const NAME: usize = 12;
/// The most ancestors that are shown.
const ANCESTORS: usize = 16;

/// An overlay: its area, the area of its text, and its text.
struct Sheet {
    outside: Rect,
    inside: Rect,
    text: Text,
    /// The last lines, which do not scroll with the text.
    prompt: Text,
}

/// Lays an overlay out: as high as its text, at the bottom, with a frame if there is room for one.
fn sheet(state: &State, overlay: Overlay, areas: &Areas) -> Sheet {
    let body = areas.body();
    let framed = body.width > 24 && body.height > 4;
    let margin = if framed { (2, 1) } else { (0, 0) };
    let text = text(state, overlay, body.width - 2 * margin.0);
    let lines = u16::try_from(text.len()).unwrap_or(u16::MAX);
    let prompt = state.dialog.as_ref().filter(|_| overlay == Overlay::Ending);
    let parts =
        prompt.map_or_else(Vec::new, |dialog| match dialog.is_proposal() && !is_legible(areas) {
            true => vec![Line::new().accent("too small to confirm")],
            false => dialog.prompt(state.has_read(lines.into())),
        });
    let width = body.width - 2 * margin.0;
    let prompt: Text =
        packed(Line::new(), parts, "   ", 0, width.into()).iter().map(pieces).collect();
    // With a gap above it.
    let below = match overlay {
        Overlay::Ending => prompt.len() as u16 + margin.1,
        _ => 0,
    };
    let height = lines.saturating_add(2 * margin.1 + below).min(body.height);
    let outside = Rect { y: body.bottom() - height, height, ..body };
    let mut inside = outside.inner(Margin::new(margin.0, margin.1));
    inside.height = inside.height.saturating_sub(below);
    Sheet { outside, inside, text, prompt }
}

pub(super) fn draw(paint: &mut Paint<'_>, state: &State, areas: &Areas) {
    let Some(overlay) = state.overlay else { return };
    let Sheet { outside, inside: area, text, prompt } = sheet(state, overlay, areas);
    paint.clear(outside);
    let framed = area.width != outside.width;
    if framed {
        let title = match overlay {
            Overlay::Help => " keys ",
            Overlay::Details => " details ",
            Overlay::Environment => " environment ",
            Overlay::Leases => " leases and waiting claims ",
            Overlay::Ending => " end processes ",
        };
        frame(paint, outside, title);
    }
    let lines = text.iter().skip(state.overlay_top).take(usize::from(area.height));
    for (line, pieces) in lines.enumerate() {
        paint.pieces(Rect { y: area.y + line as u16, height: 1, ..area }, pieces);
    }
    let last = outside.bottom().saturating_sub(u16::from(framed));
    for (above, line) in (1..).zip(prompt.iter().rev()) {
        let y = last.saturating_sub(above);
        if y > outside.y || above == 1 {
            paint.pieces(Rect { y, height: 1, ..area }, line);
        }
    }
    let below = text.len().saturating_sub(state.overlay_top + usize::from(area.height));
    if below > 0 && framed {
        let more = format!(" {} below ", wording::count(below, "more line", "more lines"));
        let right = outside.right() - 2;
        paint.put_right(outside.x, right, outside.bottom() - 1, &more, Tone::Accent);
    }
}

/// Returns the number of lines of an overlay, and how many fit.
pub(super) fn length(state: &State, overlay: Overlay, areas: &Areas) -> (usize, usize) {
    let sheet = sheet(state, overlay, areas);
    (sheet.text.len(), sheet.inside.height.into())
}

/// The fewest columns and lines in which the processes to end are legible.
const LEGIBLE: (u16, u16) = (48, 6);

/// Returns whether there is room to read a plan before it is confirmed.
pub(super) fn is_legible(areas: &Areas) -> bool {
    let body = areas.body();
    body.width >= LEGIBLE.0 && body.height >= LEGIBLE.1
}

fn frame(paint: &mut Paint<'_>, area: Rect, title: &str) {
    let line = "─".repeat(usize::from(area.width) - 2);
    let bottom = area.bottom() - 1;
    paint.put(area.x, area.y, area.width, &format!("┌{line}┐"), Tone::Dim);
    paint.put(area.x, bottom, area.width, &format!("└{line}┘"), Tone::Dim);
    for y in area.y + 1..bottom {
        paint.put(area.x, y, 1, "│", Tone::Dim);
        paint.put(area.right() - 1, y, 1, "│", Tone::Dim);
    }
    paint.put(area.x + 2, area.y, area.width - 4, title, Tone::Strong);
}

fn text(state: &State, overlay: Overlay, width: u16) -> Text {
    match overlay {
        Overlay::Help => help(state, width),
        Overlay::Details => details(state, width),
        Overlay::Environment => environment(state, width),
        Overlay::Leases => leases(state, width),
        Overlay::Ending => {
            let paragraphs = state.dialog.iter().flat_map(Dialog::text);
            paragraphs.flat_map(|paragraph| wrap(paragraph, width)).collect()
        }
    }
}

fn environment(state: &State, width: u16) -> Text {
    let mut text = Vec::new();
    let Some((key, read)) = &state.environment else { return text };
    let name = state.subject().and_then(|subject| state.row(subject));
    let name = name.map_or_else(|| key.to_string(), |row| format!("{key} {}", row.command));
    add(&mut text, Tone::Strong, &name, 0, width);
    let environment = match read {
        None => {
            add(&mut text, Tone::Dim, "reading …", 0, width);
            return text;
        }
        Some(Err(why)) => {
            add(&mut text, Tone::Accent, &clean(why), 0, width);
            return text;
        }
        Some(Ok(environment)) => environment,
    };
    let mut hidden = 0;
    for (name, value) in &environment.variables {
        let hides = !state.reveals && inquiry::is_secret(name, value);
        hidden += usize::from(hides);
        let line = Line::new().plain(name).plain("=");
        match hides {
            true => text.push(pieces(&line.dim("(hidden)"))),
            false => broken(&mut text, line.plain(value).text(), width),
        }
    }
    if environment.variables.is_empty() {
        add(&mut text, Tone::Dim, "no variables", 0, width);
    }
    if hidden > 0 {
        let values = wording::count(hidden, "value", "values");
        let what = format!("{values} that may be secret: v shows them");
        add(&mut text, Tone::Accent, &what, 0, width);
    }
    if environment.is_cut {
        add(&mut text, Tone::Accent, "the rest was not read", 0, width);
    }
    text
}

/// Adds escaped text that may lack word boundaries, broken where the line ends, with later lines
/// indented.
fn broken(text: &mut Text, line: &str, width: u16) {
    let room = usize::from(width).max(3);
    let mut part = String::new();
    let mut columns = 0;
    for letter in line.chars() {
        let wide = letter.width().unwrap_or(0);
        if columns + wide > room {
            text.push(vec![(Tone::Plain, std::mem::replace(&mut part, "  ".to_owned()))]);
            columns = 2;
        }
        part.push(letter);
        columns += wide;
    }
    text.push(vec![(Tone::Plain, part)]);
}

fn leases(state: &State, width: u16) -> Text {
    let user = |uid: u32| {
        let known = state.leases.iter().flatten().find_map(|leases| leases.names.get(&uid));
        known.cloned().unwrap_or_else(|| uid.to_string())
    };
    let paragraphs = match &state.leases {
        None => vec![Line::new().dim("reading …").into()],
        Some(Err(why)) => vec![Line::new().accent(why).into()],
        Some(Ok(leases)) => wording::leases::listing(&leases.listing, width.into(), &user),
    };
    if paragraphs.is_empty() {
        return vec![vec![(Tone::Plain, "no leases and no waiting claims".to_owned())]];
    }
    paragraphs.iter().flat_map(|paragraph| wrap(paragraph, width)).collect()
}

/// The indentation, in columns, of text after a long head.
const UNDER: usize = 11;

fn wrap(Paragraph { head, text }: &Paragraph, width: u16) -> Text {
    let indent = if head.width() <= UNDER { head.width() } else { UNDER };
    let words = text.split(' ').filter(|word| !word.is_empty());
    let words = words.map(|word| Line::new().plain(word));
    let lines = packed(head.clone(), words, " ", indent, width.into());
    lines.iter().map(pieces).collect()
}

pub(super) fn pieces(line: &Line) -> Vec<(Tone, String)> {
    let tone = |tone| match tone {
        Plain::Plain => Tone::Plain,
        Plain::Accent => Tone::Accent,
        Plain::Dim => Tone::Dim,
    };
    line.pieces().map(|(kind, text)| (tone(kind), text.to_owned())).collect()
}

fn help(state: &State, width: u16) -> Text {
    let mut text = Vec::new();
    let scope = Scope { overlay: None, ..state.scope() };
    for binding in scope.bindings().filter(|binding| state.offers(binding.action)) {
        let keys = scope.keys(binding).map(Stroke::name).collect::<Vec<_>>().join(" ");
        add(&mut text, Tone::Plain, &format!("{keys:<NAME$} {}", binding.help), NAME + 1, width);
    }
    let notes = [
        "",
        "In a box like this, Space is PgDn.",
        "A filter is a list of words that must all match: user=NAME (or its beginning), \
         gpu=0,2-3, or a part of the PID, the user, the note, the job or the command. While you \
         type it, ^U clears it.",
        "Click a title to sort; click a row to select it.",
        "In a narrow list of GPUs, ! marks a finding and L a lease.",
        "NOTE is the finding of gpuws doctor about a process, or `leased`.",
    ];
    for note in notes {
        add(&mut text, Tone::Dim, note, 0, width);
    }
    text
}

/// Adds a line, wrapped, with later lines indented.
fn add(text: &mut Text, tone: Tone, line: &str, indent: usize, width: u16) {
    let width = usize::from(width).max(1);
    let indent = if indent * 2 > width { 0 } else { indent };
    let (head, rest) =
        line.split_at(line.char_indices().nth(indent).map_or(line.len(), |(at, _)| at));
    let lines = wrapped(Line::new().plain(head).padded_to(indent), Plain::Plain, rest, width);
    text.extend(lines.into_iter().map(|line| vec![(tone, line.text().to_owned())]));
    if rest.is_empty() && head.is_empty() {
        text.push(Vec::new());
    }
}

fn value(text: &mut Text, name: &str, value: &str, width: u16) {
    add(text, Tone::Plain, &format!("{name:<NAME$} {value}"), NAME + 1, width);
}

fn details(state: &State, width: u16) -> Text {
    let mut text = Vec::new();
    let row = state.subject().and_then(|subject| state.row(subject));
    let Some((frame, row)) = state.frame.as_deref().zip(row) else {
        add(&mut text, Tone::Dim, "this row is gone", 0, width);
        return text;
    };
    match row.key.subject {
        Subject::Process(key) => process(&mut text, state, frame, row, key.pid, width),
        Subject::Foreign(pid) => {
            let memory = row.memory.map_or("?".to_owned(), gpu_core::amount);
            let gpu = row.device_label();
            let what = format!("{memory} of GPU {gpu}, listed as host PID {pid}, not visible here");
            add(&mut text, Tone::Strong, &what, 0, width);
        }
        Subject::Unlisted => {
            let memory = row.memory.map_or("?".to_owned(), gpu_core::amount);
            let gpu = row.device_label();
            let what =
                format!("{memory} of GPU {gpu} is used, but no listed process accounts for it");
            add(&mut text, Tone::Strong, &what, 0, width);
            value(&mut text, "users", &row.user, width);
            value(&mut text, "holders", row.command.trim_start_matches("not listed: "), width);
        }
    }
    for finding in frame.diagnosis.findings.iter().filter(|finding| concerns(finding, row)) {
        add_finding(&mut text, state, finding, row, width);
    }
    text
}

fn process(text: &mut Text, state: &State, frame: &Frame, row: &Row, pid: Pid, width: u16) {
    add(text, Tone::Strong, &format!("{pid} {}", row.command), 0, width);
    let gib = |bytes: Option<gpu_core::Bytes>| bytes.map_or("–".to_owned(), gpu_core::amount);
    let percent = |share: Option<u32>| share.map_or("–".to_owned(), |share| format!("{share} %"));
    value(text, "user", &row.user, width);
    let uses = |other: &&Row| other.pid() == Some(pid) && other.key.gpu.is_some();
    for row in frame.rows.iter().filter(uses) {
        let sm = percent(row.sm.map(u32::from));
        let line = format!("{}, SM {sm}, type {}", gib(row.memory), row.kind);
        value(text, &format!("GPU {}", row.device_label()), &line, width);
    }
    value(text, "host", &format!("{}, CPU {}", gib(row.host), percent(row.cpu)), width);
    graphs(text, state, row, width);
    let info = frame.snapshot.process(pid).ok();
    if let Some(at) = info.and_then(|info| info.started_at.ok()) {
        let age = row.age.map_or(String::new(), |age| format!(", {} ago", wording::age(age)));
        let started = local_time::readable(at, &state.options.zone);
        value(text, "started", &format!("{started}{age}"), width);
    }
    if let Some(workload) = info.and_then(|info| info.workload.as_deref()) {
        value(text, &workload.kind.to_string(), &workload.id, width);
    }
    if let Some(service) = info.and_then(ProcessInfo::service) {
        value(text, "service", service.name, width);
    }
    let parents: Vec<String> = ancestry(&frame.snapshot, pid)
        .skip(1)
        .take(ANCESTORS)
        .map(|info| format!("{} {}", info.key.pid, clean(&info.name)))
        .collect();
    if !parents.is_empty() {
        value(text, "parents", &parents.join(" ← "), width);
    }
}

/// The lines of each graph of a process.
const GRAPH: u16 = 2;

/// Adds the graphs of a process on the device of its row, once there are samples.
fn graphs(text: &mut Text, state: &State, row: &Row, width: u16) {
    let Some(history) = state.shown_past().processes.get(&row.key) else { return };
    let total = state.frame.iter().flat_map(|frame| &frame.devices);
    let total = total.filter(|device| Some(device.index) == row.key.gpu && device.mig == row.mig);
    let total = total.filter_map(|device| device.memory_total).next();
    let mib = total.and_then(|total| u32::try_from(total.0 >> 20).ok());
    let columns = width.saturating_sub(NAME as u16 + 1).min(MOST);
    let mut has_graph = false;
    for shown in [Use::Sm, Use::Memory, Use::Cpu] {
        let Some(largest) = history.largest(shown) else { continue };
        // Several CPUs can exceed 100 %.
        let (name, whole) = match shown {
            Use::Sm => ("SM".to_owned(), 100),
            Use::Memory => ("memory".to_owned(), mib.unwrap_or(largest)),
            Use::Cpu => {
                let whole = largest.div_ceil(100).max(1).saturating_mul(100);
                (format!("CPU ≤{whole}%"), whole)
            }
        };
        let back = |age: usize| {
            let value = history.back(shown, age)?;
            let share = (u64::from(value) * 100).checked_div(whole.into())?;
            Some(share.min(100) as u8)
        };
        has_graph = true;
        for (at, line) in graph::lines((columns, GRAPH), state.marker, back).into_iter().enumerate()
        {
            let name = if at == 0 { &*name } else { "" };
            text.push(vec![(Tone::Plain, format!("{name:<NAME$} ")), (Tone::Graph, line)]);
        }
    }
    if has_graph {
        text.push(vec![(Tone::Dim, format!("{:<NAME$} {}", "", super::axis(state, columns)))]);
    }
}

/// The maximum width, in columns, of a graph of a process.
const MOST: u16 = (PROCESS_SAMPLES / 2) as u16;

fn concerns(finding: &Finding, row: &Row) -> bool {
    let on_device = || finding.devices.iter().any(|device| Some(device.index) == row.key.gpu);
    match row.pid() {
        Some(pid) => finding.suspects.iter().any(|suspect| suspect.process.pid == pid),
        None => on_device() && row.finding == Some(finding.kind),
    }
}

fn add_finding(text: &mut Text, state: &State, finding: &Finding, row: &Row, width: u16) {
    text.push(Vec::new());
    let kind = wording::kind(finding.kind);
    let confidence = wording::confidence(finding.confidence);
    add(text, Tone::Accent, &format!("{kind}, confidence {confidence}"), 0, width);
    for evidence in &finding.evidence {
        add(text, Tone::Plain, &format!("  {}", evidence.text), 2, width);
    }
    let about = finding.suspects.iter();
    let about = about.filter(|suspect| row.pid().is_none_or(|pid| pid == suspect.process.pid));
    for suspect in about {
        for evidence in &suspect.evidence {
            add(
                text,
                Tone::Plain,
                &format!("  {}: {}", suspect.process.pid, evidence.text),
                4,
                width,
            );
        }
    }
    for advice in &finding.advice {
        let (command, effect) = wording::advice(advice, &state.options.sim);
        value(text, "next", &command, width);
        add(text, Tone::Dim, &format!("{:<NAME$} {effect}", ""), NAME + 1, width);
    }
}
