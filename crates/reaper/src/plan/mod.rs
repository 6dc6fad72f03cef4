//! From a diagnosis to a plan: the targets, the reasons, and the memory that should be freed.

mod candidates;
mod expected;
mod membership;
mod targets;

pub use expected::Expected;
pub use membership::{JobMark, Membership, Scope};

use crate::detect::DetectContext;
use crate::finding::{Diagnosis, FindingKind};
use crate::guard::{Guard, Refusal};
use candidates::candidates;
use gpu_core::{DeviceId, Origin, Pid, ProcessInfo, ProcessKey, Snapshot};
use serde::Serialize;
use std::time::Duration;
use targets::Choice;

/// The request of the user.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Exactly these processes. If empty, those that a ghost, orphan, zombie or gone finding names
    /// with high confidence.
    pub pids: Vec<Pid>,
    /// Only these suspects of findings of these kinds, as a policy selects them. They may include
    /// kinds that otherwise require a PID; such a suspect must be one in every snapshot. No effect
    /// together with `pids`.
    pub suspects: Vec<(FindingKind, ProcessKey)>,
    /// The processes of these PIDs as the user saw them, if they were chosen on a screen: a PID
    /// that belongs to another process now is refused.
    pub seen: Vec<ProcessKey>,
    /// Only on these devices; on all of them if empty.
    pub devices: Vec<DeviceId>,
    /// Only of these users, by name or UID, in a wider scope too; of all if empty.
    pub users: Vec<String>,
    /// How many processes end together with a target.
    pub scope: Scope<'a>,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
}

impl Request<'_> {
    /// The default time from SIGTERM to SIGKILL: earlyoom's ten seconds.
    pub const GRACE: Duration = Duration::from_secs(10);
}

impl Default for Request<'_> {
    fn default() -> Self {
        Request {
            pids: Vec::new(),
            suspects: Vec::new(),
            seen: Vec::new(),
            devices: Vec::new(),
            users: Vec::new(),
            scope: Scope::Process,
            grace: Request::GRACE,
        }
    }
}

/// A process to end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The process as it was when the plan was made.
    #[serde(skip)]
    pub process: ProcessInfo,
    /// PID and start time.
    pub key: ProcessKey,
    /// The condition that must still hold before each signal.
    pub membership: Membership,
    /// The process whose scope contains it; itself for the process that the plan is about.
    #[serde(rename = "on_account_of_pid")]
    pub on_account_of: Pid,
    /// The reason, as a fragment.
    pub why: String,
    /// Warnings for the user before the confirmation.
    pub warnings: Vec<String>,
}

/// A process that is not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refused {
    /// Process ID.
    pub pid: Pid,
    /// Short name (comm) of the process. Null if unknown.
    pub name: Option<String>,
    /// Why it is not ended.
    pub why: Refusal,
}

/// Everything that an execution would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// The machine of the plan; it can be carried out only there.
    #[serde(skip)]
    pub origin: Option<Origin>,
    /// The processes to signal, in order.
    pub targets: Vec<Target>,
    /// The processes to spare, with the reasons.
    pub refused: Vec<Refused>,
    /// Processes from findings or scopes that the choice of devices or users excludes.
    pub left_out: Vec<Refused>,
    /// The devices that the plan is restricted to; all if empty.
    #[serde(skip)]
    pub devices: Vec<DeviceId>,
    /// The users that the plan is restricted to; all if empty.
    #[serde(skip)]
    pub users: Vec<String>,
    /// Login sessions are spared even if they hold a device: they were not chosen by PID.
    #[serde(skip)]
    pub spares_logins: bool,
    /// The memory that should be freed.
    pub expected: Vec<Expected>,
    /// Time from SIGTERM to SIGKILL, in milliseconds.
    #[serde(rename = "grace_ms", serialize_with = "millis")]
    pub grace: Duration,
}

pub(crate) fn millis<S: serde::Serializer>(duration: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the plan for `diagnosis`, narrowed by `request`.
///
/// A process that is requested by PID and neither holds a device nor is listed is refused as not
/// visible, unless the last snapshot contains it
/// ([`look_up_processes`](gpu_core::look_up_processes)).
pub fn plan(
    snapshots: &[Snapshot],
    diagnosis: &Diagnosis,
    guard: &Guard,
    request: &Request<'_>,
) -> Plan {
    let Some(now) = snapshots.last() else { return Plan::default() };
    let past = snapshots.iter().collect();
    let context = DetectContext::new(&past, now);
    let mut plan =
        Plan { origin: Some(context.now.origin.clone()), grace: request.grace, ..Plan::default() };
    plan.users.clone_from(&request.users);
    plan.devices.clone_from(&request.devices);
    let choice = Choice { context: &context, guard, request };
    for (pid, why) in candidates(snapshots, diagnosis, request) {
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
                // Without a PID, the user requested all matching processes; the rest was left out.
                let narrowed = matches!(
                    why,
                    Refusal::HoldsNothing | Refusal::HoldsOthers | Refusal::OtherUser
                );
                let list = if narrowed && request.pids.is_empty() {
                    &mut plan.left_out
                } else {
                    &mut plan.refused
                };
                list.push(Refused {
                    pid,
                    name: context.info(pid).map(|info| info.name.clone()),
                    why,
                });
            }
        }
    }
    plan.expected = expected::expected(&context, diagnosis, &plan.targets);
    plan
}
