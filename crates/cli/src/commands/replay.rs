//! The frames of a history in place of snapshots of the machine.

use crate::args::{Global, HistoryArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{local_time, terminal};
use gpu_core::Snapshot;
use gpu_history::Frame;
use gpu_machine::history;
use gpu_reaper::Past;
use std::path::Path;
use std::time::Duration;

/// Returns the directory of the history; none without `--replay`.
pub(super) fn dir<'a>(args: &'a HistoryArgs, global: &Global) -> Result<Option<&'a Path>, Failure> {
    // The parser misses a conflict between options before and after the command.
    if args.replay.is_some() && (global.sim.is_some() || global.nvml.is_some()) {
        return Err(Failure::new(Exit::Usage, "replay a history")
            .with_source("--replay cannot be used with --sim or --nvml"));
    }
    args.replay.as_ref().map_or(Ok(()), |_| Failure::unless_built("--replay"))?;
    Ok(args.replay.as_deref())
}

/// Returns the evidence of the history before these frames; empty without `--replay`.
pub(super) fn past(args: &HistoryArgs, frames: &[Snapshot]) -> Result<Past, Failure> {
    match (&args.replay, frames.first()) {
        (Some(path), Some(first)) => {
            Ok(gpu_report::replay::past(&mut history::reader(path)?, first.taken_at))
        }
        _ => Ok(Past::new()),
    }
}

/// Returns the frames of a history that lead to the requested moment: at most `count`, at least
/// this long apart; none without `--replay`.
pub(super) fn frames(
    args: &HistoryArgs,
    global: &Global,
    count: u16,
    apart: Duration,
) -> Result<Option<Vec<Frame>>, Failure> {
    let Some(path) = dir(args, global)? else { return Ok(None) };
    let mut reader = history::reader(path)?;
    let zone = local_time::zone();
    let frames = gpu_report::replay::frames(path, &mut reader, args.at, &zone, count.into(), apart);
    for note in gpu_report::replay::damage(reader.damage()) {
        terminal::warn(&note);
    }
    Ok(Some(frames?))
}
