//! Processes that a scheduler's job left behind: the caller, which knows the scheduler, selects the
//! targets.

use crate::guard::{Guard, Refusal};
use crate::plan::{Expected, Membership, Plan, Refused, Target};
use crate::role::Role;
use gpu_core::{Origin, ProcessInfo};
use std::time::Duration;

/// A process that is left over from a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Leftover {
    /// The process, as the caller saw it when it was opened.
    pub process: ProcessInfo,
    /// The condition that must still hold before each signal.
    pub membership: Membership,
    /// The reason, as a fragment.
    pub why: String,
}

/// Returns the plan that ends these processes, and frees this memory.
///
/// No process is a target that the guard protects or that claims to be a display server or a daemon
/// of the driver, and no login session is signalled. Before each signal everything is checked again,
/// as for any other plan.
pub fn plan_leftovers(
    leftovers: Vec<Leftover>,
    expected: Vec<Expected>,
    origin: Origin,
    guard: &Guard,
    grace: Duration,
) -> Plan {
    let mut plan =
        Plan { origin: Some(origin), grace, expected, spares_logins: true, ..Plan::default() };
    for Leftover { process, membership, why } in leftovers {
        let key = process.key;
        let user = membership.user().map_or(process.uid, Ok);
        let role = || Role::claimed_by(&process, user).map(Refusal::Role);
        match guard.forbids(&process).or_else(role) {
            Some(why) => {
                plan.refused.push(Refused { pid: key.pid, name: Some(process.name), why });
            }
            None => plan.targets.push(Target {
                key,
                membership,
                on_account_of: key.pid,
                why,
                warnings: Vec::new(),
                process,
            }),
        }
    }
    plan
}
