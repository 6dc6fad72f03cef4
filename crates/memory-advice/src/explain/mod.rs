//! Why a request for device memory failed, from the figures of its message.
//!
//! The explanation states only what follows from the figures. It adds them up as the allocator and
//! the driver do, and allows for the rounding of the printed figures. It names contradictory
//! figures and does not use them. If several causes fit, it gives the one with a remedy that
//! suffices for the request. A snapshot of the machine adds the current state but changes no cause,
//! because the log may come from another machine or another day.

mod account;
mod answer;
mod cause;
mod evidence;
mod now;
mod remedy;
mod verdict;

pub use account::{Account, approximate};
pub use answer::{Cause, Remedy, RemedyKind};
pub use evidence::{MessageSource, OomFigures, Other, Stated};
pub use now::{Device, Now, Resident};

use serde::Serialize;

/// Why a request failed, and the remedies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The cause.
    pub cause: Cause,
    /// The cause with its figures, in one line.
    pub verdict: String,
    /// The sums of the figures.
    pub account: Account,
    /// The reasons for the cause, one sentence each, most relevant first.
    pub reasons: Vec<String>,
    /// Figures that cannot all be true, one sentence each.
    pub contradictions: Vec<String>,
    /// The current state of the machine, one sentence each; empty without a snapshot.
    pub now: Vec<String>,
    /// The remedies, best first.
    pub remedies: Vec<Remedy>,
}

impl Diagnosis {
    /// Adapts the suggested commands to a simulated machine. `sim` is the option that selects it,
    /// and `live` is the start of a command line that runs a job on it.
    pub fn on_machine(&mut self, sim: &str, live: &str) {
        for set in self.remedies.iter_mut().filter_map(|remedy| remedy.set.as_mut()) {
            if set.starts_with("gpuws run ") {
                set.insert_str(0, live);
            } else if let Some(rest) = set.strip_prefix("gpuws ") {
                *set = format!("gpuws {sim}{rest}");
            }
        }
    }
}

/// Determines why a request failed.
pub fn explain(shown: &OomFigures, now: Option<&Now>) -> Diagnosis {
    // A snapshot contains NVIDIA devices, but devices of other vendors can have the same indexes.
    let now = now.filter(|_| shown.may_be_nvidia());
    let account = Account::of(shown);
    let (cause, verdict, reasons) = match &shown.stated {
        Some(Stated { cause, verdict, reason }) => {
            (*cause, verdict.clone(), cause::stated(reason, shown))
        }
        None => {
            let cause = Cause::of(shown, &account);
            (cause, verdict::of(cause, shown, &account), cause::reasons(cause, shown, &account))
        }
    };
    Diagnosis {
        cause,
        verdict,
        reasons,
        contradictions: account::contradictions(shown, &account),
        now: now.map(|now| now.reported(shown, &account)).unwrap_or_default(),
        remedies: remedy::remedies(cause, shown, &account, now),
        account,
    }
}

#[cfg(test)]
mod tests;
