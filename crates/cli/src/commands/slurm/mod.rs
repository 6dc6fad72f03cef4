//! `gpuws slurm`: the scripts that slurmd starts.
//!
//! slurmd reads the output of a script to its end, and drains the node if the script fails. So the
//! process that it waits for does little: it starts a worker with separate pipes, waits for it
//! within a time limit, and drains the node with a reason if the worker has named a holder.

mod args;
mod work;

pub(crate) use args::{Script, SlurmArgs};

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::clean;
use gpu_core::{Clock, ProcessTable, Result};
use gpu_host::{LinuxHost, SystemClock, Tool};
use gpu_machine::{SlurmTools, node_name, roots};
use gpu_slurm::{Drained, WorkerReport, drain_until};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

/// The part of the time limit that is reserved for draining the node.
const TO_DRAIN: Duration = Duration::from_secs(12);

/// The maximum number of the worker's lines that slurmd logs.
const LINES: usize = 200;

pub(crate) fn run(args: &SlurmArgs, global: &Global) -> Result<Exit, Failure> {
    if args.worker {
        return work::run(args, global);
    }
    let clock = SystemClock::new();
    let until = args.limit;
    let worker = Tool::own(std::env::vars_os().collect());
    let for_worker = until.saturating_sub(TO_DRAIN).max(until / 2);
    let words: Vec<OsString> = std::env::args_os().skip(1).chain(["--worker".into()]).collect();
    let (said, report) = match worker.ask(&words, for_worker, &clock) {
        Ok(answer) => (answer.errors, WorkerReport::read(&answer.output)),
        Err(error) => (Failure::from(error).to_string(), WorkerReport::default()),
    };
    said.lines().take(LINES).for_each(say);
    if !report.is_done && clock.monotonic() >= for_worker {
        say(format!("gpuws: stopped after {:.1} s, before it finished", for_worker.as_secs_f64()));
    }
    match report.reason {
        // Without a holder to name, the node is not drained: a wrong setting would drain every
        // node.
        None if report.is_done || args.script != Script::Health => Ok(Exit::Done),
        None => Ok(Exit::CannotObserve),
        // A health check that finished has already changed the state of the node.
        Some(_) if report.is_done && args.script == Script::Health => Ok(Exit::Remains),
        Some(reason) => Ok(drained(args, &reason, until, &clock)),
    }
}

/// Drains the node for a reason that names the holder, and returns the exit code for slurmd, which
/// then keeps that reason. Until the controller answers, this job is not complete, so the node gets
/// no other job. Failing earlier would drain the node without the reason.
fn drained(args: &SlurmArgs, reason: &str, until: Duration, clock: &SystemClock) -> Exit {
    say(reason);
    let drained = || -> Result<Drained, Failure> {
        let slurm = SlurmTools::find(args.slurm.as_deref(), Arc::new(*clock), until)?;
        let hostname = LinuxHost::new(roots()).hostname().ok();
        let node = node_name(args.node.as_deref(), hostname.as_deref())?;
        Ok(drain_until(&slurm, (&node, reason), until, clock)?)
    };
    match drained() {
        Ok(Drained::Done) => Exit::Remains,
        Ok(Drained::For(other)) => {
            say(format!("gpuws: another program or user changed the state of the node: {other}"));
            Exit::Remains
        }
        Err(failure) => {
            say(failure.to_string());
            Exit::Done
        }
    }
}

/// Prints lines for the log of slurmd.
fn say(text: impl AsRef<str>) {
    for line in text.as_ref().lines() {
        crate::terminal::report(clean(line));
    }
}
