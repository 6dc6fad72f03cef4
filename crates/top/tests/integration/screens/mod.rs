//! Whole screens, so that the position, the width and the style of each part is visible.

mod boxes;
mod details;
mod devices;
mod edges;
mod grid;
mod more;
mod table;
mod tones;

use crate::fixture::{Made, lines, made, options};
use gpu_core::{Bytes, Pid};
use gpu_reaper::FindingKind;
use gpu_top::frame::Frame;
use gpu_top::rows::{Device, Row, RowKey, Subject};
use gpu_top::{Event, Options, State};
use std::time::Duration;

const GIB: u64 = 1 << 30;

/// A machine with a device that needs attention, a leased one and a free one about which little is
/// known.
fn machine(at: u64) -> Frame {
    let processes = [
        Made::new(0, 71, "alice", 40 << 10, "python train.py --epochs 90"),
        Made::new(0, 72, "bartholomew-von-x", 700, "vllm serve"),
        Made::new(1, 4_194_300, "bob", 3 << 10, "jupyter"),
    ];
    let mut frame = made(3, &processes, at);
    let share = u8::try_from(at / 1000 % 5 * 25).unwrap();
    frame.devices = vec![
        Device {
            name: "A100-SXM4-80GB".to_owned(),
            utilization: Some(share),
            memory_used: Some(Bytes(60 * GIB)),
            memory_total: Some(Bytes(80 * GIB)),
            power: Some(371_000),
            power_limit: Some(400_000),
            temperature: Some(85),
            findings: vec!["ghost".to_owned(), "orphan".to_owned()],
            leased_by: vec!["alice".to_owned()],
            ..Device::default()
        },
        Device {
            index: 1,
            name: "A100-SXM4-80GB".to_owned(),
            utilization: Some(0),
            memory_used: Some(Bytes(3 * GIB)),
            memory_total: Some(Bytes(80 * GIB)),
            power: Some(52_000),
            temperature: Some(31),
            leased_by: vec!["alice".to_owned(), "bob".to_owned()],
            ..Device::default()
        },
        Device {
            index: 2,
            name: "RTX 4090".to_owned(),
            memory_used: Some(Bytes(0)),
            is_free: true,
            ..Device::default()
        },
    ];
    let rows = &mut frame.rows;
    rows[0].host = Some(Bytes(12 * GIB));
    rows[0].age = Some(Duration::from_secs(3 * 3600));
    rows[0].job = "Slurm 4711".to_owned();
    rows[0].is_leased = true;
    rows[1].finding = Some(FindingKind::Hoarder);
    rows[1].sm = None;
    rows[2].age = None;
    let unlisted = Row {
        key: RowKey { gpu: Some(1), subject: Subject::Unlisted },
        user: "?".to_owned(),
        memory: Some(Bytes(2 * GIB)),
        sm: None,
        age: None,
        kind: "-",
        command: "not listed: 88 python".to_owned(),
        ..rows[2].clone()
    };
    let subject = Subject::Foreign(Pid(99));
    let foreign = Row {
        key: RowKey { gpu: Some(2), subject },
        memory: None,
        finding: Some(FindingKind::ForeignNamespace),
        command: "listed as host PID 99, not visible here".to_owned(),
        ..unlisted.clone()
    };
    rows.extend([unlisted, foreign]);
    frame
}

/// A machine with this many devices. The last ones are MIG devices of the first.
fn many(whole: u32, parts: u32) -> Frame {
    let mut frame = made(0, &[], 1000);
    frame.snapshot = made(whole, &[], 1000).snapshot;
    let device = |index: u32, mig: Option<u32>| Device {
        index,
        mig,
        name: mig.map_or("H100", |_| "MIG 1g.10gb").to_owned(),
        utilization: mig.is_none().then_some(index as u8),
        memory_used: Some(Bytes(u64::from(index) * GIB)),
        memory_total: Some(Bytes(80 * GIB)),
        is_free: index == 0,
        findings: if index == 2 { vec!["throttled".to_owned()] } else { Vec::new() },
        leased_by: if index == 3 { vec!["eve".to_owned()] } else { Vec::new() },
        ..Device::default()
    };
    let parts = (0..parts).map(|part| device(0, Some(part)));
    let rest = (1..whole).map(|index| device(index, None));
    frame.devices = std::iter::once(device(0, None)).chain(parts).chain(rest).collect();
    frame
}

/// Returns the state after these snapshots.
fn shown(options: Options, size: (u16, u16), frames: impl IntoIterator<Item = Frame>) -> State {
    let mut state = State::new(options, size);
    for frame in frames {
        state.update(Event::Frame(Box::new(frame)));
    }
    state
}

/// Returns the state after some seconds of [`machine`].
fn watched(size: (u16, u16)) -> State {
    shown(options(), size, (1..10).map(|second| machine(second * 1000)))
}

/// Returns the first lines of a screen.
fn head(screen: &str, count: usize) -> String {
    screen.lines().take(count).map(|line| format!("{line}\n")).collect()
}

/// Returns the box of a screen, or the whole screen if the box has no frame.
fn boxed(state: &State) -> String {
    let screen = lines(state);
    let top = screen.lines().position(|line| line.starts_with('┌')).unwrap_or(0);
    screen.lines().skip(top).map(|line| format!("{line}\n")).collect()
}
