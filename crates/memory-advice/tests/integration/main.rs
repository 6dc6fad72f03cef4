//! One test program for the whole crate, so that it is linked once.

mod environment;
mod messages;
mod remedies;
