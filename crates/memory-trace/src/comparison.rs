//! A job under other policies and settings.

use crate::replay::{Outcome, Replay, Witness};
use crate::workload::Workload;
use gpu_allocator_policy::{Choice, Failure, Usage};
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

/// Runs a job under a policy on a modelled device with this much memory; `None` is a device that
/// never refuses.
///
/// # Errors
/// If the policy cannot be created.
pub fn trial(
    workload: &Workload,
    choice: &Choice,
    device: Option<Bytes>,
    witness: &mut impl Witness,
) -> Result<Trial, Failure> {
    let (_, mut policy) = choice.model(device.unwrap_or(Choice::ENDLESS))?;
    let outcome = Replay::new(workload).run(policy.as_mut(), witness)?;
    Ok(Trial { outcome, end: policy.usage() })
}

/// Returns the single changes of a setting with which a job completes that otherwise fails: the
/// changed setting, and the trial with it.
///
/// # Errors
/// If the policy cannot be created.
pub fn helpful_settings(
    workload: &Workload,
    choice: &Choice,
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

/// Returns the usual changes of settings against fragmentation.
fn changes(choice: &Choice) -> &'static [(&'static str, &'static str)] {
    match choice {
        Choice::Caching(_) => &[
            ("expandable_segments", "True"),
            ("max_split_size_mb", "512"),
            ("max_split_size_mb", "128"),
            ("max_split_size_mb", "32"),
        ],
        Choice::Bfc(_) => {
            &[("allow_growth", "false"), ("allow_growth", "true"), ("garbage_collection", "true")]
        }
        Choice::StreamOrdered(_) | Choice::Direct => &[],
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
        let choice = Choice::named(policy).expect("there is one");
        let found = helpful_settings(workload, &choice, Some(Bytes::from_mib(mib)));
        let found = found.expect("no faults");
        assert!(found.iter().all(|(_, trial)| trial.outcome.survived()));
        found.into_iter().map(|(setting, _)| setting).collect()
    }

    #[test]
    fn only_settings_with_which_the_job_completes_are_helpful() {
        use StepKind::{Allocate, Free};
        // 21 MiB keep a region of 60 MiB, of which the last request can use nothing.
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
}
