//! Changes of the processes: start, change, signals, release, end.

use crate::machine::{Event, Holding, Machine, Process, Reaction};
use crate::process_entry::ticks;
use crate::process_table::{Living, Serial};
use crate::state::{Due, Returning, State};
use gpu_core::{Bytes, DeviceEvent, Pid, ProcessState, Signal, StartTime};
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;

impl State {
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
                if let Some(serial) = self.find_on_host(pid) {
                    self.living.change(serial, |living| {
                        living.process.info.cpu_time = living.cpu_time(now);
                        living.since = now;
                        living.process.cpu_percent = percent;
                    });
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
            Event::Reports(index, kind) => {
                self.log(index, kind);
                self.reports.push(DeviceEvent { device: Some(index), kind });
            }
            Event::Becomes(snapshot) => {
                if !self.acted {
                    self.become_snapshot(*snapshot);
                }
            }
        }
    }

    /// Calls `change` with the process that has this PID on the host, if there is one.
    pub(crate) fn change(&mut self, pid: Pid, change: impl FnOnce(&mut Process)) {
        if let Some(serial) = self.find_on_host(pid) {
            self.living.change(serial, |living| change(&mut living.process));
        }
    }

    /// Adds a process, with its recorded start time or, if none is recorded, one an hour ago.
    pub(crate) fn spawn_process(&mut self, mut process: Process) -> Serial {
        let age = Duration::from_secs(3600);
        let uptime = self.machine.clock.since(self.machine.booted);
        let start =
            *process.info.key.start.get_or_insert_with(|| ticks(uptime.saturating_sub(age)));
        self.latest_start = self.latest_start.max(start);
        self.next_serial += 1;
        let serial = Serial(self.next_serial);
        self.living.insert(serial, Living { process, since: self.now });
        serial
    }

    /// Starts a process now, with the requested PID if it is free and a new one if not.
    pub(crate) fn start(&mut self, mut process: Process, pid: Option<Pid>) {
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
        // Two processes with one PID never have the same start time, not even within one tick.
        let uptime = self.machine.clock.since(self.machine.booted);
        let tick = ticks(uptime.saturating_add(self.now));
        let start = tick.max(StartTime(self.latest_start.0.saturating_add(1)));
        let info = &mut process.info;
        info.key.start = Some(start);
        info.started_at = Ok(self.wall());
        info.cpu_time = Ok(Duration::ZERO);
        self.spawn_process(process);
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

    /// Ends a process with all its threads: its memory starts to come back, its children are
    /// re-parented, and events after its end are scheduled.
    pub(crate) fn exit(&mut self, serial: Serial) {
        let Some(living) = self.living.remove(serial) else { return };
        let process = living.process;
        let pid = process.pid();
        for holding in &process.holdings {
            self.give_back(holding, process.memory_returns);
        }
        let parent = process.info.parent.ok();
        let all = self.living.iter();
        let children = all.filter(|(_, living)| living.process.info.parent == Ok(pid));
        let children: Vec<Serial> = children.map(|(serial, _)| serial).collect();
        for child in children {
            self.living.change(child, |child| {
                child.process.info.parent = Ok(Pid(1));
                child.process.respawns = None;
            });
        }
        let parent = parent.and_then(|parent| self.find_on_host(parent));
        if let (Some(after), Some(parent)) = (process.respawns, parent) {
            let at = self.now.saturating_add(after);
            self.enqueue(at, Due::Respawn(parent, Box::new(process)));
        }
        let waiting = std::mem::take(&mut self.after_exits);
        for (pid_waited_for, after, event) in waiting {
            if pid_waited_for == pid {
                self.schedule(after, event);
            } else {
                self.after_exits.push((pid_waited_for, after, event));
            }
        }
    }

    fn give_back(&mut self, holding: &Holding, after: Option<Duration>) {
        let (device, memory) = (holding.device, holding.memory);
        if self.is_client_shared(holding) {
            return;
        }
        let host = holding.client.unwrap_or_default().host;
        match after {
            Some(after) => {
                let due = self.now.saturating_add(after);
                let gpu_instance = holding.gpu_instance;
                self.returning.push(Returning { device, gpu_instance, memory, host, due });
            }
            None => {
                if let Some(card) = self.machine.cards.get_mut(device) {
                    card.leaked.0 += memory;
                    card.leaked.1 += host;
                } else if let Some(device) = self.device_mut(device) {
                    device.leaked += memory;
                }
            }
        }
    }

    fn let_go(&mut self, pid: Pid, device: Option<u32>) {
        let own = device.and_then(|index| Some(self.device(index)?.info.id.clone()));
        let Some(serial) = self.find_on_host(pid) else { return };
        let gone = self.living.change(serial, |living| {
            let process = &mut living.process;
            let all = std::mem::take(&mut process.holdings);
            let (gone, kept): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|h| device.is_none_or(|index| h.device == index));
            process.holdings = kept;
            Arc::make_mut(&mut process.files).retain(|file| match &own {
                Some(own) => !file.opens(own),
                None => device.is_some(),
            });
            (gone, process.memory_returns)
        });
        let Some((gone, returns)) = gone else { return };
        for holding in gone {
            self.give_back(&holding, returns);
        }
    }

    /// Applies the reaction of a process to a signal.
    pub(crate) fn deliver(&mut self, serial: Serial, signal: Signal) {
        let now = self.now;
        let Some(living) = self.living.get(serial) else { return };
        let process = &living.process;
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
                self.living.change(serial, |living| leave_threads(&mut living.process));
                return;
            }
        };
        self.enqueue(at, Due::Exit(serial));
        // A process that ends at once has ended when the signal was sent.
        self.advance(Duration::ZERO);
    }

    /// Switches to a later snapshot of the recording, keeping the processes that still exist and
    /// the viewer's own.
    fn become_snapshot(&mut self, mut snapshot: Machine) {
        snapshot.answer_as_a_driver();
        let own = self.own_ancestry();
        let before = std::mem::take(&mut self.living);
        for process in snapshot.processes {
            let pid = process.pid();
            let known = before.numbered(pid).find(|(_, living)| {
                let start = process.info.key.start;
                let hidden = living.process.hidden == process.hidden;
                hidden && (start.is_none() || start == living.process.info.key.start)
            });
            match known {
                Some((serial, living)) => {
                    let mut process = process;
                    process.info.key = living.process.info.key;
                    let living = Living { process, since: self.now };
                    self.living.insert(serial, living);
                }
                None => {
                    self.spawn_process(process);
                }
            }
        }
        for serial in own {
            if let Some(living) = before.get(serial).filter(|l| !self.pid_taken(l.process.pid())) {
                self.living.insert(serial, living.clone());
            }
        }
        self.described_at = self.now;
        self.machine.devices = snapshot.devices;
        self.machine.driver = snapshot.driver;
        self.machine.files = snapshot.files;
        self.machine.holders_fault = snapshot.holders_fault;
        self.machine.unreadable = snapshot.unreadable;
        self.machine.driver_messages = snapshot.driver_messages;
    }
}

/// Ends the first thread of a process; the others live on.
fn leave_threads(process: &mut Process) {
    if process.info.state != Ok(ProcessState::Zombie) {
        process.info.state = Ok(ProcessState::Zombie);
        let threads = process.info.live_threads.unwrap_or(2);
        process.info.live_threads = Ok(threads.saturating_sub(1).max(1));
    }
}

/// Gives a process this much memory of a device and this share of its time, in one allocation.
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
