//! `gpuws doctor --json`.

use super::{Device, Failure, Head, Process};
use crate::wording;
use gpu_core::{DeviceState, Snapshot};
use gpu_reaper::{Confidence, Diagnosis, FindingKind, Role};
use serde::Serialize;

/// The diagnosis, with the processes that it names.
#[derive(Serialize)]
pub struct Doctor<'a> {
    #[serde(flatten)]
    head: Head,
    findings: Vec<Finding<'a>>,
    /// The devices of which it is not known who uses them.
    unknown_users: Vec<UnknownUsers>,
    cleared: Vec<Cleared<'a>>,
}

#[derive(Serialize)]
struct Finding<'a> {
    kind: FindingKind,
    confidence: Confidence,
    gpus: Vec<Device>,
    memory_bytes: Option<u64>,
    suspects: Vec<Suspect<'a>>,
    evidence: &'a [String],
    next: Vec<Next>,
}

#[derive(Serialize)]
struct Suspect<'a> {
    #[serde(flatten)]
    process: Process,
    confidence: Confidence,
    evidence: &'a [String],
}

#[derive(Serialize)]
struct Cleared<'a> {
    #[serde(flatten)]
    process: Process,
    gpus: Vec<Device>,
    role: Role,
    why: &'a str,
}

#[derive(Serialize)]
struct UnknownUsers {
    gpu: Device,
    error: Failure,
}

/// A command to type, and what it does.
#[derive(Serialize)]
struct Next {
    command: String,
    what: &'static str,
}

impl<'a> Doctor<'a> {
    /// Returns what is told of a diagnosis. The `devices` are those that were asked for; `sim` is the
    /// option that names a simulated machine in the next commands.
    pub fn of(
        snapshot: &Snapshot,
        devices: &[&DeviceState],
        diagnosis: &'a Diagnosis,
        sim: &str,
    ) -> Self {
        Doctor {
            head: Head::of(snapshot),
            findings: diagnosis.findings.iter().map(|f| Finding::of(snapshot, f, sim)).collect(),
            unknown_users: devices.iter().filter_map(|device| UnknownUsers::of(device)).collect(),
            cleared: diagnosis.cleared.iter().map(|c| Cleared::of(snapshot, c)).collect(),
        }
    }
}

impl<'a> Finding<'a> {
    fn of(snapshot: &Snapshot, finding: &'a gpu_reaper::Finding, sim: &str) -> Self {
        let suspect = |suspect: &'a gpu_reaper::Suspect| Suspect {
            process: Process::of(snapshot, suspect.process.pid),
            confidence: suspect.confidence,
            evidence: &suspect.evidence,
        };
        let next = |advice| {
            let (command, what) = wording::advice(advice, sim);
            Next { command, what }
        };
        Finding {
            kind: finding.kind,
            confidence: finding.confidence,
            gpus: finding.devices.iter().map(Device::of).collect(),
            memory_bytes: finding.memory.map(|bytes| bytes.0),
            suspects: finding.suspects.iter().map(suspect).collect(),
            evidence: &finding.evidence,
            next: finding.advice.iter().map(next).collect(),
        }
    }
}

impl UnknownUsers {
    fn of(device: &DeviceState) -> Option<Self> {
        let error = Failure::of(device.processes.as_ref().err()?);
        Some(UnknownUsers { gpu: Device::of(device.id()), error })
    }
}

impl<'a> Cleared<'a> {
    fn of(snapshot: &Snapshot, cleared: &'a gpu_reaper::Cleared) -> Self {
        Cleared {
            process: Process::of(snapshot, cleared.process.pid),
            gpus: cleared.devices.iter().map(Device::of).collect(),
            role: cleared.role,
            why: &cleared.why,
        }
    }
}
