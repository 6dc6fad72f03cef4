//! `gpuws record --for`: writes a history.

use super::RecordArgs;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source};
use crate::terminal::{self, Progress, Screen};
use crate::wording::path_word;
use gpu_history::{Retention, Writer};
use gpu_machine::history::{self, FrameSource};
use gpu_report::Blind;
use gpu_report::usage::span;
use gpu_report::wording::size;
use std::time::Duration;

pub(super) fn run(
    args: &RecordArgs,
    duration: Duration,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open(global)?;
    let mut writer = history::writer(&args.path, &source, args.names, Retention::default())?;
    let mut blind = Blind::default();
    let progress = Progress::start(global.quiet);
    let (written, missing) = record(args, duration, &source, (&mut writer, &mut blind), progress)?;
    let synced = writer.sync();
    source.leak();
    let again = format!("gpuws top --replay {}", path_word(&args.path));
    super::report(args, global, screen, written, &format!(", {}", size(writer.written())), &again)?;
    blind.text().iter().for_each(|text| terminal::warn(text));
    let exit = super::missing(missing);
    synced.map(|()| exit).map_err(Failure::from)
}

/// Records until the time is over or a signal requests the end, and returns the number of samples,
/// and of those that could not be written.
fn record(
    args: &RecordArgs,
    duration: Duration,
    source: &Source,
    (writer, blind): (&mut Writer, &mut Blind),
    mut progress: Progress,
) -> Result<(usize, usize), Failure> {
    let end_requests = history::end_requests()?;
    let mut frames = if args.names { FrameSource::default() } else { FrameSource::anonymous() };
    let start = source.clock.monotonic();
    let (mut count, mut missing, mut next) = (0, 0, start);
    let mut is_failing = false;
    loop {
        let sample = frames.next(source);
        blind.add(&sample.snapshot);
        let added = writer.add(&sample);
        let was_failing = std::mem::replace(&mut is_failing, added.is_err());
        match added {
            Ok(()) => count += 1,
            // If the first sample fails, later ones would probably fail, too.
            Err(error) if count == 0 => return Err(error.into()),
            Err(error) => {
                missing += 1;
                if !was_failing {
                    progress.erase();
                    terminal::warn(&format!("samples are missing: failed to {}", error.fault()));
                }
            }
        }
        let now = source.clock.monotonic();
        next = (next + args.every()).max(now);
        progress.show(|| {
            let left = span(duration.saturating_sub(now - start));
            let of = if source.is_simulated() { "simulated time " } else { "" };
            let (samples, size) = (super::samples(count), size(writer.written()));
            format!("{samples}, {size}, {of}left: {left}")
        });
        if next - start >= duration || history::waits(source, next, &end_requests)? {
            return Ok((count, missing));
        }
    }
}
