//! An unprivileged user that attacks the leases of root and of another user, on the real kernel, in
//! its own namespaces: no device is granted twice, no user's entries are forged or hidden, every
//! claim is served or refused, and root's files do not change. In `processes`, such a user attacks
//! with its processes.
//!
//! The tests print a summary on standard output. `GPUWS_ATTACK_STEPS` is the number of steps, and
//! `GPUWS_ATTACK_SEED` the seed. A seed repeats the steps, but not their interleaving with other
//! processes.

#[allow(dead_code, reason = "the other processes use the rest")]
mod layout;
mod oracle;
mod processes;
mod run;
mod sandbox;
mod status;
mod verdict;

use gpuws_tests::bound;
use run::{Plan, run};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Serialises the runs, because concurrent runs would only slow each other down.
static ONE: Mutex<()> = Mutex::new(());

/// The total steps of both runs, quick and deep.
const STEPS: [u64; 2] = [8_000, 50_000];

/// The maximum factor by which a run may exceed its number of steps until the attackers have met
/// honest processes, or a broken rule is detected.
const AT_MOST: u64 = 50;

/// Runs a test alone in its own namespaces; returns the directory for its file system.
fn alone(test: &str) -> Option<PathBuf> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    sandbox::enter(&format!("attacker::{test}"))
}

fn plan(test: &str) -> Option<Plan> {
    let steps = bound("GPUWS_ATTACK_STEPS", STEPS[0], STEPS[1]) / 2;
    Some(Plan {
        dir: alone(test)?,
        seed: bound("GPUWS_ATTACK_SEED", 1, 1),
        steps,
        most: AT_MOST * steps,
        expected: None,
        has_run: true,
        reader: "product",
        honest: "product",
    })
}

fn holds(plan: &Plan) {
    let verdict = run(plan);
    println!("{}", verdict.figures);
    assert!(verdict.violations.is_empty(), "{}", verdict.report());
    assert!(verdict.met, "honest processes and attackers did not interact");
}

#[test]
fn attacker_breaks_no_rule_while_root_creates_shared_dir() {
    let test = "attacker_breaks_no_rule_while_root_creates_shared_dir";
    if let Some(plan) = plan(test) {
        holds(&plan);
    }
}

#[test]
fn attacker_breaks_no_rule_in_temporary_dir() {
    if let Some(plan) = plan("attacker_breaks_no_rule_in_temporary_dir") {
        holds(&Plan { has_run: false, ..plan });
    }
}

/// Proves that the attacks work: broken rules do not withstand them.
#[test]
fn attacker_defeats_reader_trusting_file_names() {
    let test = "attacker_defeats_reader_trusting_file_names";
    let Some(plan) = plan(test) else { return };
    let verdict = run(&Plan { reader: "shared-directory", expected: Some("did not make"), ..plan });
    println!("{}", verdict.figures);
    assert!(verdict.has("did not make"), "{}", verdict.report());
}

#[test]
fn attacker_defeats_reader_trusting_file_owner() {
    let test = "attacker_defeats_reader_trusting_file_owner";
    let Some(plan) = plan(test) else { return };
    let verdict = run(&Plan { reader: "file-owner", expected: Some("did not make"), ..plan });
    println!("{}", verdict.figures);
    assert!(verdict.has("did not make"), "{}", verdict.report());
}

#[test]
fn oracle_detects_claims_ignoring_each_other() {
    let Some(plan) = plan("oracle_detects_claims_ignoring_each_other") else { return };
    let verdict = run(&Plan { honest: "blind", expected: Some("is granted twice"), ..plan });
    println!("{}", verdict.figures);
    assert!(verdict.has("is granted twice"), "{}", verdict.report());
}
