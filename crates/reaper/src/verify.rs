//! The proof: memory before, memory after, how long it took, and whether somebody took it again.

use crate::act::Ports;
use crate::detect::driver_reserve;
use crate::plan::{Expected, Membership, Plan};
use crate::report::{Action, Freed, Newcomer, Outcome, Why};
use gpu_core::{Bytes, DeviceFile, GpuBackend, Holder, MemoryInfo, Pid, ProcessState, Reading};
use std::ops::ControlFlow;
use std::time::Duration;

/// How long memory is waited for once the last target is gone. Drivers give it back within about
/// half a second; a context torn down with much mapped memory may take several.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// How long a supervisor is given to start again what was ended: systemd waits 0.1 s unless told
/// otherwise, Kubernetes and scripts a second or so.
const RESPAWN: Duration = Duration::from_secs(2);

/// What was seen right before the first signal.
pub(crate) struct Before {
    pub(crate) files: Vec<DeviceFile>,
    memory: Vec<Reading<Bytes>>,
    /// Where it could not be seen, nobody can be told to be new.
    holders: Reading<Vec<Holder>>,
}

impl Before {
    pub(crate) fn see(plan: &Plan, ports: Ports<'_>, files: Vec<DeviceFile>) -> Self {
        Before {
            memory: plan
                .expected
                .iter()
                .map(|e| memory(ports.backend, e).and_then(|m| m.used))
                .collect(),
            holders: match is_of_one_tree(plan) {
                true => Ok(Vec::new()),
                false => ports
                    .host
                    .holders(&files)
                    .map(|scan| scan.holders)
                    .map_err(|error| error.kind().absent()),
            },
            files,
        }
    }

    /// Looks until everything came back or patience ends. Where nobody ended, nothing will come
    /// back however long it is waited for: one look tells what is.
    pub(crate) fn memory_after(
        &self,
        plan: &Plan,
        ports: Ports<'_>,
        actions: &[Action],
        waiting: &mut dyn FnMut(Duration) -> ControlFlow<()>,
    ) -> Vec<Freed> {
        let ended =
            |pid: &Pid| actions.iter().any(|action| action.pid == *pid && action.outcome.is_gone());
        let patience = if anybody_ended(actions) { PATIENCE } else { Duration::ZERO };
        let start = ports.clock.monotonic();
        let mut freed: Vec<Option<Freed>> = vec![None; plan.expected.len()];
        loop {
            let waited = ports.clock.monotonic().saturating_sub(start);
            for ((slot, expected), before) in freed.iter_mut().zip(&plan.expected).zip(&self.memory)
            {
                if !slot.as_ref().is_some_and(|freed| freed.came_back) {
                    let all_ended = expected.targets.iter().all(ended);
                    *slot = Some(account(ports.backend, expected, *before, all_ended, waited));
                }
            }
            let done = freed.iter().flatten().all(|freed| freed.came_back);
            if done || waited >= patience || waiting(waited).is_break() {
                return freed.into_iter().flatten().collect();
            }
            ports.clock.sleep(PAUSE);
        }
    }

    /// Returns who is there a while later and was in no plan: who uses memory of the targets'
    /// devices and did not before, and who is in a scope that was to be ended whole. Nobody outside
    /// starts a member of a tree again, and whoever ends a tree asks again who is left in it.
    pub(crate) fn newcomers(
        &self,
        plan: &Plan,
        ports: Ports<'_>,
        actions: &[Action],
    ) -> Reading<Vec<Newcomer>> {
        if !anybody_ended(actions) || is_of_one_tree(plan) {
            return Ok(Vec::new());
        }
        ports.clock.sleep(RESPAWN);
        let mut newcomers = self.takers(plan, ports)?;
        newcomers.extend(joiners(plan, ports)?);
        Ok(newcomers)
    }

