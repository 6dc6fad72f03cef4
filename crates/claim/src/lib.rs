//! Leases on devices, and who is next.
//!
//! The main decision is that no double grant rests on order, and no order on memory of the past.
//! A lease is published, alive from its first visible moment on, and then everybody is looked at
//! again: of two that got the same device each sees the other, and whoever sees a conflict
//! withdraws. The table lock, which anybody may hold or spoil, only keeps claims in the order in
//! which they came. And that order is a function of who is alive now ([`turn`]): there is no
//! counter, no daemon and nothing to repair after a crash.
//!
//! What a device is and whether it is free is not known here: [`take`] is given a look and a
//! chooser.

mod ask;
mod ledger;
mod publish;
mod take;
mod turn;

pub use ask::{Ask, Chosen, HeldUp, NotTaken, Taken, Wait, Waiting};
pub use ledger::Ledger;
pub use publish::publish_known;
pub use take::take;
pub use turn::{Turn, turn};
