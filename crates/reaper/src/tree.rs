//! The tree of a program that the caller started: whom to end when it is over.

use crate::guard::Guard;
use crate::plan::{Membership, Plan, Refused, Target};
use gpu_core::{Host, Origin, ProcessInfo, ProcessKey, current_ancestry};
use std::time::Duration;

/// Returns the plan that ends these members of the tree of `root`.
///
/// They are the caller's own: what they call themselves, and whether they hold a device, does not
/// matter. Before each signal it is made sure that the target still descends from `root`.
pub fn plan_tree(
    root: ProcessKey,
    members: &[ProcessInfo],
    why: &str,
    origin: Origin,
    guard: &Guard,
    grace: Duration,
) -> Plan {
    let mut plan = Plan { origin: Some(origin), grace, ..Plan::default() };
    for process in members {
        let key = process.key;
        match guard.forbids(process) {
            Some(why) => {
                let name = Some(process.name.clone());
                plan.refused.push(Refused { pid: key.pid, name, why });
            }
            None => plan.targets.push(Target {
                process: process.clone(),
                key,
                membership: Membership::Descends(root),
                on_account_of: key.pid,
                why: why.to_owned(),
                warnings: Vec::new(),
            }),
        }
    }
    plan
}

/// Returns whether a process descends from `root`, as its ancestors are now. Where one of them
/// cannot be read, it does not.
pub(crate) fn descends(process: &ProcessInfo, root: &ProcessKey, host: &dyn Host) -> bool {
    let line = current_ancestry(host, Some(process.clone()));
    line.skip(1).any(|above| above.key.definitely_same(root))
}
