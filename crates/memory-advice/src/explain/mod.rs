//! Why a request for device memory failed, from the figures of its message.
//!
//! The main decision is that nothing is said that the figures do not say. They are added up as the
//! allocator and the driver count them, each sum within the rounding of what was printed; what
//! contradicts another figure is named and not used; and where several causes would fit, the one
//! is given whose remedy suffices for the request. A look at the machine adds who is there now; it
//! changes no finding, since the log may be of another machine and another day.

mod account;
mod cause;
mod evidence;
mod remedy;

pub use account::Account;
pub use cause::Cause;
pub use evidence::{Device, MessageSource, Now, OomFigures, Other, Resident};
pub use remedy::{Remedy, RemedyKind};

use serde::Serialize;

/// Why a request failed, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Why.
    pub cause: Cause,
    /// The figures added up.
    pub account: Account,
    /// What that is in this case, a sentence each, the most telling first.
    pub reasons: Vec<String>,
    /// Figures that cannot all be true, a sentence each.
    pub contradictions: Vec<String>,
    /// What the machine shows now, a sentence each; empty without a look.
    pub now: Vec<String>,
    /// What to do, best first.
    pub remedies: Vec<Remedy>,
}

/// Finds out why a request failed.
pub fn explain(shown: &OomFigures, now: Option<&Now>) -> Diagnosis {
    // A look shows NVIDIA's devices, by numbers that others have too.
    let now = now.filter(|_| shown.may_be_nvidia());
    let account = Account::of(shown);
    let cause = Cause::of(shown, &account);
    Diagnosis {
        cause,
        reasons: cause::reasons(cause, shown, &account),
        contradictions: account::contradictions(shown),
        now: now.map(|now| now.told(shown, &account)).unwrap_or_default(),
        remedies: remedy::remedies(cause, shown, &account, now),
        account,
    }
}

#[cfg(test)]
mod tests;
