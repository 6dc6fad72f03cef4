//! `gpuws record --for`: writes a history.

use crate::args::{Global, RecordArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source};
use crate::terminal::{self, Line, Screen};
use crate::wording::{self, shell_word};
use gpu_history::{Frame, Retention, Writer};
use gpu_machine::history::{self, Looks};
use gpu_machine::time_until;
use gpu_report::json;
use gpu_sim::Anonymizer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(super) fn run(
    args: &RecordArgs,
    duration: Duration,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open(global)?;
    let mut writer = history::writer(&args.path, Retention::default())?;
    if !args.names && !history::reader(&args.path)?.is_empty() {
        return Err(Failure::new(Exit::Usage, format!("continue '{}'", args.path.display()))
            .with_source("without names, each recorder numbers users anew")
            .with_hint("use a new directory, or --names"));
    }
    let count = record(args, duration, &source, &mut writer)?;
    writer.sync()?;
    source.leak();
    let path = args.path.display().to_string();
    if global.json {
        screen.json(&json::RecordedFile::of(&path, count, args.names))?;
    } else if !global.quiet {
        let looks = wording::count(count, "sample", "samples");
        let (size, left_out) = (size(writer.written()), super::left_out(args.names));
        screen.print(&Line::new().plain(format!("{looks} written to {path}, {size}{left_out}")))?;
        let again = format!("gpuws status --replay {} --at=-1m", shell_word(&path));
        screen.print(&Line::new().plain("replay it: ").accent(again))?;
    }
    Ok(Exit::Done)
}

/// Records until the time is over or a signal requests the end, and returns the number of samples.
fn record(
    args: &RecordArgs,
    duration: Duration,
    source: &Source,
    writer: &mut Writer,
) -> Result<usize, Failure> {
    let end_requests = end_requests().map_err(|error| Failure::io("watch for Ctrl-C", error))?;
    let (mut looks, mut anonymizer) = (Looks::default(), Anonymizer::default());
    let start = source.clock.monotonic();
    let (mut count, mut next) = (0, start);
    loop {
        let mut frame = looks.next(source);
        if !args.names {
            let leases = frame.leases.map(|leases| anonymizer.leases(&leases));
            frame = Frame { snapshot: anonymizer.anonymize(&frame.snapshot), leases };
        }
        writer.add(&frame)?;
        count += 1;
        let now = source.clock.monotonic();
        next = (next + args.every()).max(now);
        let left = duration.saturating_sub(now - start).as_secs();
        let size = size(writer.written());
        terminal::redraw(&format!("{count} samples, {size}, {left} s left"));
        if next - start >= duration || waits(source, next, &end_requests)? {
            terminal::redraw("");
            return Ok(count);
        }
    }
}

/// Formats a number of bytes as KiB or MiB.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

/// Returns a stream that can be read once a signal requests the end of this program.
fn end_requests() -> io::Result<UnixStream> {
    let (requests, sender) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    Ok(requests)
}

/// Waits until this time on the clock of the machine, and returns whether the end was requested.
fn waits(source: &Source, until: Duration, end_requests: &UnixStream) -> Result<bool, Failure> {
    loop {
        let now = source.clock.monotonic();
        if source.is_simulated() {
            source.clock.sleep(until.saturating_sub(now));
        }
        let mut files = [PollFd::new(end_requests, PollFlags::IN)];
        match poll(&mut files, Some(&time_until(until, &*source.clock))) {
            Ok(0) if source.clock.monotonic() >= until => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(Failure::io("wait for the next sample", errno.into())),
        }
    }
}
