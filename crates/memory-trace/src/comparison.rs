//! A job under another policy, and what would have saved it.

use crate::replay::{Outcome, Replay, Witness};
use crate::workload::Workload;
use gpu_allocator_policy::{Choice, Failure, Usage};
use gpu_core::Bytes;
use serde::Serialize;

/// How a job fared on a modelled device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// How the replay went.
    pub outcome: Outcome,
    /// What the policy had at the end of the replay.
    pub end: Usage,
}

/// Runs a job under a policy on a modelled device of so much memory; `None` is a device that never
/// refuses.
///
/// # Errors
/// When the policy cannot be had.
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

/// Returns the settings, one change each, with which a job comes to its end where it did not: what
/// is changed, and how the job fares then.
///
/// # Errors
/// When the policy cannot be had.
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

/// Returns the changes of a policy that people make against fragmentation.
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
