//! `gpuws status`: shows the devices and their users.

mod gpustat;
mod no_driver;
mod notes;

pub(crate) use no_driver::without_driver;

use crate::args::{Format, Global, StatusArgs};
use crate::commands::device_lines::{Layout, claims, defects};
use crate::commands::{query, repeat};
use crate::details;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::queue_status::user;
use crate::source;
use crate::terminal::{Line, Screen, Tone, packed, wrapped};
use crate::wording;
use gpu_core::{
    Absent, DeviceId, Driver, Groups, HolderSearch, Observation, Origin, Pid, Selector, Snapshot,
    selector::select,
};
use gpu_reaper::{Diagnosis, Finding, FindingKind, Usage};
use gpu_report::{json, local_time};
use gpu_steward::DeviceLeases;
use notes::{bystanders, next_commands, unreported, unseen_by};
use std::borrow::Cow;

pub(crate) fn run(
    args: &StatusArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    match args.format {
        Some(Format::Csv(style)) => {
            return query::rows(&args.fields, style, &args.devices, &args.repeat, global, screen);
        }
        Some(Format::GpustatJson) => return gpustat::run(args, global, screen),
        None => {}
    }
    let groups = if args.details { Groups::all() } else { gpu_reaper::defect_groups() };
    let holders = HolderSearch::wanted(args.details || args.holders);
    let observation = Observation { groups, holders, ..Observation::default() };
    let source = source::open_for_query(global, groups, args.repeat.is_once())?;
    let exit = repeat::show(&args.repeat, &source, screen, |screen| {
        // The driver is queried in the background meanwhile.
        let leased = source.leases();
        let whole = source.detailed_snapshot(observation);
        let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&whole));
        let snapshot = only(&whole, &args.devices)?;
        let status = || json::Status::of(&snapshot, args.details, &diagnosis, &leased, &user);
        match (args.details, global.json) {
            (_, true) if args.repeat.is_once() => screen.json(&status())?,
            (_, true) => screen.json_line(&status())?,
            (true, false) => details::show(screen, &snapshot)?,
            (false, false) => screen.together(|screen| {
                if !args.repeat.is_once() {
                    screen.clear()?;
                    let zone = crate::local_time::zone();
                    screen.print(&Line::new().dim(local_time::readable(whole.taken_at, &zone)))?;
                }
                show_some(screen, global, &whole, &snapshot, &diagnosis, &leased)
            })?,
        }
        drop(snapshot);
        if args.repeat.is_once() {
            std::mem::forget((whole, diagnosis));
        }
        Ok(Exit::Done)
    });
    source.leak();
    exit
}

/// Keeps only the selected devices.
fn only<'a>(whole: &'a Snapshot, selectors: &[Selector]) -> Result<Cow<'a, Snapshot>, Failure> {
    if selectors.is_empty() {
        return Ok(Cow::Borrowed(whole));
    }
    let devices = select(whole.devices.clone(), selectors)?;
    Ok(Cow::Owned(Snapshot { devices, ..whole.clone() }))
}

/// Prints the state of the whole machine, without leases.
pub(crate) fn show(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    show_some(screen, global, snapshot, snapshot, diagnosis, &DeviceLeases::none())
}

