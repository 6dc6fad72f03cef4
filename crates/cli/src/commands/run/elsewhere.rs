//! `gpuws run --host`: runs the command on the first host that has the devices free.

use crate::args::{Global, RunArgs};
use crate::commands::hosts::named;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::warn;
use gpu_core::JobExit;
use gpu_fleet::{EndSignals, HostName, Outcome, Progress, Question, RemoteRun, Ssh, Wait};
use gpu_host::SystemClock;
use gpu_host::supervise::end_as;
use std::time::Duration;

/// Runs the command, and ends as it does.
pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<Exit, Failure> {
    if global.json {
        return Err(Failure::new(Exit::Usage, "use --json with --host")
            .with_hint("for a report: ssh HOST gpuws run --json …"));
    }
    let hosts = named(&args.hosts, global)?;
    let remote = RemoteRun {
        question: Question {
            words: [&["claim".to_owned(), "--json".to_owned()], &args.request.words()[..]].concat(),
            deadline: global.deadline,
        },
        words: words(args, global)?,
        wait: match (args.request.no_wait, args.request.timeout) {
            (true, _) => Wait::AtMost(Duration::ZERO),
            (false, Some(time)) => Wait::AtMost(time),
            (false, None) => Wait::Forever,
        },
        hosts,
    };
    let own = |error: gpu_core::Error| Failure::from(error).ending(Exit::Own);
    let signals = EndSignals::new()
        .map_err(|error| Failure::io("wait for signals", error).ending(Exit::Own))?;
    let mut tell = |progress: Progress<'_>| {
        if !global.quiet {
            report(&progress, remote.hosts.len());
        }
    };
    let clock = SystemClock::new();
    let outcome = remote.run(&Ssh::default(), &clock, &signals, &mut tell).map_err(own)?;
    let failed = |exit, what: &str| Err(Failure::new(exit, what));
    match outcome {
        Outcome::Ended(code) => Ok(Exit::Passed(u8::try_from(code).unwrap_or(u8::MAX))),
        Outcome::Interrupted(signal) => {
            let code = end_as(JobExit::Signal(signal));
            Ok(Exit::Passed(u8::try_from(code).unwrap_or(u8::MAX)))
        }
        Outcome::NotStarted(host, code, why) => {
            let exit = [Exit::Usage, Exit::CommandNotRun, Exit::CommandNotFound];
            let same = exit.into_iter().find(|exit| i32::from(exit.code()) == code);
            let why = why.trim_start_matches("gpuws: ").to_owned();
            Err(Failure::new(same.unwrap_or(Exit::Own), format!("run the command on {host}"))
                .with_source(if why.is_empty() { format!("ssh exited with {code}") } else { why }))
        }
        Outcome::NotNow => failed(Exit::TryLater, "find a host that has the GPUs free")
            .map_err(|failure| failure.with_hint("gpuws status --host … shows who uses them")),
        Outcome::Never => failed(Exit::Usage, "find a host that can ever grant this claim"),
        Outcome::NoHost => failed(Exit::Own, "get an answer from a host"),
    }
}

/// Returns the words of `gpuws` on the host.
fn words(args: &RunArgs, global: &Global) -> Result<Vec<String>, Failure> {
    let seconds = |time: Duration| format!("{}s", time.as_secs_f64());
    let mut words: Vec<String> =
        ["gpuws", "run", "--no-wait", "--end-with-input", "--announce"].map(str::to_owned).into();
    words.extend(args.request.words());
    words.extend(args.keep.again().split_whitespace().map(str::to_owned));
    for (name, time) in [
        ("--deadline", Some(global.deadline)),
        ("--time-limit", args.time_limit),
        ("--grace", Some(args.grace)),
        ("--handoff-timeout", Some(args.handoff_timeout)),
    ] {
        words.extend(time.into_iter().flat_map(|time| [name.to_owned(), seconds(time)]));
    }
    for (name, is_given) in [
        ("--keep-env", args.keep_env),
        ("--no-nvidia-smi", args.no_nvidia_smi),
        ("--quiet", global.quiet),
    ] {
        words.extend(is_given.then(|| name.to_owned()));
    }
    words.push("--".to_owned());
    for word in &args.command {
        let word = word.to_str().ok_or_else(|| {
            Failure::new(Exit::Usage, "pass the command to another host")
                .with_source("it is not UTF-8")
        })?;
        words.push(word.to_owned());
    }
    Ok(words)
}

/// Prints progress on standard error.
fn report(progress: &Progress<'_>, hosts: usize) {
    let from = |host: &HostName, line: &str| {
        warn(&format!("{host}: {}", line.strip_prefix("gpuws: ").unwrap_or(line)));
    };
    match progress {
        Progress::NoAnswer(host, why) => from(host, &format!("no answer: {why}")),
        Progress::Waiting => warn(&format!("waiting until one of {hosts} has the GPUs free …")),
        Progress::Started(host, messages) => {
            messages.lines().for_each(|line| from(host, line));
            warn(&format!("running on {host}"));
        }
        Progress::Ending(host) => {
            warn(&format!("ending the job on {host}; again to leave the rest to {host}"));
        }
    }
}
