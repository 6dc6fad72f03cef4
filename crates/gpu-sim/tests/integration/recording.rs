//! Recordings of `gpuws record`: written, read back, replayed, rejected.

use gpu_core::{
    Absent, Bytes, Claim, Clock, ErrorKind, GpuBackend, LeaseEntry, LeaseId, MergedLeases, Pid,
    Process, ProcessKey, ProcessTable, Signal, Snapshot, StartTime, Timestamp, observe,
};
use gpu_sim::{Anonymizer, Machine, Recording, RecordingWriter, Seed, Simulation};
use std::io::Read;
use std::time::Duration;

fn take_snapshot(simulation: &Simulation) -> Snapshot {
    observe(simulation, simulation, simulation)
}

/// Records snapshots of a machine a second apart.
fn record(simulation: &Simulation, snapshots: u64) -> Vec<u8> {
    let mut writer = RecordingWriter::new(
        Vec::new(),
        false,
        simulation.topology().map_err(|e| e.kind().absent()),
    )
    .unwrap();
    for second in 0..snapshots {
        writer.add(Duration::from_secs(second), &take_snapshot(simulation)).unwrap();
        simulation.sleep(Duration::from_secs(1));
    }
    writer.into_inner()
}

fn replay(bytes: &[u8]) -> Simulation {
    let recording = Recording::read(bytes).unwrap();
    Simulation::start(Machine::from_recording("replayed", recording), Seed(0))
}

