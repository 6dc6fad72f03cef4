//! NVML in a child process, as a backend.

use super::assemble::{Answer, InventoryParts, Nothing, Single};
use super::process::Process;
use super::request::{self, Failure, TimeLimit};
use super::stuck::{self, Stuck};
use super::wire::{Greeting, Query, Reply, Then};
use super::{Helper, Waiting, moment};
use crate::SimulatedNvml;
use crate::reset::Resetter;
use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    Driver, Error, ErrorKind, Fault, GpuBackend, Groups, Inventory, MachineFault, Origin,
    Partition, PeerAccess, PeerCapability, Pid, Result, Topology,
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// `NVML_ERROR_UNKNOWN`, NVML's code for an internal error.
const UNKNOWN: u32 = 999;

/// The maximum number of consecutive children that exit without a reply: the first one and its
/// replacement.
const MAX_EXITS: u32 = 2;

/// NVML in a child process. Each query returns a result or an error within the deadline plus a
/// fifth of a second.
///
/// The first query starts a child, which also serves all later queries. If a child exits
/// unexpectedly, it is replaced once. If a child misses the deadline, a new one would hang in the
/// same driver, so queries return the same error at once. A query starts a new child once ten times
/// the deadline has passed and the old child has exited, which shows that its call has returned.
/// Queries of several threads run one after the other.
pub struct NvmlChild {
    helper: Helper,
    deadline: Duration,
    waiting: Box<dyn Fn(&Waiting) + Send + Sync>,
    then: Then,
    greeting: OnceLock<Greeting>,
    state: Mutex<State>,
}

/// The state of the child.
struct State {
    child: Child,
    /// The number of children that have exited without a reply since the last reply.
    exits: u32,
}

enum Child {
    /// No child runs; the next query starts one.
    Absent,
    Runs(Running),
    /// The child has sent its only reply and is exiting.
    Ends {
        process: Process,
    },
    /// No child was started, because a child of an earlier query hangs.
    Blocked(Stuck),
    /// No child will be started before this time, for this reason. A process that could not be
    /// killed is kept for a later reap.
    GivenUp(Fault, Option<Process>, Duration),
}

struct Running {
    process: Process,
    has_greeted: bool,
    /// The snapshot that was requested in advance, and when.
    prefetched: Option<(Groups, Duration)>,
    /// Whether the driver answered the last snapshot.
    is_open: bool,
}

impl Child {
    /// Returns the process, if any.
    fn process(&self) -> Option<&Process> {
        match self {
            Child::Runs(Running { process, .. }) | Child::Ends { process } => Some(process),
            Child::GivenUp(_, process, _) => process.as_ref(),
            Child::Absent | Child::Blocked(_) => None,
        }
    }

    /// Returns the groups of the snapshot requested in advance, and the time of the request.
    fn prefetched(&self) -> Option<(Groups, Duration)> {
        match self {
            Child::Runs(running) => running.prefetched,
            _ => None,
        }
    }

    /// Allows a running child to exit.
    fn release(&mut self) {
        if let Child::Runs(Running { mut process, .. }) = std::mem::replace(self, Child::Absent) {
            process.disconnect();
            *self = Child::Ends { process };
        }
    }
}

impl NvmlChild {
    /// Returns a backend that has not started a child yet. If a query takes more than a second,
    /// calls `waiting` once a second with the NVML call that is running.
    pub fn new(
        helper: Helper,
        deadline: Duration,
        waiting: Box<dyn Fn(&Waiting) + Send + Sync>,
    ) -> Self {
        let state = Mutex::new(State { child: Child::Absent, exits: 0 });
        let greeting = OnceLock::new();
        NvmlChild { helper, deadline, waiting, then: Then::Close, greeting, state }
    }

    /// Keeps NVML initialised between queries. This makes queries faster and keeps events between
    /// them, but the child appears as a holder of the devices.
    #[must_use]
    pub fn keep_open(self) -> Self {
        NvmlChild { then: Then::StayOpen, ..self }
    }

    /// Makes the child exit after its first reply, in parallel with the caller. A further query
    /// starts another child.
    #[must_use]
    pub fn for_one_query(self) -> Self {
        NvmlChild { then: Then::End, ..self }
    }

