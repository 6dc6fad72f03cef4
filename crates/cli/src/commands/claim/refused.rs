//! The failure of a claim that was not granted.

use super::request::{PreparedClaim, reasons};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::users::owner;
use crate::wording;
use gpu_core::{DeviceUuid, ErrorKind, Share};
use gpu_placement::{Passed, Refusal};
use gpu_report::wording::claims::{self, wait_reason_text};
use gpu_steward::{NotGranted, Refused, Standing};

/// Converts the reason why no devices were granted to a failure with a hint.
pub(crate) fn failure(prepared: &PreparedClaim, why: NotGranted) -> Failure {
    let request = &prepared.request;
    let what = || {
        let count = wording::count(request.claim.count as usize, "GPU", "GPUs");
        match request.claim.share {
            Share::Whole => format!("claim {count}"),
            Share::Memory(bytes) => format!("claim {bytes} of {count}"),
        }
    };
    match why {
        NotGranted::NotNow { waited, standing, refused } => {
            let Standing { ahead, leases, wait_reason } = *standing;
            let mut reasons = refused
                .as_ref()
                .map_or(Vec::new(), |refused| reasons(refused.passed(), prepared.limited_by));
            if let Some(nearest) = &ahead.nearest {
                let others = wording::count(ahead.count, "claim waits", "claims wait");
                reasons.insert(0, format!("{others} already, the last from {}", owner(nearest)));
            }
            reasons.splice(0..0, wait_reason.iter().map(wait_reason_text));
            if reasons.is_empty() {
                let holders: Vec<String> = leases.iter().map(owner).collect();
                reasons.push(format!("leased by {}", holders.join(", ")));
            }
            let source = match waited {
                true => format!("not available within the timeout; {}", reasons.join("; ")),
                false => format!("not available now; {}", reasons.join("; ")),
            };
            // Leases do not show the users of a device without a lease.
            let command = match &refused {
                Some(refused) if claims::is_used_without_lease(refused) => "gpuws status",
                _ => "gpuws leases",
            };
            let hint = match waited {
                true => format!("see holders and waiting claims with: {command}"),
                false => format!("omit --no-wait to wait; see holders with: {command}"),
            };
            Failure::new(Exit::TryLater, what()).with_source(source).with_hint(hint)
        }
        NotGranted::Never(refused) => {
            never(Failure::new(Exit::Usage, what()), refused.as_ref(), prepared)
        }
        NotGranted::Foreign(lease) => {
            let owner = owner(&lease);
            let why = format!(
                "already inside lease {} of {owner}; only its owner can subdivide it",
                lease.id
            );
            let hint = "run the command without gpuws; it already has the GPUs of that lease";
            Failure::new(Exit::Usage, what()).with_source(why).with_hint(hint)
        }
        NotGranted::Silent(fault) => gpu_core::Error::new(fault.kind, fault.text).into(),
        NotGranted::Stopped => {
            Failure::new(Exit::Remains, what()).with_source("interrupted; nothing was claimed")
        }
        NotGranted::Failed(error) if error.kind() == ErrorKind::TimedOut => {
            Failure::from(error).ending(Exit::TryLater)
        }
        NotGranted::Failed(error) => error.into(),
    }
}

/// Describes why a claim can never be granted, and its limit: a lease, a device list, or the
/// machine.
fn never(failure: Failure, refused: Option<&Refused>, prepared: &PreparedClaim) -> Failure {
    let claim = &prepared.request.claim;
    let Some(refused) = refused else {
        return failure.with_source("the enclosing lease has fewer GPUs");
    };
    let is_relevant = |why: &Passed| why.is_lasting() && *why != Passed::NotAmong;
    let reasons =
        reasons(refused.passed().filter(|(_, why)| is_relevant(why)), prepared.limited_by);
    let reasons =
        if reasons.is_empty() { String::new() } else { format!("; {}", reasons.join("; ")) };
    match &refused.refusal {
        Refusal::Never { could, .. } if *could >= claim.count => {
            failure.with_source(format!("a GPU named by --with is not available{reasons}"))
        }
        Refusal::Never { could, .. } => {
            let limit = match (&refused.within, prepared.limited_by, claim.among.is_empty()) {
                (Some(lease), ..) => format!("the enclosing lease {lease}"),
                (None, Some(by), _) => by.to_owned(),
                (None, None, false) if claim.among.iter().any(DeviceUuid::is_partition) => {
                    "the choice of MIG devices".to_owned()
                }
                (None, None, false) => "--gpu".to_owned(),
                (None, None, true) => match &claim.vendor {
                    Some(vendor) => format!("--vendor {vendor}"),
                    None => "this machine".to_owned(),
                },
            };
            let failure = failure.with_source(format!("{limit} can provide only {could}{reasons}"));
            let hint = claims::what_is_possible(refused, *could, prepared.limited_by);
            hint.into_iter().fold(failure, Failure::with_hint)
        }
        Refusal::Missing(uuid) => failure.with_source(match &refused.within {
            Some(lease) => format!("{uuid} is not in the enclosing lease {lease}"),
            None => format!("{uuid} is gone, or not of the vendor of the other GPUs"),
        }),
        Refusal::Contradictory => failure.with_source("--with names more GPUs than -n requests"),
        Refusal::NotNow { .. } => failure.with_source(format!("cannot be satisfied{reasons}")),
    }
}