fn refused(bytes: &[u8]) -> String {
    let error = Recording::read(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

#[test]
fn replay_shows_recorded_state() {
    for machine in gpu_sim::machines() {
        let simulation = Simulation::embedded(machine.name).unwrap();
        let recorded = take_snapshot(&simulation);
        let replayed = take_snapshot(&replay(&record(&simulation, 1)));
        assert_eq!(replayed.devices, recorded.devices, "{}", machine.name);
        assert_eq!(replayed.holders, recorded.holders, "{}", machine.name);
        assert_eq!(replayed.processes, recorded.processes, "{}", machine.name);
        assert_eq!(replayed.driver, recorded.driver, "{}", machine.name);
        assert_eq!(replayed.files, recorded.files, "{}", machine.name);
        assert_eq!(replayed.unreadable, recorded.unreadable, "{}", machine.name);
        assert_eq!(replayed.sees_host_pids, recorded.sees_host_pids, "{}", machine.name);
        assert_eq!(replayed.taken_at, recorded.taken_at, "{}", machine.name);
    }
}

#[test]
fn foreign_namespace_pids_stay_foreign() {
    let simulation = Simulation::embedded("inside-container").unwrap();
    let replayed = replay(&record(&simulation, 1));
    for machine in [&simulation, &replayed] {
        let listed = take_snapshot(machine).devices[0].processes.as_ref().unwrap()[0].pid;
        assert_eq!(listed, Pid(48210));
        assert!(ProcessTable::process(machine, listed).is_err());
        assert_eq!(ProcessTable::process(machine, Pid(17)).unwrap().name, "python");
    }
}

#[test]
fn later_snapshots_replay_in_time_until_an_action() {
    let simulation = Simulation::embedded("labbox").unwrap();
    let uses = |mib| gpu_sim::Event::Uses(Pid(18250), 2, Bytes::from_mib(mib), 50);
    simulation.schedule(Duration::from_millis(500), uses(1000));
    simulation.schedule(Duration::from_millis(1500), gpu_sim::Event::Exit(Pid(18250)));
    let recorded = record(&simulation, 4);
    let used =
        |machine: &Simulation| take_snapshot(machine).devices[2].memory_used().unwrap().mib();

    let machine = replay(&recorded);
    let handle = machine.open(Pid(18250)).unwrap();
    assert_eq!(used(&machine), 24_580);
    machine.sleep(Duration::from_secs(1));
    assert_eq!(used(&machine), 1004);
    assert!(!handle.has_exited().unwrap(), "the handle is on the process as it goes on");
    machine.sleep(Duration::from_secs(1));
    assert_eq!(used(&machine), 4);
    assert!(handle.has_exited().unwrap());
    assert!(machine.own_ancestry().unwrap().len() > 1);

    let machine = replay(&recorded);
    let token = gpu_core::ActToken::user_confirmed();
    machine.open(Pid(21044)).unwrap().signal(Signal::Term, &token).unwrap();
    machine.sleep(Duration::from_secs(10));
    assert_eq!(used(&machine), 24_580, "what was recorded no longer applies");
    assert_eq!(machine.wall(), Timestamp(take_snapshot(&simulation).taken_at.0 + 6000));
}

#[test]
fn anonymized_snapshot_has_no_names() {
    let mut anonymizer = Anonymizer::default();
    for name in ["container-ghost", "labbox"] {
        let simulation = Simulation::embedded(name).unwrap();
        let recorded = take_snapshot(&simulation);
        let anonymous = anonymizer.anonymize(&recorded);
        let text = serde_json::to_string(&anonymous).unwrap();
        for word in
            ["python", "alice", "bob", "carol", "labbox\"", "notebook", "6f1d2c3b", "docker"]
        {
            let origin = text.replace(&format!("{{\"simulated\":\"{name}\"}}"), "");
            assert!(!origin.contains(word), "{name}: {word} in {origin}");
        }
        assert_eq!(anonymous.hostname, Err(Absent::NotRecorded));
        assert_eq!(anonymous.devices.len(), recorded.devices.len());
        assert_eq!(anonymous.holders, recorded.holders);
        for (pid, process) in &recorded.processes {
            let (before, after) = (process.0.as_deref(), anonymous.process(*pid));
            assert_eq!(before.map(|info| info.key).ok(), after.map(|info| info.key).ok());
            let workload = |info: &gpu_core::ProcessInfo| info.workload.as_ref().map(|w| w.kind);
            assert_eq!(before.map(workload).ok(), after.map(workload).ok());
        }
    }
}

#[test]
fn anonymized_ids_are_stable() {
    let mut snapshot = take_snapshot(&Simulation::embedded("labbox").unwrap());
    for process in snapshot.processes.values_mut().filter_map(Process::info_mut) {
        process.uid = process.uid.map(|uid| if uid == 0 { 0 } else { uid * 7 });
    }
    let mut anonymizer = Anonymizer::default();
    let first = anonymizer.anonymize(&snapshot);
    assert_eq!(first, anonymizer.anonymize(&snapshot));
    let uids: std::collections::BTreeSet<_> =
        first.processes.values().filter_map(|process| process.0.as_ref().ok()?.uid.ok()).collect();
    assert_eq!(
        uids.into_iter().collect::<Vec<_>>(),
        [0, 4_000_000_001, 4_000_000_002, 4_000_000_003]
    );
}

#[test]
fn anonymized_merged_leases_do_not_name_their_user() {
    let lease = |id: &str, owner, is_merged: bool| LeaseEntry {
        id: LeaseId::parse(id).unwrap(),
        ticket: 1,
        owner,
        root: ProcessKey { pid: Pid(0), start: None },
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: Vec::new(),
        parts_of: Vec::new(),
        merged: is_merged.then(|| std::sync::Arc::new(MergedLeases::of_count(3))),
        command: "python".to_owned(),
        since: Timestamp(0),
    };
    let several = MergedLeases::SEVERAL_USERS;
    let leases = [
        lease("more-of-1234", 1234, true),
        lease("0123456789ab-1234", 1234, false),
        lease("more-of-4294967295", several, true),
    ];
    let anonymous = Anonymizer::default().leases(&leases);
    let named: Vec<_> = anonymous.iter().map(|lease| (lease.id.as_str(), lease.owner)).collect();
    let first = 4_000_000_001;
    assert_eq!(
        named,
        [
            ("more-of-4000000001", first),
            ("0123456789ab-1234", first),
            ("more-of-4294967295", several)
        ]
    );
}

#[test]
fn truncation_error_names_line() {
    let whole = record(&Simulation::embedded("labbox").unwrap(), 2);
    let cut = &whole[..whole.len() - 10];
    assert_eq!(refused(cut), "line 3: truncated snapshot");
    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap();
    assert_eq!(refused(&whole[..=first_line]), "line 2: no snapshot");
    let mut without_end = whole.clone();
    without_end.pop();
    assert!(Recording::read(&without_end[..]).is_ok(), "a last line end is no must");
}

#[test]
fn non_recording_is_rejected_at_first_line() {
    let no_header = "line 1: not a recording: header missing";
    assert_eq!(refused(b""), no_header);
    assert_eq!(refused(b"{}\n"), no_header);
    assert_eq!(refused(b"\x7fELF\x02\x01\x01\0\0\0\n\xff\xfe"), no_header);
    assert_eq!(
        refused(b"{\"gpuws_recording\":2,\"anonymous\":true}\n"),
        "line 1: unsupported format version 2; expected 1"
    );
    let header = "{\"gpuws_recording\":1,\"anonymous\":true}\n";
    assert_eq!(refused(format!("{header}nonsense\n").as_bytes()), "line 2: invalid snapshot");
}

#[test]
fn snapshots_must_be_in_time_order() {
    let whole = record(&Simulation::embedded("no-driver").unwrap(), 2);
    let text = String::from_utf8(whole).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.swap(1, 2);
    let swapped = lines.join("\n");
    assert_eq!(refused(swapped.as_bytes()), "line 3: snapshot is older than the previous one");
}

/// Provides `left` bytes and counts how many were read.
struct Noise {
    byte: u8,
    left: u64,
    taken: u64,
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = buffer.len().min(usize::try_from(self.left).unwrap());
        buffer[..length].fill(self.byte);
        self.left -= length as u64;
        self.taken += length as u64;
        Ok(length)
    }
}

#[test]
fn noise_is_rejected_after_first_megabytes() {
    for byte in [b'x', 0, b'{', b'['] {
        let mut noise = Noise { byte, left: 100 << 20, taken: 0 };
        let error = Recording::read(&mut noise).unwrap_err();
        assert_eq!(error.to_string(), "line 1: not a recording: header missing");
        assert!(noise.taken <= 2 << 20, "{} bytes were read", noise.taken);
    }
}

#[test]
fn endless_snapshot_line_is_rejected() {
    let header = b"{\"gpuws_recording\":1,\"anonymous\":true}\n";
    let mut noise = Noise { byte: b' ', left: 100 << 20, taken: 0 };
    let error = Recording::read(header.chain(&mut noise)).unwrap_err();
    assert_eq!(error.to_string(), "line 2: it is longer than 16 MiB");
    assert!(noise.taken <= 17 << 20);
}

#[test]
fn error_names_file_and_dir_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let error = Recording::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    std::fs::write(&path, "{}").unwrap();
    let text = Recording::open(&path).unwrap_err().fault().text;
    assert!(text.starts_with(&format!("read recording '{}': line 1: ", path.display())), "{text}");
    let error = Recording::open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);

    std::fs::write(&path, record(&Simulation::embedded("labbox").unwrap(), 1)).unwrap();
    assert_eq!(Simulation::named(&path).unwrap().name(), "r");
}

