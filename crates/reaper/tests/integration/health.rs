//! The health of devices.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

/// Returns snapshots of one device without processes, this many seconds apart.
fn over(seconds: &[u64], device: &DeviceState) -> Vec<Snapshot> {
    let at = |seconds: &u64| Snapshot {
        taken_at: Timestamp(1_000_000 + seconds * 1000),
        ..snapshot_of(vec![device.clone()], vec![], vec![])
    };
    seconds.iter().map(at).collect()
}

fn alone(device: DeviceState) -> Found {
    found(&over(&[0], &device))
}

#[test]
fn defects_are_certain_and_named_by_kind() {
    use Confidence::High;
    let memory = |change: fn(&mut MemoryHealth)| {
        let mut health = MemoryHealth::absent(Absent::NotSupported);
        change(&mut health);
        alone(with_details(0, |_, details| details.memory_health = Some(health.clone())))
    };
    assert_eq!(memory(|_| {}), []);
    assert_eq!(memory(|health| health.uncorrected = Ok(0)), []);
    assert_eq!(memory(|health| health.uncorrected = Ok(1)), [(FindingKind::MemoryErrors, High)]);
    assert_eq!(memory(|health| health.banks_none = Ok(0)), []);
    let no_spare_rows = memory(|health| health.banks_none = Ok(1));
    assert_eq!(no_spare_rows, [(FindingKind::MemoryErrors, Confidence::Possible)]);
    assert_eq!(memory(|health| health.sram_threshold_exceeded = Ok(false)), []);
    let worn_out = memory(|health| health.sram_threshold_exceeded = Ok(true));
    assert_eq!(worn_out, [(FindingKind::MemoryErrors, High)]);
    // Corrected errors, and errors before the driver was loaded, are normal.
    assert_eq!(
        memory(|health| (health.corrected, health.uncorrected_lifetime) = (Ok(90), Ok(3))),
        []
    );
    for change in [
        (|health| health.remapped_failure = Ok(true)) as fn(&mut MemoryHealth),
        |health| health.remapped_pending = Ok(true),
        |health| health.retired_pending = Ok(true),
    ] {
        assert_eq!(memory(change), [(FindingKind::MemoryErrors, High)]);
    }
    let modes = |change: fn(&mut DeviceState, &mut Modes)| {
        alone(with_details(0, |device, details| {
            let mut modes = Modes::absent(Absent::NotSupported);
            change(device, &mut modes);
            details.modes = Some(modes);
        }))
    };
    assert_eq!(modes(|_, modes| modes.compute_mode = Ok(ComputeMode::ExclusiveProcess)), []);
    assert_eq!(
        modes(|_, modes| modes.compute_mode = Ok(ComputeMode::Prohibited)),
        [(FindingKind::ComputeProhibited, High)]
    );
    assert_eq!(
        modes(|_, modes| (modes.ecc, modes.ecc_pending) = (Ok(true), Ok(false))),
        [(FindingKind::PendingReset, High)]
    );
    assert_eq!(
        modes(|device, modes| {
            (device.info.partitioned, modes.mig_pending) = (Ok(false), Ok(true));
        }),
        [(FindingKind::PendingReset, High)]
    );
    assert_eq!(
        modes(|device, _| device.info.partitioned = Ok(true)),
        [(FindingKind::NoMigInstance, High)]
    );
    let unknown_parts = modes(|device, _| {
        device.info.partitioned = Ok(true);
        device.partitions = Err(Fault { kind: ErrorKind::TimedOut, text: "list".into() });
    });
    assert_eq!(unknown_parts, [], "there may be some");
}

