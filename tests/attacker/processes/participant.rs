//! One process of the test world, in one of its roles.
//!
//! `actor` is a process that may be a target or must not be one, `ancestor` is an ancestor of a
//! reaper, and `reaper` ends processes with the product and checks the result.

mod actor;
mod driver;
mod reaper;
mod recorder;
#[allow(dead_code, reason = "the sandbox uses the rest")]
mod roles;
mod truth;

use roles::{ActorRole, WorldDirs};
use std::process::Command;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some((role, dirs)) = ActorRole::read(&arguments) {
        return actor::run(role, dirs);
    }
    let [_, role, root, user, seed, rule] = arguments.as_slice() else {
        panic!("{arguments:?} have no role");
    };
    let dirs = WorldDirs { root: root.into() };
    let (user, seed) = (user.parse().expect("a user"), seed.parse().expect("a seed"));
    match role.as_str() {
        // Its children inherit the device; neither it nor they may be ended.
        "ancestor" => {
            actor::hold(&dirs);
            let mut reaper =
                Command::new(std::env::current_exe().expect("a running program has a path"));
            reaper.args(["reaper", root, &arguments[3], &arguments[4], rule]);
            let status = reaper.status().expect("the program starts");
            std::process::exit(status.code().unwrap_or(1));
        }
        "reaper" => reaper::reap(&dirs, user, seed, rule),
        other => panic!("'{other}' is no role"),
    }
}
