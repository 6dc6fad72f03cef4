//! The one state of a simulated machine and how it changes with time.

use crate::faults::{Call, Fault, Faults, injected};
use crate::machine::{Event, Holding, Machine, Process, Reaction, When};
use crate::process_entry::ticks;
use crate::seed::Seed;
use gpu_core::{
    Absent, Bytes, DeviceFileKind, ErrorKind, Pid, ProcessKey, ProcessState, Region, Result,
    Signal, Timestamp,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where the simulated device memory begins.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

/// Names a process of the simulation for ever, whatever its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serial(u64);

/// A process that lives.
#[derive(Clone, Debug)]
pub(crate) struct Living {
    pub(crate) process: Process,
    /// When it came into the simulation.
    pub(crate) since: Duration,
}

/// Memory of an ended process that is not free yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returning {
    pub(crate) device: u32,
    pub(crate) gpu_instance: Option<u32>,
    pub(crate) memory: Bytes,
    due: Duration,
}

/// A signal that reached a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentSignal {
    /// When, since the start.
    pub at: Duration,
    /// To whom, by the number that the viewer sees.
    pub process: ProcessKey,
    /// Its name.
    pub name: String,
    /// Which signal.
    pub signal: Signal,
    /// Whether the process had a GPU device file at that moment.
    pub held_device_file: bool,
}

#[derive(Clone, Debug)]
enum Due {
    Exit(Serial),
    Respawn(Serial, Box<Process>),
    Event(Event),
}

#[derive(Debug)]
pub(crate) struct State {
    /// The machine as it is now, but for its processes and events.
    pub(crate) machine: Machine,
    pub(crate) now: Duration,
    pub(crate) living: BTreeMap<Serial, Living>,
    pub(crate) returning: Vec<Returning>,
    pub(crate) regions: BTreeMap<(u32, u64), Region>,
    pub(crate) next_address: u64,
    pub(crate) faults: Faults,
    pub(crate) signals: Vec<SentSignal>,
    pub(crate) journal: Vec<String>,
    queue: BTreeMap<(Duration, u64), Due>,
    after_exits: Vec<(Pid, Duration, Event)>,
    /// Somebody has acted, so that the rest of a recording no longer applies.
    pub(crate) acted: bool,
    next_serial: u64,
    next_entry: u64,
    last_pid: u32,
    pids: ChaCha8Rng,
}