#[test]
fn start_time_identifies_process_across_snapshots() {
    let simulation = Simulation::embedded("labbox").unwrap();
    let mut snapshots = vec![take_snapshot(&simulation); 4];
    let pid = Pid(21_044);
    let set_start = |snapshot: &mut Snapshot, start: Option<StartTime>| {
        snapshot.processes.get_mut(&pid).unwrap().info_mut().unwrap().key.start = start;
        let holders = snapshot.holders.as_mut().unwrap().iter_mut();
        holders.filter(|h| h.process.pid == pid).for_each(|h| h.process.start = start);
    };
    let later =
        StartTime(take_snapshot(&simulation).process(pid).unwrap().key.start.unwrap().0 + 1);
    // The PID is reused, then its start time is unknown, then the process has ended.
    set_start(&mut snapshots[1], Some(later));
    set_start(&mut snapshots[2], None);
    snapshots[3].processes.get_mut(&pid).unwrap().0 = Err(Absent::NotFound);
    snapshots[3].holders.as_mut().unwrap().retain(|holder| holder.process.pid != pid);
    let mut writer = RecordingWriter::new(Vec::new(), true, Err(Absent::NotSupported)).unwrap();
    for (second, snapshot) in (0..).zip(&snapshots) {
        writer.add(Duration::from_secs(second), snapshot).unwrap();
    }
    let machine = replay(&writer.into_inner());
    let first = machine.open(pid).unwrap();
    machine.sleep(Duration::from_secs(1));
    let second = machine.open(pid).unwrap();
    assert_eq!((first.has_exited().unwrap(), second.has_exited().unwrap()), (true, false));
    machine.sleep(Duration::from_secs(1));
    assert!(!second.has_exited().unwrap(), "nothing shows that it is another one");
    assert_eq!(second.info().unwrap().key.start, Some(later));
    machine.sleep(Duration::from_secs(1));
    assert!(second.has_exited().unwrap());
    assert_eq!(
        take_snapshot(&machine).devices[0].processes.as_ref().unwrap()[0].pid,
        pid,
        "still listed"
    );
    let own = machine.own_ancestry().unwrap();
    assert_eq!(own.len(), 3, "the viewer is not of the recording");
}

