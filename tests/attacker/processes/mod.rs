//! An unprivileged user who attacks with processes, on the real kernel: whatever they become between
//! the look and the signal, the reaper ends none that it may not end, and no name protects one that
//! it may.

mod layout;
#[allow(dead_code, reason = "the other processes use the rest")]
mod scene;
#[allow(dead_code, reason = "the other processes use the rest")]
mod truth;
mod world;

use crate::run::number;
use crate::verdict::Verdict;
use std::io::Write as _;
use std::path::Path;

/// The steps of the run that is to end well. Each of the others ends with its first violation.
const STEPS: u64 = 2000;

fn attack(test: &str, rule: &str, words: &[&str]) -> Option<Verdict> {
    let folder = crate::alone(&format!("processes::{test}"))?;
    let seed = number("GPUWS_ATTACK_SEED", 1);
    let verdict = world::run(&folder, seed, number("GPUWS_ATTACK_STEPS", STEPS), rule, words);
    println!("{}", verdict.figures);
    Some(verdict)
}

#[test]
fn reaper_ends_only_what_it_may_whatever_processes_do() {
    let test = "reaper_ends_only_what_it_may_whatever_processes_do";
    let Some(verdict) = attack(test, "product", &[]) else { return };
    assert!(verdict.violations.is_empty(), "{}", verdict.report());
    assert!(verdict.met, "nobody was signalled, refused or changed in time");
}

/// The attacks are worth something: a reaper that lacks a rule does not stand them.
fn is_found_out(test: &str, rule: &str, words: &[&str]) {
    let Some(verdict) = attack(test, rule, words) else { return };
    assert!(words.iter().any(|words| verdict.has(words)), "{}", verdict.report());
}

#[test]
fn reaper_that_trusts_a_number_is_found_out() {
    let test = "reaper_that_trusts_a_number_is_found_out";
    if !Path::new(world::LAST_NUMBER).exists() {
        let why = "this kernel lets nobody choose the number of the next process";
        writeln!(std::io::stderr(), "skipped: {test}: {why}").expect("standard error is open");
        return;
    }
    is_found_out(test, "identity", &["another process had its number", "was ended by signal"]);
}

#[test]
fn reaper_that_trusts_a_name_is_found_out() {
    is_found_out("reaper_that_trusts_a_name_is_found_out", "name", &["by its name"]);
}

#[test]
fn reaper_that_asks_for_the_program_once_is_found_out() {
    let test = "reaper_that_asks_for_the_program_once_is_found_out";
    is_found_out(test, "program", &["it runs another program"]);
}

#[test]
fn reaper_that_writes_no_audit_line_is_found_out() {
    is_found_out("reaper_that_writes_no_audit_line_is_found_out", "audit", &["no audit line"]);
}
