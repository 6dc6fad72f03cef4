//! The evidence codes that no shipped machine has.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

/// The codes of all findings and their suspects, in order.
fn signs(snapshots: &[Snapshot]) -> Vec<Sign> {
    let findings = diagnose(snapshots).findings;
    let all = findings.iter().flat_map(|finding| {
        let suspects = finding.suspects.iter().flat_map(|suspect| &suspect.evidence);
        finding.evidence.iter().chain(suspects)
    });
    all.map(|evidence| evidence.sign).collect()
}

fn of_device(device: DeviceState) -> Vec<Sign> {
    signs(&[snapshot_of(vec![device], vec![], vec![])])
}

fn of_details(change: impl Fn(&mut DeviceState, &mut DeviceDetails)) -> Vec<Sign> {
    of_device(with_details(0, change))
}

/// Returns the codes for a process with unlisted memory on an idle device.
fn of_holder(info: ProcessInfo) -> Vec<Sign> {
    signs(&[snapshot_of(vec![device(0, 9000, 16_280)], vec![context(&info, &[0])], vec![info])])
}

/// Returns the codes for a listed process after `change`.
fn of_listed(change: impl Fn(&mut ProcessInfo, &mut DeviceState)) -> Vec<Sign> {
    let mut info = process(30, "python");
    let mut device = listing(device(0, 5000, 16_280), 30, 4990);
    change(&mut info, &mut device);
    let mut now = snapshot_of(vec![device], vec![context(&info, &[0])], vec![info]);
    now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    signs(&[now])
}

#[test]
fn failed_call_has_code_of_its_reach() {
    let failing = |index, kind: ErrorKind| DeviceState {
        sample: Err(Error::new(kind, "sample it").fault()),
        ..device(index, 0, 16_280)
    };
    for (kind, sign) in [
        (ErrorKind::from(DeviceFault::Lost), Sign::DeviceLost),
        (DeviceFault::ResetRequired.into(), Sign::ResetRequired),
        (DeviceFault::InsufficientPower.into(), Sign::DeviceError),
        (MachineFault::DriverNotLoaded.into(), Sign::DriverUnavailable),
        (ErrorKind::TimedOut, Sign::NoAnswer),
    ] {
        assert_eq!(of_device(failing(0, kind)), [sign], "{kind:?}");
    }
    let both = [0, 1].map(|index| failing(index, ErrorKind::TimedOut)).into();
    assert_eq!(signs(&[snapshot_of(both, vec![], vec![])]), [Sign::NoAnswer, Sign::NotQueried]);
    let mut partly = device(0, 0, 16_280);
    partly.sample.as_mut().unwrap().temperature = Err(Absent::Failed);
    assert_eq!(of_device(partly), [Sign::UnreadableValues]);
}

#[test]
fn defect_has_a_code_of_its_own() {
    let changed = of_details(|device, details| {
        let mut modes = Modes::absent(Absent::NotSupported);
        (modes.ecc, modes.ecc_pending) = (Ok(false), Ok(true));
        (device.info.partitioned, modes.mig_pending) = (Ok(false), Ok(true));
        details.modes = Some(modes);
        details.reset_status = Some(ResetStatus {
            required: Ok(true),
            drain_recommended: Ok(true),
            recovery: Err(Absent::NotSupported),
        });
    });
    let pending = [Sign::ResetRecommended, Sign::MigModePending, Sign::EccModePending];
    assert_eq!(changed, [&[Sign::ResetRequired][..], &pending].concat());
    for (action, sign) in [
        (RecoveryAction::Reset, Sign::ResetRequired),
        (RecoveryAction::Reboot, Sign::RebootRequired),
        (RecoveryAction::DrainPeers, Sign::RecoveryRequired),
        (RecoveryAction::DrainAndReset, Sign::ResetRecommended),
        (RecoveryAction::Other, Sign::RecoveryRequired),
    ] {
        let asks = of_details(|_, details| {
            details.reset_status = Some(ResetStatus { recovery: Ok(action), ..Default::default() });
        });
        assert_eq!(asks, [sign], "{action:?}");
    }
}

#[test]
fn worn_memory_has_codes_of_its_own() {
    let worn = of_details(|_, details| {
        let mut health = MemoryHealth::absent(Absent::NotSupported);
        (health.banks_max, health.banks_none) = (Ok(3070), Ok(2));
        health.sram_threshold_exceeded = Ok(true);
        details.memory_health = Some(health);
    });
    assert_eq!(worn, [Sign::SramThresholdExceeded, Sign::NoSpareRows]);
}

