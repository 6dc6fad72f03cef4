//! The tree of a program that the caller started: the targets at its end.

use crate::guard::Guard;
use crate::plan::{Membership, Plan, Refused, Target};
use gpu_core::{Host, Origin, ProcessInfo, ProcessKey, current_ancestry};
use std::time::Duration;

/// Returns the plan that ends these members of the tree of `root`.
///
/// They are the caller's own: their names, and whether they hold a device, do not matter. Before
/// each signal, a check verifies that the target still descends from `root`.
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

/// Returns whether a process descends from `root`, by its current ancestors. If one of them cannot
/// be read, it does not.
pub(crate) fn descends(process: &ProcessInfo, root: &ProcessKey, host: &dyn Host) -> bool {
    let line = current_ancestry(host, Some(process.clone()));
    line.skip(1).any(|above| above.key.definitely_same(root))
}
