//! The child behind the port.

use super::assemble::{Answer, Look, Nothing, Single};
use super::process::Process;
use super::request::{self, Failure, Patience};
use super::stuck::{self, Stuck};
use super::wire::{Greeting, Question, Said, Then};
use super::{Helper, Waiting, moment};
use crate::SimulatedNvml;
use crate::reset::Resetter;
use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    Driver, Error, ErrorKind, Fault, GpuBackend, Groups, Inventory, MachineFault, MigInstance,
    Origin, Pid, Result, Topology,
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// `NVML_ERROR_UNKNOWN`: what NVML answers where something is broken inside of it.
const UNKNOWN: u32 = 999;

/// So many children in a row may end before their answer: the one, and one that was started for
/// the next question.
const LOSSES: u32 = 2;

/// NVML in a child process: an answer, or the reason that there is none, within the deadline and a
/// fifth of a second more.
///
/// It starts one child, for the first question, and asks it all others. One that ends by itself
/// is replaced, once; one that does not answer in time never is, since the next would hang in the
/// same driver: all questions that follow are answered with the same reason at once. To try again,
/// make another. Questions from several threads are asked one after the other.
pub struct NvmlChild {
    helper: Helper,
    deadline: Duration,
    waiting: Box<dyn Fn(&Waiting) + Send + Sync>,
    then: Then,
    greeting: OnceLock<Greeting>,
    standing: Mutex<Standing>,
}

/// How it stands with the child.
struct Standing {
    child: Child,
    /// How many have ended before their answer since the last answer.
    losses: u32,
}

enum Child {
    /// None runs; the next question starts one.
    Absent,
    /// One runs.
    Runs(Running),
    /// One has given its only answer, and ends.
    Ends { process: Process },
    /// None was started, since one of an earlier look hangs.
    Barred(Stuck),
    /// None will be started, for this reason. One that could not be ended is kept, to be waited
    /// for when it has.
    GivenUp(Fault, Option<Process>),
}

struct Running {
    process: Process,
    has_greeted: bool,
    /// The look that it was asked for before anybody wanted the answer, and when.
    ahead: Option<(Groups, Duration)>,
}

impl Child {
    /// Returns the process, as long as there is one.
    fn process(&self) -> Option<&Process> {
        match self {
            Child::Runs(Running { process, .. }) | Child::Ends { process } => Some(process),
            Child::GivenUp(_, process) => process.as_ref(),
            Child::Absent | Child::Barred(_) => None,
        }
    }

    /// Returns the look that was begun before anybody wanted it, and when.
    fn ahead(&self) -> Option<(Groups, Duration)> {
        match self {
            Child::Runs(running) => running.ahead,
            _ => None,
        }
    }

    /// Lets one that runs end by itself.
    fn dismiss(&mut self) {
        if let Child::Runs(Running { process, .. }) = std::mem::replace(self, Child::Absent) {
            process.close_input();
            *self = Child::Ends { process };
        }
    }
}

impl NvmlChild {
    /// Returns a backend that has not started anything yet. `waiting` is told, after the first
    /// second of a question and then each second, what it is waiting for.
    pub fn new(
        helper: Helper,
        deadline: Duration,
        waiting: Box<dyn Fn(&Waiting) + Send + Sync>,
    ) -> Self {
        let standing = Mutex::new(Standing { child: Child::Absent, losses: 0 });
        let greeting = OnceLock::new();
        NvmlChild { helper, deadline, waiting, then: Then::Close, greeting, standing }
    }

    /// Leaves NVML open between questions. Each question is then cheaper, events that happen in
    /// between are not lost, and the child is seen as a holder of the devices.
    #[must_use]
    pub fn keep_open(self) -> Self {
        NvmlChild { then: Then::StayOpen, ..self }
    }

    /// Lets the child end with its first answer, while the program goes on with that. A further
    /// question starts another one.
    #[must_use]
    pub fn for_one_question(self) -> Self {
        NvmlChild { then: Then::End, ..self }
    }

    /// Returns the simulation that the library belongs to; `None` for a real one, and where no
    /// child could say.
    pub fn simulated(&self) -> Option<SimulatedNvml> {
        let simulated = self.greeting()?.simulated.as_ref()?;
        let (machine, session) = (simulated.machine.clone(), simulated.session.clone());
        Some(SimulatedNvml { machine, session })
    }

    /// Tells whether a child has said that its library is a real one.
    pub fn is_real(&self) -> bool {
        self.greeting().is_some_and(|greeting| greeting.simulated.is_none())
    }

    /// Shuts NVML down where it was left open, so that the child is no holder of a device. The
    /// next question initialises it again.
    ///
    /// # Errors
    /// As for a question.
    pub fn close(&self) -> Result<()> {
        let open = matches!(self.standing().child, Child::Runs(_));
        if self.then != Then::StayOpen || !open {
            return Ok(());
        }
        self.shut_down()
    }

