//! `gpuws run --host`: runs the command on the first host that has the devices free.

use super::RunArgs;
use crate::args::Global;
use crate::commands::hosts::{named, refuse};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::warn;
use gpu_core::JobExit;
use gpu_fleet::{Outcome, Progress, RemoteRun, Ssh, Wait};
use gpu_host::SystemClock;
use gpu_host::supervise::end_as;
use gpu_machine::program;
use gpu_report::hosts::run::{NotRun, not_run, progress};
use std::time::Duration;

/// Runs the command, and ends in the same way.
pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<Exit, Failure> {
    refuse(&[("--json", global.json)])?;
    let remote = RemoteRun {
        hosts: named(&args.hosts, global)?,
        claim: args.request.words(),
        options: options(args, global),
        command: args.command.clone(),
        wait: match (args.request.no_wait, args.request.timeout) {
            (true, _) => Wait::AtMost(Duration::ZERO),
            (false, Some(time)) => Wait::AtMost(time),
            (false, None) => Wait::Forever,
        },
        deadline: global.deadline,
    };
    let mut show_progress = |event: Progress<'_>| {
        if !global.quiet {
            progress(&event, remote.hosts.len()).iter().for_each(|line| warn(line));
        }
    };
    let outcome =
        remote.run(&Ssh::other(program("ssh")?), &SystemClock::new(), &mut show_progress)?;
    if let Some(NotRun { what, why, hint, exit }) = not_run(&outcome) {
        let failure = why.into_iter().fold(Failure::new(exit, what), Failure::with_source);
        return Err(hint.into_iter().fold(failure, Failure::with_hint));
    }
    let code = match outcome {
        Outcome::Interrupted(signal) => end_as(JobExit::Signal(signal)),
        Outcome::Ended(code) => code,
        _ => Exit::Own.code().into(),
    };
    Ok(Exit::Passed(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Returns the options of the run, apart from those of the claim.
fn options(args: &RunArgs, global: &Global) -> Vec<String> {
    let seconds = |time: Duration| format!("{}s", time.as_secs_f64());
    // With `--context`: the version on the host may have another default.
    let keep = args.keep.again(None);
    let mut words: Vec<_> = keep.split_whitespace().map(str::to_owned).collect();
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
    words
}
