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
