//! Queries hosts again and again, each at its own pace.

use crate::ask::{AT_ONCE, FLEET_LIMIT, HOST_LIMIT, one};
use crate::{Answer, HostName, Question, Ssh};
use gpu_core::Clock;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Repeated queries of hosts in the background, at most [`AT_ONCE`] at the same time. A host that
/// hangs delays another one only while that many hang, until their deadline. Dropping this ends all queries within half a second.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stops: AtomicBool,
    /// The hosts that no worker queries, with the time of the next query; the earliest first.
    due: Mutex<VecDeque<(Duration, HostName)>>,
    changed: Condvar,
}

impl Watch {
    /// Starts to query the hosts, each `interval` after its previous answer, and passes the answers
    /// to `report` with the time of their arrival on the monotonic clock. An answer is at most an
    /// equal share of [`FLEET_LIMIT`], so that one answer of each host can be kept.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        hosts: Vec<HostName>,
        question: Question,
        interval: Duration,
        ssh: Ssh,
        clock: Arc<dyn Clock>,
        report: impl Fn(Answer, Duration) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let count = hosts.len().min(AT_ONCE);
        let limit = HOST_LIMIT.min(FLEET_LIMIT / hosts.len().max(1) as u64);
        let due = Mutex::new(hosts.into_iter().map(|host| (Duration::ZERO, host)).collect());
        let shared = Shared { stops: AtomicBool::new(false), due, changed: Condvar::new() };
        let mut watch = Watch { shared: Arc::new(shared), workers: Vec::new() };
        let words = Arc::new(question.command());
        let (deadline, report) = (question.deadline, Arc::new(report));
        for _ in 0..count {
            let (shared, words, ssh) = (watch.shared.clone(), words.clone(), ssh.clone());
            let (clock, report) = (clock.clone(), report.clone());
            let work = move || {
                while let Some(host) = shared.next(&*clock) {
                    let limits = (limit, None, Some(&shared.stops));
                    let answer = one(&host, &words, deadline, &ssh, limits, &*clock);
                    if shared.stops.load(Ordering::Relaxed) {
                        return;
                    }
                    let now = clock.monotonic();
                    report(Answer { host: host.clone(), answer }, now);
                    shared.push(now.saturating_add(interval), host);
                }
            };
            watch.workers.push(Builder::new().name("host".to_owned()).spawn(work)?);
        }
        Ok(watch)
    }
}

impl Shared {
    /// Waits for the next host that is due; returns `None` at the end.
    fn next(&self, clock: &dyn Clock) -> Option<HostName> {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.stops.load(Ordering::Relaxed) {
                return None;
            }
            let now = clock.monotonic();
            let wait = match due.front() {
                Some((at, _)) if *at <= now => return due.pop_front().map(|(_, host)| host),
                Some((at, _)) => *at - now,
                None => Duration::MAX,
            };
            let wait = wait.min(Duration::from_secs(3_600));
            due = match self.changed.wait_timeout(due, wait) {
                Ok((due, _)) => due,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn push(&self, at: Duration, host: HostName) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        // All intervals are equal, so this is nearly always the last one.
        let place = due.partition_point(|(earlier, _)| *earlier <= at);
        due.insert(place, (at, host));
        self.changed.notify_one();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        {
            let _due = self.shared.due.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.stops.store(true, Ordering::Relaxed);
        }
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            // A panic was already reported.
            let _ = worker.join();
        }
    }
}
