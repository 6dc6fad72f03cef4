//! The state of the watcher, and what one look changes.

use crate::identity::Identity;
use crate::policy::Policy;
use crate::sight::shows_absence;
use gpu_core::{Bytes, ProcessInfo, ProcessKey, Snapshot, Timestamp};
use gpu_reaper::{Confidence, Diagnosis, Evidence, Finding, FindingKind, Sign};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Looks further apart do not show that something lasted in between: this many intervals, and at
/// least [`LEAST_GAP`].
const GAPS: u32 = 3;
const LEAST_GAP: Duration = Duration::from_secs(30);

/// The most findings of one kind about one user that are raised within an hour: a user who starts
/// and ends many processes does not flood whoever is told.
pub(crate) const MOST_RAISED: usize = 64;

pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

/// A smaller change of the memory is no news.
const NEWS: Bytes = Bytes::from_mib(1024);

/// A watcher. Its state is in memory only: a new one raises again what it finds.
#[derive(Debug)]
pub struct Watch {
    pub(crate) policy: Policy,
    pub(crate) longest_gap: Duration,
    pub(crate) tracked: BTreeMap<Identity, Tracked>,
    /// The time of the last look.
    pub(crate) last: Option<Duration>,
    /// When findings were raised, by kind and owner of the first suspect.
    raised: BTreeMap<(FindingKind, Option<u32>), VecDeque<Duration>>,
    /// The findings that the last look would have raised but for the limit.
    held_back: usize,
    /// When processes were signalled, or would have been.
    pub(crate) ended: VecDeque<Duration>,
    /// When owners were warned of the end of a process, by UID.
    pub(crate) warned: BTreeMap<u32, VecDeque<Duration>>,
    /// When processes were last tried to end: within the last hour, or suspects still.
    pub(crate) tried: BTreeMap<ProcessKey, Duration>,
    /// The driver could not be queried at the last look.
    pub(crate) blind: bool,
}

/// A finding that some look had, raised or not yet.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) finding: Finding,
    /// The suspects, as the last look with them saw them.
    pub(crate) processes: BTreeMap<ProcessKey, ProcessInfo>,
    /// When the first look without a later break had it.
    first_seen: Timestamp,
    last_seen: Timestamp,
    last_present: Duration,
    /// The last look had it.
    pub(crate) present: bool,
    /// How long it has been there without a break.
    lasted: Duration,
    /// How long it has been absent; `None` if the last complete look had it.
    absent: Option<Duration>,
    pub(crate) raised: Option<Raised>,
    pub(crate) suspects: BTreeMap<ProcessKey, Suspected>,
}

/// What was last told of a finding.
#[derive(Clone, Debug)]
pub(crate) struct Raised {
    at: Duration,
    confidence: Confidence,
    memory: Option<Bytes>,
    suspects: BTreeSet<ProcessKey>,
}

/// For how long a process has been a suspect without a break.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspected {
    /// With at least the confidence possible, likely and high; `None` if it is less now.
    pub(crate) lasted: [Option<Duration>; 3],
    pub(crate) warned: Option<Duration>,
}

/// An event about a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// Which finding.
    pub id: Identity,
    /// The finding, at the last look that had it.
    pub finding: Finding,
    /// Its suspects, as that look saw them.
    pub processes: BTreeMap<ProcessKey, ProcessInfo>,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When it was last seen.
    pub last_seen: Timestamp,
}

/// What happened to a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It has lasted for as long as the policy says.
    Raised,
    /// It is more certain, has other suspects, or concerns much more or less memory.
    Updated,
    /// It has been absent for as long as the policy says.
    Cleared,
}

impl Watch {
    /// Returns a watcher that is to look every so often.
    pub fn new(policy: Policy, every: Duration) -> Self {
        Watch {
            policy,
            longest_gap: every.saturating_mul(GAPS).max(LEAST_GAP),
            tracked: BTreeMap::new(),
            last: None,
            raised: BTreeMap::new(),
            held_back: 0,
            ended: VecDeque::new(),
            warned: BTreeMap::new(),
            tried: BTreeMap::new(),
            blind: false,
        }
    }

