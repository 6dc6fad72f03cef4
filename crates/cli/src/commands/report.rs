//! `gpuws report`: who held and used the GPUs over the time of a history.

use crate::args::{Global, ReportArgs, ReportFormat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::local_time;
use crate::terminal::{Progress, Screen};
use gpu_accounting::Accounts;
use gpu_core::Timestamp;
use gpu_machine::Recorded;
use gpu_report::usage::{Usage, day};
use gpu_report::{Moment, json, replay};

pub(crate) fn run(
    args: &ReportArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let zone = local_time::zone();
    let mut recorded = Recorded::open(&args.path)?;
    let (first, end) = recorded.span().unwrap_or((Timestamp(0), Timestamp(0)));
    let moment = |moment: Option<Moment>, otherwise: Timestamp| {
        moment.map_or(Some(otherwise), |moment| moment.resolved(end, &zone)).unwrap_or(otherwise)
    };
    let (since, until) = (moment(args.since, first), moment(args.until, end));
    let mut accounts = Accounts::new(args.gap);
    let mut last = None;
    let mut progress = Progress::start();
    recorded.each(since, until, args.step, |look, leases| {
        let (done, all) = (look.taken_at.since(since), until.since(since));
        let percent = done.as_millis() * 100 / all.as_millis().max(1);
        progress.show(|| format!("reading '{}': {percent} %", args.path.display()));
        accounts.add(look, leases, day(look.taken_at, &zone));
        last = Some((look.origin.clone(), look.hostname.clone().ok()));
    });
    drop(progress);
    let Some((origin, hostname)) = last else {
        let what = format!("find a sample in '{}'", args.path.display());
        let failure = Failure::new(Exit::CannotObserve, what);
        return Err(failure.with_hint("--since and --until select other times"));
    };
    let damage = replay::damage(recorded.damage());
    let usage = Usage { accounts: &accounts, origin, hostname, damage, zone };
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
    let by = args.by;
    match args.format {
        _ if global.json => screen.json(&json::Report::of(usage)),
        ReportFormat::Json => screen.json(&json::Report::of(usage)),
        ReportFormat::Csv => screen.raw(usage.csv(by).as_bytes()),
        ReportFormat::Html => screen.raw(usage.html().as_bytes()),
        ReportFormat::Table => screen.print_all(usage.table(by, screen.room(0), global.quiet)),
    }
}
