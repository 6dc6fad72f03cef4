//! NVML in a child process: results for every behaviour of the child.
//!
//! Misbehaving children are shell scripts. The real child hangs if the library is a FIFO without a
//! writer, because opening it never returns. Unlike a wait in a driver, this one can be interrupted
//! by a signal.

#[path = "../isolation/mod.rs"]
mod isolation;

mod exits;
mod fixture;
mod real;
mod replies;
mod stuck;
mod timeouts;
