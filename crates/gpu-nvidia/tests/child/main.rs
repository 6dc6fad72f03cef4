//! NVML in a child process: what the program gets whatever the child does.
//!
//! Children that misbehave are shell scripts. The real one hangs when the library that it loads
//! is a FIFO that nobody writes to: opening it never returns. That wait can be ended by a signal,
//! and only a driver can make one that cannot.

#[path = "../isolation/mod.rs"]
mod isolation;

mod exits;
mod fixture;
mod real;
mod replies;
mod stuck;
mod timeouts;