    /// Begins a look whose answer will be wanted soon, so that the driver works on it meanwhile.
    /// Its time is counted from now on. The answer is that to [`look`](GpuBackend::look) for the
    /// same groups; any other question waits for its end.
    pub fn look_ahead(&self, groups: Groups) {
        let mut standing = self.standing();
        // What is wrong will be wrong when the answer is wanted, and be said then.
        if self.start(&mut standing).is_ok()
            && let Child::Runs(child) = &mut standing.child
            && child.ahead.is_none()
            && request::put(&mut child.process, Question::Look(groups), self.then).is_ok()
        {
            child.ahead = Some((groups, moment()));
        }
    }

    fn shut_down(&self) -> Result<()> {
        let closed = self.ask(Question::Close, Duration::ZERO, &mut Nothing);
        closed.map_err(|fault| Error::new(fault.kind, fault.text))
    }

    fn greeting(&self) -> Option<&Greeting> {
        if self.greeting.get().is_none() {
            let mut standing = self.standing();
            let begin = standing.child.ahead().map_or_else(moment, |(_, begin)| begin);
            let mut patience = Patience::new(begin, self.deadline, Duration::ZERO, &*self.waiting);
            // Why there is none is the answer to the next question.
            let _ = self.ready(&mut standing, &mut patience, None);
        }
        self.greeting.get()
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks one question, which is expected to take `wanted` by itself.
    fn ask(
        &self,
        question: Question,
        wanted: Duration,
        answer: &mut dyn Answer,
    ) -> Result<(), Fault> {
        let mut standing = self.standing();
        let ahead = standing.child.ahead().filter(|(groups, _)| is_look(&question, *groups));
        let begin = ahead.map_or_else(moment, |(_, begin)| begin);
        let mut patience = Patience::new(begin, self.deadline, wanted, &*self.waiting);
        self.ready(&mut standing, &mut patience, Some(question))?;
        let Child::Runs(child) = &mut standing.child else { return Err(nothing()) };
        match request::answer(&mut child.process, &mut patience, answer) {
            Ok(()) => {
                standing.losses = 0;
                if self.then == Then::End {
                    standing.child.dismiss();
                }
                Ok(())
            }
            Err(failure) => Err(self.lose(&mut standing, failure)),
        }
    }

    /// Makes a child ready that has greeted, and has been asked the question if there is one.
    fn ready(
        &self,
        standing: &mut Standing,
        patience: &mut Patience<'_>,
        question: Option<Question>,
    ) -> Result<(), Fault> {
        self.start(standing)?;
        let Child::Runs(child) = &mut standing.child else { return Err(nothing()) };
        let ready = match question {
            Some(question) => self.put(child, patience, question),
            None => Ok(()),
        };
        let ready = ready.and_then(|()| self.hear_greeting(child, patience));
        ready.map_err(|failure| self.lose(standing, failure))
    }

    /// Puts a question, unless it was put ahead. Asked before it has greeted, the child need not
    /// wait for the program in between.
    fn put(
        &self,
        child: &mut Running,
        patience: &mut Patience<'_>,
        question: Question,
    ) -> Result<(), Failure> {
        if let Some((ahead, _)) = child.ahead.take() {
            if is_look(&question, ahead) {
                return Ok(());
            }
            self.hear_greeting(child, patience)?;
            request::answer(&mut child.process, patience, &mut Look::new(ahead))?;
        }
        request::put(&mut child.process, question, self.then)
    }

    fn hear_greeting(
        &self,
        child: &mut Running,
        patience: &mut Patience<'_>,
    ) -> Result<(), Failure> {
        if child.has_greeted {
            return Ok(());
        }
        let greeting = request::greeting(&mut child.process, patience)?;
        child.has_greeted = true;
        // Another library behind the second child than behind the first would be taken for the
        // first.
        match *self.greeting.get_or_init(|| greeting.clone()) == greeting {
            true => Ok(()),
            false => Err(Failure::Broken("its library was replaced".to_owned())),
        }
    }

    /// Starts a child where none runs and one may.
    fn start(&self, standing: &mut Standing) -> Result<(), Fault> {
        match &mut standing.child {
            Child::GivenUp(fault, remains) => {
                // One that has ended at last is waited for.
                remains.take_if(|child| child.has_ended());
                return Err(fault.clone());
            }
            Child::Barred(stuck) if stuck.remains(&self.helper) => return Err(barred(stuck)),
            // It ends with its only answer, which lies there to be heard.
            Child::Runs(child) if self.then == Then::End && child.ahead.is_some() => return Ok(()),
            Child::Runs(child) if child.process.has_ended() => {
                standing.child = Child::Absent;
                standing.losses += 1;
            }
            Child::Runs(_) => return Ok(()),
            Child::Absent | Child::Ends { .. } | Child::Barred(_) => {}
        }
        // The search takes about as long as the child to start and to load the library. Unasked,
        // it does nothing in the driver.
        let process = Process::start(&self.helper).map_err(|error| error.fault())?;
        if let Some(stuck) = stuck::find(&self.helper) {
            let fault = barred(&stuck);
            standing.child = Child::Barred(stuck);
            return Err(fault);
        }
        standing.child = Child::Runs(Running { process, has_greeted: false, ahead: None });
        Ok(())
    }

    /// Ends a child with which it is no use to talk on, and says why.
    fn lose(&self, standing: &mut Standing, failure: Failure) -> Fault {
        let child = match std::mem::replace(&mut standing.child, Child::Absent) {
            Child::Runs(child) => Some(child.process),
            Child::Absent | Child::Ends { .. } | Child::Barred(_) | Child::GivenUp(..) => None,
        };
        let remains = child.and_then(Process::kill);
        match failure {
            Failure::Hangs(call) => {
                let fault = hangs(self.deadline, call.as_deref());
                standing.child = Child::GivenUp(fault.clone(), remains);
                fault
            }
            Failure::Broken(how) => {
                let fault = broken(&how);
                standing.losses += 1;
                if standing.losses >= LOSSES || remains.is_some() {
                    standing.child = Child::GivenUp(fault.clone(), remains);
                }
                fault
            }
        }
    }

    fn single<T>(
        &self,
        question: Question,
        wanted: Duration,
        pick: impl Fn(Said) -> Result<Result<T, Fault>, Box<Said>>,
    ) -> Result<T> {
        let mut answer = Single::new(pick);
        let outcome = self.ask(question, wanted, &mut answer);
        let answer = answer.or(outcome.err().unwrap_or_else(nothing));
        answer.map_err(|fault| Error::new(fault.kind, fault.text))
    }
}

/// Asks for what one kind of part tells.
macro_rules! single {
    ($self:ident, $question:expr, $kind:ident) => {
        single!($self, $question, $kind, Duration::ZERO)
    };
    ($self:ident, $question:expr, $kind:ident, $wanted:expr) => {
        $self.single($question, $wanted, |part| match part {
            Said::$kind(answer) => Ok(answer),
            other => Err(Box::new(other)),
        })
    };
}

impl GpuBackend for NvmlChild {
    /// Live, unless the child has said that its library is a simulated one.
    fn origin(&self) -> Origin {
        let simulated = self.greeting().and_then(|greeting| greeting.simulated.as_ref());
        simulated.map_or(Origin::Live, |simulated| Origin::Simulated(simulated.machine.clone()))
    }

