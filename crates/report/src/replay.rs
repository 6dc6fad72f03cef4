//! The part of a history that a replay shows.

use crate::{Moment, TimeZone, local_time::readable, wording::path_word};
use gpu_core::{Error, ErrorKind, Origin, Result, Snapshot, Timestamp};
use gpu_history::{Damage, Frame, Reader};
use gpu_reaper::{Diagnosis, Past, diagnose_after};
use std::path::Path;
use std::time::Duration;

/// The maximum number of damages that are listed individually.
const MAX_LISTED: usize = 3;

/// Returns lines about the damage in a history.
pub fn damage(damage: &[Damage]) -> Vec<String> {
    let more = damage.len().saturating_sub(MAX_LISTED);
    let lines = damage.iter().take(MAX_LISTED).map(|damage| format!("damaged history: {damage}"));
    lines.chain((more > 0).then(|| format!("damaged history: {more} more places"))).collect()
}

/// Returns the command that diagnoses a sample of a history: the last one, or that of this time.
pub fn doctor(dir: &Path, at: Option<Timestamp>) -> String {
    let dir = path_word(dir);
    let at = at.map_or(String::new(), |at| format!(" --at {at}"));
    format!("gpuws doctor --replay {dir}{at}")
}

/// Returns the number of the frame of a history at a moment, the end by default.
///
/// # Errors
/// `Invalid`, with the path, when the history does not cover this moment, or has no frame.
pub fn position(
    path: &Path,
    reader: &mut Reader,
    at: Option<Moment>,
    zone: &TimeZone,
) -> Result<usize> {
    let Some((first, last)) = reader.span() else {
        let why = "it has no sample; gpuws record --for writes a history to a directory";
        return Err(failed(path, why.to_owned()));
    };
    let time = at.map_or(Some(last), |moment| moment.resolved((first, last), zone));
    let time = time.filter(|time| *time <= last).map(|time| from_start(time, first));
    let position = time.and_then(|time| reader.position(time));
    position.ok_or_else(|| failed(path, covers((first, last), zone)))
}

/// Returns the time of a moment in a history that covers `span`.
///
/// # Errors
/// Why it has no such time, as a phrase.
pub fn covered(
    moment: Moment,
    span: (Timestamp, Timestamp),
    zone: &TimeZone,
) -> std::result::Result<Timestamp, String> {
    let time = moment.resolved(span, zone).ok_or("the calendar has no such time")?;
    let time = match moment {
        // A time before the start means the whole history.
        Moment::BeforeEnd(_) => time.max(span.0),
        _ => from_start(time, span.0),
    };
    if (span.0..=span.1).contains(&time) { Ok(time) } else { Err(covers(span, zone)) }
}

/// Returns the start for a time in its second, because people see no milliseconds.
fn from_start(time: Timestamp, start: Timestamp) -> Timestamp {
    if time.0 / 1000 == start.0 / 1000 { time.max(start) } else { time }
}

/// Returns the message for a time that a history does not cover: `it covers … to …`.
pub fn covers((first, last): (Timestamp, Timestamp), zone: &TimeZone) -> String {
    format!("it covers {} to {}", readable(first, zone), readable(last, zone))
}

fn failed(path: &Path, why: String) -> Error {
    failed_by(ErrorKind::Invalid, path, why)
}

fn failed_by(kind: ErrorKind, path: &Path, why: String) -> Error {
    Error::new(kind, format!("replay the history '{}'", path.display())).with_source(why)
}

/// Returns the part of this time between two moments; all of it by default.
///
/// # Errors
/// `Invalid`, with the path, when a moment does not exist in the calendar.
pub fn window(
    path: &Path,
    (first, last): (Timestamp, Timestamp),
    (since, until): (Option<Moment>, Option<Moment>),
    zone: &TimeZone,
) -> Result<(Timestamp, Timestamp)> {
    let resolved = |moment: Option<Moment>, usual: Timestamp, start: Timestamp| {
        let time = moment.map_or(Some(usual), |moment| moment.resolved((start, last), zone));
        time.ok_or_else(|| failed(path, "the calendar has no such time".to_owned()))
    };
    // 08:00 of the first day may be before the first sample.
    let midnight = Moment::OfDay(jiff::civil::Time::midnight());
    let first_day = midnight.resolved((Timestamp(0), first), zone).unwrap_or(first);
    Ok((resolved(since, first, first_day)?, resolved(until, last, first)?))
}

