//! What hours of snapshots prove about one process.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;
use std::time::Duration;

/// Returns the findings after these minutes, with a snapshot every minute.
fn after(minutes: u64, snapshot_at: impl Fn(u64) -> Snapshot) -> Vec<Finding> {
    let mut past = Past::every(Duration::from_secs(60));
    let at = |minute: u64| Snapshot {
        taken_at: Timestamp(1_000_000 + minute * 60_000),
        ..snapshot_at(minute)
    };
    (0..=minutes).for_each(|minute| past.add(&at(minute)));
    diagnose_after(&past, &at(minutes)).findings
}

/// Returns a snapshot at this minute of a process with this memory and load.
fn holding(minute: u64, mib: u64, busy: u64, change: impl Fn(&mut ProcessInfo)) -> Snapshot {
    let mut info = process(100, "python");
    info.cpu_time = Ok(Duration::from_secs(minute * busy));
    change(&mut info);
    let mut device = listing(device(0, mib + 4, 81_920), 100, mib);
    device.processes.as_mut().unwrap()[0].utilization = Ok(Percent::new(busy).unwrap());
    snapshot_of(vec![device], vec![context(&info, &[0])], vec![info])
}

fn idle(minute: u64) -> Snapshot {
    holding(minute, 24_576, 0, |_| {})
}

const HOUR: u64 = 60;

#[test]
fn hoarder_is_certain_after_a_working_day() {
    let confidence = |minutes| after(minutes, idle)[0].confidence;
    assert_eq!(confidence(8 * HOUR - 1), Confidence::Likely);
    assert_eq!(confidence(8 * HOUR), Confidence::High);
    let found = after(9 * HOUR, idle).remove(0);
    assert_eq!(
        Evidence::texts(&found.suspects[0].evidence),
        [
            "holds 24,576 MiB",
            "no compute for 9 h, in 541 samples",
            "it has not computed since it was first seen 9 h ago"
        ]
    );
    assert_eq!(found.suspects[0].evidence[2].sign, Sign::NeverComputed);
    // It is never a target without a request by PID.
    assert_eq!(found.advice, [Advice::ReapProcess(Pid(100))]);
}

/// Returns the findings that a process waits for the host, after these minutes: with this GPU
/// utilization at each minute, and this many seconds of CPU time a minute.
fn host_bound(
    minutes: u64,
    share: impl Fn(u64) -> u64,
    cpu: u64,
    change: fn(&mut ProcessInfo),
) -> Vec<Finding> {
    let at = |minute| {
        holding(minute, 24_576, share(minute), |info| {
            info.cpu_time = Ok(Duration::from_secs(minute * cpu));
            change(info);
        })
    };
    let mut found = after(minutes, at);
    found.retain(|finding| finding.kind == FindingKind::HostBound);
    found
}

#[test]
fn process_waits_for_the_host_with_a_busy_cpu_and_little_compute() {
    let count = |minutes, share, cpu| host_bound(minutes, |_| share, cpu, |_| {}).len();
    assert_eq!(count(30, 30, 54), 1);
    assert_eq!(count(30, 31, 54), 0, "the GPU works");
    assert_eq!(count(30, 30, 53), 0, "the CPU waits");
    assert_eq!(count(30, 0, 54), 0, "a server may wait for requests");
    let since = |minute| host_bound(30, move |at| if at < minute { 90 } else { 12 }, 422, |_| {});
    assert_eq!(since(29).len(), 0, "two samples");
    let found = since(28).remove(0);
    assert_eq!((found.confidence, found.memory), (Confidence::Possible, None));
    assert_eq!(found.advice, [Advice::FeedDevices]);
    let evidence = &found.suspects[0].evidence;
    assert_eq!(evidence[0].sign, Sign::HostBusy);
    assert_eq!(
        evidence[0].text,
        "703 % CPU over 10 min; 12 % GPU utilization, at most 30 % in 3 samples over 2 min"
    );
}

#[test]
fn service_and_young_process_do_not_wait_for_the_host() {
    let service: fn(&mut ProcessInfo) =
        |info| info.cgroup = Ok("/system.slice/vllm.service".to_owned());
    assert_eq!(host_bound(30, |_| 20, 60, service).len(), 0);
    let young: fn(&mut ProcessInfo) = |info| info.started_at = Ok(Timestamp(2_700_000));
    assert_eq!(host_bound(30, |_| 20, 60, young).len(), 0);
}

#[test]
fn evidence_covers_only_watched_time() {
    let mut past = Past::every(Duration::from_secs(60));
    let at = |minute: u64| Snapshot { taken_at: Timestamp(minute * 60_000), ..idle(minute) };
    // The watcher was off for a night.
    for minute in (0..=HOUR).chain(13 * HOUR..=18 * HOUR) {
        past.add(&at(minute));
    }
    let found = diagnose_after(&past, &at(18 * HOUR)).findings.remove(0);
    assert_eq!(
        Evidence::texts(&found.suspects[0].evidence)[1..],
        [
            "no compute for 5 h, in 301 samples",
            "it has not computed since it was first seen 5 h ago"
        ]
    );
}

#[test]
fn five_minutes_without_a_snapshot_are_watched_by_any_watcher() {
    let evidence = |gap: u64| {
        let mut past = Past::every(Duration::from_secs(10));
        let at = |minute: u64| Snapshot { taken_at: Timestamp(minute * 60_000), ..idle(minute) };
        let end = 4 * HOUR + gap;
        (0..=2 * HOUR).chain(2 * HOUR + gap..=end).for_each(|minute| past.add(&at(minute)));
        let found = diagnose_after(&past, &at(end)).findings.remove(0);
        Evidence::texts(&found.suspects[0].evidence)[1].to_owned()
    };
    assert!(evidence(5).starts_with("no compute for 4 h"), "{}", evidence(5));
    assert!(evidence(6).starts_with("no compute for 2 h"), "{}", evidence(6));
}