    fn driver(&self) -> Result<Driver> {
        single!(self, Question::Driver, Driver)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        single!(self, Question::Devices, Devices)
    }

    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        single!(self, Question::Sample(device.clone()), Sample)
    }

    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        single!(self, Question::Processes(device.clone()), Processes)
    }

    fn mig_instances(&self, device: &DeviceId) -> Result<Vec<MigInstance>> {
        single!(self, Question::MigInstances(device.clone()), MigInstances)
    }

    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        single!(self, Question::Details(device.clone(), groups), Details).map(|details| *details)
    }

    fn topology(&self) -> Result<Topology> {
        single!(self, Question::Topology, Topology)
    }

    /// Waits for events. Those that happen between two waits are lost unless NVML stays open.
    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        single!(self, Question::Events { wait_ms }, Events, wait)
    }

    /// Closes NVML in the child, which else would be somebody who uses the device, and runs
    /// nvidia-smi. Nothing is run where no child can say that the library is a real one, nor where
    /// one hangs: nvidia-smi would hang in the same driver.
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

    fn look(&self, groups: Groups) -> Inventory {
        let mut look = Look::new(groups);
        let outcome = self.ask(Question::Look(groups), Duration::ZERO, &mut look);
        look.or(outcome.err().unwrap_or_else(nothing))
    }

    fn helpers(&self) -> Vec<Pid> {
        let standing = self.standing();
        let process = standing.child.process().filter(|process| !process.has_ended());
        process.map(Process::pid).into_iter().collect()
    }
}

fn is_look(question: &Question, groups: Groups) -> bool {
    matches!(question, Question::Look(asked) if *asked == groups)
}

fn hangs(deadline: Duration, call: Option<&str>) -> Fault {
    let within = format!("get an answer from the driver within {} s", deadline.as_secs_f64());
    let text = match call {
        Some(call) => format!("{within}: {call} did not return"),
        None => within,
    };
    Fault { kind: ErrorKind::TimedOut, text }
}

fn barred(stuck: &Stuck) -> Fault {
    let pid = stuck.pid;
    let started = stuck.age.map(|age| format!(", started {} min ago,", age / 60));
    let started = started.unwrap_or_default();
    let text =
        format!("query the driver: process {pid} of an earlier query{started} still hangs in it");
    Fault { kind: ErrorKind::TimedOut, text }
}

fn broken(how: &str) -> Fault {
    let text = format!("query the NVML helper process: {how}");
    Fault { kind: MachineFault::Unknown(UNKNOWN).into(), text }
}

/// What an answer lacks that was said to be whole; nobody gets to see it.
fn nothing() -> Fault {
    broken("it sent no answer")
}
