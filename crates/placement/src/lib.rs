//! Chooses which devices a job gets.
//!
//! The main decision is that a choice is judged by what it leaves. A claim on k devices gets the
//! best set of the best division of *all* free devices into sets of k, so that later claims still
//! find well connected devices. [`choose`] is a pure function from plain data to a [`Choice`] or a
//! [`Refusal`], each with its reasons.

mod choose;
mod diagram;
mod filter;
mod matrix;
mod offer;
mod partition;
mod rules;
mod scores;
mod search;

pub use choose::choose;
pub use diagram::picture;
pub use matrix::Matrix;
pub use offer::{Bar, Choice, Offer, Passed, Refusal, Why};
pub use partition::MAX_EXACT;
