//! One test program for the whole crate, so that it is linked once.

mod cards;
mod crowd;
mod defaults;
mod details;
mod drift;
mod driver_answers;
mod driver_log;
mod external;
mod invariants;
mod live;
mod loading;
mod machines;
mod memory;
mod ports;
mod reactions;
mod readings;
mod recording;
mod session;
