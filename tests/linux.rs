//! Real processes on the real kernel: claims, attacks on them, the reaper, and isolated jobs.

#![expect(clippy::print_stdout, reason = "the figures of a run are its result")]

mod attacker;
mod claims;
mod isolated;
mod kernel;