    /// Replaces the policy. What is raised stays raised until a look clears it; every warning has to
    /// be given again.
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

    /// Returns how many findings the last look did not raise because too many of the same kind and
    /// user were raised within an hour. They are raised later if they last.
    pub fn held_back(&self) -> usize {
        self.held_back
    }

    /// Returns the identities of the findings that are raised.
    pub fn raised(&self) -> impl Iterator<Item = &Identity> {
        self.tracked.iter().filter(|(_, tracked)| tracked.raised.is_some()).map(|(id, _)| id)
    }

    /// Applies a look at this time, on a clock that never goes back, and returns what it changes:
    /// faults of devices first.
    ///
    /// A look that could not read what a finding rests on neither raises nor clears it.
    pub fn look(&mut self, now: &Snapshot, diagnosis: &Diagnosis, at: Duration) -> Vec<Change> {
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
        // After a long gap nobody knows what happened in between.
        let step = if gap <= self.longest_gap { gap } else { Duration::ZERO };
        let mut changes = self.miss(now, &found, step);
        for (id, finding) in found {
            let tracked = self.tracked.entry(id.clone()).or_insert_with(|| Tracked::new(now, at));
            tracked.see(now, finding, at, step, self.longest_gap);
            changes.extend(self.tell(id, at));
        }
        changes.sort_by(|a, b| (&a.id, a.kind).cmp(&(&b.id, b.kind)));
        changes
    }

    /// Continues after a time in which nobody could look, because a plan was executed: it neither
    /// counts for a finding or a suspect nor ends their time.
    pub(crate) fn resume(&mut self, at: Duration) {
        self.last = Some(at);
        for tracked in self.tracked.values_mut().filter(|tracked| tracked.present) {
            tracked.last_present = at;
        }
    }

    /// Applies the absence of what a look does not have.
    fn miss(
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

    /// Returns the event about a finding that the look has, if it is due.
    fn tell(&mut self, id: Identity, at: Duration) -> Option<Change> {
        let tracked = self.tracked.get_mut(&id)?;
        let kind = match &tracked.raised {
            None if tracked.lasted < self.policy.threshold(id.kind).after => return None,
            None => {
                let first = tracked.finding.suspects.first();
                let info = first.and_then(|suspect| tracked.processes.get(&suspect.process));
                let owner = info.and_then(|info| info.uid.ok());
                let raised = self.raised.entry((id.kind, owner)).or_default();
                // What concerns devices is bounded by their number.
                if id.process.is_some() && raised.len() >= MOST_RAISED {
                    self.held_back += 1;
                    return None;
                }
                raised.push_back(at);
                ChangeKind::Raised
            }
            Some(told) => {
                let is_due = at.saturating_sub(told.at) >= self.policy.tell.update_every;
                if !is_due || !told.is_news(&tracked.finding) {
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
    /// Returns the processes whose owners are told: those that keep memory from others.
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

    /// Applies a look that has the finding; `step` is the time since the look before it.
    fn see(
        &mut self,
        now: &Snapshot,
        finding: &Finding,
        at: Duration,
        step: Duration,
        longest_gap: Duration,
    ) {
        // Only what two looks in a row show has lasted from one to the other.
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
            // Without a start time, another process may have the PID by now.
            if suspect.process.start.is_none() {
                continue;
            }
            let mut state = before.get(&suspect.process).cloned().unwrap_or_default();
            // A process that computes anywhere is nobody's to end.
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

    /// Returns whether a finding differs from what was told.
    fn is_news(&self, finding: &Finding) -> bool {
        let has_new = finding.suspects.iter().any(|s| !self.suspects.contains(&s.process));
        let differs = |a: Bytes, b: Bytes| {
            let by = Bytes(a.0.abs_diff(b.0));
            by >= NEWS && by.0 >= a.max(b).0 / 4
        };
        let memory = self.memory.zip(finding.memory);
        finding.confidence > self.confidence
            || has_new
            || memory.is_some_and(|(told, now)| differs(told, now))
    }
}
