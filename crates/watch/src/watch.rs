//! The state of the watcher, and how a scan changes it.

use crate::absence::shows_absence;
use crate::identity::Identity;
use crate::policy::Policy;
use gpu_core::{Bytes, ProcessInfo, ProcessKey, Snapshot, Timestamp};
use gpu_reaper::{Confidence, Diagnosis, Evidence, Finding, FindingKind, Sign};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The longest gap between two scans, in intervals but at least [`MIN_GAP`], after which a
/// finding still counts as having lasted in between.
const GAPS: u32 = 3;
const MIN_GAP: Duration = Duration::from_secs(30);

/// The maximum number of findings of one kind and one user that are raised within an hour, so that
/// a user who starts and ends many processes cannot flood the recipients.
pub(crate) const MAX_RAISED: usize = 64;

pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

/// The smallest change in memory that counts as an update.
const MIN_CHANGE: Bytes = Bytes::from_mib(1024);

/// A watcher. It keeps its state in memory only, so a new watcher raises existing findings again.
#[derive(Debug, Default)]
pub struct Watch {
    pub(crate) policy: Policy,
    pub(crate) longest_gap: Duration,
    pub(crate) tracked: BTreeMap<Identity, Tracked>,
    /// The time of the last scan.
    pub(crate) last: Option<Duration>,
    /// When findings were raised, by kind and owner of the first suspect.
    raised: BTreeMap<(FindingKind, Option<u32>), VecDeque<Duration>>,
    /// The number of findings that the last scan did not raise because of the limit.
    held_back: usize,
    /// When processes were signalled, or would have been in a dry run.
    pub(crate) ended: VecDeque<Duration>,
    /// When owners were warned that a process would be ended, by UID.
    pub(crate) warned: BTreeMap<u32, VecDeque<Duration>>,
    /// The last attempt to end each process, if it was within the last hour or the process is still
    /// a suspect.
    pub(crate) tried: BTreeMap<ProcessKey, Duration>,
    /// Whether the last scan could not query the driver.
    pub(crate) blind: bool,
}

/// A finding that a scan has shown, raised or not.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) finding: Finding,
    /// The suspects as last seen.
    pub(crate) processes: BTreeMap<ProcessKey, ProcessInfo>,
    /// When the finding was first seen since its last break.
    first_seen: Timestamp,
    last_seen: Timestamp,
    last_present: Duration,
    /// Whether the last scan showed the finding.
    pub(crate) present: bool,
    /// How long the finding has lasted without a break.
    lasted: Duration,
    /// How long the finding has been absent; `None` if the last complete scan showed it.
    absent: Option<Duration>,
    pub(crate) raised: Option<Raised>,
    pub(crate) suspects: BTreeMap<ProcessKey, Suspected>,
}

/// What was last reported about a finding.
#[derive(Clone, Debug)]
pub(crate) struct Raised {
    at: Duration,
    confidence: Confidence,
    memory: Option<Bytes>,
    suspects: BTreeSet<ProcessKey>,
}

/// How long a process has been a suspect without a break.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspected {
    /// With at least possible, likely and high confidence; `None` where its present confidence is
    /// lower.
    pub(crate) lasted: [Option<Duration>; 3],
    pub(crate) warned: Option<Duration>,
}

/// An event about a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The identity of the finding.
    pub id: Identity,
    /// The finding as last seen.
    pub finding: Finding,
    /// Its suspects as last seen.
    pub processes: BTreeMap<ProcessKey, ProcessInfo>,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When it was last seen.
    pub last_seen: Timestamp,
}

/// What happened to a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It has lasted for the time that the policy sets.
    Raised,
    /// Its confidence has grown, it has new suspects, or its memory has changed much.
    Updated,
    /// It has been absent for the time that the policy sets.
    Cleared,
}

impl Watch {
    /// Returns a watcher for scans at this interval.
    pub fn new(policy: Policy, every: Duration) -> Self {
        Watch { policy, longest_gap: every.saturating_mul(GAPS).max(MIN_GAP), ..Watch::default() }
    }