    /// Returns the simulation behind the library; `None` for a real library, and if no child could
    /// report it.
    pub fn simulated(&self) -> Option<SimulatedNvml> {
        let simulated = self.greeting()?.simulated.as_ref()?;
        let (machine, session) = (simulated.machine.clone(), simulated.session.clone());
        Some(SimulatedNvml { machine, session })
    }

    /// Returns whether a child reported that its library is real.
    pub fn is_real(&self) -> bool {
        self.greeting().is_some_and(|greeting| greeting.simulated.is_none())
    }

    /// Shuts NVML down if it was kept open, so the child holds no device. The next query
    /// initialises it again.
    ///
    /// # Errors
    /// As for a query.
    pub fn close(&self) -> Result<()> {
        let open = matches!(self.state().child, Child::Runs(_));
        if self.then != Then::StayOpen || !open {
            return Ok(());
        }
        self.shut_down()
    }

    /// Requests in advance a snapshot that will be needed soon, so that the driver works in the
    /// background. Its deadline starts now. [`inventory`](GpuBackend::inventory) with the same groups returns
    /// it; any other query waits for it first.
    pub fn request_snapshot(&self, groups: Groups) {
        let mut state = self.state();
        // The query that needs the snapshot reports an error.
        if self.start(&mut state).is_ok()
            && let Child::Runs(child) = &mut state.child
            && child.prefetched.is_none()
            && request::send(&mut child.process, Query::Look(groups), self.then).is_ok()
        {
            child.prefetched = Some((groups, moment()));
        }
    }

    fn shut_down(&self) -> Result<()> {
        let closed = self.ask(Query::Close, Duration::ZERO, &mut Nothing);
        closed.map_err(|fault| Error::new(fault.kind, fault.text))
    }

