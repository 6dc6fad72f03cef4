//! Recognizes the same finding in different scans.

use gpu_core::{DeviceId, Pid, ProcessKey};
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
    pub xid: Option<u32>,
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
        let xid = finding.evidence.iter().find_map(|evidence| evidence.xid).filter(|_| logged);
        Identity { kind: finding.kind, process, devices, xid }
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
        self.xid.map_or(Ok(()), |code| write!(f, "/xid-{code}"))
    }
}
