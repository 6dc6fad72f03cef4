//! The suspects that the policy has ended, and those whose owners it has warned before.

use crate::identity::Identity;
use crate::policy::{ReapPolicy, ReapRule};
use crate::watch::{Suspected, Tracked, Watch};
use gpu_core::{DeviceId, ProcessInfo, ProcessKey};
use gpu_reaper::{Confidence, Finding};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A process that was not ended is tried again after this time.
const RETRY: Duration = HOUR;

/// A process that is to be ended by the policy, or whose owner is to be warned.
#[derive(Clone, Debug, PartialEq)]
pub struct Condemned {
    /// The finding.
    pub id: Identity,
    /// The process.
    pub process: ProcessInfo,
    /// The devices of the finding.
    pub devices: Vec<DeviceId>,
    /// The time until it is ended, if nothing changes.
    pub left: Duration,
    /// How long it has been a suspect.
    pub lasted: Duration,
}

impl Condemned {
    /// Returns the process.
    pub fn key(&self) -> ProcessKey {
        self.process.key
    }
}

impl Watch {
    /// Returns the processes whose owners must be warned now, and marks them as warned.
    pub(crate) fn warnings(&mut self) -> Vec<Condemned> {
        let now = self.last.unwrap_or_default();
        let mut warned = Vec::new();
        let policy = &self.policy;
        let Some(reap) = &policy.reap else { return warned };
        for (id, tracked) in &mut self.tracked {
            let due: Vec<Condemned> = tracked
                .covered(id, policy, reap)
                .filter(|(rule, suspect, condemned)| {
                    let is_near = condemned.lasted + rule.warn >= rule.after;
                    !rule.warn.is_zero() && suspect.warned.is_none() && is_near
                })
                .map(|(rule, _, condemned)| Condemned {
                    left: rule.warn.max(rule.after.saturating_sub(condemned.lasted)),
                    ..condemned
                })
                .collect();
            for condemned in due {
                if let Some(suspect) = tracked.suspects.get_mut(&condemned.key()) {
                    suspect.warned = Some(now);
                }
                // A process that is the ghost of several devices is warned of once.
                if !warned.iter().any(|other: &Condemned| other.key() == condemned.key()) {
                    warned.push(condemned);
                }
            }
        }
        warned
    }

    /// Returns the processes that the policy has ended now: suspects of raised findings that the
    /// last look has, for the whole time of their rule and after their warning. At most as many as
    /// may still be signalled within the hour.
    pub(crate) fn condemned(&self) -> Vec<Condemned> {
        let now = self.last.unwrap_or_default();
        let Some(reap) = &self.policy.reap else { return Vec::new() };
        let recent = self.ended.iter().filter(|at| now.saturating_sub(**at) < HOUR).count();
        let due = self.tracked.iter().flat_map(|(id, tracked)| {
            tracked.covered(id, &self.policy, reap).filter(move |(rule, suspect, condemned)| {
                let warned = suspect.warned.map(|at| now.saturating_sub(at));
                let was_warned =
                    rule.warn.is_zero() || warned.is_some_and(|for_| for_ >= rule.warn);
                let may_try = suspect.tried.is_none_or(|at| now.saturating_sub(at) >= RETRY);
                condemned.lasted >= rule.after && was_warned && may_try
            })
        });
        let due = due.map(|(_, _, condemned)| condemned);
        let mut chosen: Vec<Condemned> = Vec::new();
        for condemned in due.take(reap.most_per_hour.saturating_sub(recent)) {
            // A ghost of several devices is several findings.
            if !chosen.iter().any(|other| other.key() == condemned.key()) {
                chosen.push(condemned);
            }
        }
        chosen
    }

    /// Marks processes as tried.
    pub(crate) fn tried(&mut self, keys: &[ProcessKey]) {
        let now = self.last;
        for tracked in self.tracked.values_mut() {
            for (_, suspect) in tracked.suspects.iter_mut().filter(|(key, _)| keys.contains(key)) {
                suspect.tried = now;
            }
        }
    }

    /// Counts processes that were signalled.
    pub(crate) fn count_ended(&mut self, count: usize) {
        let now = self.last.unwrap_or_default();
        self.ended.retain(|at| now.saturating_sub(*at) < HOUR);
        self.ended.extend(std::iter::repeat_n(now, count));
    }
}

impl Tracked {
    /// The suspects that a rule covers, if the finding is raised and the last look has it.
    fn covered<'a>(
        &'a self,
        id: &'a Identity,
        policy: &'a crate::Policy,
        reap: &'a ReapPolicy,
    ) -> impl Iterator<Item = (&'a ReapRule, &'a Suspected, Condemned)> {
        let finding: &Finding = &self.finding;
        let is_there = self.present && self.raised.is_some();
        self.suspects.iter().filter(move |_| is_there).filter_map(move |(key, suspect)| {
            let process = self.processes.get(key)?;
            let rule = reap.rule(id.kind, &finding.devices, process)?;
            if reap.protect.iter().any(|protect| protect.covers(process)) {
                return None;
            }
            // In doubt whether it is allowed, it is spared.
            let is_allowed = policy
                .allowed
                .iter()
                .any(|allowed| allowed.covers(id.kind, Some(process)) != Some(false));
            let lasted = suspect.lasted[rule.min_confidence as usize]?;
            let condemned = Condemned {
                id: id.clone(),
                process: process.clone(),
                devices: finding.devices.clone(),
                left: Duration::ZERO,
                lasted,
            };
            (!is_allowed && rule.min_confidence > Confidence::Possible)
                .then_some((rule, suspect, condemned))
        })
    }
}