    fn greeting(&self) -> Option<&Greeting> {
        if self.greeting.get().is_none() {
            let mut state = self.state();
            let begin = state.child.prefetched().map_or_else(moment, |(_, begin)| begin);
            let mut limit = TimeLimit::new(begin, self.deadline, Duration::ZERO, &*self.waiting);
            // The next query reports why there is no greeting.
            let _ = self.ready(&mut state, &mut limit, None);
        }
        self.greeting.get()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one query, which itself takes `own_duration`.
    fn ask(
        &self,
        query: Query,
        own_duration: Duration,
        answer: &mut dyn Answer,
    ) -> Result<(), Fault> {
        let mut state = self.state();
        let prefetched =
            state.child.prefetched().filter(|(groups, _)| is_snapshot(&query, *groups));
        let begin = prefetched.map_or_else(moment, |(_, begin)| begin);
        let mut limit = TimeLimit::new(begin, self.deadline, own_duration, &*self.waiting);
        self.ready(&mut state, &mut limit, Some(query))?;
        let Child::Runs(child) = &mut state.child else { return Err(no_reply()) };
        match request::answer(&mut child.process, &mut limit, answer) {
            Ok(()) => {
                state.exits = 0;
                if self.then == Then::End {
                    state.child.release();
                }
                Ok(())
            }
            Err(failure) => Err(self.lose(&mut state, failure)),
        }
    }

    /// Prepares a child: receives its greeting, and sends the request, if any.
    fn ready(
        &self,
        state: &mut State,
        limit: &mut TimeLimit<'_>,
        query: Option<Query>,
    ) -> Result<(), Fault> {
        self.start(state)?;
        let Child::Runs(child) = &mut state.child else { return Err(no_reply()) };
        let ready = match query {
            Some(query) => self.send(child, limit, query),
            None => Ok(()),
        };
        let ready = ready.and_then(|()| self.receive_greeting(child, limit));
        ready.map_err(|failure| self.lose(state, failure))
    }

    /// Sends a request that was not sent in advance. This happens before the greeting arrives, to
    /// save a round trip.
    fn send(
        &self,
        child: &mut Running,
        limit: &mut TimeLimit<'_>,
        query: Query,
    ) -> Result<(), Failure> {
        if let Some((prefetched, _)) = child.prefetched.take() {
            if is_snapshot(&query, prefetched) {
                return Ok(());
            }
            self.receive_greeting(child, limit)?;
            request::answer(&mut child.process, limit, &mut InventoryParts::new(prefetched))?;
        }
        request::send(&mut child.process, query, self.then)
    }

    fn receive_greeting(
        &self,
        child: &mut Running,
        limit: &mut TimeLimit<'_>,
    ) -> Result<(), Failure> {
        if child.has_greeted {
            return Ok(());
        }
        let greeting = request::greeting(&mut child.process, limit)?;
        child.has_greeted = true;
        // A replacement child must use the same library, because its origin is cached.
        if *self.greeting.get_or_init(|| greeting.clone()) == greeting {
            Ok(())
        } else {
            Err(Failure::Broken("its library was replaced".to_owned()))
        }
    }

    /// Starts a child if none is running and one is allowed.
    fn start(&self, state: &mut State) -> Result<(), Fault> {
        match &mut state.child {
            Child::GivenUp(fault, remains, until) => {
                // Reap the process if it has ended meanwhile.
                remains.take_if(|child| child.has_ended());
                if remains.is_some() || moment() < *until {
                    return Err(fault.clone());
                }
                state.child = Child::Absent;
            }
            Child::Blocked(stuck) if stuck.remains(&self.helper) => return Err(blocked(stuck)),
            // The child exits after its only reply, which is still in the pipe.
            Child::Runs(child) if self.then == Then::End && child.prefetched.is_some() => {
                return Ok(());
            }
            Child::Runs(child) if child.process.has_ended() => {
                state.child = Child::Absent;
                state.exits += 1;
            }
            Child::Runs(_) => return Ok(()),
            Child::Absent | Child::Ends { .. } | Child::Blocked(_) => {}
        }
        // Searching takes about as long as the child needs to start and load the library. Without a
        // request, the child does not call the driver.
        let process = Process::start(&self.helper).map_err(|error| error.fault())?;
        if let Some(stuck) = stuck::find(&self.helper) {
            let fault = blocked(&stuck);
            state.child = Child::Blocked(stuck);
            return Err(fault);
        }
        state.child =
            Child::Runs(Running { process, has_greeted: false, prefetched: None, is_open: false });
        Ok(())
    }

    /// Kills a child after a failure and returns the fault.
    fn lose(&self, state: &mut State, failure: Failure) -> Fault {
        let child = match std::mem::replace(&mut state.child, Child::Absent) {
            Child::Runs(child) => Some(child.process),
            Child::Absent | Child::Ends { .. } | Child::Blocked(_) | Child::GivenUp(..) => None,
        };
        let remains = child.and_then(Process::kill);
        // If the driver hangs again, at most a tenth of the time is spent waiting.
        let until = moment().saturating_add(self.deadline.saturating_mul(10));
        match failure {
            Failure::Hangs(call) => {
                let fault = hangs(self.deadline, call.as_deref());
                state.child = Child::GivenUp(fault.clone(), remains, until);
                fault
            }
            Failure::Broken(how) => {
                let fault = broken(&how);
                state.exits += 1;
                if state.exits >= MAX_EXITS || remains.is_some() {
                    state.child = Child::GivenUp(fault.clone(), remains, until);
                }
                fault
            }
        }
    }

    fn single<T>(
        &self,
        query: Query,
        own_duration: Duration,
        pick: impl Fn(Reply) -> Result<Result<T, Fault>, Box<Reply>>,
    ) -> Result<T> {
        let mut answer = Single::new(pick);
        let outcome = self.ask(query, own_duration, &mut answer);
        let answer = answer.or(outcome.err().unwrap_or_else(no_reply));
        answer.map_err(|fault| Error::new(fault.kind, fault.text))
    }
}

/// Runs a query whose reply is one part of this kind.
macro_rules! single {
    ($self:ident, $query:expr, $kind:ident) => {
        single!($self, $query, $kind, Duration::ZERO)
    };
    ($self:ident, $query:expr, $kind:ident, $own_duration:expr) => {
        $self.single($query, $own_duration, |part| match part {
            Reply::$kind(answer) => Ok(answer),
            other => Err(Box::new(other)),
        })
    };
}

impl GpuBackend for NvmlChild {
    /// Live, unless the child reported a simulated library.
    fn origin(&self) -> Origin {
        let simulated = self.greeting().and_then(|greeting| greeting.simulated.as_ref());
        simulated.map_or(Origin::Live, |simulated| Origin::Simulated(simulated.machine.clone()))
    }

