//! Leases on devices, and the order of claims.
//!
//! The main decision is that the guarantee against double grants does not depend on the order, and
//! the order does not depend on stored state. A lease is published as an attempt, alive from its
//! first visible moment on, and then all others are read again. Attempts that conflict see each
//! other, and only one is confirmed. There is no lock that anybody could hold or corrupt. The order
//! is a function of the live claims ([`turn`]): there is no counter, no daemon and nothing to
//! repair after a crash. A claim that cannot be next sleeps until the one before it leaves, so a
//! grant costs the same however many wait.
//!
//! This crate does not know what a device is or whether it is free: the caller gives [`take`] a
//! look and a chooser.

mod admission;
mod ledger;
mod queue;
mod request;
mod take;

pub use admission::{Turn, turn};
pub use ledger::Ledger;
pub use request::{Ahead, Ask, Chosen, HeldUp, Standing, TakeError, Taken, Wait, Waiting};
pub use take::take;
