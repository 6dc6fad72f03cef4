//! `gpuws watch --json`: one object for each event.

use super::doctor::Finding;
use super::names::Origin;
use super::reap::Planned;
use super::{Failure, Process, Version};
use gpu_core::{ProcessInfo, ProcessKey, Timestamp};
use gpu_watch::{ChangeKind, Event};
use serde::Serialize;
use std::collections::BTreeMap;

/// An event.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchEvent<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// Name of the simulated machine. Null for any other origin.
    pub machine: Option<String>,
    /// Hostname of the machine. Null if unknown.
    pub hostname: Option<String>,
    /// Time of the event, in UTC, as RFC 3339.
    pub time: String,
    /// What happened.
    pub event: WatchEventKind,
    /// Identifies the finding: the same from its first event to the last. Null if the event is not
    /// about one finding.
    pub finding_id: Option<String>,
    /// When the finding was first seen, in UTC, as RFC 3339. Null if the event is not about one.
    pub first_seen_at: Option<String>,
    /// When the finding was last seen, in UTC, as RFC 3339. Null if the event is not about one.
    pub last_seen_at: Option<String>,
    /// The finding, as it was last seen. Null unless it was raised, updated or cleared.
    pub finding: Option<Finding<'a>>,
    /// The process that will be ended, or in a dry run would be. Null unless this is a
    /// warning.
    pub process: Option<Process>,
    /// Time until that process is ended, in milliseconds. Null unless this is a warning.
    pub reap_in_ms: Option<u64>,
    /// Whether that process will not be ended, because this is a dry run. Null unless this is a
    /// warning.
    pub dry_run: Option<bool>,
    /// The plan of the policy and its result, which is null for a dry run and if all processes are
    /// spared. Null for other events.
    pub reap: Option<Planned<'a>>,
    /// Number of findings that were not raised. Null unless some were held back.
    pub held_back_count: Option<usize>,
    /// What failed. Null unless something did.
    pub error: Option<Failure>,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WatchEventKind {
    /// A finding has lasted for as long as the policy says.
    Raised,
    /// A raised finding is more certain, has other suspects, or concerns more or less memory.
    Updated,
    /// A raised finding has been absent for as long as the policy says.
    Cleared,
    /// The policy will soon end a process.
    ReapWarning,
    /// The policy would end processes, but the checks of the plan spare all of them.
    ReapSpared,
    /// The policy would end processes; nothing was done.
    ReapPlanned,
    /// The policy ended processes, or tried to.
    Reaped,
    /// The policy would end processes, but no plan could be made.
    ReapFailed,
    /// Too many findings of one kind and user: some were not raised.
    HeldBack,
    /// The driver cannot be queried; until it can, nothing is raised that needs it, or cleared.
    Blind,
    /// The driver answers again.
    Sighted,
}

impl From<ChangeKind> for WatchEventKind {
    fn from(kind: ChangeKind) -> Self {
        match kind {
            ChangeKind::Raised => WatchEventKind::Raised,
            ChangeKind::Updated => WatchEventKind::Updated,
            ChangeKind::Cleared => WatchEventKind::Cleared,
        }
    }
}

impl<'a> WatchEvent<'a> {
    /// Returns the object for an event on this machine at this time. `sim` is the option that names
    /// a simulated machine in the next commands.
    pub fn of(
        event: &Event<'a>,
        origin: &gpu_core::Origin,
        hostname: Option<&str>,
        time: Timestamp,
        sim: &str,
    ) -> Self {
        let kind = match event {
            Event::Blind(_) => WatchEventKind::Blind,
            Event::Sighted => WatchEventKind::Sighted,
            Event::Change(change) => change.kind.into(),
            Event::HeldBack(_) => WatchEventKind::HeldBack,
            Event::Warning { .. } => WatchEventKind::ReapWarning,
            Event::Spared { .. } => WatchEventKind::ReapSpared,
            Event::Reap { report: None, .. } => WatchEventKind::ReapPlanned,
            Event::Reap { report: Some(_), .. } => WatchEventKind::Reaped,
            Event::NotPlanned(_) => WatchEventKind::ReapFailed,
        };
        let mut object = WatchEvent {
            schema: Version,
            origin: Origin::from(origin),
            machine: match origin {
                gpu_core::Origin::Simulated(name) => Some(name.clone()),
                // Nothing else is watched.
                _ => None,
            },
            hostname: hostname.map(str::to_owned),
            time: time.to_string(),
            event: kind,
            finding_id: None,
            first_seen_at: None,
            last_seen_at: None,
            finding: None,
            process: None,
            reap_in_ms: None,
            dry_run: None,
            reap: None,
            held_back_count: None,
            error: None,
        };
        match event {
            Event::Change(change) => {
                object.finding_id = Some(change.id.to_string());
                object.first_seen_at = Some(change.first_seen.to_string());
                object.last_seen_at = Some(change.last_seen.to_string());
                let process = |key| known(&change.processes, key);
                object.finding = Some(Finding::with(&change.finding, sim, process));
            }
            Event::Warning { pending, is_dry_run } => {
                let process = &pending.process;
                object.finding_id = Some(pending.id.to_string());
                object.process = Some(Process::known(process.key.pid, Some(process)));
                object.reap_in_ms = u64::try_from(pending.left.as_millis()).ok();
                object.dry_run = Some(*is_dry_run);
            }
            Event::Spared { now, plan } => object.reap = Some(Planned::of(now, plan, None)),
            Event::Reap { now, plan, report } => {
                object.reap = Some(Planned::of(now, plan, *report));
            }
            Event::HeldBack(count) => object.held_back_count = Some(*count),
            Event::Blind(fault) => object.error = Some(Failure::of_driver(fault)),
            Event::NotPlanned(error) => object.error = Some(Failure::of(&error.fault())),
            Event::Sighted => {}
        }
        object
    }
}

/// Returns what is known of a process: its start time at least, which its PID alone does not give.
fn known(processes: &BTreeMap<ProcessKey, ProcessInfo>, key: ProcessKey) -> Process {
    let start_ticks = key.start.map(|start| start.0);
    Process { start_ticks, ..Process::known(key.pid, processes.get(&key)) }
}
