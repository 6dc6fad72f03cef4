//! The single state of a simulated machine and its changes over time.

use crate::address_range::AddressRange;
use crate::faults::{Call, Fault, Faults, injected};
use crate::machine::{Event, Machine, Process, Scheduled, When};
use crate::process_table::{Living, Population, Serial};
use crate::seed::Seed;
use gpu_core::{
    Bytes, DeviceEvent, ErrorKind, KernelDriver, Pid, ProcessKey, Region, Result, Signal,
    StartTime, Timestamp,
};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The start address of simulated device memory.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

/// Memory of an ended process that is not yet free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returning {
    pub(crate) device: u32,
    pub(crate) gpu_instance: Option<u32>,
    pub(crate) memory: Bytes,
    /// Memory of the host that a card had mapped.
    pub(crate) host: Bytes,
    pub(crate) due: Duration,
}

/// A signal that reached a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentSignal {
    /// The time since the start.
    pub at: Duration,
    /// The target, by the PID that the viewer sees.
    pub process: ProcessKey,
    /// Its name.
    pub name: String,
    /// The signal.
    pub signal: Signal,
    /// Whether the process had a GPU device file open at that time.
    pub held_device_file: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Due {
    Exit(Serial),
    Respawn(Serial, Box<Process>),
    Event(Event),
}

#[derive(Debug)]
pub(crate) struct State {
    /// The current machine, except for its processes and events.
    pub(crate) machine: Machine,
    /// The drivers of its cards.
    pub(crate) card_drivers: Vec<Arc<dyn KernelDriver>>,
    /// The UIDs of root and of all owners of initial or later started processes, by name.
    pub(crate) accounts: BTreeMap<String, u32>,
    pub(crate) now: Duration,
    pub(crate) seed: Seed,
    /// The time at which the devices had their described state: the start, or a later snapshot of a
    /// recording.
    pub(crate) described_at: Duration,
    pub(crate) living: Population,
    pub(crate) returning: Vec<Returning>,
    pub(crate) regions: BTreeMap<(u32, u64), Region>,
    /// Address ranges, by device and start.
    pub(crate) ranges: BTreeMap<(u32, u64), AddressRange>,
    pub(crate) next_address: u64,
    pub(crate) faults: Faults,
    pub(crate) signals: Vec<SentSignal>,
    pub(crate) journal: Vec<String>,
    /// Device events that no caller has fetched yet.
    pub(crate) reports: Vec<DeviceEvent>,
    queue: BTreeMap<(Duration, u64), Due>,
    pub(crate) after_exits: Vec<(Pid, Duration, Event)>,
    /// Whether an action has changed the machine, so that the rest of a recording no longer
    /// applies.
    pub(crate) acted: bool,
    /// The latest start time of any process.
    pub(crate) latest_start: StartTime,
    pub(crate) next_serial: u64,
    next_entry: u64,
    pub(crate) last_pid: u32,
    pub(crate) pids: ChaCha8Rng,
}

fn accounts(processes: &[Process], events: &[Scheduled]) -> BTreeMap<String, u32> {
    let started = events.iter().filter_map(|scheduled| match &scheduled.event {
        Event::Start(process) => Some(process.as_ref()),
        _ => None,
    });
    let infos = processes.iter().chain(started).map(|process| &process.info);
    let named = infos.filter_map(|info| Some((info.user.clone().ok()?, info.uid.ok()?)));
    std::iter::once(("root".to_owned(), 0)).chain(named).collect()
}

