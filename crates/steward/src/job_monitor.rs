//! Monitors a program from its start to its end.

use crate::event::{Event, Watch};
use crate::grant::Grant;
use crate::handoff::Handoff;
use crate::leftovers::{KILL, TERM};
use crate::memory::Tally;
use crate::order::{Leaves, OnDeath, RunOrder};
use crate::ports::Ports;
use crate::renewal::Renewal;
use gpu_core::{Error, Groups, Job, JobEvent, JobExit, ProcessFault, observe_users};
use std::time::Duration;

/// A program usually appears on its devices, and safe-gpu's locks are released, in its first
/// seconds.
const STARTUP_PERIOD: Duration = Duration::from_secs(5);
const STARTUP_POLL_INTERVAL: Duration = Duration::from_millis(250);
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// If two processes are killed together, the second has ended after this time, even under load.
const SIMULTANEOUS_EXIT_WINDOW: Duration = Duration::from_secs(1);

/// A running program.
pub(crate) struct JobMonitor<'a> {
    order: &'a RunOrder,
    leaves: Leaves,
    ports: &'a Ports<'a>,
    grant: &'a mut Grant,
    tallies: &'a mut [Tally],
    handoff: Handoff<'a>,
    start: Duration,
    next_snapshot: Duration,
    renewal: Renewal,
    /// When it is killed, once it was asked to end.
    last_call: Option<Duration>,
    pub(crate) limit_hit: bool,
    pub(crate) abandoned: bool,
    /// It was asked to end and did not end in time.
    pub(crate) overstayed: bool,
}

impl<'a> JobMonitor<'a> {
    pub(crate) fn new(
        order: &'a RunOrder,
        leaves: Leaves,
        ports: &'a Ports<'a>,
        grant: &'a mut Grant,
        tallies: &'a mut [Tally],
        handoff: Handoff<'a>,
    ) -> Self {
        let start = ports.clock.monotonic();
        JobMonitor {
            order,
            leaves,
            ports,
            grant,
            tallies,
            handoff,
            start,
            next_snapshot: start + STARTUP_POLL_INTERVAL,
            renewal: Renewal::new(start),
            last_call: None,
            limit_hit: false,
            abandoned: false,
            overstayed: false,
        }
    }

    /// Returns how the program ended; `None` if it was asked to end and did not end in time.
    ///
    /// # Errors
    /// If it can no longer be monitored.
    pub(crate) fn follow(
        &mut self,
        job: &mut dyn Job,
        watch: &mut Watch<'_>,
    ) -> Result<Option<JobExit>, Error> {
        let followed = self.follow_to_the_end(job, watch);
        self.handoff.end();
        followed
    }

    fn follow_to_the_end(
        &mut self,
        job: &mut dyn Job,
        watch: &mut Watch<'_>,
    ) -> Result<Option<JobExit>, Error> {
        loop {
            match job.next(self.pause())? {
                Some(JobEvent::Ended(ending)) => {
                    self.take_abandonment(job, ending, watch);
                    return Ok(Some(ending));
                }
                Some(JobEvent::EndRequested(_)) if self.leaves == Leaves::Nothing => {
                    self.call(job, watch)
                }
                Some(JobEvent::EndRequested(signal)) => pass(job, signal, watch),
                Some(JobEvent::Abandoned) => {
                    self.abandoned = true;
                    // The caller is gone, so it cannot object.
                    let _ = watch(Event::Abandoned);
                    if self.order.on_death == OnDeath::End {
                        self.call(job, watch);
                    }
                }
                None => {}
            }
            let now = self.ports.clock.monotonic();
            if now >= self.next_snapshot {
                self.observe(now, watch);
            }
            self.renewal.renew_if_due(now, self.grant, self.ports.locks, watch);
            if self.is_over_limit(now) {
                self.limit_hit = true;
                let _ = watch(Event::LimitReached);
                self.call(job, watch);
            }
            if self.last_call.is_some_and(|at| now >= at) {
                self.overstayed = true;
                return Ok(None);
            }
        }
    }

    /// Determines whether the waiting process is gone, too. A `pkill -f` kills both the waiting
    /// process and the program, in either order.
    fn take_abandonment(&mut self, job: &mut dyn Job, ending: JobExit, watch: &mut Watch<'_>) {
        let patience =
            if ending == JobExit::Signal(KILL) { SIMULTANEOUS_EXIT_WINDOW } else { Duration::ZERO };
        while let (false, Ok(Some(event))) = (self.abandoned, job.next(patience)) {
            if event == JobEvent::Abandoned {
                self.abandoned = true;
                let _ = watch(Event::Abandoned);
            }
        }
    }

    /// Asks the program to end, once.
    fn call(&mut self, job: &dyn Job, watch: &mut Watch<'_>) {
        if self.last_call.is_none() {
            self.last_call = Some(self.ports.clock.monotonic() + self.order.grace);
            pass(job, TERM, watch);
        }
    }

    fn is_over_limit(&self, now: Duration) -> bool {
        let limit = self.order.time_limit.filter(|_| !self.limit_hit);
        limit.is_some_and(|limit| now.saturating_sub(self.start) >= limit)
    }

    /// The time until the next scheduled action.
    fn pause(&self) -> Duration {
        let limit = self.order.time_limit.filter(|_| !self.limit_hit);
        let limit = limit.and_then(|limit| self.start.checked_add(limit));
        let next =
            [limit, self.last_call].into_iter().flatten().fold(self.next_snapshot, Duration::min);
        next.saturating_sub(self.ports.clock.monotonic())
    }

    fn observe(&mut self, now: Duration, watch: &mut Watch<'_>) {
        let ran = now.saturating_sub(self.start);
        let is_early = ran < STARTUP_PERIOD || self.handoff.is_urgent();
        self.next_snapshot = now + if is_early { STARTUP_POLL_INTERVAL } else { POLL_INTERVAL };
        let Ports { backend, host, clock, .. } = *self.ports;
        let snapshot = observe_users(backend, host, clock, Groups::NONE);
        let (root, others) = (self.order.request.root, self.handoff.others());
        for tally in self.tallies.iter_mut() {
            tally.note(&snapshot, &root, &others);
        }
        self.handoff.step(&snapshot, self.tallies, watch);
    }
}

/// Forwards a signal, but not to a group that has already ended. A process that may not be
/// signalled, because it changed its user, continues.
fn pass(job: &dyn Job, signal: i32, watch: &mut Watch<'_>) {
    if let Err(error) = job.pass(signal)
        && error.kind() != ProcessFault::Gone.into()
    {
        // The observer cannot end a wait here, because there is none.
        let _ = watch(Event::NotPassed(signal, &error));
    }
}
