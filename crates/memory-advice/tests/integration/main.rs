//! One test program for the whole crate, so that it is linked once.

mod engines;
mod environment;
mod libraries;
mod messages;
mod remedies;
mod reports;