    /// Replaces the policy. Raised findings stay raised until a scan clears them. Warnings must be
    /// given again.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        for tracked in self.tracked.values_mut() {
            tracked.suspects.values_mut().for_each(|suspect| suspect.warned = None);
        }
    }

    /// Returns the policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns how many findings the last scan did not raise because too many of the same kind and
    /// user were raised within an hour. They are raised later if they last.
    pub fn held_back(&self) -> usize {
        self.held_back
    }

    /// Returns the identities of the findings that are raised.
    pub fn raised(&self) -> impl Iterator<Item = &Identity> {
        self.tracked.iter().filter(|(_, tracked)| tracked.raised.is_some()).map(|(id, _)| id)
    }

    /// Applies a scan and returns the resulting events, device faults first. `at` is the time on a
    /// monotonic clock.
    ///
    /// A scan that could not read the data a finding depends on neither raises nor clears it.
    pub fn update(&mut self, now: &Snapshot, diagnosis: &Diagnosis, at: Duration) -> Vec<Change> {
        let gap = self.last.map_or(Duration::ZERO, |last| at.saturating_sub(last));
        self.last = Some(at);
        self.held_back = 0;
        forget(&mut self.raised, at);
        forget(&mut self.warned, at);
        let tracked = &self.tracked;
        let is_suspect =
            |key: &ProcessKey| tracked.values().any(|one| one.suspects.contains_key(key));
        self.tried.retain(|key, tried| is_recent(*tried, at) || is_suspect(key));
        let mut found: BTreeMap<Identity, &Finding> = BTreeMap::new();
        let info = |key: &ProcessKey| now.process(key.pid).ok().filter(|info| info.key == *key);
        for finding in diagnosis.findings.iter().filter(|f| self.policy.concerns(f, info)) {
            let id = Identity::of(finding);
            let known = found.entry(id).or_insert(finding);
            if finding.confidence > known.confidence {
                *known = finding;
            }
        }
        // What happened during a long gap is unknown.
        let step = if gap <= self.longest_gap { gap } else { Duration::ZERO };
        let mut changes = self.update_absent(now, &found, step);
        for (id, finding) in found {
            let tracked = self.tracked.entry(id.clone()).or_insert_with(|| Tracked::new(now, at));
            tracked.see(now, finding, at, step, self.longest_gap);
            changes.extend(self.event(id, at));
        }
        changes.sort_by(|a, b| (&a.id, a.kind).cmp(&(&b.id, b.kind)));
        changes
    }

    /// Continues after a time without scans, during which a plan was executed. This time neither
    /// adds to the duration of a finding or suspect nor interrupts it.
    pub(crate) fn resume(&mut self, at: Duration) {
        self.last = Some(at);
        for tracked in self.tracked.values_mut().filter(|tracked| tracked.present) {
            tracked.last_present = at;
        }
    }

    /// Updates the findings that a scan lacks.
    fn update_absent(
        &mut self,
        now: &Snapshot,
        found: &BTreeMap<Identity, &Finding>,
        step: Duration,
    ) -> Vec<Change> {
        let policy = &self.policy;
        let mut cleared = Vec::new();
        self.tracked.retain(|id, tracked| {
            if found.contains_key(id) {
                return true;
            }
            tracked.present = false;
            if !shows_absence(now, id, &tracked.finding) {
                return true;
            }
            tracked.suspects.clear();
            tracked.lasted = Duration::ZERO;
            let absent = tracked.absent.map_or(Duration::ZERO, |absent| absent + step);
            tracked.absent = Some(absent);
            let is_over = absent >= policy.threshold(id.kind).clear_after;
            if tracked.raised.is_some() && is_over {
                cleared.push(tracked.change(ChangeKind::Cleared, id.clone()));
            }
            tracked.raised.is_some() && !is_over
        });
        cleared
    }

    /// Returns the event about a finding that the scan shows, if one is due.
    fn event(&mut self, id: Identity, at: Duration) -> Option<Change> {
        let tracked = self.tracked.get_mut(&id)?;
        let kind = match &tracked.raised {
            None if tracked.lasted < self.policy.threshold(id.kind).after => return None,
            None => {
                let first = tracked.finding.suspects.first();
                let info = first.and_then(|suspect| tracked.processes.get(&suspect.process));
                let owner = info.and_then(|info| info.uid.ok());
                let raised = self.raised.entry((id.kind, owner)).or_default();
                // Findings about devices are bounded by the number of devices.
                if id.process.is_some() && raised.len() >= MAX_RAISED {
                    self.held_back += 1;
                    return None;
                }
                raised.push_back(at);
                ChangeKind::Raised
            }
            Some(last) => {
                let is_due = at.saturating_sub(last.at) >= self.policy.notify.update_every;
                if !is_due || !last.is_news(&tracked.finding) {
                    return None;
                }
                ChangeKind::Updated
            }
        };
        tracked.raised = Some(Raised::of(&tracked.finding, at));
        Some(tracked.change(kind, id))
    }
}

/// Returns whether a time is within the last hour.
pub(crate) fn is_recent(then: Duration, now: Duration) -> bool {
    now.saturating_sub(then) < HOUR
}

/// Forgets the times that are not within the last hour.
fn forget<K: Ord>(times: &mut BTreeMap<K, VecDeque<Duration>>, now: Duration) {
    times.retain(|_, times| {
        times.retain(|then| is_recent(*then, now));
        !times.is_empty()
    });
}

