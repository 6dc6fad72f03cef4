//! Follows a program from its start to its end.

use crate::grant::Grant;
use crate::memory::Tally;
use crate::ports::Ports;
use crate::renewal::Renewal;
use crate::run::{Event, HandOff, Leaves, OnDeath, RunOrder};
use gpu_core::{
    Ending, Error, Groups, HeldBack, Host, Job, JobEvent, Pid, ProcessFault, ProcessKey, Snapshot,
    line_now, observe_users,
};
use std::ops::ControlFlow;
use std::time::Duration;

/// A program shows on its devices, and safe-gpu is let go, within its first seconds.
const EARLY: Duration = Duration::from_secs(5);
const EARLY_PACE: Duration = Duration::from_millis(250);
const PACE: Duration = Duration::from_secs(1);

/// Of two that are killed together the second has ended after so long, however busy the machine is.
const TOGETHER: Duration = Duration::from_secs(1);

/// The number of SIGTERM.
pub(crate) const TERM: i32 = 15;

/// The number of SIGKILL.
pub(crate) const KILL: i32 = 9;

pub(crate) type Watch<'w> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'w;

/// A program on its way.
pub(crate) struct Course<'a> {
    order: &'a RunOrder,
    leaves: Leaves,
    ports: &'a Ports<'a>,
    grant: &'a mut Grant,
    tallies: &'a mut [Tally],
    pub(crate) held_back: Option<Box<dyn HeldBack>>,
    start: Duration,
    next_look: Duration,
    renewal: Renewal,
    /// When it is ended whether it wants or not, once it was asked to end.
    last_call: Option<Duration>,
    pub(crate) limit_hit: bool,
    pub(crate) abandoned: bool,
    /// It was asked to end and did not in its time.
    pub(crate) overstayed: bool,
}

impl<'a> Course<'a> {
    pub(crate) fn new(
        order: &'a RunOrder,
        leaves: Leaves,
        ports: &'a Ports<'a>,
        grant: &'a mut Grant,
        tallies: &'a mut [Tally],
        held_back: Option<Box<dyn HeldBack>>,
    ) -> Self {
        let start = ports.clock.monotonic();
        Course {
            order,
            leaves,
            ports,
            grant,
            tallies,
            held_back,
            start,
            next_look: start + EARLY_PACE,
            renewal: Renewal::new(start),
            last_call: None,
            limit_hit: false,
            abandoned: false,
            overstayed: false,
        }
    }

    /// Returns how the program ended; `None` when it was to end and did not in its time.
    ///
    /// # Errors
    /// When it cannot be followed any more.
    pub(crate) fn follow(
        &mut self,
        job: &mut dyn Job,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Ending>, Error> {
        loop {
            match job.next(self.pause())? {
                Some(JobEvent::Ended(ending)) => {
                    self.take_abandonment(job, ending, watch);
                    return Ok(Some(ending));
                }
                Some(JobEvent::Asked(_)) if self.leaves == Leaves::Nothing => self.call(job, watch),
                Some(JobEvent::Asked(signal)) => pass(job, signal, watch),
                Some(JobEvent::Abandoned) => {
                    self.abandoned = true;
                    // Nobody is left who could be asked to go on.
                    let _ = watch(Event::Abandoned);
                    if self.order.on_death == OnDeath::End {
                        self.call(job, watch);
                    }
                }
                None => {}
            }
            let now = self.ports.clock.monotonic();
            if now >= self.next_look {
                self.look(now, watch);
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

    /// Learns whether nobody waits for it any more either: who looks for a command line kills the
    /// one who waits and the program together, and which of them ends first is chance.
    fn take_abandonment(&mut self, job: &mut dyn Job, ending: Ending, watch: &mut Watch<'_>) {
        let patience = if ending == Ending::Signal(KILL) { TOGETHER } else { Duration::ZERO };
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

    /// Until something is to be done by itself.
    fn pause(&self) -> Duration {
        let limit = self.order.time_limit.filter(|_| !self.limit_hit);
        let limit = limit.and_then(|limit| self.start.checked_add(limit));
        let next =
            [limit, self.last_call].into_iter().flatten().fold(self.next_look, Duration::min);
        next.saturating_sub(self.ports.clock.monotonic())
    }

    fn look(&mut self, now: Duration, watch: &mut Watch<'_>) {
        let ran = now.saturating_sub(self.start);
        self.next_look = now + if ran < EARLY { EARLY_PACE } else { PACE };
        let Ports { backend, host, clock, .. } = *self.ports;
        let look = observe_users(backend, host, clock, Groups::NONE);
        let root = self.order.request.root;
        for tally in self.tallies.iter_mut() {
            tally.note(&look, &root);
        }
        if let Some(why) = self.may_hand_off(&look, ran) {
            self.held_back = None;
            let _ = watch(Event::HandedOff(why));
        }
    }

    fn may_hand_off(&self, look: &Snapshot, ran: Duration) -> Option<HandOff> {
        let held_back = self.held_back.as_ref()?;
        let root = &self.order.request.root;
        if self.tallies.iter().all(|tally| tally.shows(look, root)) {
            return Some(HandOff::Seen);
        }
        // It is to get the devices of its own lease, and would wait for itself.
        let waiting = held_back.waiting().unwrap_or_default();
        if waiting.into_iter().any(|pid| descends(self.ports.host, pid, root)) {
            return Some(HandOff::Wanted);
        }
        (ran >= self.order.handoff).then_some(HandOff::TimedOut)
    }
}

/// Passes a signal on; a group that has ended already gets none. One that may not be told, since
/// it became another user's, goes on.
fn pass(job: &dyn Job, signal: i32, watch: &mut Watch<'_>) {
    if let Err(error) = job.pass(signal)
        && error.kind() != ProcessFault::Gone.into()
    {
        // Nothing is waited for that could be given up.
        let _ = watch(Event::NotPassed(signal, &error));
    }
}

/// Tells whether a process is `root` or descends from it, as the kernel tells it now.
fn descends(host: &dyn Host, pid: Pid, root: &ProcessKey) -> bool {
    line_now(host, host.process(pid).ok()).any(|info| info.key.surely_same(root))
}