    fn driver(&self) -> Result<Driver> {
        single!(self, Query::Driver, Driver)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        single!(self, Query::Devices, Devices)
    }

    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        single!(self, Query::Sample(device.clone()), Sample)
    }

    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        single!(self, Query::Processes(device.clone()), Processes)
    }

    fn partitions(&self, device: &DeviceId) -> Result<Vec<Partition>> {
        single!(self, Query::MigInstances(device.clone()), MigInstances)
    }

    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        single!(self, Query::Details(device.clone(), groups), Details).map(|details| *details)
    }

    fn topology(&self) -> Result<Topology> {
        single!(self, Query::Topology, Topology)
    }

    fn peer_access(&self, capability: PeerCapability) -> Result<Vec<Vec<PeerAccess>>> {
        single!(self, Query::PeerAccess(capability), PeerAccess)
    }

    /// Waits for events. Unless NVML stays open, events between two waits are lost.
    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        single!(self, Query::Events { wait_ms }, Events, wait)
    }

    /// Closes NVML in the child, which would count as a user of the device, and runs nvidia-smi.
    /// Does not run it if no child can confirm that the library is real, or if a child hangs,
    /// because nvidia-smi would hang in the same driver.
    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        let failed = |kind, why: &str| {
            Err(Error::new(kind, format!("reset {device}")).with_source(why.to_owned()))
        };
        self.shut_down()?;
        if self.origin() != Origin::Live {
            return failed(ErrorKind::Unsupported, "the machine is simulated");
        }
        let Ok(bus) = device.bus else {
            return failed(ErrorKind::Invalid, "its PCI bus ID is unknown");
        };
        Resetter::installed()?.reset(bus, &device.to_string())
    }

    fn inventory(&self, groups: Groups) -> Inventory {
        let mut parts = InventoryParts::new(groups);
        let outcome = self.ask(Query::Look(groups), Duration::ZERO, &mut parts);
        let inventory = parts.or(outcome.err().unwrap_or_else(no_reply));
        if let Child::Runs(child) = &mut self.state().child {
            child.is_open = inventory.driver.is_ok();
        }
        inventory
    }

    fn helpers(&self) -> Vec<Pid> {
        let state = self.state();
        let process = state.child.process().filter(|process| !process.has_ended());
        process.map(Process::pid).into_iter().collect()
    }

    /// NVML is kept open only by callers that know that the kernel suspends no GPU.
    fn keeps_devices_awake(&self) -> bool {
        let is_open = |child: &Running| child.is_open && !child.process.has_ended();
        self.then == Then::StayOpen
            && matches!(&self.state().child, Child::Runs(child) if is_open(child))
    }
}

fn is_snapshot(query: &Query, groups: Groups) -> bool {
    matches!(query, Query::Look(asked) if *asked == groups)
}

fn hangs(deadline: Duration, call: Option<&str>) -> Fault {
    let within = format!("get an answer from the driver within {} s", deadline.as_secs_f64());
    let text = match call {
        Some(call) => format!("{within}: {call} did not return"),
        None => within,
    };
    Fault { kind: ErrorKind::TimedOut, text }
}

fn blocked(stuck: &Stuck) -> Fault {
    let pid = stuck.pid;
    let started = stuck.age.map(|age| format!(", started {} min ago,", age / 60));
    let started = started.unwrap_or_default();
    let text = format!(
        "query the driver: process {pid} of an earlier query{started} is still blocked in it"
    );
    Fault { kind: ErrorKind::TimedOut, text }
}

fn broken(how: &str) -> Fault {
    let text = format!("query the NVML helper process: {how}");
    Fault { kind: MachineFault::Unknown(UNKNOWN).into(), text }
}

/// Returns the fault for a missing reply; unreachable, because replies are checked for
/// completeness.
fn no_reply() -> Fault {
    broken("it sent no answer")
}