/// Prints the headline for the whole machine and the devices of `snapshot`.
fn show_some(
    screen: &mut Screen,
    global: &Global,
    whole: &Snapshot,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    leased: &DeviceLeases,
) -> Result<(), Failure> {
    let usage = Usage::of(whole);
    if snapshot.origin != Origin::Live {
        screen.print(&Line::new().accent(snapshot.origin.to_string()))?;
    }
    let room = screen.room(0);
    let head = headline(whole, diagnosis, &usage, leased);
    print_all(screen, packed(Line::new(), head, "  ·  ", 4, room))?;
    if let Err(fault) = &snapshot.driver {
        without_driver(screen, snapshot, fault)?;
    }
    if !snapshot.devices.is_empty() {
        screen.print(&Line::new())?;
    }
    let any_free = snapshot.devices.iter().any(|device| leased.is_free(device, &usage));
    let layout = Layout::of(room, snapshot, any_free);
    for device in &snapshot.devices {
        let mut lines = layout.device(device, leased.is_free(device, &usage));
        lines.extend(defects(device));
        lines.extend(device.mig.iter().flatten().map(|instance| layout.instance(instance)));
        lines.extend(claims(&leased.on(device).collect::<Vec<_>>(), snapshot.taken_at));
        let mut unexplained = usage.unexplained(device.id());
        let ghost = diagnosis.only_ghost(device.id()).filter(|_| unexplained.is_some());
        for user in usage.on(device.id()) {
            let mut user = user.clone();
            if ghost == Some(user.pid) && user.memory.is_err() {
                user.memory = unexplained.take().ok_or(Absent::NotFound);
            }
            lines.extend(layout.user(snapshot, &user, suspected(diagnosis, device.id(), user.pid)));
            lines.extend(layout.unlisted(snapshot, device, &user));
        }
        lines.extend(unexplained.into_iter().flat_map(|bytes| layout.unexplained(bytes.gib())));
        lines.into_iter().try_for_each(|line| screen.print(&line.cut(room)))?;
    }
    unreported(screen, snapshot)?;
    if !global.quiet {
        next_commands(screen, global, snapshot, diagnosis)?;
        bystanders(screen, snapshot, &usage, diagnosis)?;
        if let Some(fault) = leased.fault() {
            let head = Line::new().dim("leases unknown: ");
            wording::flow(screen, head, &format!("failed to {fault}"))?;
        }
        if snapshot.unreadable.total() > 0 {
            let unread =
                wording::count(snapshot.unreadable.total() as usize, "process", "processes");
            let by = unseen_by(snapshot.is_root);
            let line = format!("{unread} could not be inspected{by}");
            print_all(screen, wrapped(Line::new(), Tone::Dim, &line, room))?;
        }
    }
    Ok(())
}

fn print_all(screen: &mut Screen, lines: Vec<Line>) -> Result<(), Failure> {
    lines.iter().try_for_each(|line| screen.print(line))
}

fn suspected(diagnosis: &Diagnosis, device: &DeviceId, pid: Pid) -> Option<FindingKind> {
    let is_it = |finding: &&Finding| {
        finding.devices.iter().any(|id| id.same_device(device))
            && finding.suspects.iter().any(|suspect| suspect.process.pid == pid)
    };
    diagnosis.findings.iter().find(is_it).map(|finding| finding.kind)
}

/// Formats `labbox · driver 535.261.03 · CUDA 12.2 · 4 GPUs, 1 free, 1 finding`, in pieces.
fn headline(
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    usage: &Usage,
    leased: &DeviceLeases,
) -> Vec<Line> {
    let mut parts = Vec::new();
    if let Ok(hostname) = &snapshot.hostname {
        parts.push(hostname.clone());
    }
    if let Ok(Driver { version, cuda }) = &snapshot.driver {
        parts.extend(version.iter().map(|version| format!("driver {version}")));
        parts.extend(cuda.iter().map(|cuda| format!("CUDA {cuda}")));
        let free = snapshot.devices.iter().filter(|device| leased.is_free(device, usage)).count();
        let gpus = wording::count(snapshot.devices.len(), "GPU", "GPUs");
        parts.push(format!("{gpus}, {free} free"));
    }
    let mut pieces: Vec<Line> = parts.into_iter().map(|part| Line::new().plain(part)).collect();
    if !diagnosis.findings.is_empty() {
        let findings = wording::count(diagnosis.findings.len(), "finding", "findings");
        let last = pieces.pop().map_or_else(Line::new, |last| last.plain(", "));
        pieces.push(last.accent(findings));
    }
    pieces
}
