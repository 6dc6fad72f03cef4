//! Protocols that differ from ours in one point. Each fails, and the trace says how.

use crate::explore::explore;
use crate::holds::{deciding, nested, queue, two, whole};
use crate::machine::{Machine, Stranger};
use crate::party::{Layout, RULES, Rules};

/// Asserts that a mutant fails so, and returns the trace.
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
fn no_reading_after_the_publication_grants_twice() {
    let rules = Rules { readings: 0, ..RULES };
    // Each has decided before: what counts is what happens since.
    let trace = fails(rules, deciding(vec![whole(1, 1), whole(2, 2)]), false, "at once");
    assert!(trace.contains("1 confirms"), "{trace}");
}

#[test]
fn one_reading_alone_grants_twice_within_a_lease_that_ends() {
    let trace = fails(Rules { readings: 1, ..RULES }, nested(), false, "at once");
    assert!(trace.contains("0 releases its lease"), "{trace}");
}

#[test]
fn leases_read_before_tries_are_missed() {
    fails(Rules { leases_first: true, ..RULES }, two(), false, "misses the entry");
}

#[test]
fn one_listing_for_tries_and_leases_misses_a_confirmation() {
    fails(Rules { one_listing: true, ..RULES }, two(), false, "misses the entry");
}

#[test]
fn a_later_try_that_wins_puts_the_first_off() {
    let rules = Rules { later_wins: true, ..RULES };
    fails(rules, two(), false, "only later tries are in its way");
}

#[test]
fn tries_that_never_withdraw_wait_for_each_other() {
    let rules = Rules { never_withdraws: true, ..RULES };
    fails(rules, deciding(vec![whole(1, 1), whole(2, 2)]), true, "nobody gets anything");
}

#[test]
fn a_patience_that_does_not_grow_may_end_in_vain_for_ever() {
    let machine = deciding(vec![whole(1, 1), whole(2, 2)]);
    fails(RULES, Machine { timeouts: None, ..machine }, true, "nobody gets anything");
}

#[test]
fn a_linked_writable_file_counts_as_its_owners_in_a_flat_folder() {
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
fn a_second_name_hides_a_lease_where_links_are_free() {
    let rules = Rules { honours_links: true, ..RULES };
    let free = Machine { protected_hardlinks: false, ..moving(1) };
    let trace = fails(rules, free, false, "misses the entry");
    assert!(trace.contains("the stranger links"), "{trace}");
}

#[test]
fn an_id_alone_lets_a_stranger_replace_an_entry() {
    fails(Rules { joins_by_id: true, ..RULES }, moving(1), false, "misses the entry");
}

#[test]
fn a_job_without_its_kept_file_loses_its_devices_with_the_supervisor() {
    let rules = Rules { ignores_kept: true, ..RULES };
    let trace = fails(rules, dying(two()), false, "misses the entry");
    assert!(trace.contains("its job lives"), "{trace}");
}

#[test]
fn a_directory_that_only_its_maker_opens_hides_a_lease() {
    let setups = vec![whole(1, 1), whole(1, 2), whole(2, 3)];
    let machine = Machine { directories: true, ..Machine::new(setups) };
    fails(Rules { trusts_directory: true, ..RULES }, machine, false, "misses the entry");
}

#[test]
fn a_place_that_is_left_before_the_lease_is_there_is_passed() {
    let rules = Rules { leaves_queue_early: true, ..RULES };
    fails(rules, queue(&[2]), false, "passes");
}