#[test]
fn required_reset_is_reported_once() {
    let reset = |required, drain, recovery| {
        with_details(0, |_, details| {
            details.reset_status = Some(ResetStatus {
                required: Ok(required),
                drain_recommended: Ok(drain),
                recovery,
            });
        })
    };
    let fault = [(FindingKind::DeviceFault, Confidence::High)];
    let pending = [(FindingKind::PendingReset, Confidence::High)];
    // Older drivers name no action.
    let unnamed = Err(Absent::NotSupported);
    assert_eq!(alone(reset(true, false, unnamed)), fault);
    assert_eq!(alone(reset(false, true, unnamed)), pending);
    assert_eq!(alone(reset(false, false, unnamed)), []);
    assert_eq!(alone(reset(false, false, Ok(RecoveryAction::None))), []);
    for action in [RecoveryAction::Reset, RecoveryAction::Reboot, RecoveryAction::DrainPeers] {
        assert_eq!(alone(reset(false, false, Ok(action))), fault, "{action:?}");
    }
    assert_eq!(alone(reset(false, false, Ok(RecoveryAction::DrainAndReset))), pending);
    assert_eq!(alone(reset(false, true, Ok(RecoveryAction::DrainAndReset))), pending);
    // A reset does not suffice, and is not advised.
    let reboot = diagnose(&over(&[0], &reset(true, false, Ok(RecoveryAction::Reboot)))).findings;
    assert_eq!(reboot[0].advice, [Advice::Reboot]);
    for (action, advice) in [
        (RecoveryAction::DrainPeers, Advice::EndPeerWork(0)),
        (RecoveryAction::Other, Advice::ReadRecoveryAction(0)),
    ] {
        let asks = diagnose(&over(&[0], &reset(false, false, Ok(action)))).findings;
        assert_eq!(asks[0].advice, [advice], "{action:?}");
    }
    let unknown = diagnose(&over(&[0], &reset(true, false, Ok(RecoveryAction::Other)))).findings;
    assert_eq!(unknown[0].advice, [Advice::ResetDevice(0)]);
    let words: Vec<&str> = reboot[0].evidence.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(words, ["requires a reboot of the machine"]);
    let mut refused = reset(true, false, unnamed);
    let kind = DeviceFault::ResetRequired.into();
    refused.sample = Err(Fault { kind, text: "sample it".into() });
    assert_eq!(alone(refused), [(FindingKind::DeviceFault, Confidence::High)]);
}

#[test]
fn throttling_is_certain_if_it_lasts_and_the_temperature_agrees() {
    let device = |reasons, temperature| {
        with_details(0, |device, details| {
            device.sample.as_mut().unwrap().temperature = Ok(Celsius(temperature));
            let mut activity = Activity::absent(Absent::NotSupported);
            activity.throttle = Ok(ThrottleReasons(reasons));
            details.activity = Some(activity);
            let mut thermal = Thermal::absent(Absent::NotSupported);
            thermal.slowdown = Ok(Celsius(90));
            details.thermal = Some(thermal);
        })
    };
    let throttled = |confidence| vec![(FindingKind::Throttled, confidence)];
    let (possible, likely, high) = (Confidence::Possible, Confidence::Likely, Confidence::High);
    for (reasons, temperature, seconds, expected) in [
        // Idle, power cap, sync boost, display and application clocks.
        (0x001 | 0x002 | 0x004 | 0x010 | 0x100, 95, &[0, 5][..], vec![]),
        (0x040, 70, &[0], throttled(possible)),
        (0x040, 90, &[0], throttled(likely)),
        (0x040, 70, &[0, 5], throttled(likely)),
        (0x020, 90, &[0, 5], throttled(high)),
        (0x080, 95, &[0], throttled(possible)),
        (0x008, 70, &[0, 4], throttled(possible)),
        (0x008, 70, &[0, 2, 5], throttled(likely)),
    ] {
        let snapshots = over(seconds, &device(reasons, temperature));
        assert_eq!(found(&snapshots), expected, "{reasons:#x} {temperature} {seconds:?}");
    }
    let mut snapshots = over(&[0, 5, 6], &device(0x008, 70));
    snapshots[1].devices = vec![device(0, 70)];
    assert_eq!(found(&snapshots), throttled(possible), "it was interrupted");
}

