//! Selects the suspects that the policy ends now, and those that need a warning first.

use crate::identity::Identity;
use crate::policy::{ReapPolicy, ReapRule};
use crate::watch::{MAX_RAISED, Suspected, Tracked, Watch, is_recent};
use gpu_core::{DeviceId, ProcessInfo, ProcessKey};
use gpu_reaper::{Confidence, Finding};
use std::time::Duration;

/// A process that the policy is about to end.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingKill {
    /// The finding.
    pub id: Identity,
    /// The process.
    pub process: ProcessInfo,
    /// The devices of the finding.
    pub devices: Vec<DeviceId>,
    /// The time until the process is ended, if nothing changes.
    pub left: Duration,
    /// How long the process has been a suspect.
    pub lasted: Duration,
}

impl PendingKill {
    /// Returns the process.
    pub fn key(&self) -> ProcessKey {
        self.process.key
    }
}

impl Watch {
    /// Returns the processes that need a warning now, and marks them as warned. Each user gets at
    /// most `most_per_hour` warnings within an hour; the remaining ones follow later.
    pub(crate) fn warnings(&mut self) -> Vec<PendingKill> {
        let now = self.last.unwrap_or_default();
        let mut warned = Vec::new();
        let policy = &self.policy;
        let Some(reap) = &policy.reap else { return warned };
        let most = reap.most_per_hour.min(MAX_RAISED);
        for (id, tracked) in &mut self.tracked {
            let due: Vec<PendingKill> = tracked
                .covered(id, policy, reap)
                .filter(|(rule, suspect, pending)| {
                    let is_near = pending.lasted + rule.warn >= rule.after;
                    !rule.warn.is_zero() && suspect.warned.is_none() && is_near
                })
                .map(|(rule, _, pending)| PendingKill {
                    left: rule.warn.max(rule.after.saturating_sub(pending.lasted)),
                    ..pending
                })
                .collect();
            for pending in due {
                // A ghost on several devices gets one warning.
                if !warned.iter().any(|other: &PendingKill| other.key() == pending.key()) {
                    let Ok(uid) = pending.process.uid else { continue };
                    let recent = self.warned.entry(uid).or_default();
                    if recent.len() >= most {
                        continue;
                    }
                    recent.push_back(now);
                    warned.push(pending.clone());
                }
                if let Some(suspect) = tracked.suspects.get_mut(&pending.key()) {
                    suspect.warned = Some(now);
                }
            }
        }
        warned
    }

    /// Returns the processes to end now: suspects of raised findings that the last scan still
    /// shows, once the time of their rule and their warning period have passed. Returns at most as
    /// many as the hourly limit still allows: first those never tried, then those tried longest
    /// ago, at least an hour before.
    pub(crate) fn due(&self) -> Vec<PendingKill> {
        let now = self.last.unwrap_or_default();
        let Some(reap) = &self.policy.reap else { return Vec::new() };
        let recent = self.ended.iter().filter(|at| is_recent(**at, now)).count();
        let due = self.tracked.iter().flat_map(|(id, tracked)| {
            tracked.covered(id, &self.policy, reap).filter(move |(rule, suspect, pending)| {
                let warned = suspect.warned.map(|at| now.saturating_sub(at));
                let was_warned =
                    rule.warn.is_zero() || warned.is_some_and(|for_| for_ >= rule.warn);
                let tried = self.tried.get(&pending.key());
                let may_try = tried.is_none_or(|at| !is_recent(*at, now));
                pending.lasted >= rule.after && was_warned && may_try
            })
        });
        let mut due: Vec<PendingKill> = due.map(|(_, _, pending)| pending).collect();
        due.sort_by_key(|pending| self.tried.get(&pending.key()));
        let mut chosen: Vec<PendingKill> = Vec::new();
        for pending in due {
            if chosen.len() >= reap.most_per_hour.saturating_sub(recent) {
                break;
            }
            // A ghost on several devices appears in several findings.
            if !chosen.iter().any(|other| other.key() == pending.key()) {
                chosen.push(pending);
            }
        }
        chosen
    }

    /// Marks processes as tried.
    pub(crate) fn tried(&mut self, keys: &[ProcessKey]) {
        let now = self.last.unwrap_or_default();
        self.tried.extend(keys.iter().map(|key| (*key, now)));
    }

