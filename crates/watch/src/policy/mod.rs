//! What the watcher raises, whom it notifies, and what it may end.

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

/// A policy. The default raises findings that last a minute with at least likely confidence, and
/// ends no process.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The threshold of kinds without one of their own.
    pub usual: Threshold,
    /// Thresholds of individual kinds.
    pub kinds: BTreeMap<FindingKind, Threshold>,
    /// Known findings, which are not raised.
    pub ignored: Vec<Ignored>,
    /// Processes whose findings are not raised.
    pub allowed: Vec<Allowed>,
    /// Who is notified.
    pub notify: Notify,
    /// The file has the section `tell`, the former name of `notify`.
    pub has_former_key: bool,
    /// What may be ended; `None` without the section `reap`.
    pub reap: Option<ReapPolicy>,
}

/// When a finding is raised and cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Findings with lower confidence are not raised.
    pub min_confidence: Confidence,
    /// Findings about less memory are not raised. This does not apply to findings without an amount
    /// of memory.
    pub min_memory: Bytes,
    /// How long a finding must last without a break.
    pub after: Duration,
    /// How long it must be absent before it is cleared.
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

/// Who is notified of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The command to start for each event, and its arguments.
    pub on_finding: Option<Vec<String>>,
    /// How long that command may run.
    pub time_limit: Duration,
    /// Whether to write to the terminals of the user who owns the process.
    pub owner: bool,
    /// The minimum time between two events about a raised finding.
    pub update_every: Duration,
}

impl Default for Notify {
    fn default() -> Self {
        Notify {
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
    /// Print the plans without executing them.
    pub dry_run: bool,
    /// The maximum number of processes to signal within an hour.
    pub most_per_hour: usize,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Processes that are never signalled, whatever the rules say.
    pub protect: Vec<Protect>,
    /// The rules. The first rule that covers a process applies.
    pub rules: Vec<ReapRule>,
}

/// A rule: which processes are ended, and when.
#[derive(Clone, Debug)]
pub struct ReapRule {
    /// Applies to suspects of findings of these kinds.
    pub kinds: Vec<FindingKind>,
    /// The owners of the processes.
    pub users: Users,
    /// Applies only to findings on these devices; on all devices if empty.
    pub gpus: Vec<Selector>,
    /// The confidence that the suspect must have throughout.
    pub min_confidence: Confidence,
    /// How long the process must have been a suspect without a break.
    pub after: Duration,
    /// How long before the end the owner must have been warned.
    pub warn: Duration,
    /// Also ends idle processes and orphans in a container, pod or Slurm job.
    pub jobs: bool,
}

/// The owners of processes that a rule covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// Every ordinary user: neither root nor a system account.
    Ordinary,
    /// Users with these UIDs.
    Named(Vec<u32>),
}

impl Policy {
    /// Locates the files of the allowed programs. Before this call, no program is allowed.
    pub fn locate(&mut self, find: impl Fn(&str) -> Option<FileId>) {
        for allowed in &mut self.allowed {
            allowed.file = allowed.program.as_deref().and_then(&find);
        }
    }

    /// Describes what the policy names but a machine with these devices lacks, which may be a
    /// mistake. This includes programs that [`locate`](Policy::locate) has not found.
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

    /// Returns whether to raise a finding once it has lasted. `info` returns what is known about a
    /// process.
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
        let is_ignored = if finding.devices.is_empty() {
            is_known(None)
        } else {
            finding.devices.iter().all(|id| is_known(Some(id)))
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
    /// Returns the first rule that covers this suspect of a finding on these devices.
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
    /// Returns whether the rule applies to this suspect, apart from confidence and duration.
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
    /// Returns whether the owner of a process is certainly one of these users.
    fn cover(&self, process: &ProcessInfo) -> bool {
        let Ok(uid) = process.uid else { return false };
        match self {
            Users::Ordinary => uid >= FIRST_USER,
            Users::Named(uids) => uids.contains(&uid),
        }
    }
}

/// Returns whether a process belongs, or may belong, to a service of the system's service manager,
/// which would restart it. Services of a user's own service manager do not count: users can put any
/// of their processes there.
fn is_service(process: &ProcessInfo) -> bool {
    match &process.cgroup {
        Ok(_) => process.service().is_some_and(|unit| !unit.by_user),
        // Only recordings lack it; a live machine always reports it.
        Err(gpu_core::Absent::NotRecorded) => false,
        Err(_) => true,
    }
}

/// Returns whether a process belongs to a container, pod or Slurm job, which has reserved the
/// device.
fn is_job(process: &ProcessInfo) -> bool {
    process.workload.as_ref().is_some_and(|workload| !workload.is_named_by_user())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, Pid, ProcessKey};
    use gpu_reaper::Suspect;

    /// A finding of likely confidence.
    fn finding(kind: FindingKind, gpus: &[u32], pids: &[u32]) -> Finding {
        let confidence = Confidence::Likely;
        let suspect = |pid: &u32| Suspect {
            process: ProcessKey { pid: Pid(*pid), start: None },
            confidence,
            evidence: Vec::new(),
        };
        Finding {
            kind,
            confidence,
            devices: gpus.iter().copied().map(DeviceId::from_index).collect(),
            memory: None,
            suspects: pids.iter().map(suspect).collect(),
            evidence: Vec::new(),
            advice: Vec::new(),
        }
    }

    #[test]
    fn raises_findings_above_the_thresholds_that_are_neither_ignored_nor_allowed() {
        let text = "[findings]\nmin_memory = \"1GiB\"\nignore = [\"ghost:1\", \"throttled\"]\n\
                    [[allow]]\nuser = \"1002\"\n";
        let policy = Policy::parse(text, &|_| Err(Absent::NotFound)).unwrap();
        let mut infos = [7, 8].map(|pid| ProcessInfo::from_name(Pid(pid), "python"));
        (infos[0].uid, infos[1].uid) = (Ok(1002), Ok(1003));
        let raises = |finding: &Finding| {
            policy.concerns(finding, |key| infos.iter().find(|info| info.key.pid == key.pid))
        };
        let (ghost, throttled) = (FindingKind::Ghost, FindingKind::Throttled);
        for (kind, gpus, pids, expected) in [
            (ghost, &[0][..], &[][..], true),
            (ghost, &[1], &[], false),
            (ghost, &[0, 1], &[], true),
            (ghost, &[], &[], true),
            (throttled, &[5], &[], false),
            (throttled, &[], &[], false),
            (FindingKind::Hoarder, &[1], &[], true),
            // One process of the allowed user, one of another, and one that is unknown.
            (ghost, &[0], &[7], false),
            (ghost, &[0], &[7, 8], true),
            (ghost, &[0], &[9], true),
        ] {
            let finding = finding(kind, gpus, pids);
            assert_eq!(raises(&finding), expected, "{kind:?} {gpus:?} {pids:?}");
        }
        let of = |mib| Finding { memory: Some(Bytes::from_mib(mib)), ..finding(ghost, &[0], &[]) };
        assert!(raises(&of(1_024)) && !raises(&of(1_023)));
        let possible = Confidence::Possible;
        assert!(!raises(&Finding { confidence: possible, ..finding(ghost, &[0], &[]) }));
    }
}
