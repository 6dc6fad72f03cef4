//! Leases on devices, and who is next.
//!
//! The main decision is that no double grant rests on order, and no order on memory of the past.
//! A lease is published as an attempt, alive from its first visible moment on, and then everybody
//! is looked at again: of attempts that conflict each sees the others, and only one is confirmed.
//! There is no lock that anybody could hold or spoil. Order is a function of who is alive now
//! ([`turn`]): there is no counter, no daemon and nothing to repair after a crash. A claim that
//! cannot be next sleeps until the one before it leaves, so that a grant costs the same however
//! many wait.
//!
//! What a device is and whether it is free is not known here: [`take`] is given a look and a
//! chooser.

mod admission;
mod ledger;
mod queue;
mod request;
mod take;

pub use admission::{Turn, turn};
pub use ledger::Ledger;
pub use request::{Ahead, Ask, Chosen, HeldUp, Standing, TakeError, Taken, Wait, Waiting};
pub use take::take;
