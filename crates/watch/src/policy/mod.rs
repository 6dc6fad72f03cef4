//! What the watcher raises, whom it tells, and what it may end.

mod allow;
mod file;
mod value;

pub use allow::Allowed;
pub use file::PolicyError;

use gpu_core::{Bytes, DeviceId, DeviceState, FIRST_USER, FileId, ProcessInfo, Selector};
use gpu_reaper::{Confidence, Finding, FindingKind, Ignored, Protect};
use std::collections::BTreeMap;
use std::time::Duration;

/// The kinds of findings that a rule may name: those about a process that a signal can end.
pub const REAPABLE: [FindingKind; 5] = [
    FindingKind::Ghost,
    FindingKind::ListedButGone,
    FindingKind::ZombieHolder,
    FindingKind::Orphan,
    FindingKind::Hoarder,
];

/// A policy. The default raises findings of confidence likely that last a minute, and ends nothing.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// What applies to kinds without a threshold of their own.
    pub usual: Threshold,
    /// The thresholds of single kinds.
    pub kinds: BTreeMap<FindingKind, Threshold>,
    /// Known findings, which are not raised.
    pub ignored: Vec<Ignored>,
    /// Processes whose findings are not raised.
    pub allowed: Vec<Allowed>,
    /// Who is told.
    pub tell: Tell,
    /// What may be ended; `None` without the section `reap`.
    pub reap: Option<ReapPolicy>,
}

/// When a finding is raised and cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Less certain findings are not raised.
    pub min_confidence: Confidence,
    /// Findings about less memory are not raised; those that are not about memory are.
    pub min_memory: Bytes,
    /// How long a finding must last without a break.
    pub after: Duration,
    /// How long it must be absent until it is cleared.
    pub clear_after: Duration,
}

impl Default for Threshold {
    fn default() -> Self {
        Threshold {
            min_confidence: Confidence::Likely,
            min_memory: Bytes(0),
            after: Duration::from_secs(60),
            clear_after: Duration::from_secs(5 * 60),
        }
    }
}

/// Who is told of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// The command to start for each event, and its arguments.
    pub on_finding: Option<Vec<String>>,
    /// How long that command may run.
    pub time_limit: Duration,
    /// Write to the terminals of the user who owns the process.
    pub owner: bool,
    /// The least time between two events about a finding that stays raised.
    pub update_every: Duration,
}

impl Default for Tell {
    fn default() -> Self {
        Tell {
            on_finding: None,
            time_limit: Duration::from_secs(30),
            owner: false,
            update_every: Duration::from_secs(60 * 60),
        }
    }
}

/// What may be ended.
#[derive(Clone, Debug)]
pub struct ReapPolicy {
    /// Only print the plans.
    pub dry_run: bool,
    /// The most processes to signal within an hour.
    pub most_per_hour: usize,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Processes that are never signalled, whatever the rules say.
    pub protect: Vec<Protect>,
    /// The rules; the first that covers a process decides.
    pub rules: Vec<ReapRule>,
}

/// A rule: which processes are ended, and when.
#[derive(Clone, Debug)]
pub struct ReapRule {
    /// Suspects of findings of these kinds.
    pub kinds: Vec<FindingKind>,
    /// Whose processes.
    pub users: Users,
    /// Only findings on these devices; on all if empty.
    pub gpus: Vec<Selector>,
    /// Suspects with at least this confidence during the whole time.
    pub min_confidence: Confidence,
    /// How long the process must have been such a suspect without a break.
    pub after: Duration,
    /// How long before its end the owner must have been warned.
    pub warn: Duration,
    /// Idle processes and orphans of a container, pod or Slurm job too.
    pub jobs: bool,
}

/// The owners of processes that a rule covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// Every ordinary user: neither root nor a system account.
    Ordinary,
    /// Those with these UIDs.
    Named(Vec<u32>),
}

impl Policy {
    /// Finds the files of the programs that the policy allows. Until then, none is allowed.
    pub fn locate(&mut self, find: impl Fn(&str) -> Option<FileId>) {
        for allowed in &mut self.allowed {
            allowed.file = allowed.program.as_deref().and_then(&find);
        }
    }

