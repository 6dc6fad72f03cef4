//! Histories of every shipped machine with all readable data, and of random machines with scripts,
//! are read back exactly as recorded.

use gpu_core::{
    Absent, Error, ErrorKind, Groups, HolderSearch, Observation, Origin, Process, ProcessDetail,
    Snapshot, Timestamp, observe_in_detail,
};
use gpu_history::{Frame, Reader, Retention, Writer};
use gpu_sim::{Seed, Simulation, machines, random};
use std::fs::File;
use std::time::Duration;

/// Takes snapshots of a machine at intervals.
fn frames_of(simulation: &Simulation, count: u64) -> Vec<Frame> {
    let everything = Observation {
        groups: Groups::all(),
        holders: HolderSearch::Always,
        processes: ProcessDetail::Whole,
        driver_messages: true,
    };
    let frame = |number| {
        simulation.advance_to(Duration::from_secs(number * 7));
        let mut snapshot = observe_in_detail(simulation, simulation, simulation, everything);
        // Recordings store CPU time in milliseconds; /proc counts hundredths of a second.
        for process in snapshot.processes.values_mut().filter_map(Process::info_mut) {
            let whole = |time: Duration| Duration::from_millis(time.as_millis() as u64);
            process.cpu_time = process.cpu_time.map(whole);
        }
        let leases = match number % 5 {
            3 => Err(Error::new(ErrorKind::Io, "read the leases").fault()),
            _ => Ok(Vec::new()),
        };
        Frame { snapshot, leases }
    };
    (0..count).map(frame).collect()
}

/// Records frames, reads them back and compares them.
fn assert_returns(name: &str, frames: &[Frame]) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(File::open(dir.path()).unwrap(), Retention::default()).unwrap();
    frames.iter().for_each(|frame| writer.add(frame).unwrap());
    let mut reader = Reader::open(File::open(dir.path()).unwrap()).unwrap();
    reader = reader.with_drivers(&gpu_nvidia_driver::drivers());
    assert_eq!(reader.len(), frames.len(), "{name}");
    for (number, frame) in frames.iter().enumerate() {
        assert!(reader.frame(number).as_ref() == Some(frame), "{name}: frame {number}");
    }
}

#[test]
fn history_of_every_shipped_machine_returns() {
    for machine in machines() {
        let simulation = Simulation::embedded(machine.name).unwrap();
        assert_returns(machine.name, &frames_of(&simulation, 12));
    }
}

#[test]
fn history_of_random_machines_returns() {
    for seed in 0..40 {
        assert_returns(&format!("seed {seed}"), &frames_of(&random(Seed(seed)), 12));
    }
}

#[test]
fn every_reason_and_origin_returns() {
    let reasons = Absent::ALL;
    let origins = [Origin::Live, Origin::Pasted, Origin::Recorded("a".into())];
    let frames: Vec<Frame> = reasons
        .into_iter()
        .zip(origins.into_iter().cycle())
        .map(|(reason, origin)| {
            let mut snapshot = Snapshot::empty(origin, Timestamp(7));
            snapshot.hostname = Err(reason);
            snapshot.unreadable.count(reason);
            Frame { snapshot, leases: Ok(Vec::new()) }
        })
        .collect();
    assert_returns("reasons", &frames);
}
