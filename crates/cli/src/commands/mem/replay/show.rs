//! Output of a replay.

use super::super::jobs::{file_name, show_head, without_settings};
use crate::args::Global;
use crate::commands::mem::ReplayArgs;
use crate::failure::Failure;
use crate::terminal::{Align, Line, Screen, Table};
use crate::wording;
use gpu_core::{Bytes, amount};
use gpu_memory_trace::{Agreement, Replays, Run, Tally};

pub(super) fn show(
    screen: &mut Screen,
    global: &Global,
    args: &ReplayArgs,
    replays: &Replays<'_>,
) -> Result<(), Failure> {
    let trace = replays.job.trace;
    let live = Bytes(replays.job.granted.peak_requested());
    show_head(screen, &file_name(&args.file), (trace.events.len(), trace.device), live)?;
    match &replays.agreement {
        Some(agreement) => show_agreement(screen, agreement)?,
        None => {
            let why = "the recording has no PyTorch allocator segments.";
            let head = Line::new().dim("  Not compared decision by decision: ");
            wording::flow(screen, head, why)?;
        }
    }
    show_refused(screen, replays.job.refused)?;
    screen.print(&Line::new())?;
    let room = args.limit.into_iter().chain(args.device_memory).min().map(amount);
    let given: Vec<_> = room.into_iter().chain(args.policies.set.iter().cloned()).collect();
    if !given.is_empty() {
        wording::flow(screen, Line::new().plain("With "), &format!("{}:", given.join(", ")))?;
    }
    let mut table = Table::new(&[
        ("  allocator", Align::Left),
        ("reserved", Align::Right),
        ("allocated", Align::Right),
        ("wasted", Align::Right),
        ("retries", Align::Right),
        ("over time", Align::Left),
    ]);
    for run in &replays.runs {
        let outcome = &run.trial.outcome;
        // An allocator that fails at its start has no peak.
        let began = outcome.stop.is_none_or(|stop| stop.step.is_some());
        let size = |bytes| if began { amount(bytes) } else { "–".to_owned() };
        table.row([
            Line::new().plain(format!("  {}", without_settings(&run.title))),
            Line::new().accent(size(outcome.peak.reserved)),
            Line::new().plain(size(outcome.peak.in_use)),
            Line::new().plain(size(outcome.wasted())),
            Line::new().plain(run.trial.end.retries),
            Line::new().dim(run.spark.draw()),
        ]);
    }
    screen.print_all(table.lines(screen.room(0)))?;
    for run in &replays.runs {
        show_stop(screen, global, args, (replays, run))?;
    }
    Ok(())
}

/// Reports that the recorded job ended with a failed allocation.
pub(in crate::commands::mem) fn show_refused(
    screen: &mut Screen,
    refused: Option<Bytes>,
) -> Result<(), Failure> {
    let Some(size) = refused else { return Ok(()) };
    let text =
        format!("the job ended with a failed allocation of {}; the replay grants it", amount(size));
    wording::flow(screen, Line::new().plain("  "), &text)
}

fn show_agreement(screen: &mut Screen, agreement: &Agreement) -> Result<(), Failure> {
    let of = |tally: Tally, what: &str| format!("{} of {} {what}", tally.predicted, tally.of);
    let parts = [
        of(agreement.addresses, "addresses"),
        of(agreement.segments, "segments"),
        of(agreement.segments_freed, "freed"),
    ];
    let head = if agreement.is_complete() {
        Line::new().plain("  as recorded: ")
    } else {
        Line::new().plain("  ").accent("as recorded: ")
    };
    wording::flow(screen, head, &format!("{} predicted", parts.join(", ")))?;
    let peak = agreement.outcome.peak;
    let (reserved, allocated) = (amount(peak.reserved), amount(peak.in_use));
    let refused = wording::count(agreement.retries as usize, "time", "times");
    let text =
        format!("peak reserved {reserved}, allocated {allocated}; failed cudaMalloc: {refused}");
    wording::flow(screen, Line::new().plain("  "), &text)?;
    if let Some(first) = &agreement.first {
        let head = Line::new().plain(format!("  differs first at event {}: ", first.event));
        wording::flow(screen, head, &first.what)?;
    }
    Ok(())
}

/// Reports where a job ran out of memory, and which settings would help.
fn show_stop(
    screen: &mut Screen,
    global: &Global,
    args: &ReplayArgs,
    (replays, run): (&Replays<'_>, &Run),
) -> Result<(), Failure> {
    let Some(stop) = run.trial.outcome.stop else { return Ok(()) };
    screen.print(&Line::new())?;
    let at = match stop.step.and_then(|step| replays.job.granted.events.get(step)) {
        Some(event) => format!("at event {event} of {}", replays.job.trace.events.len()),
        None => "with its initial allocations".to_owned(),
    };
    screen.print(&Line::new().accent(&run.title).plain(format!(": out of memory {at}")))?;
    let shortage = stop.shortage;
    let text = format!(
        "requested {}; {} reserved ({} allocated, {} cached, largest free block {})",
        amount(shortage.asked),
        amount(shortage.reserved),
        amount(shortage.in_use),
        amount(shortage.cached()),
        amount(shortage.largest_free),
    );
    wording::flow(screen, Line::new().plain("  "), &text)?;
    let free = amount(shortage.free());
    let verdict = if shortage.is_fragmented() {
        format!("Fragmentation: {free} free, but not contiguous.")
    } else {
        format!("Insufficient memory: only {free} free.")
    };
    wording::flow(screen, Line::new().plain("  "), &verdict)?;
    if global.quiet {
        return Ok(());
    }
    for (setting, trial) in &run.helpful_settings {
        let head = Line::new().plain("  Fits with ").accent(setting);
        let reserved = amount(trial.outcome.peak.reserved);
        screen.print(&head.plain(format!(": peak reserved {reserved}")))?;
    }
    if run.helpful_settings.is_empty() {
        let file = wording::path_word(&args.file);
        let next = "  No setting of this allocator helps; for the required memory: ";
        screen.print(&Line::new().dim(next).plain(format_args!("gpuws mem fit {file}")))?;
    }
    Ok(())
}