/// Older events prove no more: a notebook is considered abandoned after a day.
const PROVES: Duration = Duration::from_secs(25 * 3_600);

/// The distance between the frames that are read of a long period: they prove as much as all
/// frames.
const APART: Duration = Duration::from_secs(60);

/// Returns the evidence for idle processes and growing memory in the day of a history before this
/// time.
pub fn past(reader: &mut Reader, before: Timestamp) -> Past {
    let mut past = Past::every(APART);
    let since = Timestamp(before.0.saturating_sub(PROVES.as_millis() as u64));
    let mut last: Option<Timestamp> = None;
    let end = reader.position(before).map_or(0, |last| last + 1);
    for number in reader.first_since(since)..end {
        // Before the clock was set back, it may have shown later times.
        let Some(at) = reader.time(number).filter(|at| (since..before).contains(at)) else {
            continue;
        };
        if last.is_none_or(|last| at < last || at.since(last) >= APART)
            && let Some(frame) = reader.frame(number)
        {
            past.add(&frame.snapshot);
            last = Some(at);
        }
    }
    past
}

/// The samples that lead to a moment and are diagnosed together with it: one minute.
pub const MINUTE: u16 = 13;

/// The minimum distance between these samples.
pub const EVERY: Duration = Duration::from_secs(5);

/// Frames further apart are unrelated, unless none was recorded in between.
const TOGETHER: Duration = Duration::from_secs(600);

/// Returns the joint evidence of frames, oldest first. Pauses of the recorder do not count.
pub fn watched<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Past {
    let mut past = Past::every(APART);
    frames.into_iter().for_each(|frame| past.add(&frame.snapshot));
    past
}

/// The evidence of the frames of a replayed history so far.
#[derive(Debug, Default)]
pub struct Watched {
    past: Past,
    /// The last frame that was diagnosed.
    last: Option<(usize, Timestamp)>,
}

impl Watched {
    /// Diagnoses a frame of a history, given by its number, with the previously diagnosed frames.
    /// After a jump, the frames that lead to it in the history replace these.
    pub fn diagnose(&mut self, reader: &mut Reader, number: usize, now: &Snapshot) -> Diagnosis {
        if !self.goes_on(reader, number, now) {
            let mut leading = reader.leading_to(number, MINUTE.into(), EVERY);
            // The last of them is this frame.
            leading.pop();
            self.past = watched(&leading);
        }
        self.last = Some((number, now.taken_at));
        self.past.add(now);
        diagnose_after(&self.past, now)
    }

    /// Returns whether the past of the last frame also applies to this frame.
    fn goes_on(&self, reader: &mut Reader, number: usize, now: &Snapshot) -> bool {
        let Some((last, at)) = self.last else { return false };
        let is_next = number == last + 1;
        let is_near = at < now.taken_at && now.taken_at.since(at) <= TOGETHER;
        number > last
            && (is_next || is_near)
            // The numbers change when a day is removed.
            && reader.time(last) == Some(at)
            && !(last + 1..=number).any(|frame| reader.starts_run(frame))
    }
}

/// Returns the frames of a history that lead to a moment, the end by default, oldest first: at most
/// `count`, at least this long apart. Their origin states which machine was recorded.
///
/// # Errors
/// `Invalid`, with the path, when the history does not cover this moment; `Io` when no frame up to
/// it can be read.
pub fn frames(
    path: &Path,
    reader: &mut Reader,
    at: Option<Moment>,
    zone: &TimeZone,
    count: usize,
    apart: Duration,
) -> Result<Vec<Frame>> {
    let position = position(path, reader, at, zone)?;
    let mut frames = reader.leading_to(position, count, apart);
    if frames.is_empty() {
        let why = "every sample before this time is damaged".to_owned();
        return Err(failed_by(ErrorKind::Io, path, why));
    }
    for frame in &mut frames {
        let snapshot = &mut frame.snapshot;
        let machine = match (&snapshot.origin, &snapshot.hostname) {
            (Origin::Live, Ok(hostname)) => hostname.clone(),
            (Origin::Live, Err(_)) => "a machine".to_owned(),
            (origin, _) => origin.to_string(),
        };
        let at = readable(snapshot.taken_at, zone);
        snapshot.origin = Origin::Recorded(format!("{machine}, {at}"));
    }
    Ok(frames)
}
