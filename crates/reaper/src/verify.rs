//! The proof: memory before, memory after, how long it took.

use crate::detect::driver_reserve;
use crate::plan::Expected;
use crate::report::Freed;
use gpu_core::{Absent, Bytes, Clock, GpuBackend, Reading};
use std::time::Duration;

/// How long memory is waited for once the last target is gone. Drivers give it back within about
/// half a second; a context torn down with much mapped memory may take several.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// Reads the memory of each device that something is expected of.
pub(crate) fn before(backend: &dyn GpuBackend, expected: &[Expected]) -> Vec<Reading<Bytes>> {
    expected.iter().map(|expected| used(backend, expected)).collect()
}

/// Looks until everything came back or patience ends.
pub(crate) fn after(
    backend: &dyn GpuBackend,
    clock: &dyn Clock,
    expected: &[Expected],
    before: &[Reading<Bytes>],
    patience: Duration,
    mut waiting: impl FnMut(Duration),
) -> Vec<Freed> {
    let start = clock.monotonic();
    let mut freed: Vec<Option<Freed>> = vec![None; expected.len()];
    loop {
        let waited = clock.monotonic().saturating_sub(start);
        for ((slot, expected), before) in freed.iter_mut().zip(expected).zip(before) {
            if !slot.as_ref().is_some_and(|freed| freed.came_back) {
                *slot = Some(account(backend, expected, *before, waited));
            }
        }
        let done = freed.iter().flatten().all(|freed| freed.came_back);
        if done || waited >= patience {
            return freed.into_iter().flatten().collect();
        }
        waiting(waited);
        clock.sleep(PAUSE);
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
