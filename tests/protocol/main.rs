//! The protocol of leases, explored.
mod explore;
mod folder;
mod machine;
mod party;
mod property;
mod rule;

use explore::{Explored, explore};
use machine::{Machine, Stranger};
use party::{RULES, Rules, Setup};

fn whole(owner: u8, ticket: u8) -> Setup {
    Setup { owner, ticket, count: 1, memory: 16, within: None }
}

fn run(name: &str, machine: &Machine, progress: bool) -> Explored {
    let start = std::time::Instant::now();
    let explored = explore(machine, progress);
    println!("{name}: {} states, {} steps, depth {}, {:?}", explored.states, explored.steps, explored.depth, start.elapsed());
    if let Some(found) = &explored.found {
        println!("  {}\n{}", found.violated, found.trace);
    }
    explored
}

#[test]
fn try_two() {
    let m = Machine { both_ways: true, attempts: Some(2), ..Machine::new(vec![whole(1, 1), whole(2, 2)]) };
    run("two", &m, false);
    let m = Machine { both_ways: true, deaths: true, attempts: Some(2), ..Machine::new(vec![whole(1, 1), whole(2, 2)]) };
    run("two deaths", &m, false);
    let m = Machine { ..Machine::new(vec![whole(1, 1), whole(2, 2), whole(2, 3)]) };
    run("three", &m, false);
    let m = Machine { rules: Rules { readings: 1, ..RULES }, ..Machine::new(vec![whole(1, 1), whole(2, 2), whole(2, 3)]) };
    run("three, one reading", &m, false);
    let m = Machine { stranger: Stranger::Moves(2), ..Machine::new(vec![whole(1, 1), whole(2, 2)]) };
    run("two moves", &m, false);
}
