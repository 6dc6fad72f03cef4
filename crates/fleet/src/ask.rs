//! Asks hosts at the same time.

use crate::answer::understood;
use crate::child::{Limits, run};
use crate::{Answer, HostName, NoAnswer, Reply, Ssh};
use gpu_core::Clock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The most hosts that are asked at the same time. Each takes a process of ssh and a thread.
pub const AT_ONCE: usize = 64;

/// The longest answer of a host, in bytes. 64 GPUs with 32 processes each take 2 MiB.
pub const HOST_LIMIT: u64 = 4 << 20;

/// The most bytes of all answers together.
pub const FLEET_LIMIT: u64 = 256 << 20;

/// A command of gpuws that prints one object of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The words after `gpuws`, for example `status --json`. The deadline of the driver is added.
    pub words: Vec<String>,
    /// The time that each host has for its answer, from the connection on.
    pub deadline: Duration,
}

impl Question {
    /// Returns the words of the command. A driver that does not answer has half of the time: the
    /// host then still reports what it knows.
    fn command(&self) -> Vec<String> {
        let driver = format!("{}s", (self.deadline / 2).as_secs_f64());
        let own = self.words.iter().cloned();
        ["gpuws".to_owned()]
            .into_iter()
            .chain(own)
            .chain(["--deadline".to_owned(), driver])
            .collect()
    }
}

/// Asks all hosts, at most [`AT_ONCE`] at the same time, and returns an answer for each, in the
/// order of the hosts. It takes no longer than the deadline for every [`AT_ONCE`] hosts.
pub fn ask(hosts: &[HostName], question: &Question, ssh: &Ssh, clock: &dyn Clock) -> Vec<Answer> {
    let (next, budget) = (AtomicUsize::new(0), AtomicU64::new(FLEET_LIMIT));
    let answers: Mutex<Vec<Option<Answer>>> = Mutex::new(vec![None; hosts.len()]);
    let words = question.command();
    let work = || {
        while let Some((at, host)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            hosts.get(at).map(|host| (at, host))
        } {
            let answer = one(host, &words, question.deadline, ssh, &budget, clock);
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
    // Each place was filled: no thread ends before all are taken.
    answers.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

fn one(
    host: &HostName,
    words: &[String],
    deadline: Duration,
    ssh: &Ssh,
    budget: &AtomicU64,
    clock: &dyn Clock,
) -> Result<Reply, NoAnswer> {
    let limits = Limits { time: deadline, output: HOST_LIMIT, budget: Some(budget) };
    let mut command = ssh.command(host, words, deadline / 2);
    let ran =
        run(&mut command, &limits, clock).map_err(|error| NoAnswer::NoSsh(error.to_string()))?;
    understood(&ran, deadline)
}
