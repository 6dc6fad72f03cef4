//! Snapshots of made-up machines.

use gpu_core::{
    Bytes, DeviceId, DeviceInfo, DeviceProcess, DeviceProcessKind, DeviceSample, DeviceState,
    MemoryInfo, Origin, Percent, Pid, Process, ProcessInfo, ProcessKey, Snapshot, StartTime,
    Timestamp,
};
use gpu_report::ProcessFilter;
use gpu_steward::DeviceLeases;
use gpu_top::{Effect, Event, Frame, Options, State, text};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

pub(crate) fn options() -> Options {
    Options { sim: "--sim NAME ".to_owned(), can_end: true, can_ask: true, ..Options::default() }
}

/// Draws the state on its terminal, as text.
pub(crate) fn lines(state: &State) -> String {
    text(&state.drawn())
}

pub(crate) fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

pub(crate) fn control(letter: char) -> Event {
    Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL))
}

pub(crate) fn press(state: &mut State, keys: &str) -> Effect {
    let pressed = |letter| state.update(key(KeyCode::Char(letter)));
    keys.chars().map(pressed).last().unwrap()
}

/// A process of a made-up machine.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) gpu: u32,
    pub(crate) pid: u32,
    pub(crate) user: String,
    pub(crate) memory: u64,
    pub(crate) command: String,
    pub(crate) cpu: u64,
    /// The PID of the parent; 0 for none.
    pub(crate) parent: u32,
}

/// The device of a process that uses none.
pub(crate) const NO_GPU: u32 = u32::MAX;

impl Made {
    pub(crate) fn new(gpu: u32, pid: u32, user: &str, memory_mib: u64, command: &str) -> Self {
        let (user, command) = (user.to_owned(), command.to_owned());
        Made { gpu, pid, user, memory: memory_mib << 20, command, cpu: 0, parent: 0 }
    }
}

/// Returns a snapshot of a machine with these processes, at a time in milliseconds.
pub(crate) fn made(gpus: u32, processes: &[Made], at: u64) -> Frame {
    let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(at));
    snapshot.hostname = Ok("made".to_owned());
    snapshot.driver = Ok(gpu_core::Driver { version: Ok("1".into()), cuda: Ok("1".into()) });
    let absent = gpu_core::Absent::NotRecorded;
    for gpu in 0..gpus {
        let here = || processes.iter().filter(move |process| process.gpu == gpu);
        let used = here().fold(0, |sum: u64, process| sum.saturating_add(process.memory));
        let process = |process: &Made| DeviceProcess {
            pid: Pid(process.pid),
            kind: DeviceProcessKind::Compute,
            memory: Ok(Bytes(process.memory)),
            utilization: Ok(Percent::new(7).unwrap()),
            name: Err(absent),
            gpu_instance: None,
            compute_instance: None,
        };
        let memory =
            MemoryInfo { total: Ok(Bytes(80 << 30)), used: Ok(Bytes(used)), reserved: Err(absent) };
        snapshot.devices.push(DeviceState {
            info: DeviceInfo {
                name: Ok("GPU".into()),
                ..DeviceInfo::unknown(DeviceId::from_index(gpu))
            },
            sample: Ok(DeviceSample {
                memory,
                utilization: Ok(Percent::new(50).unwrap()),
                ..DeviceSample::absent(absent)
            }),
            processes: Ok(here().map(process).collect()),
            partitions: Ok(Vec::new()),
            details: Ok(Default::default()),
        });
    }
    for process in processes {
        let key = ProcessKey { pid: Pid(process.pid), start: Some(StartTime(1)) };
        let info = ProcessInfo {
            key,
            command_line: Ok([process.command.clone()].into()),
            user: Ok(process.user.clone()),
            cpu_time: Ok(Duration::from_millis(process.cpu)),
            started_at: Ok(Timestamp(0)),
            parent: Ok(Pid(process.parent)),
            ..ProcessInfo::from_name(Pid(process.pid), process.command.clone())
        };
        snapshot.processes.insert(Pid(process.pid), Process::from(Ok(info)));
    }
    let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&snapshot));
    let leased = DeviceLeases::none();
    let filter = ProcessFilter::default();
    Frame::of(snapshot, diagnosis, &leased, |_| true, &filter, &|uid| format!("user {uid}"))
}