impl State {
    pub(crate) fn new(mut machine: Machine, seed: Seed) -> Self {
        machine.answer_as_a_driver();
        let mut processes = std::mem::take(&mut machine.processes);
        let events = std::mem::take(&mut machine.events);
        let last_pid = processes.iter().map(|process| process.pid().0).max().unwrap_or(0);
        let mut state = State {
            card_drivers: machine.cards.drivers(),
            machine,
            accounts: accounts(&processes, &events),
            now: Duration::ZERO,
            seed,
            described_at: Duration::ZERO,
            living: Population::default(),
            returning: Vec::new(),
            regions: BTreeMap::new(),
            ranges: BTreeMap::new(),
            next_address: FIRST_ADDRESS,
            faults: Faults::default(),
            signals: Vec::new(),
            journal: Vec::new(),
            reports: Vec::new(),
            queue: BTreeMap::new(),
            after_exits: Vec::new(),
            acted: false,
            latest_start: StartTime(0),
            next_serial: 0,
            next_entry: 0,
            last_pid: last_pid.max(300),
            pids: seed.child("pids"),
        };
        // Avoids holding all processes in memory twice.
        processes.reverse();
        while let Some(process) = processes.pop() {
            state.spawn_process(process);
            if processes.len().is_multiple_of(256) {
                processes.shrink_to_fit();
            }
        }
        for scheduled in events {
            match scheduled.when {
                When::At(at) => state.enqueue(at, Due::Event(scheduled.event)),
                When::AfterExit(pid, after) => {
                    state.after_exits.push((pid, after, scheduled.event));
                }
            }
        }
        state.settle_in();
        state.advance(Duration::ZERO);
        state
    }

    /// Counts a call of a port and applies injected faults.
    ///
    /// # Errors
    /// The injected error.
    pub(crate) fn enter(&mut self, call: Call) -> Result<()> {
        for fault in self.faults.enter(call) {
            match fault {
                Fault::Error(kind) => return Err(injected(call, kind, "injected")),
                Fault::ListChanged => {
                    return Err(injected(
                        call,
                        ErrorKind::Again,
                        "the list changed while it was read",
                    ));
                }
                Fault::Delay(duration) => self.advance(duration),
                Fault::Hang(duration) => {
                    self.advance(duration);
                    return Err(injected(call, ErrorKind::TimedOut, "no answer"));
                }
                Fault::Meanwhile(event) => self.happen(event),
            }
        }
        Ok(())
    }

    /// Advances time, and applies all due events in order.
    pub(crate) fn advance(&mut self, duration: Duration) {
        let end = self.now.saturating_add(duration);
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), due) = entry.remove_entry();
            self.reach(at);
            self.fall_due(due);
        }
        self.reach(end);
    }

    /// Advances time until a device reports an event, by at most `wait`, and returns the reported
    /// events.
    pub(crate) fn await_reports(&mut self, wait: Duration) -> Vec<DeviceEvent> {
        let end = self.now.saturating_add(wait);
        while self.reports.is_empty() {
            match self.queue.keys().next().map(|(at, _)| *at).filter(|at| *at <= end) {
                Some(at) => self.advance(at.saturating_sub(self.now)),
                None => {
                    self.advance(end.saturating_sub(self.now));
                    break;
                }
            }
        }
        std::mem::take(&mut self.reports)
    }

    fn reach(&mut self, at: Duration) {
        self.now = self.now.max(at);
        let now = self.now;
        self.returning.retain(|returning| returning.due > now);
    }

    pub(crate) fn enqueue(&mut self, at: Duration, due: Due) {
        self.next_entry += 1;
        self.queue.insert((at, self.next_entry), due);
    }

    /// Schedules an event `after` from now.
    pub(crate) fn schedule(&mut self, after: Duration, event: Event) {
        self.enqueue(self.now.saturating_add(after), Due::Event(event));
    }

    fn fall_due(&mut self, due: Due) {
        match due {
            Due::Exit(serial) => self.exit(serial),
            Due::Event(event) => self.happen(event),
            Due::Respawn(parent, process) => {
                if self.living.get(parent).is_some() {
                    self.start(*process, None);
                }
            }
        }
    }

    /// Returns the process with this host PID. An ended process that NVML still lists does not
    /// count.
    pub(crate) fn find_on_host(&self, pid: Pid) -> Option<Serial> {
        self.living.find(pid)
    }

    pub(crate) fn wall(&self) -> Timestamp {
        let millis = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.machine.clock.0.saturating_add(millis))
    }
}

impl Living {
    /// Returns the CPU time used until `now`.
    pub(crate) fn cpu_time(&self, now: Duration) -> gpu_core::Reading<Duration> {
        let lived = now.saturating_sub(self.since);
        let used = lived.saturating_mul(self.process.cpu_percent) / 100;
        self.process.info.cpu_time.map(|before| before.saturating_add(used))
    }
}
