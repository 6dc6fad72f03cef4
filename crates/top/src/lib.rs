//! A full-screen view of the GPUs of a machine and of the processes on them.
//!
//! The main decision is that three things are apart: what happened ([`Event`]), what is shown
//! ([`State`], changed only by [`State::update`]) and how it is drawn ([`view`]). None of them does
//! I/O, so that each key and each screen has a test without a terminal. [`Top::run`] connects them
//! to a terminal and to a function that looks at the machine; the caller selects the machine.
//!
//! The terminal is restored on every way out: quit, error, panic, SIGTERM, SIGHUP, SIGINT, SIGQUIT,
//! SIGTSTP, and a terminal that is closed.

pub mod event;
pub mod filter;
pub mod frame;
pub mod history;
pub mod keys;
pub mod rows;
mod run;
mod state;
mod stops;
mod terminal;
mod view;

pub use event::Event;
pub use frame::Frame;
pub use run::{Ended, Settings, Top, Waits, end_by};
pub use state::{Effect, Marker, Options, Overlay, State};
pub use view::{text, view};

/// The example of the README, as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