    /// Counts processes that were signalled, or would have been.
    pub(crate) fn count_ended(&mut self, count: usize) {
        let now = self.last.unwrap_or_default();
        self.ended.retain(|at| is_recent(*at, now));
        self.ended.extend(std::iter::repeat_n(now, count));
    }
}

impl Tracked {
    /// Returns the suspects that a rule covers, if the finding is raised and the last scan shows
    /// it.
    fn covered<'a>(
        &'a self,
        id: &'a Identity,
        policy: &'a crate::Policy,
        reap: &'a ReapPolicy,
    ) -> impl Iterator<Item = (&'a ReapRule, &'a Suspected, PendingKill)> {
        let finding: &Finding = &self.finding;
        let is_there = self.present && self.raised.is_some();
        self.suspects.iter().filter(move |_| is_there).filter_map(move |(key, suspect)| {
            let process = self.processes.get(key)?;
            let rule = reap.rule(id.kind, &finding.devices, process)?;
            if reap.protect.iter().any(|protect| protect.covers(process)) {
                return None;
            }
            // If it is uncertain whether the process is allowed, spare it.
            let is_allowed = policy
                .allowed
                .iter()
                .any(|allowed| allowed.covers(id.kind, Some(process)) != Some(false));
            let lasted = suspect.lasted[rule.min_confidence as usize]?;
            let pending = PendingKill {
                id: id.clone(),
                process: process.clone(),
                devices: finding.devices.clone(),
                left: Duration::ZERO,
                lasted,
            };
            (!is_allowed && rule.min_confidence > Confidence::Possible)
                .then_some((rule, suspect, pending))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use gpu_core::{
        Absent, DeviceDetails, DeviceInfo, DeviceSample, DeviceState, Driver, Origin, Pid, Process,
        Snapshot, StartTime, Timestamp,
    };
    use gpu_reaper::{Diagnosis, FindingKind, Suspect};

    const MINUTE: Duration = Duration::from_secs(60);

    fn policy(rule: &str) -> Policy {
        let text = format!(
            "[findings]\nafter = \"1m\"\nclear_after = \"5m\"\n[reap]\ndry_run = false\n\
             most_per_hour = 2\nprotect = [\"user:carol\"]\n[[reap.rule]]\nmin_confidence = \
             \"high\"\nafter = \"10m\"\nwarn = \"3m\"\n{rule}"
        );
        let accounts = |name: &str| match name {
            "alice" => Ok(1001),
            "carol" => Ok(1003),
            _ => Err(Absent::NotFound),
        };
        Policy::parse(&text, &accounts).unwrap()
    }

    const GHOSTS: &str = "kinds = [\"ghost\"]\nall_users = true\n";

    /// Returns a process of an ordinary user with this start time.
    fn process(pid: u32, start: u64) -> ProcessInfo {
        let mut info = ProcessInfo::from_name(Pid(pid), "python");
        info.key.start = Some(StartTime(start));
        info.uid = Ok(1001);
        info.user = Ok("alice".to_owned());
        info.cgroup = Ok("/user.slice/user-1001.slice/session-1.scope".to_owned());
        info
    }

    /// A watcher, and the minute of its next scan.
    struct Scenario {
        watch: Watch,
        minute: u32,
        kind: FindingKind,
        /// The number of devices, each with its own finding.
        devices: u32,
    }

    impl Scenario {
        fn new(rule: &str) -> Self {
            let watch = Watch::new(policy(rule), MINUTE);
            Scenario { watch, minute: 0, kind: FindingKind::Ghost, devices: 1 }
        }

        /// Scans once, with these processes as suspects.
        fn scan(&mut self, suspects: &[(&ProcessInfo, Confidence)]) {
            let at = MINUTE * self.minute;
            let millis = u64::try_from(at.as_millis()).unwrap();
            let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(millis));
            snapshot.driver =
                Ok(Driver { version: Err(Absent::NotRecorded), cuda: Err(Absent::NotRecorded) });
            let ids = (0..self.devices).map(DeviceId::from_index);
            snapshot.devices = ids
                .clone()
                .map(|id| DeviceState {
                    info: DeviceInfo::unknown(id),
                    sample: Ok(DeviceSample::absent(Absent::NotSupported)),
                    processes: Ok(Vec::new()),
                    partitions: Ok(Vec::new()),
                    details: Ok(DeviceDetails::default()),
                })
                .collect();
            snapshot.holders = Ok(Vec::new());
            let known =
                suspects.iter().map(|(info, _)| (info.key.pid, Process::from(Ok((*info).clone()))));
            snapshot.processes = known.collect();
            let suspect = |(info, confidence): &(&ProcessInfo, Confidence)| Suspect {
                process: info.key,
                confidence: *confidence,
                evidence: Vec::new(),
            };
            let finding = |id| Finding {
                kind: self.kind,
                confidence: Confidence::High,
                devices: vec![id],
                memory: None,
                suspects: suspects.iter().map(suspect).collect(),
                evidence: Vec::new(),
                advice: Vec::new(),
            };
            let findings = ids.filter(|_| !suspects.is_empty()).map(finding).collect();
            let diagnosis = Diagnosis { findings, ..Diagnosis::default() };
            self.watch.update(&snapshot, &diagnosis, at);
            self.minute += 1;
        }

        /// Scans once a minute for `count` minutes, and sends warnings as a round does.
        fn minutes(&mut self, count: u32, suspects: &[(&ProcessInfo, Confidence)]) {
            for _ in 0..count {
                self.scan(suspects);
                self.watch.warnings();
            }
        }

        fn due(&self) -> Vec<Pid> {
            self.watch.due().iter().map(|one| one.key().pid).collect()
        }
    }

    fn high(info: &ProcessInfo) -> [(&ProcessInfo, Confidence); 1] {
        [(info, Confidence::High)]
    }

    /// Returns whether the rule ends this process if it stays a suspect of this kind for an hour.
    fn ends(rule: &str, kind: FindingKind, info: &ProcessInfo) -> bool {
        let mut scenario = Scenario { kind, ..Scenario::new(rule) };
        scenario.minutes(60, &high(info));
        scenario.due() == [info.key.pid]
    }

    #[test]
    fn suspect_is_due_after_its_time_and_warning() {
        let (mut scenario, info) = (Scenario::new(GHOSTS), process(7, 1));
        scenario.minutes(7, &high(&info));
        scenario.scan(&high(&info));
        let warned: Vec<Duration> = scenario.watch.warnings().iter().map(|one| one.left).collect();
        assert_eq!(warned, [3 * MINUTE], "seven minutes have passed");
        scenario.minutes(2, &high(&info));
        assert_eq!(scenario.due(), []);
        scenario.scan(&high(&info));
        assert_eq!(scenario.due(), [Pid(7)]);
        assert!(scenario.watch.warnings().is_empty(), "there is a single warning");
    }

    #[test]
    fn scan_without_suspect_restarts_its_time() {
        let (info, other) = (process(7, 1), process(8, 2));
        let likely = [(&info, Confidence::Likely)];
        let breaks: [&[(&ProcessInfo, Confidence)]; 3] = [&[], &likely, &high(&other)];
        for pause in breaks {
            let mut scenario = Scenario::new(GHOSTS);
            scenario.minutes(10, &high(&info));
            scenario.scan(pause);
            scenario.minutes(10, &high(&info));
            assert_eq!(scenario.due(), [], "{pause:?}");
            scenario.minutes(2, &high(&info));
            assert_eq!(scenario.due(), [Pid(7)], "{pause:?}");
        }
    }

    #[test]
    fn process_with_reused_pid_has_its_own_time() {
        let mut scenario = Scenario::new(GHOSTS);
        scenario.minutes(10, &high(&process(7, 1)));
        let second = process(7, 2);
        scenario.minutes(10, &high(&second));
        assert_eq!(scenario.due(), []);
        scenario.minutes(1, &high(&second));
        assert_eq!(scenario.watch.due()[0].key(), second.key);
    }

    #[test]
    fn time_without_scans_does_not_count() {
        let (mut scenario, info) = (Scenario::new(GHOSTS), process(7, 1));
        scenario.minutes(5, &high(&info));
        scenario.minute += 60;
        scenario.minutes(10, &high(&info));
        assert_eq!(scenario.due(), []);
        scenario.minutes(1, &high(&info));
        assert_eq!(scenario.due(), [Pid(7)]);
    }

    #[test]
    fn execution_time_neither_counts_nor_interrupts() {
        let (mut scenario, info) = (Scenario::new(GHOSTS), process(7, 1));
        scenario.minutes(6, &high(&info));
        scenario.minute += 60;
        scenario.watch.resume(MINUTE * (scenario.minute - 1));
        scenario.minutes(4, &high(&info));
        assert_eq!(scenario.due(), [], "that hour does not count");
        scenario.minutes(1, &high(&info));
        assert_eq!(scenario.due(), [Pid(7)]);
    }

    #[test]
    fn gap_without_scans_neither_raises_nor_clears() {
        let (mut scenario, info) = (Scenario::new(GHOSTS), process(7, 1));
        let raised = |scenario: &Scenario| scenario.watch.raised().count();
        scenario.scan(&high(&info));
        scenario.minute += 60;
        scenario.scan(&high(&info));
        assert_eq!(raised(&scenario), 0);
        scenario.scan(&high(&info));
        assert_eq!(raised(&scenario), 1);
        scenario.scan(&[]);
        scenario.minute += 60;
        scenario.scan(&[]);
        assert_eq!(raised(&scenario), 1);
        scenario.minutes(5, &[]);
        assert_eq!(raised(&scenario), 0);
    }

    #[test]
    fn new_policy_needs_a_new_warning() {
        let (mut scenario, info) = (Scenario::new(GHOSTS), process(7, 1));
        scenario.minutes(12, &high(&info));
        assert_eq!(scenario.due(), [Pid(7)]);
        scenario.watch.set_policy(policy(GHOSTS));
        assert_eq!(scenario.due(), []);
        scenario.minutes(1, &high(&info));
        assert_eq!(scenario.due(), [], "it was warned just now");
        scenario.minutes(3, &high(&info));
        assert_eq!(scenario.due(), [Pid(7)]);
    }

    #[test]
    fn respects_hourly_limit_and_time_between_attempts() {
        let all: Vec<ProcessInfo> = (1..=3).map(|pid| process(pid + 6, 1)).collect();
        let suspects: Vec<_> = all.iter().map(|info| (info, Confidence::High)).collect();
        let mut scenario = Scenario::new(GHOSTS);
        scenario.minutes(12, &suspects);
        assert_eq!(scenario.due(), [Pid(7), Pid(8)]);
        scenario.watch.tried(&[all[0].key]);
        assert_eq!(scenario.due(), [Pid(8)], "no owner was warned of the third");
        scenario.watch.count_ended(1);
        assert_eq!(scenario.due(), [Pid(8)]);
        scenario.watch.count_ended(1);
        assert_eq!(scenario.due(), []);
        scenario.minutes(60, &suspects);
        assert_eq!(scenario.due(), [Pid(8), Pid(9)], "an hour later, the untried come first");
    }

    #[test]
    fn late_warning_leaves_all_of_its_time() {
        let all: Vec<ProcessInfo> = (1..=3).map(|pid| process(pid + 6, 1)).collect();
        let suspects: Vec<_> = all.iter().map(|info| (info, Confidence::High)).collect();
        let mut scenario = Scenario::new(GHOSTS);
        // The limit of an hour puts the third warning off.
        scenario.minutes(12, &suspects);
        let mut warned = Vec::new();
        for _ in 0..60 {
            scenario.scan(&suspects);
            let more = scenario.watch.warnings();
            warned.extend(more.iter().map(|one| (one.key().pid, one.left)));
        }
        assert_eq!(warned, [(Pid(9), 3 * MINUTE)]);
    }

    #[test]
    fn process_on_several_devices_is_counted_once() {
        let all: Vec<ProcessInfo> = (1..=3).map(|pid| process(pid + 6, 1)).collect();
        let suspects: Vec<_> = all.iter().map(|info| (info, Confidence::High)).collect();
        let mut scenario = Scenario { devices: 4, ..Scenario::new(GHOSTS) };
        scenario.minutes(12, &suspects);
        assert_eq!(scenario.due(), [Pid(7), Pid(8)]);
    }

    #[test]
    fn break_or_new_policy_does_not_shorten_retry_interval() {
        let (mut scenario, info) = (Scenario::new(GHOSTS), process(7, 1));
        scenario.minutes(12, &high(&info));
        scenario.watch.tried(&[info.key]);
        scenario.scan(&[]);
        scenario.watch.set_policy(policy(GHOSTS));
        scenario.minutes(58, &high(&info));
        assert_eq!(scenario.due(), []);
        scenario.minutes(1, &high(&info));
        assert_eq!(scenario.due(), [Pid(7)]);
    }

    #[test]
    fn limits_warnings_per_user_to_hourly_limit() {
        let all: Vec<ProcessInfo> = (0..600).map(|pid| process(pid + 100, 1)).collect();
        let mut other = process(7, 1);
        other.uid = Ok(1002);
        let everybody = all.iter().chain([&other]);
        let suspects: Vec<_> = everybody.map(|info| (info, Confidence::High)).collect();
        let mut scenario = Scenario { devices: 2, ..Scenario::new(GHOSTS) };
        let mut warned = Vec::new();
        for _ in 0..60 {
            scenario.scan(&suspects);
            warned.extend(scenario.watch.warnings().iter().map(|one| one.key().pid));
        }
        assert_eq!(warned, [Pid(7), Pid(100), Pid(101)]);
        for _ in 0..10 {
            scenario.scan(&suspects);
            warned.extend(scenario.watch.warnings().iter().map(|one| one.key().pid));
        }
        assert_eq!(warned[3..], [Pid(102), Pid(103)], "an hour later two more");
        assert_eq!(scenario.due(), [Pid(7), Pid(100)], "only processes with a warning");
    }

    #[test]
    fn rule_covers_only_named_users() {
        let ghost = FindingKind::Ghost;
        let alice = process(7, 1);
        let with = |change: &dyn Fn(&mut ProcessInfo)| {
            let mut info = alice.clone();
            change(&mut info);
            info
        };
        let root = with(&|info| (info.uid, info.user) = (Ok(0), Ok("root".to_owned())));
        let daemon = with(&|info| (info.uid, info.user) = (Ok(999), Ok("vllm".to_owned())));
        let unknown = with(&|info| info.uid = Err(Absent::NotPermitted));
        let carol = with(&|info| (info.uid, info.user) = (Ok(1003), Err(Absent::Failed)));
        let later = with(&|info| info.uid = Ok(1004));
        let named = "kinds = [\"ghost\"]\nusers = [\"alice\", \"0\"]\n";
        let elsewhere = format!("{GHOSTS}gpus = [\"1\"]\n");
        for (rule, info, expected) in [
            (GHOSTS, &alice, true),
            (GHOSTS, &root, false),
            (GHOSTS, &daemon, false),
            (GHOSTS, &unknown, false),
            (GHOSTS, &carol, false),
            (named, &alice, true),
            (named, &later, false),
            (named, &root, true),
            (named, &daemon, false),
            (&elsewhere, &alice, false),
        ] {
            assert_eq!(ends(rule, ghost, info), expected, "{rule} {info:?}");
        }
        assert!(!ends(GHOSTS, FindingKind::ZombieHolder, &alice), "another kind");
    }

    #[test]
    fn spares_services_and_jobs_without_explicit_rule() {
        let in_cgroup = |path: &str, job: bool| {
            let mut info = process(7, 1);
            info.cgroup = Ok(path.to_owned());
            let workload = gpu_core::Workload {
                kind: gpu_core::WorkloadKind::SlurmJob,
                id: "7".to_owned(),
                cgroup: path.to_owned(),
            };
            info.workload = job.then(|| Box::new(workload));
            info
        };
        let hoarders = "kinds = [\"hoarder\", \"ghost\"]\nall_users = true\n";
        let jobs = format!("{hoarders}jobs = true\n");
        let service = in_cgroup("/system.slice/vllm.service", false);
        let own = "/user.slice/user-1001.slice/user@1001.service/app.slice/x.service";
        let job = in_cgroup("/slurm/uid_1001/job_7", true);
        let forged = in_cgroup(&format!("{own}/slurm/uid_1001/job_7"), true);
        let mut hidden = process(7, 1);
        hidden.cgroup = Err(Absent::NotPermitted);
        let (hoarder, ghost) = (FindingKind::Hoarder, FindingKind::Ghost);
        for (rule, kind, info, expected) in [
            (jobs.as_str(), hoarder, &service, false),
            (&jobs, ghost, &service, false),
            (&jobs, ghost, &hidden, false),
            (hoarders, hoarder, &in_cgroup(own, false), true),
            (hoarders, hoarder, &job, false),
            (hoarders, ghost, &job, true),
            (&jobs, hoarder, &job, true),
            (hoarders, hoarder, &forged, true),
        ] {
            assert_eq!(ends(rule, kind, info), expected, "{rule} {kind:?} {info:?}");
        }
    }
}