    /// Returns what the policy names and a machine with these devices does not have, as sentences:
    /// it may be a mistake. Programs are those that [`locate`](Policy::locate) has not found.
    pub fn unmatched(&self, devices: &[DeviceState]) -> Vec<String> {
        let has = |selector: &Selector| devices.iter().any(|device| selector.names(device.id()));
        let of_rules = self.reap.iter().flat_map(|reap| &reap.rules).flat_map(|rule| &rule.gpus);
        let of_rules = of_rules.filter(|selector| !has(selector));
        let gpus = of_rules
            .map(|gpu| format!("a rule names GPU {gpu}, which this machine does not have now"));
        let is_here = |index: u32| devices.iter().any(|device| device.id().index == index);
        let ignored = self.ignored.iter().filter_map(|ignored| {
            let (kind, index) = (ignored.kind.name(), ignored.device.filter(|at| !is_here(*at))?);
            Some(format!("'{kind}:{index}' is ignored, but this machine has no GPU {index} now"))
        });
        let programs = self.allowed.iter().filter_map(|allowed| {
            let program = allowed.program.as_deref().filter(|_| allowed.file.is_none())?;
            Some(format!("'{program}' is allowed, but there is no such program"))
        });
        gpus.chain(ignored).chain(programs).collect()
    }

    /// Returns the threshold of a kind.
    pub fn threshold(&self, kind: FindingKind) -> Threshold {
        self.kinds.get(&kind).copied().unwrap_or(self.usual)
    }

    /// Returns whether a finding is to be raised if it lasts. `info` knows the processes.
    pub(crate) fn concerns<'a>(
        &self,
        finding: &Finding,
        info: impl Fn(&gpu_core::ProcessKey) -> Option<&'a ProcessInfo>,
    ) -> bool {
        let threshold = self.threshold(finding.kind);
        let is_known = |id: Option<&DeviceId>| {
            let covers = |ignored: &Ignored| {
                ignored.kind == finding.kind
                    && (ignored.device.is_none() || ignored.device == id.map(|id| id.index))
            };
            self.ignored.iter().any(covers)
        };
        let is_ignored = match finding.devices.is_empty() {
            true => is_known(None),
            false => finding.devices.iter().all(|id| is_known(Some(id))),
        };
        let is_allowed = |suspect: &gpu_reaper::Suspect| {
            let info = info(&suspect.process);
            self.allowed.iter().any(|rule| rule.covers(finding.kind, info) == Some(true))
        };
        finding.confidence >= threshold.min_confidence
            && finding.memory.is_none_or(|memory| memory >= threshold.min_memory)
            && !is_ignored
            && (finding.suspects.is_empty() || !finding.suspects.iter().all(is_allowed))
    }
}

impl ReapPolicy {
    /// Returns the first rule that covers a suspect of a finding with this owner and place.
    pub(crate) fn rule(
        &self,
        kind: FindingKind,
        devices: &[DeviceId],
        process: &ProcessInfo,
    ) -> Option<&ReapRule> {
        self.rules.iter().find(|rule| rule.covers(kind, devices, process))
    }
}

impl ReapRule {
    /// Returns whether the rule is about such a suspect, however certain and for however long.
    fn covers(&self, kind: FindingKind, devices: &[DeviceId], process: &ProcessInfo) -> bool {
        let is_named = |id: &DeviceId| {
            self.gpus.is_empty() || self.gpus.iter().any(|selector| selector.names(id))
        };
        self.kinds.contains(&kind)
            && !devices.is_empty()
            && devices.iter().all(is_named)
            && self.users.cover(process)
            && !is_service(process)
            && (self.jobs || kind.reap_reason().is_some() || !is_job(process))
    }
}

impl Users {
    /// Returns whether these surely include the owner of a process.
    fn cover(&self, process: &ProcessInfo) -> bool {
        let Ok(uid) = process.uid else { return false };
        match self {
            Users::Ordinary => uid >= FIRST_USER,
            Users::Named(uids) => uids.contains(&uid),
        }
    }
}

/// Returns whether a process belongs to a service of the system's service manager, or may: that
/// starts it again. Users can put their own processes into services of their own service manager,
/// so those give no protection.
fn is_service(process: &ProcessInfo) -> bool {
    match &process.cgroup {
        Ok(_) => process.service().is_some_and(|unit| !unit.by_user),
        // A recorded machine; a live one always reports it.
        Err(gpu_core::Absent::NotRecorded) => false,
        Err(_) => true,
    }
}

/// Returns whether a process belongs to a container, pod or Slurm job: whoever started that has
/// reserved the device.
fn is_job(process: &ProcessInfo) -> bool {
    process.workload.as_ref().is_some_and(|workload| !workload.is_named_by_user())
}
