//! `gpuws report`: the users and holders of the GPUs over the time of a history.

use crate::args::{Global, time, time_or_zero};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::local_time;
use crate::terminal::{self, Progress, Screen};
use clap::Args;
use gpu_accounting::Accounts;
use gpu_core::Timestamp;
use gpu_host::output::Part;
use gpu_machine::Recorded;
use gpu_report::usage::{By, Form, Machines, Usage, day, gap};
use gpu_report::{Moment, json, replay};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory of a history, or a file written by `record`.
    pub(crate) path: PathBuf,
    /// The rows of the table or the CSV: user, job, gpu or day.
    #[arg(long, value_name = "WHAT", default_value = "user")]
    pub(crate) by: By,
    /// Omit earlier samples: 2026-11-24T10:00, 10:00 of the last day, or -5m from the end.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) since: Option<Moment>,
    /// Omit later samples.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) until: Option<Moment>,
    /// Use a sample at most this often; 0 uses each one.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_or_zero)]
    pub(crate) step: Duration,
    /// Do not count longer intervals between two samples; at least twice --step (default: 5m, or
    /// twice --step).
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) gap: Option<Duration>,
    /// What to print: a table, csv, json, or html with charts.
    #[arg(long, value_name = "FORMAT", default_value = "table", conflicts_with = "json")]
    pub(crate) format: Form,
    /// Write to this new file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if it exists, once the report is complete.
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

pub(crate) fn run(
    args: &ReportArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let (zone, gap) = (local_time::zone(), gap(args.step, args.gap)?);
    let part = if args.force { Part::replacing } else { Part::create };
    let part = args.output.as_deref().map(part).transpose()?;
    let (mut recorded, path) = (Recorded::open(&args.path)?, args.path.display());
    let span = recorded.span().unwrap_or((Timestamp(0), Timestamp(0)));
    let (since, until) = replay::window(&args.path, span, (args.since, args.until), &zone)?;
    let mut accounts = Accounts::new(gap);
    let mut machines = Machines::default();
    let mut progress = Progress::start(global.quiet);
    recorded.each(since, until, args.step, |snapshot, leases| {
        let (done, all) = (snapshot.taken_at.since(since), until.since(since));
        let percent = done.as_millis() * 100 / all.as_millis().max(1);
        progress.show(|| format!("reading '{path}': {percent} %"));
        accounts.add(snapshot, leases, day(snapshot.taken_at, &zone));
        machines.add(snapshot);
    });
    drop(progress);
    let damage = replay::damage(recorded.damage());
    let Some((origin, hostname, other_machines)) = machines.last() else {
        damage.iter().for_each(|what| terminal::warn(what));
        let failure = Failure::new(Exit::Usage, format!("find a sample in '{path}'"));
        return Err(match recorded.span() {
            Some(_) if !damage.is_empty() => failure.ending(Exit::CannotObserve),
            None => failure.with_hint("gpuws record --for writes a history to a directory"),
            Some(span) => failure.with_source(replay::covers(span, &zone)),
        });
    };
    let usage = Usage { accounts: &accounts, origin, hostname, other_machines, damage, zone };
    let form = if global.json { Form::Json } else { args.format };
    let print = |screen: &mut Screen| match form {
        Form::Json => screen.json(&json::Report::of(&usage)),
        Form::Csv => screen.raw(usage.csv(args.by).as_bytes()),
        Form::Html => screen.raw(usage.html().as_bytes()),
        Form::Table => screen.print_all(usage.table(args.by, screen.room(0), global.quiet)),
    };
    match part.zip(args.output.as_deref()) {
        Some((part, path)) => {
            let copy =
                part.file.try_clone().map_err(|error| Failure::io("write a report", error))?;
            print(&mut Screen::file(copy, path))?;
            part.finish(path)?;
        }
        None => screen.together(print)?,
    }
    Ok(Exit::Done)
}
