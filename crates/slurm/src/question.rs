//! Queries to Slurm, and the programs that answer them.

use crate::held::with_lost;
use crate::node::{NodeState, node_state};
use gpu_core::{Clock, Error, ErrorKind, Result};
use std::time::Duration;

/// Between attempts to reach the controller.
const PAUSE: Duration = Duration::from_secs(1);

/// A program of Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `slurmd`, which also prints the devices of its node.
    Slurmd,
    /// `scontrol`.
    Scontrol,
    /// `squeue`.
    Squeue,
}

impl Program {
    /// Returns its path within an installation.
    pub fn path(self) -> &'static str {
        match self {
            Program::Slurmd => "sbin/slurmd",
            Program::Scontrol => "bin/scontrol",
            Program::Squeue => "bin/squeue",
        }
    }
}

/// A query to Slurm, or a change of the state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// The devices of this node. Needs no running daemon.
    Devices,
    /// The processes that Slurm tracks here. Asks the steps of this node only.
    Processes,
    /// The jobs on this node. Asks the controller, as do all that follow.
    Jobs(&'a str),
    /// The details of a job, by a name that selects it alone ([`job_names`](crate::job_names)).
    Job(&'a str),
    /// The state of this node.
    Node(&'a str),
    /// Drains this node, for this reason.
    Drain(&'a str, &'a str),
    /// Undoes the drain of this node.
    Resume(&'a str),
}

impl Question<'_> {
    /// Returns the program that answers it.
    pub fn program(&self) -> Program {
        match self {
            Question::Devices => Program::Slurmd,
            Question::Jobs(_) => Program::Squeue,
            _ => Program::Scontrol,
        }
    }

    /// Returns the arguments of that program.
    pub fn arguments(&self) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Question::Devices => words(&["-G"]),
            Question::Processes => words(&["listpids"]),
            Question::Jobs(node) => words(&["-h", "-w", node, "-o", "%A %i"]),
            Question::Job(id) => words(&["-d", "-o", "show", "job", id]),
            Question::Node(node) => words(&["-o", "show", "node", node]),
            Question::Drain(node, reason) => vec![
                "update".to_owned(),
                format!("NodeName={node}"),
                "State=DRAIN".to_owned(),
                format!("Reason={reason}"),
            ],
            Question::Resume(node) => {
                vec!["update".to_owned(), format!("NodeName={node}"), "State=RESUME".to_owned()]
            }
        }
    }
}

/// The port to Slurm.
pub trait Slurm {
    /// Runs the program of a question, within a time limit, and returns its output.
    ///
    /// # Errors
    /// `TimedOut` when it did not answer in time, `Io` when it cannot be run or failed.
    fn ask(&self, question: Question<'_>) -> Result<String>;
}

/// The outcome of the request to drain a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drained {
    /// The node is drained for this reason now.
    Done,
    /// Another program or person set the node's state, so it stays, for this reason
    /// ([`NodeState::kept`]).
    For(String),
}

/// Drains a node, unless gpuws may not change its state ([`NodeState::kept`]). The new reason keeps
/// the devices of an older reason of gpuws that no process holds.
///
/// # Errors
/// When Slurm does not answer.
pub fn drain(slurm: &dyn Slurm, node: &str, reason: &str) -> Result<Drained> {
    let state = state_of(slurm, node)?;
    if let Some(other) = state.kept() {
        return Ok(Drained::For(other));
    }
    let before = state.reason.as_deref().filter(|_| state.is_drained());
    let reason = with_lost(reason, before.unwrap_or_default());
    slurm.ask(Question::Drain(node, &reason)).map(|_| Drained::Done)
}

/// Drains a node as [`drain`] does, and retries until the clock shows `until`: the controller may
/// be unreachable for a while.
///
/// # Errors
/// When Slurm does not answer by then.
pub fn drain_until(
    slurm: &dyn Slurm,
    (node, reason): (&str, &str),
    until: Duration,
    clock: &dyn Clock,
) -> Result<Drained> {
    loop {
        match drain(slurm, node, reason) {
            Err(_) if clock.monotonic().saturating_add(PAUSE) < until => clock.sleep(PAUSE),
            done => return done,
        }
    }
}

/// Returns the state of a node.
///
/// # Errors
/// When Slurm does not answer, or its answer cannot be parsed.
pub(crate) fn state_of(slurm: &dyn Slurm, node: &str) -> Result<NodeState> {
    let text = slurm.ask(Question::Node(node))?;
    node_state(&text)
        .ok_or_else(|| Error::new(ErrorKind::Io, format!("read the state of node '{node}'")))
}
