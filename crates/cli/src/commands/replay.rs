//! The frames of a history in place of looks at the machine.

use crate::args::HistoryArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{local_time, terminal};
use gpu_core::{Origin, Timestamp};
use gpu_history::{Frame, Reader};
use gpu_machine::history;
use gpu_report::local_time::readable;
use std::path::Path;
use std::time::Duration;

/// The damage of which a line is printed.
const TOLD: usize = 3;

/// Returns the frames that lead to the requested moment of a history: at most `count`, at least this
/// long apart; none without `--replay`.
pub(super) fn frames(
    args: &HistoryArgs,
    count: u16,
    apart: Duration,
) -> Result<Option<Vec<Frame>>, Failure> {
    let Some(path) = &args.replay else { return Ok(None) };
    let mut reader = history::reader(path)?;
    let position = position(args, path, &mut reader)?;
    let frames = reader.leading_to(position, count.into(), apart);
    tell_damage(&reader);
    if frames.is_empty() {
        return Err(failed(path).with_source("every frame before this time is damaged"));
    }
    let labelled = |mut frame: Frame| {
        let snapshot = &mut frame.snapshot;
        let machine = match (&snapshot.origin, &snapshot.hostname) {
            (Origin::Live, Ok(hostname)) => hostname.clone(),
            (Origin::Live, Err(_)) => "a machine".to_owned(),
            (origin, _) => origin.to_string(),
        };
        let at = readable(snapshot.taken_at, &local_time::zone());
        snapshot.origin = Origin::Recorded(format!("{machine}, {at}"));
        frame
    };
    Ok(Some(frames.into_iter().map(labelled).collect()))
}

fn failed(path: &Path) -> Failure {
    Failure::new(Exit::CannotObserve, format!("replay '{}'", path.display()))
}

/// Returns the number of the frame to show.
pub(super) fn position(
    args: &HistoryArgs,
    path: &Path,
    reader: &mut Reader,
) -> Result<usize, Failure> {
    let Some((first, last)) = reader.span() else {
        tell_damage(reader);
        return Err(failed(path).with_source("it has no frame"));
    };
    let zone = local_time::zone();
    let shown = |time: Timestamp| readable(time, &zone);
    let time = args.at.map_or(Some(last), |moment| moment.resolved(last, &zone));
    let position = time.filter(|time| *time <= last).and_then(|time| reader.position(time));
    position.ok_or_else(|| {
        let span = format!("it covers {} to {}", shown(first), shown(last));
        failed(path)
            .with_source(span)
            .with_hint("choose a time in it with --at")
            .ending(Exit::Usage)
    })
}

fn tell_damage(reader: &Reader) {
    let damage = reader.damage();
    for damage in damage.iter().take(TOLD) {
        terminal::warn(&format!("damaged history: {damage}"));
    }
    if damage.len() > TOLD {
        terminal::warn(&format!("damaged history: {} more places", damage.len() - TOLD));
    }
}
