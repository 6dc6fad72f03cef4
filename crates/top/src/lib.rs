//! A full-screen view of the GPUs of a machine and of the processes on them.
//!
//! The main decision is to separate three things: events ([`Event`]), the state ([`State`], changed
//! only by [`State::update`]) and drawing ([`view`]). None of them does I/O, so each key and each
//! screen can be tested without a terminal. [`Top::run`] connects them to a terminal and to a
//! function that takes snapshots of the machine; the caller selects the machine.
//!
//! The terminal is restored on every exit path: quit, error, panic, SIGTERM, SIGHUP, SIGINT,
//! SIGQUIT, SIGTSTP, and a terminal that is closed.

pub mod config;
mod counters;
mod dialog;
pub mod ending;
pub mod event;
pub mod filter;
mod found;
pub mod frame;
pub mod history;
pub mod inquiry;
mod jobs;
pub mod keys;
pub mod more;
mod options;
mod overlay;
pub mod pages;
pub mod replay;
pub mod rows;
mod run;
mod shown;
mod state;
mod stops;
mod terminal;
mod tree;
mod view;

pub use config::Config;
pub use ending::{Aim, Ender};
pub use event::Event;
pub use frame::{CpuTimes, Frame};
pub use inquiry::Inspector;
pub use options::{Attention, Marker, Options, Theme};
pub use overlay::Overlay;
pub use replay::Recording;
pub use run::{Ended, Frames, Left, Machine, Settings, Top, Waits, end_by};
pub use state::{Effect, State};
pub use view::{text, view, view_pages};

/// The example of the README, as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