#[test]
fn links_have_codes_of_their_states() {
    let inactive = with_details(0, |_, details| {
        let link = NvLink { active: Ok(false), ..NvLink::absent(Absent::NotSupported) };
        details.nvlinks = Some(vec![link]);
    });
    let mut pasted = snapshot_of(vec![inactive], vec![], vec![]);
    pasted.origin = Origin::Pasted;
    assert_eq!(signs(&[pasted]), [Sign::NvLinksInactive]);
    let fabric = |state, status| {
        let fabric = Fabric { state: Ok(state), status, ..Fabric::default() };
        of_device(with_details(0, |_, details| details.fabric = Some(fabric.clone())))
    };
    let none = Err(Absent::NotSupported);
    assert_eq!(fabric(FabricState::InProgress, none), [Sign::FabricNotRegistered]);
    assert_eq!(fabric(FabricState::Completed, Ok(9)), [Sign::FabricRegistrationFailed]);
}

#[test]
fn temperature_has_code_of_its_side_of_the_threshold() {
    let throttled = |temperature| {
        of_device(with_details(0, |device, details| {
            device.sample.as_mut().unwrap().temperature = Ok(Celsius(temperature));
            let mut activity = Activity::absent(Absent::NotSupported);
            activity.throttle = Ok(ThrottleReasons(0x040));
            details.activity = Some(activity);
            let mut thermal = Thermal::absent(Absent::NotSupported);
            thermal.slowdown = Ok(Celsius(90));
            details.thermal = Some(thermal);
        }))
    };
    assert_eq!(throttled(89), [Sign::ClocksReduced, Sign::BelowSlowdownTemperature]);
    assert_eq!(throttled(90), [Sign::ClocksReduced, Sign::AtSlowdownTemperature]);
}

#[test]
fn persistence_mode_has_a_code_if_it_is_off() {
    let busy = of_details(|device, _| {
        *device = busy(device.clone(), 100);
        device.info.persistence = Ok(false);
    });
    assert_eq!(busy, [Sign::BusyWithoutProcess, Sign::PersistenceModeOff]);
}

#[test]
fn holder_has_codes_of_what_is_known_of_it() {
    let held =
        |more: &[Sign]| [&[Sign::UnexplainedMemory, Sign::DeviceFileMapped][..], more].concat();
    let in_workload = |kind| {
        let (id, cgroup) = ("7".to_owned(), "/7".to_owned());
        let workload = Some(Box::new(Workload { kind, id, cgroup }));
        of_holder(ProcessInfo { workload, ..process(100, "python") })
    };
    assert_eq!(in_workload(WorkloadKind::Container), held(&[Sign::Container]));
    assert_eq!(in_workload(WorkloadKind::Pod), held(&[Sign::Pod]));
    assert_eq!(in_workload(WorkloadKind::SlurmJob), held(&[Sign::SlurmJob]));
    let started_at = Ok(Timestamp(999_000));
    let young = of_holder(ProcessInfo { started_at, ..process(100, "python") });
    assert_eq!(young, held(&[Sign::StartedJustNow]));
    let state = Ok(ProcessState::Stopped);
    let stopped = of_holder(ProcessInfo { state, ..process(100, "python") });
    assert_eq!(stopped, held(&[Sign::Stopped]));
}

#[test]
fn memory_of_services_and_of_unknown_holders_has_codes() {
    let roots = |name| of_holder(ProcessInfo { uid: Ok(0), ..process(66, name) });
    assert_eq!(roots("nvidia-cuda-mps"), [Sign::UnexplainedMemory, Sign::HeldByMps]);
    assert_eq!(roots("Xorg"), [Sign::UnexplainedMemory, Sign::MappedByDisplayOrDaemon]);
    let mut unknown = snapshot_of(vec![device(0, 9000, 16_280)], vec![], vec![]);
    unknown.holders = Err(Error::new(Absent::NotRecorded, "see holders").fault());
    assert_eq!(signs(&[unknown]), [Sign::UnexplainedMemory, Sign::HoldersUnknown]);
}

#[test]
fn process_has_codes_of_its_state_and_parent() {
    let zombie = |live: u32| {
        of_listed(|info, _| {
            (info.state, info.live_threads) = (Ok(ProcessState::Zombie), Ok(live));
        })
    };
    assert_eq!(zombie(0), [Sign::Zombie]);
    assert_eq!(zombie(1), [Sign::MainThreadExited]);
    let orphan = |percent| {
        of_listed(|info, device| {
            (info.parent, info.group) = (Ok(Pid(1)), Ok(Pid(20)));
            *device = busy(device.clone(), percent);
        })
    };
    assert_eq!(orphan(90), [], "a job that a script started in the background looks the same");
    assert_eq!(orphan(0), [Sign::ParentExited, Sign::NoComputeObserved, Sign::MayBeDaemon]);
}
