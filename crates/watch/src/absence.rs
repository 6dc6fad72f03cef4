//! What a scan shows about a finding that it lacks.

use crate::identity::Identity;
use gpu_core::{Absent, DeviceState, ErrorKind, Snapshot};
use gpu_reaper::{Finding, FindingKind};

/// Returns whether the driver could not be queried. A driver that was not queried because every
/// device sleeps does not count.
pub(crate) fn is_blind(now: &Snapshot) -> bool {
    let asleep = ErrorKind::Field(Absent::Asleep);
    now.driver.as_ref().is_err_and(|fault| fault.kind != asleep)
}

/// Returns whether a finding that is missing from the diagnosis is over. If data that the finding
/// depends on could not be read, its absence shows nothing. A sleeping device has no users, but
/// whether its driver has leaked memory is unknown.
pub(crate) fn shows_absence(now: &Snapshot, id: &Identity, finding: &Finding) -> bool {
    if is_blind(now) || now.devices.is_empty() {
        return false;
    }
    let sleep_shows_absence = finding.kind != FindingKind::DriverLeak;
    let answered = |device: &DeviceState| {
        sleep_shows_absence && device.memory_used() == Err(Absent::Asleep)
            || device.sample.is_ok() && device.processes.is_ok() && device.partitions.is_ok()
    };
    // A device may be missing because the driver was too slow to report it.
    let known = |id: &gpu_core::DeviceId| now.device(id).is_some_and(answered);
    let all_answered = now.devices.iter().all(answered);
    if !finding.devices.iter().all(|id| known(id) || (all_answered && now.device(id).is_none())) {
        return false;
    }
    let details = || {
        finding.devices.iter().filter_map(|id| now.device(id)).all(|device| device.details.is_ok())
    };
    let process_readable = || match id.process {
        None => true,
        Some(key) => match now.process(key.pid) {
            Ok(_) => true,
            // No device lists the process any more, or it does not exist.
            Err(Absent::NotRecorded | Absent::NotFound) => true,
            Err(_) => false,
        },
    };
    match finding.kind {
        FindingKind::Ghost
        | FindingKind::DriverLeak
        | FindingKind::NotPermitted
        | FindingKind::ForeignNamespace
        | FindingKind::ListedButGone
        | FindingKind::ZombieHolder
        | FindingKind::StuckHolder
        | FindingKind::Orphan
        | FindingKind::Hoarder
        | FindingKind::MemoryGrowth
        | FindingKind::HostBound
        | FindingKind::BusyWithoutProcess
        | FindingKind::BlockedReset => now.holders.is_ok() && process_readable(),
        FindingKind::DriverError => now.driver_messages.is_ok(),
        FindingKind::DeviceFault
        | FindingKind::MemoryErrors
        | FindingKind::NvLinkDown
        | FindingKind::NoMigInstance
        | FindingKind::ComputeProhibited
        | FindingKind::Throttled
        | FindingKind::SlowPcie
        | FindingKind::PendingReset => details(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{
        DeviceDetails, DeviceId, DeviceInfo, DeviceSample, Driver, Fault, Group, Origin, Timestamp,
    };
    use gpu_reaper::Confidence;

    /// Returns a scan of one device that, like the driver, did not answer for this reason.
    fn scan(why: Absent) -> Snapshot {
        let fault = Fault { kind: why.into(), text: "query GPU 0".to_owned() };
        let mut now = Snapshot::empty(Origin::Live, Timestamp(0));
        let info = DeviceInfo::unknown(DeviceId::from_index(0));
        now.devices = vec![DeviceState::unanswered(info, Group::ALL.into_iter().collect(), &fault)];
        (now.driver, now.holders) = (Err(fault), Ok(Vec::new()));
        now
    }

    fn absence(now: &Snapshot, kind: FindingKind) -> bool {
        let finding = Finding {
            kind,
            confidence: Confidence::High,
            devices: vec![DeviceId::from_index(0)],
            memory: None,
            suspects: Vec::new(),
            evidence: Vec::new(),
            advice: Vec::new(),
        };
        shows_absence(now, &Identity::of(&finding), &finding)
    }

    #[test]
    fn device_shows_absence_only_if_all_of_it_was_read() {
        let unread = || Fault { kind: Absent::Failed.into(), text: "query GPU 0".to_owned() };
        type Change = fn(&mut DeviceState, Fault);
        let parts: [Change; 3] = [
            |device, fault| device.sample = Err(fault),
            |device, fault| device.processes = Err(fault),
            |device, fault| device.partitions = Err(fault),
        ];
        let mut whole = Snapshot::empty(Origin::Live, Timestamp(0));
        whole.driver =
            Ok(Driver { version: Err(Absent::NotRecorded), cuda: Err(Absent::NotRecorded) });
        whole.holders = Ok(Vec::new());
        whole.devices = vec![DeviceState {
            info: DeviceInfo::unknown(DeviceId::from_index(0)),
            sample: Ok(DeviceSample::absent(Absent::NotSupported)),
            processes: Ok(Vec::new()),
            partitions: Ok(Vec::new()),
            details: Ok(DeviceDetails::default()),
        }];
        assert!(absence(&whole, FindingKind::Ghost));
        for change in parts {
            let mut part = whole.clone();
            change(&mut part.devices[0], unread());
            assert!(!absence(&part, FindingKind::Ghost), "{part:?}");
        }
    }

    #[test]
    fn sleeping_device_has_no_users() {
        let shows = |why, kind| absence(&scan(why), kind);
        assert!(shows(Absent::Asleep, FindingKind::Ghost));
        assert!(!shows(Absent::Asleep, FindingKind::DriverLeak));
        assert!(!shows(Absent::Asleep, FindingKind::SlowPcie));
        assert!(!shows(Absent::NoAnswer, FindingKind::Ghost));
        assert!(is_blind(&scan(Absent::NoAnswer)) && !is_blind(&scan(Absent::Asleep)));
    }
}
