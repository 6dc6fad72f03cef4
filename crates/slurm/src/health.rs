//! The health check of a node: devices that are held although no job has them.

use crate::clean::{allocated, free, held_device};
use crate::gres::NodeDevice;
use crate::held::{HeldDevice, lost, reason, unchecked};
use crate::node::NodeState;
use crate::question::{Question, Slurm, state_of};
use crate::suspects::{Driver, suspects};
use gpu_core::{Pid, ProcessKey, Result, driver_reserve};
use gpu_reaper::Ports;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The result of a health check, and the state of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The devices that are held although no job has them, and those with lost memory for which the
    /// node is drained, until that memory is freed.
    pub held: Vec<HeldDevice>,
    /// The state of the node.
    pub node: NodeState,
}

/// The change of a node's state that follows; its text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// No change.
    None,
    /// Drain it, for this reason.
    Drain(String),
    /// Undo the drain.
    Resume,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::None => f.write_str("unchanged"),
            Change::Drain(reason) => write!(f, "drain for '{reason}'"),
            Change::Resume => f.write_str("resume"),
        }
    }
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// When Slurm does not answer.
    pub fn make(&self, slurm: &dyn Slurm, node: &str) -> Result<()> {
        match self {
            Change::None => Ok(()),
            Change::Drain(reason) => slurm.ask(Question::Drain(node, reason)).map(drop),
            Change::Resume => slurm.ask(Question::Resume(node)).map(drop),
        }
    }
}

/// Returns the change that follows from a health check, if gpuws may change the state of the node
/// ([`NodeState::kept`]): a node with a held device is drained, and one without is resumed.
pub fn change(health: &Health) -> Change {
    let Health { held, node } = health;
    let is_drained = node.is_drained();
    match reason(held) {
        _ if node.kept().is_some() => Change::None,
        reason if is_drained && node.reason == reason => Change::None,
        Some(reason) => Change::Drain(reason),
        None if is_drained => Change::Resume,
        None => Change::None,
    }
}

/// Finds devices that are held although no job has them.
///
/// A process counts if it held a device before the query to Slurm and still holds it afterwards: it
/// then belongs to no job that has ended or started meanwhile.
///
/// `notify` is called with the reason to drain the node before each scan, in case it does not end,
/// and after it.
///
/// # Errors
/// When the holders cannot be read, or Slurm does not answer.
pub fn health(
    ports: Ports<'_>,
    slurm: &dyn Slurm,
    node: &str,
    devices: &[NodeDevice],
    notify: &mut dyn FnMut(Option<String>),
) -> Result<Health> {
    let driver = Driver::ask(ports);
    let files: BTreeSet<Arc<str>> = devices.iter().map(|device| device.path.clone()).collect();
    let unchecked = unchecked(files.iter().map(|path| driver.index(path)));
    let mut users = || -> Result<BTreeSet<(Arc<str>, ProcessKey)>> {
        notify(Some(unchecked.clone()));
        let all = suspects(ports, slurm, &driver, &files, None);
        notify(None);
        let users = all?.into_iter().filter(|user| user.uses_memory && user.tracked_by.is_none());
        let pairs = users.flat_map(|user| {
            let key = user.process.key;
            user.files.into_iter().map(move |path| (path, key))
        });
        Ok(pairs.collect())
    };
    let before = users()?;
    let held = if before.is_empty() {
        Vec::new()
    } else {
        let free = free(devices, &files, &allocated(slurm, node, None)?);
        let still: Vec<(Arc<str>, ProcessKey)> = users()?
            .intersection(&before)
            .filter(|(path, _)| free.contains(path))
            .cloned()
            .collect();
        let held = files.iter().filter_map(|path| {
            let on = still.iter().filter(|(other, _)| other == path);
            let pids: Vec<Pid> = on.map(|(_, key)| key.pid).collect();
            (!pids.is_empty()).then(|| held_device(ports, &driver, path, pids))
        });
        held.collect()
    };
    let node = state_of(slurm, node)?;
    let reason = node.reason.as_deref().filter(|_| node.is_drained());
    // These come first: a reason names few devices, and the next scan finds the others again.
    let mut all = still_lost(ports, &driver, reason.unwrap_or_default());
    all.extend(held);
    Ok(Health { held: all, node })
}

/// Returns the devices that a reason names for lost memory, except those whose memory is known to
/// be freed. No process holds that memory, so a scan of processes does not find it.
fn still_lost(ports: Ports<'_>, driver: &Driver, reason: &str) -> Vec<HeldDevice> {
    let still = lost(reason).into_iter().filter_map(|index| {
        let memory = driver.file(index).and_then(|path| driver.memory(ports, path));
        let is_back = memory.is_some_and(|(used, total)| used <= driver_reserve(total, false));
        let used = memory.map(|(used, _)| used);
        (!is_back).then_some(HeldDevice { index, used, pids: Vec::new() })
    });
    still.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(state: &str, why: Option<&str>, held: bool) -> Change {
        let words = state.split('+').map(str::to_owned).collect();
        let node = NodeState { words, reason: why.map(str::to_owned) };
        let device = HeldDevice { index: 1, used: None, pids: vec![Pid(4711)] };
        change(&Health { held: if held { vec![device] } else { Vec::new() }, node })
    }

    #[test]
    fn foreign_state_stays_and_only_own_drains_are_undone() {
        let own = "gpuws: GPU 1 held by 4711";
        let older = "gpuws: GPU 0 held by 12";
        assert_eq!(after("IDLE", None, false), Change::None);
        assert_eq!(after("IDLE+DRAIN", Some(own), false), Change::Resume);
        assert_eq!(after("IDLE", Some(own), false), Change::None);
        assert_eq!(after("IDLE", None, true), Change::Drain(own.to_owned()));
        assert_eq!(after("MIXED+DRAIN", Some(older), true), Change::Drain(own.to_owned()));
        assert_eq!(after("IDLE+DRAIN", Some(own), true), Change::None);
        assert_eq!(after("IDLE", Some(own), true), Change::Drain(own.to_owned()));
        for (state, why) in [
            ("IDLE+DRAIN", Some("RMA")),
            ("IDLE+DRAIN", Some("gpuws: GPU 1 held by 4711, RMA")),
            ("IDLE+DRAIN", None),
            ("IDLE+FAIL", Some("ECC")),
            ("DOWN", Some("RMA")),
            ("IDLE", Some("ask Carol")),
            ("IDLE+FAIL", None),
            ("DOWN", Some(own)),
            ("DOWN+DRAIN", Some(older)),
        ] {
            for held in [true, false] {
                assert_eq!(after(state, why, held), Change::None, "{state} {why:?} {held}");
            }
        }
    }
}
