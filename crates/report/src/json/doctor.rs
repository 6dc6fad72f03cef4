//! `gpuws doctor --json`.

use super::{Device, Failure, Head, Process};
use crate::wording;
use gpu_core::{DeviceState, ProcessKey, Snapshot};
use gpu_reaper::{Confidence, Diagnosis, Evidence, FindingKind, Role, Sign};
use gpu_text::{ErrorCode, ReportedFailure};
use serde::Serialize;

/// A diagnosis of the machine.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Doctor<'a> {
    /// The source of the data.
    #[serde(flatten)]
    pub head: Head,
    /// The problems, by kind, then by GPU.
    pub findings: Vec<Finding<'a>>,
    /// Failures of tools in the pasted text that no finding covers.
    pub failures: Vec<PastedFailure>,
    /// Number of findings that --min-confidence and --ignore left out.
    pub left_out_count: usize,
    /// What the diagnosis leaves out or cannot judge, and why, one sentence each.
    pub notes: Vec<String>,
    /// Why the driver's messages in the kernel log could not be read. Null if they were read.
    pub kernel_log_error: Option<Failure>,
    /// GPUs whose processes could not be listed.
    pub unknown_users: Vec<UnknownUsers>,
    /// Processes that hold a GPU and were found harmless, with the reason.
    pub cleared: Vec<Cleared<'a>>,
}

/// A failure of a tool in a pasted text.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PastedFailure {
    /// What failed.
    pub code: ErrorCode,
    /// The line of the text that reports it, at most 200 characters.
    pub line: String,
    /// What it means, as a sentence fragment.
    pub meaning: &'static str,
    /// The command to run on that machine.
    pub next: &'static str,
    /// All commands to run there, best first.
    pub steps: Vec<Next>,
}

/// A problem.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding<'a> {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// How certain the finding is.
    pub confidence: Confidence,
    /// The affected GPUs.
    pub gpus: Vec<Device>,
    /// Memory affected on these GPUs together, in bytes. Null if the finding is not about memory.
    pub memory_bytes: Option<u64>,
    /// Processes that cause the problem, most likely first.
    pub suspects: Vec<Suspect<'a>>,
    /// The evidence, one sentence fragment each.
    pub evidence: Vec<&'a str>,
    /// The kinds of observations behind the evidence, one for each fragment, in the same order.
    pub evidence_codes: Vec<Sign>,
    /// Numbers of the errors in the evidence that the driver has logged (Xids), in the same order.
    pub xids: Vec<u32>,
    /// Commands to run next, best first.
    pub next: Vec<Next>,
}

/// A process that causes a problem.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Suspect<'a> {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// How certain it is that this process causes the problem.
    pub confidence: Confidence,
    /// The observations about the process, one sentence fragment each.
    pub evidence: Vec<&'a str>,
    /// The kinds of observations, one for each fragment, in the same order.
    pub evidence_codes: Vec<Sign>,
}

/// A process that holds a GPU and was found harmless.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cleared<'a> {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The GPUs that it holds.
    pub gpus: Vec<Device>,
    /// Role of the process.
    pub role: Role,
    /// Why it is harmless, as a sentence fragment.
    pub why: &'a str,
}

/// A GPU whose processes could not be listed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnknownUsers {
    /// The GPU.
    pub gpu: Device,
    /// Why they could not be listed.
    pub error: Failure,
}

/// A command to run.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Next {
    /// The command line.
    pub command: String,
    /// What it does, as a sentence fragment.
    pub what: &'static str,
}

impl<'a> Doctor<'a> {
    /// Returns the object for a diagnosis. The `devices` are those that were asked for; `sim` is the
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
            failures: Vec::new(),
            left_out_count: diagnosis.left_out,
            notes: wording::doctor::left_out(snapshot),
            kernel_log_error: snapshot.driver_messages.as_ref().err().map(Failure::of),
            unknown_users: devices.iter().filter_map(|device| UnknownUsers::of(device)).collect(),
            cleared: diagnosis.cleared.iter().map(|c| Cleared::of(snapshot, c)).collect(),
        }
    }
}

impl PastedFailure {
    /// Returns the object for failures; nothing of those that concern the whole driver, which is
    /// reported as a fault.
    fn of(failures: &[ReportedFailure]) -> Vec<Self> {
        let failure = |ReportedFailure { code, line }: &ReportedFailure| {
            let wording::paste::PastedFailure { meaning, steps } =
                wording::paste::pasted_failure(*code)?;
            let (next, _) = *steps.first()?;
            let step = |&(command, what): &(&'static str, &'static str)| Next {
                command: command.to_owned(),
                what,
            };
            let steps = steps.iter().map(step).collect();
            Some(PastedFailure { code: *code, line: line.clone(), meaning, next, steps })
        };
        failures.iter().filter_map(failure).collect()
    }
}

impl Doctor<'_> {
    /// Adds the failures of tools in a pasted text that no finding covers.
    #[must_use]
    pub fn with_failures(self, failures: &[ReportedFailure]) -> Self {
        Doctor { failures: PastedFailure::of(failures), ..self }
    }
}

impl<'a> Finding<'a> {
    fn of(snapshot: &Snapshot, finding: &'a gpu_reaper::Finding, sim: &str) -> Self {
        Finding::with(finding, sim, |key| Process::of(snapshot, key.pid))
    }

    /// Returns the object for a finding whose processes this function knows.
    pub(super) fn with(
        finding: &'a gpu_reaper::Finding,
        sim: &str,
        process: impl Fn(ProcessKey) -> Process,
    ) -> Self {
        let suspect = |suspect: &'a gpu_reaper::Suspect| Suspect {
            process: process(suspect.process),
            confidence: suspect.confidence,
            evidence: Evidence::texts(&suspect.evidence),
            evidence_codes: signs(&suspect.evidence),
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
            evidence: Evidence::texts(&finding.evidence),
            evidence_codes: signs(&finding.evidence),
            xids: finding.evidence.iter().filter_map(xid).collect(),
            next: finding.advice.iter().map(next).collect(),
        }
    }
}

fn xid(evidence: &Evidence) -> Option<u32> {
    evidence.code.as_ref()?.number_in("xid")
}

fn signs(evidence: &[Evidence]) -> Vec<Sign> {
    evidence.iter().map(|one| one.sign).collect()
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
