//! A job under other policies and settings.

use crate::replay::{Observer, Outcome, Replay};
use crate::workload::Workload;
use gpu_allocator_policy::{Failure, PolicyConfig, Usage};
use gpu_core::Bytes;
use serde::Serialize;

/// A job on a modelled device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The result of the replay.
    pub outcome: Outcome,
    /// The policy's usage at the end of the replay.
    pub end: Usage,
}

/// Runs a job under a policy on a modelled device with this much memory; `None` means a device that
/// never refuses.
///
/// # Errors
/// If the policy cannot be created.
pub fn trial(
    workload: &Workload,
    choice: &PolicyConfig,
    device: Option<Bytes>,
    observer: &mut impl Observer,
) -> Result<Trial, Failure> {
    let (_, mut policy) = choice.model(device.unwrap_or(PolicyConfig::ENDLESS))?;
    let outcome = Replay::new(workload).run(policy.as_mut(), observer)?;
    Ok(Trial { outcome, end: policy.usage() })
}

/// Returns the single changes of a setting with which a job completes that otherwise fails: the
/// changed setting, and the trial with it.
///
/// # Errors
/// If the policy cannot be created.
pub fn helpful_settings(
    workload: &Workload,
    choice: &PolicyConfig,
    device: Option<Bytes>,
) -> Result<Vec<(String, Trial)>, Failure> {
    let mut helpful_settings = Vec::new();
    for (key, value) in changes(choice) {
        let mut changed = choice.clone();
        if changed.set(key, value).is_err() || changed == *choice {
            continue;
        }
        let trial = trial(workload, &changed, device, &mut ())?;
        if trial.outcome.survived() {
            helpful_settings.push((format!("{key}:{value}"), trial));
        }
    }
    Ok(helpful_settings)
}

/// Returns common changes of settings against fragmentation.
fn changes(choice: &PolicyConfig) -> &'static [(&'static str, &'static str)] {
    match choice {
        PolicyConfig::Caching(_) => &[
            ("expandable_segments", "True"),
            ("max_split_size_mb", "512"),
            ("max_split_size_mb", "128"),
            ("max_split_size_mb", "32"),
        ],
        PolicyConfig::Bfc(_) => {
            &[("allow_growth", "false"), ("allow_growth", "true"), ("garbage_collection", "true")]
        }
        PolicyConfig::StreamOrdered(_) | PolicyConfig::Direct => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Step, StepKind};
    use gpu_allocator_policy::Stream;

    /// A job that allocates memory of these sizes in MiB, and frees it by number.
    fn job(steps: &[(u64, u32, StepKind)]) -> Workload {
        let step = |&(mib, slot, kind): &(u64, u32, StepKind)| Step {
            size: mib << 20,
            slot,
            stream: 0,
            kind,
        };
        Workload {
            streams: vec![Stream(0)],
            pools: vec![(0, 0)],
            steps: steps.iter().map(step).collect(),
            events: (0..steps.len() as u32).collect(),
            slots: 8,
            ..Workload::default()
        }
    }

    fn helpful(workload: &Workload, policy: &str, mib: u64) -> Vec<String> {
        let choice = PolicyConfig::named(policy).expect("there is one");
        let found = helpful_settings(workload, &choice, Some(Bytes::from_mib(mib)));
        let found = found.expect("no faults");
        assert!(found.iter().all(|(_, trial)| trial.outcome.survived()));
        found.into_iter().map(|(setting, _)| setting).collect()
    }

    #[test]
    fn suggests_only_settings_with_which_job_completes() {
        use StepKind::{Allocate, Free};
        // 21 MiB keep a region of 60 MiB alive, and the last request fits in none of its remainder.
        let fragmented = job(&[
            (60, 0, Allocate),
            (0, 0, Free),
            (21, 1, Allocate),
            (38, 2, Allocate),
            (0, 2, Free),
            (58, 3, Allocate),
        ]);
        assert_eq!(
            helpful(&fragmented, "caching", 100),
            ["expandable_segments:True", "max_split_size_mb:32"]
        );
        assert_eq!(helpful(&fragmented, "direct", 100), [""; 0]);
        let too_large = job(&[(200, 0, Allocate)]);
        assert_eq!(helpful(&too_large, "caching", 100), [""; 0]);
        assert_eq!(helpful(&job(&[(90, 0, Allocate)]), "bfc", 100), ["allow_growth:false"]);
    }

    #[test]
    fn outcome_has_peaks_steps_and_granted_failures() {
        use StepKind::{Allocate, Complete, EmptyCache, Fail, Free, Retire};
        let steps = [
            (30, 0, Allocate),
            (0, 0, Retire),
            (20, 1, Allocate),
            (0, 0, Complete),
            (25, 2, Fail),
            (0, 1, Free),
            (0, 0, EmptyCache),
            (40, 3, Allocate),
        ];
        let run = |policy: &str, mib: u64| {
            let choice = PolicyConfig::named(policy).expect("there is one");
            trial(&job(&steps), &choice, Some(Bytes::from_mib(mib)), &mut ())
                .expect("no faults")
                .outcome
        };
        let done = run("direct", 100);
        let level = |in_use, reserved| crate::Level {
            in_use: Bytes::from_mib(in_use),
            reserved: Bytes::from_mib(reserved),
        };
        assert_eq!(
            (done.peak, done.peak_step, done.in_use_at_peak),
            (level(40, 50), Some(2), Bytes::from_mib(20))
        );
        assert_eq!((done.steps, done.failures_avoided, done.stop), (8, 1, None));
        assert!(done.survived() && done.wasted() == Bytes::from_mib(10));
        let cached = run("caching", 100);
        assert_eq!(
            (cached.peak, cached.peak_step),
            (level(40, 50), Some(2)),
            "the failed request is served from the cache"
        );
        assert_eq!(cached.in_use_at_peak, Bytes::from_mib(20));
        let short = run("direct", 35);
        let stop = short.stop.expect("it does not fit");
        assert_eq!((stop.step, stop.shortage.asked), (Some(2), Bytes::from_mib(20)));
        assert_eq!((short.steps, short.failures_avoided), (2, 0));
        assert!(!short.survived());
        let tight = run("direct", 50);
        assert_eq!((tight.steps, tight.failures_avoided), (8, 1));
    }

    #[test]
    fn retired_memory_does_not_count_as_requested() {
        use StepKind::{Allocate, Complete, Fail, Free, Retire};
        for (steps, mib) in [
            (&[(30, 0, Allocate), (0, 0, Retire), (20, 1, Allocate), (0, 0, Complete)][..], 30),
            (&[(30, 0, Allocate), (0, 0, Free), (31, 0, Allocate), (5, 1, Allocate)], 36),
            (&[(30, 0, Allocate), (90, 1, Fail), (5, 1, Allocate)], 35),
        ] {
            assert_eq!(job(steps).peak_requested(), mib << 20);
        }
        let held = |slot, retired| crate::InitialAllocation {
            slot,
            size: 7,
            address: 0,
            stream: 0,
            retired,
        };
        let workload =
            Workload { held: vec![held(0, false), held(1, true)], ..job(&[(0, 0, Free)]) };
        assert_eq!(workload.peak_requested(), 7);
    }
}
