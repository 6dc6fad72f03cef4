//! An unprivileged user that attacks with processes, on the real kernel: whatever the processes
//! become between snapshot and signal, the reaper ends only those that it may end, and no name
//! protects those.

mod layout;
#[allow(dead_code, reason = "the other processes use the rest")]
mod roles;
#[allow(dead_code, reason = "the other processes use the rest")]
mod truth;
mod world;

use crate::attacker::verdict::Verdict;
use gpuws_tests::bound;
use std::io::Write as _;
use std::path::Path;

/// The steps of the run that must succeed, quick and deep.
const STEPS: [u64; 2] = [500, 2_000];
/// The maximum number of steps until the attackers have met the reapers, or until a violation is
/// detected: on a busy machine, the reapers get few turns.
const MOST_STEPS: u64 = 200_000;

fn attack(test: &str, rule: &str, words: &[&str]) -> Option<Verdict> {
    let dir = super::alone(&format!("processes::{test}"))?;
    let seed = bound("GPUWS_ATTACK_SEED", 1, 1);
    let steps = match words {
        [] => bound("GPUWS_ATTACK_STEPS", STEPS[0], STEPS[1]),
        _ => MOST_STEPS,
    };
    let verdict = world::run(&dir, seed, (steps, steps.max(MOST_STEPS)), rule, words);
    println!("{}", verdict.figures);
    Some(verdict)
}

#[test]
fn reaper_ends_only_permitted_processes_under_attack() {
    let test = "reaper_ends_only_permitted_processes_under_attack";
    let Some(verdict) = attack(test, "product", &[]) else { return };
    assert!(verdict.violations.is_empty(), "{}", verdict.report());
    assert!(verdict.met, "no process was signalled, refused or changed");
}

/// Proves that the attacks work: a reaper that lacks a rule does not withstand them.
fn assert_detected(test: &str, rule: &str, words: &[&str]) {
    let Some(verdict) = attack(test, rule, words) else { return };
    assert!(words.iter().any(|words| verdict.has(words)), "{}", verdict.report());
}

#[test]
fn attack_detects_reaper_trusting_pids() {
    let test = "attack_detects_reaper_trusting_pids";
    if !Path::new(world::LAST_NUMBER).exists() {
        let why = "the next PID cannot be chosen on this kernel";
        writeln!(std::io::stderr(), "skipped: {test}: {why}").expect("standard error is open");
        return;
    }
    assert_detected(test, "identity", &["another process had its number", "was ended by signal"]);
}

#[test]
fn attack_detects_reaper_trusting_names() {
    assert_detected("attack_detects_reaper_trusting_names", "name", &["by its name"]);
}

#[test]
fn attack_detects_reaper_checking_executable_once() {
    let test = "attack_detects_reaper_checking_executable_once";
    assert_detected(test, "program", &["it runs another program"]);
}

#[test]
fn attack_detects_reaper_without_audit_log() {
    assert_detected("attack_detects_reaper_without_audit_log", "audit", &["no audit line"]);
}