impl State {
    pub(crate) fn new(mut machine: Machine, seed: Seed) -> Self {
        let processes = std::mem::take(&mut machine.processes);
        let events = std::mem::take(&mut machine.events);
        let last_pid = processes.iter().map(|process| process.pid().0).max().unwrap_or(0);
        let mut state = State {
            machine,
            now: Duration::ZERO,
            living: BTreeMap::new(),
            returning: Vec::new(),
            regions: BTreeMap::new(),
            next_address: FIRST_ADDRESS,
            faults: Faults::default(),
            signals: Vec::new(),
            journal: Vec::new(),
            queue: BTreeMap::new(),
            after_exits: Vec::new(),
            acted: false,
            next_serial: 0,
            next_entry: 0,
            last_pid: last_pid.max(300),
            pids: seed.child("pids"),
        };
        for process in processes {
            state.bring_to_life(process);
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

    /// Counts a call of a port and lets what was injected happen.
    ///
    /// # Errors
    /// The injected one.
    pub(crate) fn enter(&mut self, call: Call) -> Result<()> {
        for fault in self.faults.enter(call) {
            match fault {
                Fault::Error(kind) => return Err(injected(call, kind, "injected")),
                Fault::ListChanged => {
                    return Err(injected(call, ErrorKind::Again, "the list changed meanwhile"));
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

    /// Lets time pass, and all that is due in it happen in its order.
    pub(crate) fn advance(&mut self, duration: Duration) {
        let end = self.now.saturating_add(duration);
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), due) = entry.remove_entry();
            self.now = self.now.max(at);
            self.fall_due(due);
        }
        self.now = end;
        self.returning.retain(|returning| returning.due > end);
    }

    fn enqueue(&mut self, at: Duration, due: Due) {
        self.next_entry += 1;
        self.queue.insert((at, self.next_entry), due);
    }

    /// Plans an event: `after` from now.
    pub(crate) fn schedule(&mut self, after: Duration, event: Event) {
        self.enqueue(self.now.saturating_add(after), Due::Event(event));
    }

    pub(crate) fn schedule_after_exit(&mut self, pid: Pid, after: Duration, event: Event) {
        self.after_exits.push((pid, after, event));
    }

    fn fall_due(&mut self, due: Due) {
        match due {
            Due::Exit(serial) => self.exit(serial),
            Due::Event(event) => self.happen(event),
            Due::Respawn(parent, process) => {
                if self.living.contains_key(&parent) {
                    self.start(*process, None);
                }
            }
        }
    }

    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::Start(process) => {
                let pid = process.pid();
                self.start(*process, Some(pid));
            }
            Event::Exit(pid) => {
                if let Some(serial) = self.find_on_host(pid) {
                    self.exit(serial);
                }
            }
            Event::LetGo(pid, device) => self.let_go(pid, device),
            Event::Uses(pid, device, memory, load) => {
                let own = self.held_by(pid, device);
                let memory = memory.min(own + self.memory_free(device));
                self.change(pid, |process| uses(process, device, memory, load));
            }
            Event::Computes(pid, percent) => {
                let now = self.now;
                if let Some(living) = self.find_on_host(pid).and_then(|s| self.living.get_mut(&s)) {
                    living.process.info.cpu_time = living.cpu_time(now);
                    living.since = now;
                    living.process.cpu_percent = percent;
                }
            }
            Event::JoinsGroup(pid, group) => {
                self.change(pid, |process| process.info.group = Ok(group));
            }
            Event::JoinsCgroup(pid, cgroup) => self.change(pid, |process| {
                process.info.cgroup = Ok(cgroup);
                process.info.workload = None;
            }),
            Event::Fails(index, fault) => {
                if let Some(device) = self.device_mut(index) {
                    device.fault = Some(fault);
                }
            }
            Event::Becomes(look) => {
                if !self.acted {
                    self.become_look(*look);
                }
            }
        }
    }

    fn change(&mut self, pid: Pid, change: impl FnOnce(&mut Process)) {
        let serial = self.find_on_host(pid);
        if let Some(living) = serial.and_then(|serial| self.living.get_mut(&serial)) {
            change(&mut living.process);
        }
    }

    pub(crate) fn bring_to_life(&mut self, mut process: Process) -> Serial {
        let age = Duration::from_secs(3600);
        let uptime = self.machine.clock.since(self.machine.booted);
        process.info.key.start.get_or_insert_with(|| ticks(uptime.saturating_sub(age)));
        self.next_serial += 1;
        let serial = Serial(self.next_serial);
        self.living.insert(serial, Living { process, since: self.now });
        serial
    }

    /// Starts a process now, with the number asked for if it is free and a new one if not.
    fn start(&mut self, mut process: Process, pid: Option<Pid>) {
        let free = pid.filter(|pid| !self.pid_taken(*pid));
        let old = process.pid();
        let pid = free.unwrap_or_else(|| self.next_pid());
        let info = &mut process.info;
        for own in [&mut info.group, &mut info.session] {
            if *own == Ok(old) {
                *own = Ok(pid);
            }
        }
        info.key.pid = pid;
        for holding in &mut process.holdings {
            holding.memory = holding.memory.min(self.memory_free(holding.device));
        }
        let info = &mut process.info;
        let uptime = self.machine.clock.since(self.machine.booted);
        info.key.start = Some(ticks(uptime.saturating_add(self.now)));
        info.started_at = Ok(self.wall());
        info.cpu_time = Ok(Duration::ZERO);
        self.bring_to_life(process);
    }

    fn next_pid(&mut self) -> Pid {
        loop {
            self.last_pid = self.last_pid.wrapping_add(self.pids.random_range(1..=7));
            if self.last_pid > 300 && !self.pid_taken(Pid(self.last_pid)) {
                return Pid(self.last_pid);
            }
        }
    }

    fn pid_taken(&self, pid: Pid) -> bool {
        self.find_on_host(pid).is_some()
    }

    /// Returns the process that has this number on the host; one that NVML lists and that has
    /// ended has none.
    pub(crate) fn find_on_host(&self, pid: Pid) -> Option<Serial> {
        let exists = |process: &Process| process.hidden != Some(Absent::NotFound);
        let mut living = self.living.iter().filter(|(_, living)| exists(&living.process));
        living.find(|(_, living)| living.process.pid() == pid).map(|(serial, _)| *serial)
    }

    /// Ends a process with all its threads: its memory begins to come back, its children get a
    /// new parent, and what waits for its end begins.
    fn exit(&mut self, serial: Serial) {
        let Some(living) = self.living.remove(&serial) else { return };
        let process = living.process;
        let pid = process.pid();
        for holding in &process.holdings {
            self.give_back(holding, process.memory_returns);
        }
        let parent = process.info.parent.ok();
        for child in self.living.values_mut() {
            if child.process.info.parent == Ok(pid) {
                child.process.info.parent = Ok(Pid(1));
                child.process.respawns = None;
            }
        }
        let parent = parent.and_then(|parent| self.find_on_host(parent));
        if let (Some(after), Some(parent)) = (process.respawns, parent) {
            let at = self.now.saturating_add(after);
            self.enqueue(at, Due::Respawn(parent, Box::new(process)));
        }
        let waiting = std::mem::take(&mut self.after_exits);
        for (whose, after, event) in waiting {
            if whose == pid {
                self.schedule(after, event);
            } else {
                self.after_exits.push((whose, after, event));
            }
        }
    }

    fn give_back(&mut self, holding: &Holding, after: Option<Duration>) {
        let (device, memory) = (holding.device, holding.memory);
        match after {
            Some(after) => {
                let due = self.now.saturating_add(after);
                let gpu_instance = holding.gpu_instance;
                self.returning.push(Returning { device, gpu_instance, memory, due });
            }
            None => {
                if let Some(device) = self.device_mut(device) {
                    device.leaked += memory;
                }
            }
        }
    }

    fn let_go(&mut self, pid: Pid, device: Option<u32>) {
        let minor = device.and_then(|index| self.device(index)?.info.id.minor.ok());
        let Some(serial) = self.find_on_host(pid) else { return };
        let Some(living) = self.living.get_mut(&serial) else { return };
        let process = &mut living.process;
        let returns = process.memory_returns;
        let all = std::mem::take(&mut process.holdings);
        let (gone, kept): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|h| device.is_none_or(|index| h.device == index));
        process.holdings = kept;
        process.files.retain(|file| match minor {
            Some(minor) => file.kind != DeviceFileKind::Gpu(minor),
            None => device.is_some(),
        });
        for holding in gone {
            self.give_back(&holding, returns);
        }
    }

