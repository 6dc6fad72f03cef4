//! Protocols that differ from ours in one point. Each fails, and its trace shows how.

use crate::claimant::{Layout, RULES, Rules};
use crate::explore::explore;
use crate::invariants::{deciding, nested, queue, remembering, two, whole};
use crate::machine::{Machine, Stranger};

/// Asserts that a mutant fails in this way; returns the trace.
fn fails(rules: Rules, machine: Machine, progress: bool, how: &str) -> String {
    let mutant = Machine { rules, ..machine };
    let found = explore(&mutant, progress).found.expect("a counterexample");
    println!("{}\n{}", found.violated, found.trace);
    assert!(found.violated.contains(how), "{}", found.violated);
    found.trace
}

fn dying(machine: Machine) -> Machine {
    Machine { deaths: true, ..machine }
}

fn moving(moves: u8) -> Machine {
    Machine { stranger: Stranger::Moves(moves), ..two() }
}

#[test]
fn skipping_read_after_publish_grants_twice() {
    let rules = Rules { readings: 0, ..RULES };
    // Both claims have already decided; this tests what happens after that.
    let trace = fails(rules, deciding(vec![whole(1, 1), whole(2, 2)]), false, "at once");
    assert!(trace.contains("1 confirms"), "{trace}");
}

#[test]
fn single_read_grants_twice_in_ending_lease() {
    let trace = fails(Rules { readings: 1, ..RULES }, nested(), false, "at once");
    assert!(trace.contains("0 releases its lease"), "{trace}");
}

#[test]
fn reading_leases_before_attempts_misses_entry() {
    fails(Rules { leases_first: true, ..RULES }, two(), false, "misses the entry");
}

#[test]
fn single_listing_misses_confirmation() {
    fails(Rules { one_listing: true, ..RULES }, two(), false, "misses the entry");
}

#[test]
fn winning_later_attempt_starves_first() {
    let rules = Rules { later_wins: true, ..RULES };
    fails(rules, two(), false, "only later tries are in its way");
}

#[test]
fn attempts_without_withdrawal_deadlock() {
    let rules = Rules { never_withdraws: true, ..RULES };
    fails(rules, deciding(vec![whole(1, 1), whole(2, 2)]), true, "no claim is granted");
}

#[test]
fn constant_timeout_may_livelock() {
    let machine = deciding(vec![whole(1, 1), whole(2, 2)]);
    fails(RULES, Machine { timeouts: None, ..machine }, true, "no claim is granted");
}

#[test]
fn linked_writable_file_is_misattributed_in_flat_dir() {
    let rules = Rules { layout: Layout::Flat, accepts_writable: true, ..RULES };
    let trace = fails(rules, moving(2), false, "counts as user 1's, and user 9 wrote it");
    assert!(
        trace.contains("the stranger links") && trace.contains("the stranger writes"),
        "{trace}"
    );
    let rules = Rules { accepts_writable: false, ..rules };
    assert!(explore(&Machine { rules, ..moving(2) }, false).found.is_none());
}

#[test]
fn hard_link_hides_lease_without_protected_hardlinks() {
    let rules = Rules { honours_links: true, ..RULES };
    let free = Machine { protected_hardlinks: false, ..moving(1) };
    let trace = fails(rules, free, false, "misses the entry");
    assert!(trace.contains("the stranger links"), "{trace}");
}

#[test]
fn joining_by_id_alone_lets_stranger_replace_entry() {
    fails(Rules { joins_by_id: true, ..RULES }, moving(1), false, "misses the entry");
}

#[test]
fn job_without_kept_file_loses_devices_with_supervisor() {
    let rules = Rules { ignores_kept: true, ..RULES };
    let trace = fails(rules, dying(two()), false, "misses the entry");
    assert!(trace.contains("its job lives"), "{trace}");
}

#[test]
fn private_directory_hides_lease() {
    let setups = vec![whole(1, 1), whole(1, 2), whole(2, 3)];
    let machine = Machine { directories: true, ..Machine::new(setups) };
    fails(Rules { trusts_directory: true, ..RULES }, machine, false, "misses the entry");
}

#[test]
fn memory_of_tries_outlives_change_of_directory() {
    let rules = Rules { keeps_tries: true, ..RULES };
    let trace = fails(rules, remembering(), false, "misses the entry");
    assert!(trace.contains("remembers what it has read"), "{trace}");
}

/// This models a file system that stores times in whole seconds.
#[test]
fn listing_outliving_directory_change_misses_entry() {
    let rules = Rules { keeps_listings: true, ..RULES };
    let trace = fails(rules, remembering(), false, "misses the entry");
    assert!(trace.contains("remembers what it has read"), "{trace}");
}

#[test]
fn leaving_queue_before_lease_lets_others_overtake() {
    let rules = Rules { leaves_queue_early: true, ..RULES };
    fails(rules, queue(&[2]), false, "passes");
}
