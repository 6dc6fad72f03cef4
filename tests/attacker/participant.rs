//! One process of the attacker test, in one of its roles.
//!
//! `honest` claims devices through the library and releases them, `reader` reads the leases on
//! request, and `attacker` tries anything that an unprivileged user may do.

mod attack;
mod broken;
mod forge;
mod honest;
mod layout;
mod reader;
mod status;
mod steps;

use layout::Layout;
use std::path::PathBuf;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("an argument for each option");
    let role = next();
    let layout = Layout { root: PathBuf::from(next()), run: PathBuf::from(next()) };
    match role.as_str() {
        "honest" => {
            let (name, seed, rule) = (next(), next(), next());
            honest::claim_and_release(&layout, &name, seed.parse().expect("a seed"), &rule);
        }
        "reader" => reader::answer(&layout, &next()),
        "attacker" => {
            let (seed, steps, honest) = (next(), next(), next());
            let numbers = (seed.parse().expect("a seed"), steps.parse().expect("a number"));
            attack::attack(&layout, numbers.0, numbers.1, honest.parse().expect("a user"));
        }
        other => panic!("'{other}' is no role"),
    }
}