    /// Lets a signal do to a process what it does to it.
    pub(crate) fn deliver(&mut self, serial: Serial, signal: Signal) {
        let now = self.now;
        let Some(living) = self.living.get_mut(&serial) else { return };
        let process = &mut living.process;
        if process.info.kernel_thread || process.pid() == Pid(1) {
            return;
        }
        let reaction = match signal {
            Signal::Term => process.on_term,
            Signal::Kill => process.on_kill,
        };
        let at = match reaction {
            Reaction::Ignores => return,
            Reaction::ExitsAfter(after) => now.saturating_add(after),
            Reaction::Stuck(None) => return,
            Reaction::Stuck(Some(until)) => now.max(until),
            Reaction::LeavesThreads => {
                if process.info.state != Ok(ProcessState::Zombie) {
                    process.info.state = Ok(ProcessState::Zombie);
                    let threads = process.info.live_threads.unwrap_or(2);
                    process.info.live_threads = Ok(threads.saturating_sub(1).max(1));
                }
                return;
            }
        };
        self.enqueue(at, Due::Exit(serial));
    }

    /// Becomes as in a later look of its recording, keeping the processes that are still there and
    /// the viewer's own.
    fn become_look(&mut self, look: Machine) {
        let own = self.own_line();
        let before = std::mem::take(&mut self.living);
        for process in look.processes {
            let pid = process.pid();
            let known = before.iter().find(|(_, living)| {
                let start = process.info.key.start;
                let old = living.process.info.key;
                let hidden = living.process.hidden == process.hidden;
                hidden && old.pid == pid && (start.is_none() || start == old.start)
            });
            match known {
                Some((serial, living)) => {
                    let mut process = process;
                    process.info.key = living.process.info.key;
                    let living = Living { process, since: self.now };
                    self.living.insert(*serial, living);
                }
                None => {
                    self.bring_to_life(process);
                }
            }
        }
        for (serial, living) in before {
            if own.contains(&serial) && !self.pid_taken(living.process.pid()) {
                self.living.insert(serial, living);
            }
        }
        self.machine.devices = look.devices;
        self.machine.driver = look.driver;
        self.machine.files = look.files;
        self.machine.holders_fault = look.holders_fault;
        self.machine.unreadable = look.unreadable;
    }

    pub(crate) fn wall(&self) -> Timestamp {
        let millis = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.machine.clock.0.saturating_add(millis))
    }
}

impl Living {
    /// Returns the processor time used until `now`.
    pub(crate) fn cpu_time(&self, now: Duration) -> gpu_core::Reading<Duration> {
        let lived = now.saturating_sub(self.since);
        let used = lived.saturating_mul(self.process.cpu_percent) / 100;
        self.process.info.cpu_time.map(|before| before.saturating_add(used))
    }
}

/// Gives a process this much memory of a device and this share of its time, in one piece.
fn uses(process: &mut Process, device: u32, memory: Bytes, load: u8) {
    let mut holdings = process.holdings.iter_mut().filter(|holding| holding.device == device);
    match holdings.next() {
        Some(holding) => {
            holding.memory = memory;
            holding.load = load;
        }
        None => process.holdings.push(Holding { load, ..Holding::new(device, memory) }),
    }
}
