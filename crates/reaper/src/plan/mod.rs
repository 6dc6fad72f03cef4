//! From a diagnosis to a plan: whom to signal, why, and what should come back.

mod candidates;
mod expected;
mod membership;
mod targets;

pub use expected::Expected;
pub use membership::{Membership, Scope};

use crate::detect::DetectContext;
use crate::finding::Diagnosis;
use crate::guard::{Guard, Refusal};
use candidates::candidates;
use gpu_core::{DeviceId, Origin, Pid, ProcessInfo, ProcessKey, Snapshot};
use serde::Serialize;
use std::time::Duration;
use targets::Choice;

/// What the user asks for.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Exactly these processes. With none, those that a ghost, orphan, zombie or gone finding
    /// names with high confidence.
    pub pids: Vec<Pid>,
    /// Only on these devices; on all of them when empty.
    pub devices: Vec<DeviceId>,
    /// Only of these users, by name or number, in a wider scope too; of all when empty.
    pub users: Vec<String>,
    /// How far to reach.
    pub scope: Scope<'a>,
    /// How long SIGTERM is given before SIGKILL.
    pub grace: Duration,
}

impl Request<'_> {
    /// The time from SIGTERM to SIGKILL unless told otherwise: earlyoom's ten seconds.
    pub const GRACE: Duration = Duration::from_secs(10);
}

impl Default for Request<'_> {
    fn default() -> Self {
        Request {
            pids: Vec::new(),
            devices: Vec::new(),
            users: Vec::new(),
            scope: Scope::Process,
            grace: Request::GRACE,
        }
    }
}

/// A process to be ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The process as it was when the plan was made.
    #[serde(skip)]
    pub process: ProcessInfo,
    /// Number and start time.
    pub key: ProcessKey,
    /// What must still hold before each signal.
    pub membership: Membership,
    /// The process whose scope it is in; itself for the one that the plan is about.
    #[serde(rename = "on_account_of_pid")]
    pub on_account_of: Pid,
    /// Why, a fragment.
    pub why: String,
    /// What the user should know before saying yes.
    pub warnings: Vec<String>,
}

/// A process that was asked for, or is suspect, and is not to be signalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The process.
    pub pid: Pid,
    /// Its name, where known.
    pub name: Option<String>,
    /// Why not.
    pub why: Refusal,
}

/// Everything that would be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// The machine it is for; it can be carried out on no other.
    #[serde(skip)]
    pub origin: Option<Origin>,
    /// Whom to signal, in order.
    pub targets: Vec<Target>,
    /// Whom not, and why.
    pub refused: Vec<Refused>,
    /// Whom findings name, or who is in a scope, and the choice of devices or users left out.
    pub left_out: Vec<Refused>,
    /// The users that the plan is confined to; all when empty.
    #[serde(skip)]
    pub users: Vec<String>,
    /// What should come back.
    pub expected: Vec<Expected>,
    /// Time from SIGTERM to SIGKILL, in milliseconds.
    #[serde(rename = "grace_ms", serialize_with = "millis")]
    pub grace: Duration,
}

pub(crate) fn millis<S: serde::Serializer>(duration: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Returns what to do about `diagnosis`, as `request` narrows it.
///
/// A process that is asked for by its number and neither holds a device nor is listed is refused
/// as one that cannot be seen, unless the last look knows of it
/// ([`look_up_processes`](gpu_core::look_up_processes)).
pub fn plan(
    looks: &[Snapshot],
    diagnosis: &Diagnosis,
    guard: &Guard,
    request: &Request<'_>,
) -> Plan {
    let Some(case) = DetectContext::new(looks) else { return Plan::default() };
    let mut plan =
        Plan { origin: Some(case.now.origin.clone()), grace: request.grace, ..Plan::default() };
    plan.users.clone_from(&request.users);
    let choice = Choice { case: &case, guard, request };
    for (pid, why) in candidates(looks, diagnosis, request) {
        if plan.targets.iter().any(|target| target.key.pid == pid) {
            continue;
        }
        match choice.targets(pid, &why) {
            Ok(chosen) => {
                for target in chosen.targets {
                    if !plan.targets.iter().any(|other| other.key == target.key) {
                        plan.targets.push(target);
                    }
                }
                for left in chosen.left_out {
                    if !plan.left_out.iter().any(|other| other.pid == left.pid) {
                        plan.left_out.push(left);
                    }
                }
            }
            Err(why) => {
                // Without a number the user asked for whatever fits: what does not was left out.
                let narrowed = matches!(why, Refusal::HoldsNothing | Refusal::OtherUser);
                let list = match narrowed && request.pids.is_empty() {
                    true => &mut plan.left_out,
                    false => &mut plan.refused,
                };
                list.push(Refused { pid, name: case.info(pid).map(|info| info.name.clone()), why });
            }
        }
    }
    plan.expected = expected::expected(&case, diagnosis, &plan.targets);
    plan
}
