//! Verification: memory before and after, the elapsed time, and whether a process took the memory
//! again.

use crate::non_targets::{Holders, MemoryAtMoment, doubt};
use crate::plan::{Expected, Membership, Plan};
use crate::ports::Ports;
use crate::report::{Action, Freed, Newcomer, Outcome, Why};
use gpu_core::{
    Absent, Bytes, DeviceFile, Holder, HolderScan, MemoryUse, Pid, ProcessState, Reading,
    driver_reserve,
};
use std::ops::ControlFlow;
use std::time::Duration;

/// How long to wait for memory after the last target has ended. Drivers free it within about half a
/// second; a context with much mapped memory may take several seconds.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// How long a supervisor gets to restart a process: systemd waits 0.1 s by default, Kubernetes and
/// scripts a second or so.
const RESPAWN: Duration = Duration::from_secs(2);

/// The state just before the first signal.
pub(crate) struct Before {
    pub(crate) files: Vec<DeviceFile>,
    memory: Vec<MemoryAtMoment>,
    /// If they could not be read, no process counts as new.
    holders: Reading<HolderScan>,
}

/// The state when waiting for the memory ended.
pub(crate) struct After {
    pub(crate) freed: Vec<Freed>,
    memory: Vec<MemoryAtMoment>,
}

impl Before {
    pub(crate) fn see(plan: &Plan, ports: Ports<'_>, files: Vec<DeviceFile>) -> Self {
        Before {
            memory: memory_samples(plan, ports),
            holders: if is_of_one_tree(plan) {
                Ok(HolderScan::default())
            } else {
                scan(ports, &files)
            },
            files,
        }
    }

    /// Samples until all memory came back or the time runs out. If no process ended, no memory will
    /// come back, so one sample is enough.
    pub(crate) fn memory_after(
        &self,
        plan: &Plan,
        ports: Ports<'_>,
        actions: &[Action],
        waiting: &mut dyn FnMut(Duration) -> ControlFlow<()>,
    ) -> After {
        let ended =
            |pid: &Pid| actions.iter().any(|action| action.pid == *pid && action.outcome.is_gone());
        let patience = if anybody_ended(actions) { PATIENCE } else { Duration::ZERO };
        let start = ports.clock.monotonic();
        let mut freed: Vec<Option<Freed>> = vec![None; plan.expected.len()];
        let mut memory = self.memory.clone();
        loop {
            let waited = ports.clock.monotonic().saturating_sub(start);
            for (index, slot) in freed.iter_mut().enumerate() {
                if slot.as_ref().is_some_and(|freed| freed.came_back) {
                    continue;
                }
                let expected = &plan.expected[index];
                let all_ended = expected.targets.iter().all(ended);
                memory[index] = MemoryAtMoment::of(ports.backend, ports.host, plan, expected);
                let seen = (&self.memory[index], &memory[index]);
                *slot = Some(account(expected, seen, all_ended, waited));
            }
            let done = freed.iter().flatten().all(|freed| freed.came_back);
            if done || waited >= patience || waiting(waited).is_break() {
                break;
            }
            ports.clock.sleep(PAUSE);
        }
        let mut freed: Vec<Freed> = freed.into_iter().flatten().collect();
        if freed.iter().any(|freed| freed.freed.is_some_and(|bytes| bytes.0 > 0)) {
            let now = scan(ports, &self.files);
            let holders = Holders { before: &self.holders, now: &now };
            for (index, freed) in freed.iter_mut().enumerate() {
                let (before, after) = (&self.memory[index], &memory[index]);
                let expected = &plan.expected[index];
                freed.doubt = doubt(plan, expected, ports.host, before, after, &holders);
                freed.came_back &= freed.doubt.is_none();
            }
        }
        After { freed, memory }
    }

    /// Returns the unplanned processes a while later: those that use memory of the targets' devices
    /// and did not before, and those in a scope that was to be ended as a whole. No outside process
    /// restarts a member of a tree, and the caller that ends a tree checks again for remaining
    /// members.
    ///
    /// Unreadable processes count: if memory was taken again and no visible process took it, the
    /// answer is absent.
    pub(crate) fn newcomers(
        &self,
        plan: &Plan,
        ports: Ports<'_>,
        actions: &[Action],
        after: &After,
    ) -> Reading<Vec<Newcomer>> {
        if !anybody_ended(actions) || is_of_one_tree(plan) {
            return Ok(Vec::new());
        }
        ports.clock.sleep(RESPAWN);
        let mut newcomers = self.find_newcomers(plan, ports, after)?;
        newcomers.extend(joiners(plan, ports)?);
        Ok(newcomers)
    }

