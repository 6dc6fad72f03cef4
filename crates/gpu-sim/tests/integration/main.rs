//! One test program for the whole crate, so that it is linked once.

mod crowd;
mod details;
mod drift;
mod driver_answers;
mod loading;
mod machines;
mod ports;
mod reactions;
mod readings;
mod recording;
mod session;