#[test]
fn process_in_several_parts_is_idle_only_if_it_is_idle_in_all() {
    let best = |second: Reading<Percent>| {
        let found = after(9 * HOUR, |minute| {
            let mut snapshot = idle(minute);
            snapshot.devices[0].sample.as_mut().unwrap().utilization = Err(Absent::NotSupported);
            let listed = snapshot.devices[0].processes.as_mut().unwrap();
            // In the end, both parts are known to be idle.
            let utilization = if minute == 9 * HOUR { listed[0].utilization } else { second };
            let other = DeviceProcess { utilization, ..listed[0].clone() };
            listed.push(other);
            snapshot
        });
        found.into_iter().map(|found| found.confidence).max()
    };
    assert_eq!(best(Ok(Percent::new(0).unwrap())), Some(Confidence::High));
    let unknown = best(Err(Absent::NotSupported));
    assert_eq!(unknown, Some(Confidence::Possible), "in the second it may have computed");
}

#[test]
fn reason_to_wait_or_to_doubt_keeps_hours_from_being_certain() {
    let best = |change: fn(&mut ProcessInfo), minutes| {
        let found = after(minutes, |minute| holding(minute, 24_576, 0, change));
        found.into_iter().map(|found| found.confidence).max()
    };
    let notebook: fn(&mut ProcessInfo) = |info| {
        info.command_line = Ok(["python", "-m", "ipykernel"].map(String::from).into());
    };
    assert_eq!(best(notebook, 24 * HOUR - 1), Some(Confidence::Likely));
    assert_eq!(best(notebook, 24 * HOUR), Some(Confidence::High));
    let unknown: fn(&mut ProcessInfo) = |info| info.cpu_time = Err(Absent::NotPermitted);
    assert_eq!(best(unknown, 9 * HOUR), Some(Confidence::Likely), "its CPU time is not known");
    let service: fn(&mut ProcessInfo) = |info| info.cgroup = Ok("/system.slice/x.service".into());
    assert_eq!(best(service, 9 * HOUR), None);
    let traced: fn(&mut ProcessInfo) = |info| info.tracer = Ok(Pid(7));
    assert_eq!(best(traced, 9 * HOUR), None);
    // With a snapshot every five minutes, brief computation may be missed.
    let mut past = Past::new();
    let at = |minute: u64| Snapshot { taken_at: Timestamp(minute * 60_000), ..idle(minute) };
    (0..=9 * HOUR).step_by(5).for_each(|minute| past.add(&at(minute)));
    let rarely = diagnose_after(&past, &at(9 * HOUR)).findings;
    assert_eq!(rarely[0].confidence, Confidence::Likely);
}

#[test]
fn process_after_computing_pauses_for_ten_minutes() {
    let paused = |minutes: u64| {
        after(100 + minutes, |minute| {
            holding(minute, 24_576, u64::from(minute <= 100) * 90, |_| {})
        })
    };
    assert_eq!(paused(10), []);
    // For at most twenty minutes, its CPU time is that of the work.
    let found = paused(35).remove(0);
    assert_eq!((found.kind, found.confidence), (FindingKind::Hoarder, Confidence::Likely));
    assert!(found.suspects[0].evidence.iter().all(|one| one.sign != Sign::NeverComputed));
}

#[test]
fn growing_memory_of_a_process_is_a_finding_after_hours() {
    let leak = |minute| holding(minute, 2_000 + minute * 20, 90, |_| {});
    assert_eq!(after(3 * HOUR, leak), []);
    let found = after(4 * HOUR, leak).remove(0);
    assert_eq!((found.kind, found.confidence), (FindingKind::MemoryGrowth, Confidence::Possible));
    let found = after(8 * HOUR, leak).remove(0);
    assert_eq!((found.kind, found.confidence), (FindingKind::MemoryGrowth, Confidence::Likely));
    assert_eq!(found.memory, Some(Bytes::from_mib(2_000 + 480 * 20)));
    let [evidence] = &found.suspects[0].evidence[..] else { panic!("{found:?}") };
    assert_eq!(evidence.sign, Sign::MemoryGrows);
    let text = "grew from 2,000 to 11,000 MiB over 7 h without falling; at this rate the device is \
                full in 58 h";
    assert_eq!(evidence.text, text);
    // The advice is to ask the owner of a process that computes.
    assert_eq!(found.advice, [Advice::AskOwner(0)]);
    let little = |minute| holding(minute, 2_000 + minute * 5, 90, |_| {});
    assert_eq!(after(8 * HOUR, little), [], "less than a twentieth in six hours");
}

#[test]
fn orphan_of_hours_has_evidence_of_no_computation() {
    let orphan = |minute| {
        let mut now = holding(minute, 5_000, 0, |info| {
            (info.parent, info.group, info.session) = (Ok(Pid(1)), Ok(Pid(20)), Ok(Pid(20)));
        });
        now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
        now
    };
    for (hours, confidence) in [(3, Confidence::Likely), (9, Confidence::High)] {
        let [found] = &after(hours * HOUR, orphan)[..] else { panic!("one finding") };
        assert_eq!((found.kind, found.confidence), (FindingKind::Orphan, confidence));
        let text = format!("it has not computed since it was first seen {hours} h ago");
        assert!(found.suspects[0].evidence.iter().any(|one| one.text == text), "{found:?}");
    }
}
