//! `gpuws doctor`: findings with their evidence and the next command to run.

mod args;
mod paste;

pub(crate) use args::{DoctorArgs, Sampling};

use super::replay;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::selector::chosen;
use crate::source::{self, sim_option};
use crate::terminal::{Line, Screen, warn};
use crate::wording;
use gpu_core::{DeviceId, DeviceState, Driver, Origin, Snapshot};
use gpu_reaper::{Diagnosis, Past};
use gpu_report::{ProcessFilter, findings::Findings, json, replay::MINUTE};
use gpu_steward::DeviceLeases;
use gpu_text::ReportedFailure;

pub(crate) fn run(
    args: &DoctorArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    if args.hosts.are_given() {
        return super::hosts::doctor(args, global, screen);
    }
    if args.paste {
        return paste::run(args, global, screen);
    }
    let observation = gpu_reaper::full_observation();
    let Sampling { count, every } = args.sampling;
    let replayed = replay::frames(&args.replay, global, count.unwrap_or(MINUTE), every)?;
    let count = count.unwrap_or(1);
    let (snapshots, leased): (Vec<Snapshot>, _) = match replayed {
        Some(frames) => {
            let leases = frames.last().map_or(Ok(Vec::new()), |frame| frame.leases.clone());
            let snapshots = frames.into_iter().map(|frame| frame.snapshot).collect();
            (snapshots, DeviceLeases::recorded(leases))
        }
        None => {
            let source = source::open_for_query(global, observation.groups, count == 1)?;
            (source.snapshots(observation, count, every).collect(), source.leases())
        }
    };
    let Some(now) = snapshots.last() else { return Ok(Exit::Done) };
    if let (Err(fault), true) = (&now.driver, now.devices.is_empty()) {
        let failure = Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone()));
        if global.json {
            let sim = sim_option(&now.origin, global);
            screen.json(&json::Doctor::of(now, &[], &gpu_reaper::diagnose(&snapshots), &sim))?;
            return Err(failure);
        }
        show_origin(screen, global, now)?;
        let all = ProcessFilter::default();
        super::status::without_driver(screen, now, fault, &all, global.quiet)?;
        return Ok(failure.exit());
    }
    let past = replay::past(&args.replay, &snapshots)?;
    report(args, global, (past, &snapshots, &leased), &[], screen)
}

/// Diagnoses the selected devices from these snapshots and leases, and from the past before them,
/// and prints the result.
pub(super) fn report(
    args: &DoctorArgs,
    global: &Global,
    (mut past, snapshots, leased): (Past, &[Snapshot], &DeviceLeases),
    failures: &[ReportedFailure],
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let Some(now) = snapshots.last() else { return Ok(Exit::Done) };
    let gpus = chosen(now, &args.gpu)?;
    snapshots.iter().for_each(|snapshot| past.add(snapshot));
    let mut diagnosis = gpu_reaper::diagnose_after(&past, now);
    leased.excuse(now, &mut diagnosis);
    let exists = |index: &u32| now.devices.iter().any(|device| device.id().index == *index);
    for index in args.ignore.iter().filter_map(|of| of.device).filter(|index| !exists(index)) {
        warn(&format!("--ignore names GPU {index}, which does not exist on this machine"));
    }
    diagnosis.retain(args.min_confidence, &args.ignore);
    diagnosis.join_ghosts();
    if !gpus.is_empty() {
        let is_selected = |index: u32| gpus.contains(&index);
        diagnosis.findings.retain(|finding| finding.devices.iter().any(|id| is_selected(id.index)));
        diagnosis.cleared.retain(|cleared| cleared.devices.iter().any(|id| is_selected(id.index)));
    }
    let selected = |id: &DeviceId| gpus.is_empty() || gpus.contains(&id.index);
    let devices: Vec<&DeviceState> = now.devices.iter().filter(|d| selected(d.id())).collect();
    if global.json {
        let sim = sim_option(&now.origin, global);
        let doctor = json::Doctor::of(now, &devices, &diagnosis, &sim);
        screen.json(&doctor.with_failures(failures))?;
    } else {
        show_some(screen, global, now, &devices, &diagnosis)?;
    }
    Ok(if diagnosis.findings.is_empty() { Exit::Done } else { Exit::Remains })
}

pub(crate) fn show(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    let devices: Vec<&DeviceState> = snapshot.devices.iter().collect();
    show_some(screen, global, snapshot, &devices, diagnosis)
}

/// Prints the diagnosis: findings with their evidence, then cleared processes, then the unknown
/// facts about `devices`, and a summary.
fn show_some(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    devices: &[&DeviceState],
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    show_origin(screen, global, snapshot)?;
    if snapshot.origin != Origin::Live && !global.quiet {
        screen.print(&Line::new())?;
    }
    let (sim, width) = (sim_option(&snapshot.origin, global), screen.width());
    let findings = Findings { snapshot, diagnosis, quiet: global.quiet, sim: &sim, width };
    screen.print_all(findings.lines())?;
    let unreported =
        devices.iter().copied().filter(|device| !diagnosis.explains_list_of(snapshot, device));
    for line in wording::unknown_users(unreported) {
        wording::flow(screen, Line::new(), &line)?;
    }
    if global.quiet {
        return Ok(());
    }
    for note in wording::doctor::notes(snapshot) {
        wording::flow(screen, Line::new().dim("note: "), &note)?;
    }
    screen.print(&wording::doctor::summary(snapshot, diagnosis))
}

/// Prints the origin of the snapshot as a heading, unless it is this machine.
pub(crate) fn show_origin(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
) -> Result<(), Failure> {
    let line = origin(snapshot).unwrap_or_default();
    screen.origin(&snapshot.origin, line, global.quiet)
}

/// Returns the origin of the snapshot; `None` for this machine.
pub(crate) fn origin(snapshot: &Snapshot) -> Option<Line> {
    if snapshot.origin == Origin::Live {
        return None;
    }
    let line = Line::new().accent(snapshot.origin.to_string());
    Some(match &snapshot.driver {
        Ok(Driver { version: Ok(version), .. }) => line.plain(format!(" (driver {version})")),
        _ => line,
    })
}
