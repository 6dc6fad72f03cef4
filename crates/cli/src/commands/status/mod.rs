//! `gpuws status`: shows the devices and their users.

mod args;
mod details;
mod gpustat;
mod no_driver;
mod notes;
mod recorded;
mod smi;

pub(crate) use args::{Format, Shown, StatusArgs};
pub(crate) use no_driver::without_driver;

use crate::args::Global;
use crate::commands::{query, reap, repeat, replay};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source};
use crate::terminal::{Line, Screen, packed, progress, warn};
use crate::users::user;
use crate::wording;
use gpu_core::{
    Groups, HolderSearch, Observation, Observer, ProcessDetail, Selector, Snapshot,
    selector::select,
};
use gpu_reaper::Diagnosis;
use gpu_report::replay::{EVERY, MINUTE};
use gpu_report::{Columns, ProcessFilter, View, local_time};
use gpu_steward::DeviceLeases;
use notes::{doctor, uninspected, unreported};
use std::borrow::Cow;

pub(crate) fn run(
    args: &StatusArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    if args.hosts.are_given() {
        return super::hosts::status(args, global, screen);
    }
    match args.format {
        Some(Format::Csv(style)) => {
            let (fields, only) = (args.fields.chosen()?, &args.only.devices);
            return query::rows(fields, style, only, &args.repeat, global, screen);
        }
        Some(Format::GpustatJson) => return gpustat::run(args, global, screen),
        Some(Format::Smi) => return smi::run(args, global, screen),
        None if args.list_gpus || args.xml => return smi::run(args, global, screen),
        None => {}
    }
    if let Some(frames) = replay::frames(&args.replay, global, MINUTE, EVERY)? {
        return recorded::show(args, global, frames, screen);
    }
    let requested = args.columns.as_ref().map_or(Groups::NONE, Columns::groups);
    let groups =
        if args.details { Groups::all() } else { gpu_reaper::defect_groups().and(requested) };
    let holders = HolderSearch::wanted(args.details || args.holders);
    // The table needs no further details of unsuspected processes.
    let processes = if args.details || args.columns.is_some() || global.json {
        ProcessDetail::Whole
    } else {
        ProcessDetail::Outline
    };
    let observation = Observation { groups, holders, processes, driver_messages: false };
    let once = args.repeat.is_once();
    let source = match once {
        true => source::open_for_query(global, groups, true)?,
        false => source::open_to_watch(global, true, progress)?,
    };
    let mut observer = Observer::new();
    let filter = filter(&args.shown, &source)?;
    let mut before = None;
    let exit = repeat::show(&args.repeat, &source, screen, |screen| {
        // The driver is queried in the background meanwhile.
        let leased = source.leases();
        let mut whole = match once {
            true => source.detailed_snapshot(observation),
            false => source.observe(&mut observer, observation),
        };
        let mut diagnosis = gpu_reaper::diagnose_outlines(&mut whole, &*source.host);
        leased.excuse(&whole, &mut diagnosis);
        let snapshot = only(&whole, &args.only.devices)?;
        let mut view = View::of(&whole, &snapshot, &diagnosis, leased, &user);
        view.filter = filter.clone();
        (view.columns, view.before) = (args.columns.as_ref(), before.as_ref());
        // The environment is of this machine.
        let seen = || gpu_machine::seen(&whole.devices);
        view.seen = whole.origin.permits_actions().then(seen).flatten();
        view.has_titles = !global.quiet;
        match (args.details, global.json) {
            (_, true) if once => screen.json(&view.json(args.details))?,
            (_, true) => screen.json_line(&view.json(args.details))?,
            (true, false) => {
                let shown = view.filter.applied_to(&snapshot);
                details::show(screen, &shown, whole.devices.len(), global.quiet)?;
                left_out(screen, &view)?;
            }
            (false, false) => screen.together(|screen| {
                if !once {
                    screen.clear()?;
                }
                show_view(screen, global, &view, &doctor(&whole, global))
            })?,
        }
        drop(view);
        drop(snapshot);
        if once {
            std::mem::forget((whole, diagnosis));
        } else {
            before = Some(whole);
        }
        Ok(Exit::Done)
    });
    source.leak();
    exit
}

/// Keeps only the selected devices. Without a driver there are no devices to select, and the output
/// shows the failure of the driver.
fn only<'a>(whole: &'a Snapshot, selectors: &[Selector]) -> Result<Cow<'a, Snapshot>, Failure> {
    if selectors.is_empty() || (whole.driver.is_err() && whole.devices.is_empty()) {
        return Ok(Cow::Borrowed(whole));
    }
    let devices = select(whole.devices.clone(), selectors)?;
    Ok(Cow::Owned(Snapshot { devices, ..whole.clone() }))
}

fn filter(args: &Shown, source: &Source) -> Result<ProcessFilter, Failure> {
    let uid = if args.mine { Some(own_uid(source)?) } else { None };
    if let Ok(Some(user)) = source.unknown_user(&args.user) {
        warn(&format!("--user {user}: {}", reap::NO_USER));
    }
    Ok(ProcessFilter { users: args.user.clone(), uid, pids: args.pid.clone() })
}

/// Returns the user of this process; on a simulated machine, that of the simulated caller.
fn own_uid(source: &Source) -> Result<u32, Failure> {
    let own = source.host.own_ancestry()?.first().map(|own| source.host.process(own.pid));
    own.transpose()?.and_then(|own| own.uid.ok()).ok_or_else(|| {
        Failure::new(Exit::CannotObserve, "find the owner of this process").with_hint("use --user")
    })
}

/// Prints the state of the whole machine, without leases.
pub(crate) fn show(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    let view = View::of(snapshot, snapshot, diagnosis, DeviceLeases::none(), &user);
    show_view(screen, global, &view, &doctor(snapshot, global))
}

fn show_view(
    screen: &mut Screen,
    global: &Global,
    view: &View<'_>,
    doctor: &str,
) -> Result<(), Failure> {
    let snapshot = view.snapshot;
    let label = Line::new().accent(snapshot.origin.to_string());
    screen.origin(&snapshot.origin, label, global.quiet)?;
    let room = screen.room(0);
    if !global.quiet {
        let at = local_time::readable(view.whole.taken_at, &crate::local_time::zone());
        screen.print(&Line::new().dim(at))?;
        screen.print_all(packed(Line::new(), view.headline(), "  ·  ", 4, room))?;
    }
    if let Err(fault) = &snapshot.driver {
        without_driver(screen, snapshot, fault, &view.filter, global.quiet)?;
    }
    if !snapshot.devices.is_empty() && !global.quiet {
        screen.print(&Line::new())?;
    }
    screen.print_all(view.rows(room))?;
    unreported(screen, snapshot)?;
    left_out(screen, view)?;
    if !global.quiet {
        screen.print_all(view.notes(doctor, room, screen.width()))?;
        if let Some(fault) = view.leased.fault() {
            let head = Line::new().dim("leases unknown: ");
            wording::flow(screen, head, &format!("failed to {fault}"))?;
        }
        uninspected(screen, snapshot)?;
    }
    Ok(())
}

/// Prints how many rows the filter left out, if there is one.
fn left_out(screen: &mut Screen, view: &View<'_>) -> Result<(), Failure> {
    let Some(text) = view.left_out() else { return Ok(()) };
    screen.print(&Line::new())?;
    wording::flow(screen, Line::new().dim("filter: "), &text)
}