    fn takers(&self, plan: &Plan, ports: Ports<'_>) -> Reading<Vec<Newcomer>> {
        let before = self.holders.as_ref().map_err(|absent| *absent)?;
        let known = |holder: &Holder| before.iter().any(|other| other.process == holder.process);
        let minors: Vec<u32> = match &plan.expected[..] {
            // Without a list of devices: whatever the targets held.
            [] => plan.targets.iter().flat_map(|t| t.membership.minors()).copied().collect(),
            expected => expected.iter().filter_map(|e| e.device.minor.ok()).collect(),
        };
        let takes = |holder: &Holder| minors.iter().any(|minor| holder.uses_memory_of(*minor));
        let now = ports.host.holders(&self.files).map_err(|error| error.kind().absent())?;
        let taken = now.holders.iter().filter(|holder| !known(holder) && takes(holder));
        Ok(taken
            .map(|holder| Newcomer {
                pid: holder.process.pid,
                name: ports.host.process(holder.process.pid).ok().map(|info| info.name),
                why: Why::TookTheDevice,
            })
            .collect())
    }
}

fn joiners(plan: &Plan, ports: Ports<'_>) -> Reading<Vec<Newcomer>> {
    let memberships = plan.targets.iter().map(|target| &target.membership);
    let scopes: Vec<&Membership> =
        memberships.filter(|membership| !matches!(membership, Membership::Holds(_))).collect();
    if scopes.is_empty() {
        return Ok(Vec::new());
    }
    let everyone = ports.host.processes().map_err(|error| error.kind().absent())?.processes;
    let joined = everyone.into_iter().filter(|process| {
        let lives = process.state != Ok(ProcessState::Zombie);
        let planned = plan.targets.iter().any(|target| target.key.surely_same(&process.key));
        lives && !planned && scopes.iter().any(|scope| scope.covers(process))
    });
    Ok(joined
        .map(|process| Newcomer {
            pid: process.key.pid,
            name: Some(process.name),
            why: Why::JoinedTheScope,
        })
        .collect())
}

/// Tells whether all targets are members of a tree that is ended.
fn is_of_one_tree(plan: &Plan) -> bool {
    plan.targets.iter().all(|target| matches!(target.membership, Membership::Descends(_)))
}

fn anybody_ended(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action.outcome, Outcome::Ended { .. }))
}

/// What may be missing of what was expected: of what no list accounts for, the driver's own share,
/// but no more than half; of what is listed, a twentieth, since others take and give meanwhile.
fn tolerance(expected: &Expected, total: Bytes) -> Bytes {
    let listed = expected.memory.unwrap_or_default().saturating_sub(expected.unexplained);
    let driver = driver_reserve(total, false).min(Bytes(expected.unexplained.0 / 2));
    Bytes(listed.0 / 20) + driver
}

fn account(
    backend: &dyn GpuBackend,
    expected: &Expected,
    before: Reading<Bytes>,
    all_ended: bool,
    waited: Duration,
) -> Freed {
    let now = memory(backend, expected);
    let after = now.and_then(|memory| memory.used);
    let freed = before.ok().zip(after.ok()).map(|(before, after)| before.saturating_sub(after));
    let total = now.and_then(|memory| memory.total).unwrap_or_default();
    let enough = match (freed, expected.memory) {
        (Some(freed), Some(memory)) => freed + tolerance(expected, total) >= memory && freed.0 > 0,
        // How much is not known; what a driver takes and gives by itself is not it.
        (Some(freed), None) => freed > driver_reserve(total, false),
        (None, _) => false,
    };
    Freed {
        device: expected.device.clone(),
        before,
        after,
        freed,
        expected: expected.memory,
        seen_after: waited,
        came_back: enough && all_ended,
    }
}

fn memory(backend: &dyn GpuBackend, expected: &Expected) -> Reading<MemoryInfo> {
    Ok(backend.sample(&expected.device).map_err(|error| error.kind().absent())?.memory)
}
