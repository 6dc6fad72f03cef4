//! The configurations in which the properties hold.

use crate::claimant::Setup;
use crate::dir::{ROOT, Uid};
use crate::explore::{Explored, explore};
use crate::machine::{Machine, Stalls, Stranger};
use gpu_core::Clock;

/// A claim on one whole device.
pub(crate) fn whole(owner: Uid, ticket: u8) -> Setup {
    Setup { owner, ticket, count: 1, memory: 16, within: None }
}

fn share(owner: Uid, ticket: u8) -> Setup {
    Setup { memory: 6, ..whole(owner, ticket) }
}

/// Claims of two users.
pub(crate) fn two() -> Machine {
    Machine::new(vec![whole(1, 1), whole(2, 2)])
}

/// A claim, a claim of its job within its lease, and a claim of another user.
pub(crate) fn nested() -> Machine {
    let inner = Setup { within: Some(0), ..whole(1, 2) };
    Machine::new(vec![whole(1, 1), inner, whole(2, 3)])
}

/// Claims that read before they try, with unlimited attempts.
pub(crate) fn deciding(setups: Vec<Setup>) -> Machine {
    Machine { attempts: None, decides: true, ..Machine::new(setups) }
}

/// A claim for several devices, and later claims in the queue.
pub(crate) fn queue(after: &[Uid]) -> Machine {
    let wide = Setup { count: 2, ..whole(1, 1) };
    let after = after.iter().enumerate().map(|(number, owner)| whole(*owner, number as u8 + 2));
    Machine { queue: true, ..deciding([wide].into_iter().chain(after).collect()) }
}

fn bound(name: &str) -> u8 {
    let set = std::env::var(name).ok();
    set.map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a small number")))
}

fn attempts() -> u8 {
    bound("GPUWS_PROTOCOL_ATTEMPTS")
}

fn moves() -> Stranger {
    Stranger::Moves(bound("GPUWS_PROTOCOL_MOVES"))
}

fn run(name: &str, machine: &Machine, progress: bool) {
    let clock = gpu_host::SystemClock::new();
    let start = clock.monotonic();
    let Explored { states, steps, depth, found } = explore(machine, progress);
    let took = clock.monotonic().saturating_sub(start);
    println!("{name}: {states} states, {steps} steps, depth {depth}, {:.1} s", took.as_secs_f64());
    if let Some(found) = found {
        panic!("{name}: {}\n{}", found.violated, found.trace);
    }
}

#[test]
fn two_claims_never_share_a_device() {
    let attempts = Some(attempts() + 1);
    let stranger = Stranger::Anything;
    let machine = Machine { attempts, stranger, deaths: true, both_ways: true, ..two() };
    run("two claims", &machine, false);
}

/// Claims that publish again under the same name and inode, and claims that remember what they have
/// read.
pub(crate) fn remembering() -> Machine {
    Machine { remembers: true, attempts: Some(attempts() + 1), ..two() }
}

#[test]
fn claims_remembering_readings_never_share_a_device() {
    let machine = Machine { deaths: true, both_ways: true, ..remembering() };
    run("two claims that remember", &machine, false);
    let machine = Machine { remembers: true, attempts: Some(attempts()), ..nested() };
    run("a lease within a lease, claims that remember", &machine, false);
}

#[test]
fn three_claims_never_share_a_device() {
    let setups = vec![whole(1, 1), whole(2, 2), whole(2, 3)];
    let attempts = Some(attempts());
    let machine = Machine { attempts, both_ways: true, ..Machine::new(setups.clone()) };
    run("three claims", &machine, false);
    let stranger = Stranger::Anything;
    let machine = Machine { attempts, stranger, deaths: true, ..Machine::new(setups) };
    run("three claims that may die, and a stranger", &machine, false);
}

#[test]
fn shares_never_exceed_a_device() {
    let setups = vec![share(ROOT, 1), share(1, 2), share(2, 3)];
    let machine = Machine { attempts: Some(attempts()), ..Machine::new(setups) };
    run("shares of 6 of 16", &machine, false);
}

#[test]
fn nested_lease_keeps_devices_after_outer_lease_ends() {
    let attempts = Some(attempts() + 1);
    let machine = Machine { attempts, both_ways: true, deaths: true, ..nested() };
    run("a lease within a lease", &machine, false);
    let mut machine = Machine { attempts, both_ways: true, deaths: true, ..nested() };
    machine.setups[1].owner = ROOT;
    run("root's lease within a user's", &machine, false);
}

#[test]
fn stranger_cannot_forge_hide_or_end_entries() {
    for protected_hardlinks in [true, false] {
        let (stranger, attempts) = (moves(), Some(attempts()));
        let machine = Machine { stranger, attempts, protected_hardlinks, ..two() };
        let name = format!("a stranger's moves, protected_hardlinks={protected_hardlinks}");
        run(&name, &machine, false);
        let machine = Machine { deaths: true, ..machine };
        run(&format!("{name}, deaths"), &machine, false);
    }
}

#[test]
fn directory_is_readable_before_it_has_entries() {
    let setups = vec![whole(1, 1), whole(1, 2), whole(2, 3)];
    let machine = Machine { directories: true, ..Machine::new(setups) };
    run("directories that are made", &machine, false);
}

#[test]
fn some_claim_is_granted_unless_all_are_stopped() {
    let three = vec![whole(1, 1), whole(2, 2), whole(2, 3)];
    for (name, setups) in [("two", three[..2].to_vec()), ("three", three)] {
        let deaths = setups.len() == 2;
        run(&format!("progress of {name}"), &Machine { deaths, ..deciding(setups) }, true);
    }
    let machine = deciding(vec![share(1, 1), share(2, 2), share(2, 3)]);
    run("progress of shares", &machine, true);
    // If timeouts grow with each failed attempt, only finitely many expire.
    let machine = Machine { timeouts: Some(3), ..deciding(vec![whole(1, 1), whole(2, 2)]) };
    run("progress with time-outs", &machine, true);
}

#[test]
fn later_claim_never_overtakes_waiting_claim() {
    let machine =
        Machine { deaths: true, stalls: Stalls::ForAWhile, both_ways: true, ..queue(&[2]) };
    run("queue of two that stall and continue", &machine, false);
    run("queue of two that stop", &Machine { stalls: Stalls::ForGood, ..queue(&[2]) }, true);
    run("queue of three", &queue(&[2, 2]), true);
}
