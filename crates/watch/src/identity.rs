//! Recognizes the same finding in different scans.

use gpu_core::{DeviceId, DriverErrorCode, Pid, ProcessKey};
use gpu_reaper::{Finding, FindingKind};
use std::fmt;

/// Identifies a finding across scans.
///
/// A finding about one process keeps its identity as long as PID and start time stay the same; a
/// process that reuses the PID is a new finding. Every other finding is about devices and keeps its
/// identity while its suspects change. Otherwise a process that holds unlisted memory could pass it
/// from fork to fork, and its findings would never last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The kind.
    pub kind: FindingKind,
    /// The process, if the finding is about a single one.
    pub process: Option<ProcessKey>,
    /// The devices, except for findings that may move between devices. A device is identified by
    /// UUID, else by PCI address, else by index.
    pub devices: Vec<String>,
    /// The first logged driver error, for findings about driver errors.
    pub error: Option<DriverErrorCode>,
}

impl Identity {
    /// Returns the identity of a finding.
    pub fn of(finding: &Finding) -> Self {
        let process = finding.suspects.first().map(|suspect| suspect.process);
        let process = process.filter(|_| is_about_process(finding.kind));
        let mut devices: Vec<String> = match process {
            Some(_) if finding.kind != FindingKind::MemoryGrowth => Vec::new(),
            _ => finding.devices.iter().map(device).collect(),
        };
        devices.sort();
        let logged = finding.kind == FindingKind::DriverError;
        let mut codes = finding.evidence.iter().filter_map(|evidence| evidence.code.clone());
        let error = codes.next().filter(|_| logged);
        Identity { kind: finding.kind, process, devices, error }
    }
}

/// Returns whether findings of this kind are about a single process.
pub(crate) fn is_about_process(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::ZombieHolder
            | FindingKind::StuckHolder
            | FindingKind::Orphan
            | FindingKind::Hoarder
            | FindingKind::MemoryGrowth
            | FindingKind::HostBound
    )
}

fn device(id: &DeviceId) -> String {
    match (&id.uuid, id.bus) {
        (Ok(uuid), _) => uuid.0.clone(),
        (Err(_), Ok(bus)) => bus.to_string(),
        (Err(_), Err(_)) => id.index.to_string(),
    }
}

impl fmt::Display for Identity {
    /// Writes `hoarder/4711-1234` (PID and start time) or `ghost/GPU-6a0f…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if let Some(ProcessKey { pid: Pid(pid), start }) = self.process {
            write!(f, "/{pid}")?;
            start.map_or(Ok(()), |start| write!(f, "-{}", start.0))?;
        }
        for device in &self.devices {
            write!(f, "/{device}")?;
        }
        self.error.as_ref().map_or(Ok(()), |code| write!(f, "/{code}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{DeviceUuid, StartTime};
    use gpu_reaper::{Confidence, Evidence, Sign, Suspect};

    #[test]
    fn identity_is_the_process_or_the_devices() {
        let mut with_uuid = DeviceId::from_index(7);
        with_uuid.uuid = Ok(DeviceUuid("GPU-6a0f".to_owned()));
        let devices = vec![with_uuid, DeviceId::from_index(0)];
        let process = ProcessKey { pid: Pid(4711), start: Some(StartTime(1234)) };
        for (kind, expected) in [
            (FindingKind::Hoarder, "hoarder/4711-1234"),
            (FindingKind::MemoryGrowth, "memory-growth/4711-1234/0/GPU-6a0f"),
            (FindingKind::Ghost, "ghost/0/GPU-6a0f"),
            (FindingKind::DriverError, "driver-error/0/GPU-6a0f/xid-79"),
        ] {
            let confidence = Confidence::High;
            let code = Some(DriverErrorCode { list: "xid".into(), number: Some(79) });
            let evidence = Evidence { sign: Sign::LoggedError, text: "Xid 79".to_owned(), code };
            let finding = Finding {
                kind,
                confidence,
                devices: devices.clone(),
                memory: None,
                suspects: vec![Suspect { process, confidence, evidence: Vec::new() }],
                evidence: vec![evidence],
                advice: Vec::new(),
            };
            assert_eq!(Identity::of(&finding).to_string(), expected);
        }
    }
}