#[test]
fn slow_pcie_link_is_judged_only_at_work() {
    let device = |utilization, state, (generation, width)| {
        with_details(0, |device, details| {
            device.sample.as_mut().unwrap().utilization = Ok(Percent::new(utilization).unwrap());
            device.processes.as_mut().unwrap().push(DeviceProcess {
                memory: Ok(Bytes::from_mib(4)),
                ..listing(super::fixture::device(0, 0, 1), 7, 4).processes.unwrap().remove(0)
            });
            let mut activity = Activity::absent(Absent::NotSupported);
            activity.performance_state = Ok(state);
            details.activity = Some(activity);
            let mut pcie = Pcie::absent(Absent::NotSupported);
            (pcie.generation, pcie.generation_max) = (Ok(generation), Ok(4));
            (pcie.width, pcie.width_max) = (Ok(width), Ok(16));
            details.pcie = Some(pcie);
        })
    };
    let slow = |confidence| vec![(FindingKind::SlowPcie, confidence)];
    for (utilization, state, link, seconds, expected) in [
        (90, 0, (4, 16), &[0, 5][..], vec![]),
        (0, 8, (1, 16), &[0, 5], vec![]),
        (0, 0, (4, 4), &[0, 5], vec![]),
        (90, 8, (1, 16), &[0, 5], vec![]),
        (90, 0, (4, 4), &[0], slow(Confidence::Possible)),
        (90, 2, (4, 4), &[0, 5], slow(Confidence::Likely)),
        (1, 0, (3, 16), &[0, 5], slow(Confidence::Likely)),
    ] {
        let snapshots = over(seconds, &device(utilization, state, link));
        let snapshots: Vec<Snapshot> = snapshots
            .into_iter()
            .map(|mut snapshot| {
                snapshot.processes.insert(Pid(7), Process::from(Ok(process(7, "train"))));
                snapshot
            })
            .collect();
        assert_eq!(found(&snapshots), expected, "{utilization} {state} {link:?} {seconds:?}");
    }
}

#[test]
fn nvlinks_are_compared_among_equals() {
    let with_links = |index, active: usize, total: usize| {
        with_details(index, |_, details| {
            let link = |nth| {
                let mut link = NvLink::absent(Absent::NotSupported);
                link.active = Ok(nth < active);
                link
            };
            details.nvlinks = Some((0..total).map(link).collect());
        })
    };
    let of = |counts: &[usize]| {
        let devices = (0..).zip(counts).map(|(index, count)| with_links(index, *count, 12));
        found(&[snapshot_of(devices.collect(), vec![], vec![])])
    };
    let down = |confidence| vec![(FindingKind::NvLinkDown, confidence)];
    assert_eq!(of(&[12, 12, 12, 12]), []);
    assert_eq!(of(&[0, 0, 0, 0]), [], "no bridges");
    assert_eq!(of(&[12, 12, 11, 12]), down(Confidence::Likely));
    assert_eq!(of(&[12, 12, 0]), down(Confidence::Possible), "two of three have a bridge");
    assert_eq!(of(&[12, 12, 12, 0]), down(Confidence::Likely), "the only one without");
    assert_eq!(of(&[12, 6]), down(Confidence::Possible), "which of the two is right?");
    let mut divided = with_links(2, 0, 12);
    (divided.info.partitioned, divided.partitions) =
        (Ok(true), Err(Fault { kind: ErrorKind::TimedOut, text: "list".into() }));
    let devices = vec![with_links(0, 12, 12), with_links(1, 12, 12), divided];
    assert_eq!(found(&[snapshot_of(devices, vec![], vec![])]), [], "MIG turns links off");
}

#[test]
fn unready_fabric_keeps_cuda_from_starting() {
    let of = |state, status| {
        alone(with_details(0, |_, details| {
            details.fabric = Some(Fabric { state: Ok(state), status, ..Fabric::default() });
        }))
    };
    let none = Err(Absent::NotSupported);
    let down = |confidence| vec![(FindingKind::NvLinkDown, confidence)];
    assert_eq!(of(FabricState::None, none), []);
    assert_eq!(of(FabricState::Completed, Ok(0)), []);
    assert_eq!(of(FabricState::Completed, Ok(999)), down(Confidence::High));
    assert_eq!(of(FabricState::InProgress, none), down(Confidence::Likely));
    assert_eq!(of(FabricState::NotStarted, none), down(Confidence::Likely));
}

#[test]
fn busy_device_without_process_is_reported_if_it_stays_busy() {
    let device = |share, persistence| {
        let mut device = busy(device(0, 4, 16_280), share);
        device.info.persistence = persistence;
        device
    };
    let lone = |confidence| vec![(FindingKind::BusyWithoutProcess, confidence)];
    assert_eq!(found(&over(&[0, 5], &device(94, Ok(true)))), []);
    assert_eq!(found(&over(&[0], &device(100, Ok(true)))), lone(Confidence::Possible));
    assert_eq!(found(&over(&[0, 5], &device(95, Ok(true)))), lone(Confidence::Likely));
    // Each query initialises the device again.
    assert_eq!(found(&over(&[0, 5], &device(100, Ok(false)))), lone(Confidence::Possible));
    let user = process(7, "python");
    let used = snapshot_of(vec![device(100, Ok(true))], vec![context(&user, &[0])], vec![user]);
    assert_eq!(found(&[used]), [], "a process uses it");
    let outside =
        Snapshot { sees_host_pids: Ok(false), ..over(&[0], &device(100, Ok(true))).remove(0) };
    assert_eq!(found(&[outside]), [], "a container sees no other process");
}