#[test]
fn unlisted_memory_and_load_are_split_among_likely_users() {
    let dir = tempfile::tempdir().unwrap();
    let unlisted = "memory = [{ gpu = 0, mib = 6, listed = false }]\n";
    let text = format!(
        "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
         [[gpu]]\nindex = 0\nmemory_total_mib = 100\ndriver_reserve_mib = 2\n\
         idle_utilization_percent = 9\n\
         [[gpu]]\nindex = 1\nmemory_total_mib = 100\nidle_utilization_percent = 4\n\
         [[process]]\npid = 7\nname = 'a'\n{unlisted}\
         [[process]]\npid = 8\nname = 'b'\n{unlisted}\
         [[process]]\npid = 9\nname = 'c'\n{unlisted}\
         [[process]]\npid = 10\nname = 'd'\n\
         memory = [{{ gpu = 0, mib = 30, utilization_percent = 40 }}]\n\
         [[process]]\npid = 11\nname = 'e'\n\
         memory = [{{ gpu = 1, mib = 50, utilization_percent = 60 }}]\n"
    );
    std::fs::write(dir.path().join("machine.toml"), text).unwrap();
    let machine = replay(&record(&Simulation::named(dir.path()).unwrap(), 1));
    let state = |gpu: usize| {
        let sample = take_snapshot(&machine).devices[gpu].sample.clone().unwrap();
        (sample.memory.used.unwrap(), sample.utilization.unwrap().get())
    };
    let mib = Bytes::from_mib;
    assert_eq!((state(0), state(1)), ((mib(50), 49), (mib(50), 64)));
    let listed = take_snapshot(&machine).devices[0].processes.clone().unwrap();
    assert_eq!(listed.iter().map(|process| process.pid).collect::<Vec<_>>(), [Pid(10)]);
    let end = |pid| {
        machine.happen(gpu_sim::Event::Exit(Pid(pid)));
        machine.sleep(Duration::from_millis(200));
    };
    end(11);
    assert_eq!(state(1), (Bytes(0), 4), "it reports its own load");
    end(10);
    assert_eq!(state(0), (mib(20), 9));
    // Three equal shares of 20 MiB leave two bytes for the driver.
    let share = (mib(20).0 - 2) / 3;
    for (pid, left) in [(7, 2), (8, 1), (9, 0)] {
        end(pid);
        assert_eq!(state(0).0, Bytes(2 + left * share), "{pid}");
    }
    assert_eq!(state(0).1, 0, "the rest of the load was that of one of them");
}

#[test]
fn system_uids_are_kept_and_user_uids_replaced() {
    let mut snapshot = take_snapshot(&Simulation::embedded("labbox").unwrap());
    let mut infos: Vec<_> = snapshot.processes.values_mut().filter_map(Process::info_mut).collect();
    assert!(infos.len() >= 4);
    for (info, uid) in infos.iter_mut().zip([999, 1000, 65_534, 1000]) {
        info.uid = Ok(uid);
        info.cgroup = Ok(format!("/secret/{uid}"));
        info.name = if uid == 65_534 { "Xorg" } else { "secret" }.to_owned();
    }
    let anonymous = Anonymizer::default().anonymize(&snapshot);
    let infos = anonymous.processes.values().filter_map(|process| process.0.as_ref().ok());
    let seen: Vec<_> = infos
        .take(4)
        .map(|info| {
            let user = info.user.as_deref().ok();
            (info.uid.unwrap(), user, info.cgroup.as_deref().unwrap(), info.name.as_str())
        })
        .collect();
    assert_eq!(
        seen,
        [
            (999, None, "/cgroup-1", "process"),
            (4_000_000_001, Some("anon-1"), "/cgroup-2", "process"),
            (4_000_000_002, Some("anon-2"), "/cgroup-3", "Xorg"),
            (4_000_000_001, Some("anon-1"), "/cgroup-2", "process"),
        ]
    );
}

#[test]
fn topology_of_a_recording_may_be_missing() {
    let whole = record(&Simulation::embedded("healthy-box").unwrap(), 1);
    assert!(Recording::read(&whole[..]).unwrap().header.topology.is_ok());
    let header_end = whole.iter().position(|byte| *byte == b'\n').unwrap();
    let header = b"{\"gpuws_recording\":1,\"anonymous\":true}";
    let without = Recording::read(&[header, &whole[header_end..]].concat()[..]).unwrap();
    assert_eq!(without.header.topology, Err(Absent::NotRecorded));
}