impl Change {
    /// Returns the processes whose owners are notified: those that keep memory from others.
    pub fn concerned(&self) -> impl Iterator<Item = &ProcessInfo> {
        let is_about = self.id.process.is_some() || self.id.kind.reap_reason().is_some();
        self.processes.values().filter(move |_| is_about)
    }
}

impl Tracked {
    fn new(now: &Snapshot, at: Duration) -> Self {
        Tracked {
            finding: Finding {
                kind: FindingKind::DeviceFault,
                confidence: Confidence::Possible,
                devices: Vec::new(),
                memory: None,
                suspects: Vec::new(),
                evidence: Vec::new(),
                advice: Vec::new(),
            },
            processes: BTreeMap::new(),
            first_seen: now.taken_at,
            last_seen: now.taken_at,
            last_present: at,
            present: false,
            lasted: Duration::ZERO,
            absent: None,
            raised: None,
            suspects: BTreeMap::new(),
        }
    }

    /// Applies a scan that shows the finding; `step` is the time since the previous scan.
    fn see(
        &mut self,
        now: &Snapshot,
        finding: &Finding,
        at: Duration,
        step: Duration,
        longest_gap: Duration,
    ) {
        // Time counts only between two consecutive scans that both show the finding.
        let step = if self.present { step } else { Duration::ZERO };
        if at.saturating_sub(self.last_present) > longest_gap {
            self.suspects.clear();
            if self.raised.is_none() {
                (self.lasted, self.first_seen) = (Duration::ZERO, now.taken_at);
            }
        }
        self.lasted += step;
        let before = std::mem::take(&mut self.suspects);
        for suspect in &finding.suspects {
            // Without a start time, the PID may have been reused.
            if suspect.process.start.is_none() {
                continue;
            }
            let mut state = before.get(&suspect.process).cloned().unwrap_or_default();
            // Never end a process that computes on any device.
            let computes = |evidence: &Evidence| evidence.sign == Sign::ComputesOnOtherDevice;
            let works = suspect.evidence.iter().any(computes);
            for (level, lasted) in state.lasted.iter_mut().enumerate() {
                let is_met = suspect.confidence as usize >= level && !works;
                *lasted = is_met.then(|| lasted.map_or(Duration::ZERO, |lasted| lasted + step));
            }
            self.suspects.insert(suspect.process, state);
        }
        let keys = finding.suspects.iter().map(|suspect| suspect.process);
        let known = keys.filter_map(|key| {
            let info = now.process(key.pid).ok().filter(|info| info.key == key);
            Some((key, info.or_else(|| self.processes.get(&key))?.clone()))
        });
        self.processes = known.collect();
        self.finding = finding.clone();
        (self.present, self.absent) = (true, None);
        (self.last_seen, self.last_present) = (now.taken_at, at);
    }

    fn change(&self, kind: ChangeKind, id: Identity) -> Change {
        Change {
            kind,
            id,
            finding: self.finding.clone(),
            processes: self.processes.clone(),
            first_seen: self.first_seen,
            last_seen: self.last_seen,
        }
    }
}

impl Raised {
    fn of(finding: &Finding, at: Duration) -> Self {
        Raised {
            at,
            confidence: finding.confidence,
            memory: finding.memory,
            suspects: finding.suspects.iter().map(|suspect| suspect.process).collect(),
        }
    }

    /// Returns whether a finding differs from the last report.
    fn is_news(&self, finding: &Finding) -> bool {
        let has_new = finding.suspects.iter().any(|s| !self.suspects.contains(&s.process));
        let differs = |a: Bytes, b: Bytes| {
            let by = Bytes(a.0.abs_diff(b.0));
            by >= MIN_CHANGE && by.0 >= a.max(b).0 / 4
        };
        let memory = self.memory.zip(finding.memory);
        finding.confidence > self.confidence
            || has_new
            || memory.is_some_and(|(before, now)| differs(before, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::DeviceId;
    use gpu_reaper::{Confidence, FindingKind};

    #[test]
    fn memory_is_news_from_a_gibibyte_and_a_quarter_on() {
        let finding = |mib| Finding {
            kind: FindingKind::Ghost,
            confidence: Confidence::High,
            devices: vec![DeviceId::from_index(0)],
            memory: Some(Bytes::from_mib(mib)),
            suspects: Vec::new(),
            evidence: Vec::new(),
            advice: Vec::new(),
        };
        for (raised, now, is_news) in [
            (6144, 8192, true),
            (8192, 6144, true),
            (6145, 8192, false),
            (8192, 6145, false),
            (1000, 2024, true),
            (1000, 2023, false),
        ] {
            let before = Raised::of(&finding(raised), Duration::ZERO);
            assert_eq!(before.is_news(&finding(now)), is_news, "{raised} {now}");
        }
    }
}
