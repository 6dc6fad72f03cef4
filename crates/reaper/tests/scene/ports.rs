//! Ports of a simulated machine, whose time moves when somebody sleeps.

use gpu_core::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) fn origin() -> Origin {
    Origin::Simulated("scene".into())
}

pub(crate) fn clock() -> MockClock {
    clock_at(&Arc::default())
}

/// A clock that shows a number of milliseconds.
pub(crate) fn clock_at(now: &Arc<AtomicU64>) -> MockClock {
    let mut clock = MockClock::new();
    let (read, wall, slept) = (now.clone(), now.clone(), now.clone());
    clock.expect_monotonic().returning(move || Duration::from_millis(read.load(Ordering::Relaxed)));
    clock.expect_wall().returning(move || Timestamp(wall.load(Ordering::Relaxed)));
    clock.expect_sleep().returning(move |duration| {
        slept.fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
    });
    clock
}

/// An audit log, and what is written into it.
pub(crate) fn journal() -> (MockJournal, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let mut journal = MockJournal::new();
    let kept = lines.clone();
    journal.expect_append().returning(move |line| {
        kept.lock().unwrap().push(line.to_owned());
        Ok(())
    });
    (journal, lines)
}

/// A host without device files, on which the caller has no ancestors that matter.
pub(crate) fn bare_host() -> MockHost {
    let mut host = MockHost::new();
    host.expect_own_line().returning(|| Ok(vec![]));
    host.expect_origin().returning(origin);
    host.expect_device_files().returning(|| Ok(vec![]));
    host.expect_sees_host_pids().returning(|| Ok(true));
    host
}
