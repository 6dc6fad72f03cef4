//! A `libnvidia-ml.so.1` that serves a simulated machine to any program.
//!
//! The main decision is that a caller notices nothing: the functions, structs, codes and buffer
//! protocols are those of the public interface, every function of it that is here answers as a
//! driver would on that machine, and one that no simulated machine can answer is missing, as it is
//! in the library of another driver. Which machine is served, since when, and what goes wrong at
//! which call says a [session](gpu_sim::Session). All processes that open it see the same machine
//! at the same moment, since a simulation is a function of its session and the time. Each call is
//! answered from one look at the machine that serves for 20 ms, so that tools that ask thousands
//! of times do not wait for it.
//!
//! What makes this library known as a simulation are its own functions: `gpuwsSimulatedMachine`,
//! `gpuwsSimulatedSession`, `gpuwsSimulatedOpen` and `gpuwsSimulatedCalls`.

mod cache_ttl;
mod calls;
mod clock;
mod code;
mod counts;
mod entry;
mod event_set;
mod external_process;
mod layout;
#[cfg(test)]
mod layout_test;
mod library;
mod placeholders;
mod pointer;
mod running;
mod stat;
mod view;

pub use stat::start_of;
