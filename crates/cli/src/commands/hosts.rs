//! `--host` of `gpuws status`, `doctor`, `leases` and `top`: asks other machines over ssh.

use crate::args::{Global, HostArgs};
use crate::commands::doctor::DoctorArgs;
use crate::commands::status::StatusArgs;
use crate::commands::top::TopArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Screen, progress};
use gpu_core::Clock;
use gpu_fleet::{Answer, HostName, Question, Ssh, Watch, ask, hosts};
use gpu_host::SystemClock;
use gpu_machine::program;
use gpu_report::hosts::{Claims, Diagnosed, Hosts, Seen};
use gpu_top::{Options, Top};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The default time from the answer of a host to its next query in `gpuws top`.
const EVERY: Duration = Duration::from_secs(5);

/// Shows the GPUs of all hosts in one table.
pub(super) fn status(
    args: &StatusArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let shown = &args.shown;
    refuse(&[
        ("-L", args.list_gpus),
        ("-q", args.details),
        ("--holders", args.holders),
        ("--format", args.format.is_some()),
        ("--columns", args.columns.is_some()),
        (
            "--user, --mine and --pid",
            shown.mine || !(shown.user.is_empty() && shown.pid.is_empty()),
        ),
        ("--gpu", !args.only.devices.is_empty()),
        ("-l", !args.repeat.is_once()),
        ("--replay", args.replay.replay.is_some()),
    ])?;
    let answers = Hosts::<Seen>::of(answers(&args.hosts, &["status"], global)?);
    show(global, screen, &answers, answers.exit(), |room| answers.lines(room))
}

/// Shows the findings of all hosts.
pub(super) fn doctor(
    args: &DoctorArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    refuse(&[
        ("--gpu", !args.gpu.is_empty()),
        ("--paste", args.paste),
        ("--samples", args.sampling.count.is_some()),
        ("--ignore", !args.ignore.is_empty()),
        ("--replay", args.replay.replay.is_some()),
    ])?;
    let level = crate::wording::confidence(args.min_confidence);
    let words = ["doctor", "--min-confidence", level];
    let answers = Hosts::<Diagnosed>::of(answers(&args.hosts, &words, global)?);
    show(global, screen, &answers, answers.exit(), |room| answers.lines(room))
}

/// Shows the leases and waiting claims of all hosts.
pub(super) fn leases(
    hosts: &HostArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let answers = Hosts::<Claims>::of(answers(hosts, &["leases"], global)?);
    show(global, screen, &answers, answers.exit(), |room| answers.lines(room))
}

fn answers(hosts: &HostArgs, words: &[&str], global: &Global) -> Result<Vec<Answer>, Failure> {
    let hosts = named(hosts, global)?;
    progress(&format!("asking {} …", crate::wording::count(hosts.len(), "host", "hosts")));
    let words = words.iter().chain(&["--json"]).map(|word| (*word).to_owned()).collect();
    let question = Question { words, deadline: global.deadline };
    Ok(ask(&hosts, &question, &Ssh::other(program("ssh")?), &SystemClock::new()))
}

pub(super) fn named(hosts: &HostArgs, global: &Global) -> Result<Vec<HostName>, Failure> {
    refuse(&[("--sim", global.sim.is_some()), ("--nvml", global.nvml.is_some())])?;
    let lists = hosts.named.iter().map(String::as_str);
    let (from, sinfo) = (hosts.from.as_deref(), || program("sinfo"));
    Ok(hosts::named(lists, from, sinfo, global.deadline, &SystemClock::new())?)
}

/// Shows the GPUs of all hosts on the whole screen.
pub(super) fn top(args: &TopArgs, global: &Global, options: Options) -> Result<Exit, Failure> {
    refuse(&[
        ("--user", !args.user.is_empty()),
        ("--gpu", !args.only.devices.is_empty()),
        ("--more", args.more),
        ("--replay", args.replay.replay.is_some()),
    ])?;
    let (names, clock) = (named(&args.hosts, global)?, Arc::new(SystemClock::new()));
    let hosts = Arc::new(Mutex::new(Hosts::<Seen>::asked(&names)));
    let heard = hosts.clone();
    let hear = move |answer, at| locked(&heard).hear(answer, at);
    let words = ["status", "--json"].map(str::to_owned).to_vec();
    let (question, ssh) = (Question { words, deadline: global.deadline }, program("ssh")?);
    let interval = args.delay.unwrap_or(EVERY);
    // Dropping it ends the queries.
    let _watch = Watch::start(names, question, interval, Ssh::other(ssh), clock.clone(), hear)
        .map_err(|error| Failure::io("query hosts", error))?;
    let page = |width| locked(&hosts).lines_at(clock.monotonic(), width);
    let shown = Top::new().run_text(options, clock.clone(), page);
    shown.map_err(|error| Failure::io("use the terminal", error))?;
    Ok(Exit::Done)
}

fn locked(hosts: &Mutex<Hosts<Seen>>) -> MutexGuard<'_, Hosts<Seen>> {
    hosts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails for options that apply to one machine.
pub(super) fn refuse(options: &[(&str, bool)]) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::new(Exit::Usage, format!("use {option} with --host"))
            .with_hint("for one host: ssh HOST gpuws …")),
    }
}

fn show<T>(
    global: &Global,
    screen: &mut Screen,
    answers: &Hosts<T>,
    exit: Exit,
    lines: impl FnOnce(usize) -> Vec<gpu_report::text::Line>,
) -> Result<Exit, Failure> {
    if global.json {
        screen.json(&answers.json())?
    } else {
        screen.together(|screen| screen.print_all(lines(screen.room(0))))?
    }
    Ok(exit)
}
