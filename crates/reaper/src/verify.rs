//! The proof: memory before, memory after, how long it took, and whether somebody took it again.

use crate::act::Ports;
use crate::detect::driver_reserve;
use crate::plan::{Expected, Plan};
use crate::report::{Freed, Newcomer};
use gpu_core::{Absent, Bytes, DeviceFile, GpuBackend, Holder, Reading};
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
    /// `None` when it could not be seen: then nobody can be told to be new.
    holders: Option<Vec<Holder>>,
}

impl Before {
    pub(crate) fn see(plan: &Plan, ports: Ports<'_>, files: Vec<DeviceFile>) -> Self {
        Before {
            memory: plan.expected.iter().map(|expected| used(ports.backend, expected)).collect(),
            holders: ports.host.holders(&files).ok().map(|scan| scan.holders),
            files,
        }
    }

    /// Looks until everything came back or patience ends; once, where nobody ended and nothing
    /// will come back however long it is waited for.
    pub(crate) fn memory_after(
        &self,
        plan: &Plan,
        ports: Ports<'_>,
        ended: bool,
        waiting: &mut dyn FnMut(Duration) -> ControlFlow<()>,
    ) -> Vec<Freed> {
        let patience = if ended { PATIENCE } else { Duration::ZERO };
        let start = ports.clock.monotonic();
        let mut freed: Vec<Option<Freed>> = vec![None; plan.expected.len()];
        loop {
            let waited = ports.clock.monotonic().saturating_sub(start);
            for ((slot, expected), before) in freed.iter_mut().zip(&plan.expected).zip(&self.memory)
            {
                if !slot.as_ref().is_some_and(|freed| freed.came_back) {
                    *slot = Some(account(ports.backend, expected, *before, waited));
                }
            }
            let done = freed.iter().flatten().all(|freed| freed.came_back);
            if done || waited >= patience || waiting(waited).is_break() {
                return freed.into_iter().flatten().collect();
            }
            ports.clock.sleep(PAUSE);
        }
    }

    /// Returns who uses memory of the targets' devices a while later, and did not before.
    pub(crate) fn newcomers(&self, plan: &Plan, ports: Ports<'_>) -> Vec<Newcomer> {
        let Some(before) = &self.holders else { return Vec::new() };
        ports.clock.sleep(RESPAWN);
        let holders = ports.host.holders(&self.files).map(|scan| scan.holders).unwrap_or_default();
        let known = |holder: &Holder| before.iter().any(|other| other.process == holder.process);
        let minors: Vec<u32> =
            plan.targets.iter().flat_map(|target| target.membership.minors()).copied().collect();
        holders
            .iter()
            .filter(|holder| {
                !known(holder) && minors.iter().any(|minor| holder.uses_memory_of(*minor))
            })
            .map(|holder| Newcomer {
                pid: holder.process.pid,
                name: ports.host.process(holder.process.pid).ok().map(|info| info.name),
            })
            .collect()
    }
}

fn account(
    backend: &dyn GpuBackend,
    expected: &Expected,
    before: Reading<Bytes>,
    waited: Duration,
) -> Freed {
    let after = used(backend, expected);
    let freed = before.ok().zip(after.ok()).map(|(before, after)| before.saturating_sub(after));
    let total = backend.sample(&expected.device).ok().and_then(|sample| sample.memory.total.ok());
    let reserve = total.map_or(Bytes(0), |total| driver_reserve(total, false));
    let came_back = match (freed, expected.memory) {
        (Some(freed), Some(expected)) => freed + reserve >= expected && freed.0 > 0,
        (Some(freed), None) => freed.0 > 0,
        (None, _) => false,
    };
    Freed {
        device: expected.device.clone(),
        before,
        after,
        freed,
        expected: expected.memory,
        seen_after: waited,
        came_back,
    }
}

fn used(backend: &dyn GpuBackend, expected: &Expected) -> Reading<Bytes> {
    let sample = backend.sample(&expected.device).map_err(|error| match error.kind().absent() {
        Absent::NotFound => Absent::Failed,
        reason => reason,
    })?;
    sample.memory.used
}