#[test]
fn high_utilization_at_low_power_is_evidence() {
    let texts = |share, draw, used| {
        let mut device = busy(device(0, used, 16_280), share);
        let sample = device.sample.as_mut().unwrap();
        (sample.power_draw, sample.power_limit) = (Ok(Milliwatts(draw)), Ok(Milliwatts(240_000)));
        let found = diagnose(&over(&[0], &device)).findings;
        let evidence = found.iter().flat_map(|finding| &finding.evidence);
        let evidence = evidence.filter(|one| one.sign == Sign::LowPower);
        evidence.map(|one| one.text.clone()).collect::<Vec<_>>()
    };
    assert_eq!(texts(97, 30_000, 4), ["97 % utilization at 30 of 240 W"], "busy without process");
    assert_eq!(texts(50, 30_000, 9_000), ["50 % utilization at 30 of 240 W"], "unexplained memory");
    assert!(texts(49, 30_000, 9_000).is_empty() && texts(50, 30_001, 9_000).is_empty());
}

#[test]
fn defective_device_is_not_free() {
    let free = |change: fn(&mut MemoryHealth)| {
        let mut health = MemoryHealth::absent(Absent::NotSupported);
        change(&mut health);
        let device = with_details(0, |_, details| details.memory_health = Some(health.clone()));
        let now = snapshot_of(vec![device], vec![], vec![]);
        Usage::of(&now).is_free(now.devices[0].id())
    };
    assert!(free(|_| {}));
    assert!(free(|health| health.remapped_pending = Ok(true)), "it works until the reset");
    assert!(!free(|health| health.remapped_failure = Ok(true)));
    assert!(!free(|health| health.uncorrected = Ok(2)));
}

#[test]
fn defects_are_described_and_ordered_by_their_effect() {
    let device = with_details(0, |device, details| {
        let mut modes = Modes::absent(Absent::NotSupported);
        modes.compute_mode = Ok(ComputeMode::Prohibited);
        (modes.ecc, modes.ecc_pending) = (Ok(false), Ok(true));
        (device.info.partitioned, modes.mig_pending) = (Ok(true), Ok(false));
        details.modes = Some(modes);
        let mut health = MemoryHealth::absent(Absent::NotSupported);
        (health.uncorrected, health.remapped_failure) = (Ok(2), Ok(true));
        (health.remapped_pending, health.banks_none) = (Ok(true), Ok(3));
        health.sram_threshold_exceeded = Ok(true);
        details.memory_health = Some(health);
        details.reset_status = Some(ResetStatus {
            required: Ok(true),
            drain_recommended: Ok(true),
            recovery: Ok(RecoveryAction::Other),
        });
    });
    let words: Vec<String> = defects(&device).iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "MIG enabled without an instance: CUDA sees no device",
            "requires a reset",
            "the driver requests an unknown recovery action",
            "compute mode Prohibited: CUDA cannot use it",
            "the driver recommends a reset when idle",
            "a memory row could not be remapped",
            "more uncorrected SRAM errors than NVIDIA's limit",
            "2 uncorrected memory errors",
            "MIG will be disabled after a reset",
            "ECC will be enabled after a reset",
            "a memory repair takes effect at the next reset",
            "3 memory banks have no spare row left",
        ]
    );
    assert_eq!(Defect::Uncorrected(1).to_string(), "1 uncorrected memory error");
    assert_eq!(unfit(&device), Some(Defect::NoMigInstance));
}

#[test]
fn fault_comes_before_its_consequences() {
    let user = process(7, "python");
    let mut broken = with_details(1, |_, details| {
        details.reset_status = Some(ResetStatus { required: Ok(true), ..Default::default() });
    });
    broken.sample.as_mut().unwrap().memory.used = Ok(Bytes::from_mib(9000));
    let devices = vec![device(0, 9000, 16_280), broken];
    let kinds: Vec<_> = found(&[snapshot_of(devices, vec![context(&user, &[0])], vec![user])])
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, [FindingKind::DeviceFault, FindingKind::Ghost, FindingKind::DriverLeak]);
}
