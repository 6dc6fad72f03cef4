//! Queries several hosts at the same time.

use crate::answer::understood;
use crate::child::{Limits, run};
use crate::{Answer, HostName, NoAnswer, Reply, Ssh};
use gpu_core::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of hosts queried at the same time. Each takes an ssh process and a thread.
pub const AT_ONCE: usize = 64;

/// The maximum size of a host's answer in bytes. 64 GPUs with 32 processes each take 2 MiB.
pub const HOST_LIMIT: u64 = 4 << 20;

/// The maximum size of all answers together, in bytes.
pub const FLEET_LIMIT: u64 = 256 << 20;

/// A gpuws command that prints one JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The arguments of `gpuws`, for example `status --json`. The driver deadline is added.
    pub words: Vec<String>,
    /// The time that each host has to answer, including the connection.
    pub deadline: Duration,
}

impl Question {
    /// Returns the arguments of the command. The driver gets half of the time, so that the host can
    /// still report what it knows if the driver does not answer.
    pub(crate) fn command(&self) -> Vec<String> {
        let driver = format!("{}s", (self.deadline / 2).as_secs_f64());
        let own = self.words.iter().cloned();
        ["gpuws".to_owned()]
            .into_iter()
            .chain(own)
            .chain(["--deadline".to_owned(), driver])
            .collect()
    }
}

/// Queries all hosts, at most [`AT_ONCE`] at the same time, and returns an answer for each, in the
/// order of the hosts. This takes at most one deadline for every [`AT_ONCE`] hosts.
pub fn ask(hosts: &[HostName], question: &Question, ssh: &Ssh, clock: &dyn Clock) -> Vec<Answer> {
    let (next, budget) = (AtomicUsize::new(0), AtomicU64::new(FLEET_LIMIT));
    let answers: Mutex<Vec<Option<Answer>>> = Mutex::new(vec![None; hosts.len()]);
    let words = question.command();
    let work = || {
        while let Some((at, host)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            hosts.get(at).map(|host| (at, host))
        } {
            let limits = (HOST_LIMIT, Some(&budget), None);
            let answer = one(host, &words, question.deadline, ssh, limits, clock);
            let answer = Answer { host: host.clone(), answer };
            answers.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(answer);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..hosts.len().min(AT_ONCE) {
            scope.spawn(work);
        }
        work();
    });
    // Every slot is filled: threads run until no host is left.
    answers.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// Queries a host. The limits are the size of its answer, that of all answers, and a request to stop.
pub(crate) fn one(
    host: &HostName,
    words: &[String],
    deadline: Duration,
    ssh: &Ssh,
    (output, budget, stops): (u64, Option<&AtomicU64>, Option<&AtomicBool>),
    clock: &dyn Clock,
) -> Result<Reply, NoAnswer> {
    let limits = Limits { time: deadline, output, budget, stops };
    let mut command = ssh.command(host, words, deadline / 2);
    let ran =
        run(&mut command, &limits, clock).map_err(|error| NoAnswer::NoSsh(error.to_string()))?;
    understood(&ran, deadline)
}