    fn find_newcomers(
        &self,
        plan: &Plan,
        ports: Ports<'_>,
        after: &After,
    ) -> Reading<Vec<Newcomer>> {
        let before = self.holders.as_ref().map_err(|absent| *absent)?;
        let known =
            |holder: &Holder| before.holders.iter().any(|other| other.process == holder.process);
        let takes = |holder: &Holder| match &plan.expected[..] {
            // Without a list of devices: everything that the targets held.
            [] => holder.held.iter().filter(|held| held.memory != MemoryUse::None).any(|held| {
                plan.targets.iter().any(|target| target.membership.files().contains(&held.path))
            }),
            expected => expected.iter().any(|e| holder.may_use_memory_of(&e.device)),
        };
        let now = scan(ports, &self.files)?;
        let taken = now.holders.iter().filter(|holder| !known(holder) && takes(holder));
        let find_newcomers: Vec<Newcomer> = taken
            .map(|holder| Newcomer {
                pid: holder.process.pid,
                name: ports.host.process(holder.process.pid).ok().map(|info| info.name),
                why: Why::TookTheDevice,
            })
            .collect();
        if !find_newcomers.is_empty() || now.unreadable.total() == 0 {
            return Ok(find_newcomers);
        }
        let taken_unseen = match &after.memory[..] {
            [] => now.unreadable.total() > before.unreadable.total(),
            before => {
                let mut pairs = before.iter().zip(memory_samples(plan, ports));
                pairs.any(|(before, now)| grew(before, &now))
            }
        };
        if taken_unseen { Err(Absent::NotPermitted) } else { Ok(find_newcomers) }
    }
}

fn memory_samples(plan: &Plan, ports: Ports<'_>) -> Vec<MemoryAtMoment> {
    let memory = |expected| MemoryAtMoment::of(ports.backend, ports.host, plan, expected);
    plan.expected.iter().map(memory).collect()
}

fn scan(ports: Ports<'_>, files: &[DeviceFile]) -> Reading<HolderScan> {
    ports.host.holders(files).map_err(|error| error.kind().absent())
}

/// Returns whether more of a device is used than before, beyond the growth of listed processes and
/// the driver's overhead.
fn grew(before: &MemoryAtMoment, now: &MemoryAtMoment) -> bool {
    let grown = now.least.and_then(|now| Ok(now.saturating_sub(before.most?)));
    let reserve = driver_reserve(now.total.unwrap_or_default(), false);
    grown.is_ok_and(|grown| grown > reserve + now.taken(before).unwrap_or_default())
}

fn joiners(plan: &Plan, ports: Ports<'_>) -> Reading<Vec<Newcomer>> {
    let memberships = plan.targets.iter().map(|target| &target.membership);
    // New members of a job can only be found by reading environments: the caller searches for them.
    let scopes: Vec<&Membership> = memberships
        .filter(|membership| !matches!(membership, Membership::Holds(_) | Membership::Job(_)))
        .collect();
    if scopes.is_empty() {
        return Ok(Vec::new());
    }
    let everyone = ports.host.processes().map_err(|error| error.kind().absent())?.processes;
    let joined = everyone.into_iter().filter(|process| {
        let lives = process.state != Ok(ProcessState::Zombie);
        let planned = plan.targets.iter().any(|target| target.key.definitely_same(&process.key));
        let asked_for = plan.users.is_empty() || plan.users.iter().any(|u| process.is_of(u));
        lives && !planned && asked_for && scopes.iter().any(|scope| scope.covers(process))
    });
    Ok(joined
        .map(|process| Newcomer {
            pid: process.key.pid,
            name: Some(process.name),
            why: Why::JoinedTheScope,
        })
        .collect())
}

/// Returns whether all targets are members of a tree to end.
fn is_of_one_tree(plan: &Plan) -> bool {
    plan.targets.iter().all(|target| matches!(target.membership, Membership::Descends(_)))
}

fn anybody_ended(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action.outcome, Outcome::Ended { .. }))
}

/// Returns the tolerated shortfall: of unexplained memory, the driver's overhead, but no more than
/// half; of listed memory, a twentieth, because other processes allocate and free meanwhile.
fn tolerance(expected: &Expected, total: Bytes) -> Bytes {
    let listed = expected.memory.unwrap_or_default().saturating_sub(expected.unexplained);
    let driver = driver_reserve(total, false).min(Bytes(expected.unexplained.0 / 2));
    Bytes(listed.0 / 20) + driver
}

fn account(
    expected: &Expected,
    (before, now): (&MemoryAtMoment, &MemoryAtMoment),
    all_ended: bool,
    waited: Duration,
) -> Freed {
    let others = now.given_back(before);
    let freed = before.least.ok().zip(now.most.ok()).map(|(before, after)| {
        before.saturating_sub(after).saturating_sub(others.unwrap_or_default())
    });
    let total = now.total.unwrap_or_default();
    let enough = match (freed, expected.memory) {
        (Some(freed), Some(memory)) => freed + tolerance(expected, total) >= memory && freed.0 > 0,
        // The amount is unknown; fluctuations of the driver do not count.
        (Some(freed), None) => freed > driver_reserve(total, false),
        (None, _) => false,
    };
    Freed {
        device: expected.device.clone(),
        before: before.least,
        after: now.most,
        freed,
        by_others: others.ok().filter(|bytes| bytes.0 > 0),
        doubt: None,
        expected: expected.memory,
        seen_after: waited,
        came_back: enough && all_ended,
    }
}
