//! Serves a simulated machine to any program as `libnvidia-ml.so.1`.
//!
//! The main decision is that callers see no difference: functions, structs, codes and buffer
//! protocols match the public interface. Every function answers as a driver would on the same
//! machine. A function that no simulated machine can answer is missing, as in libraries of older
//! drivers. A [session](gpu_sim::Session) has the machine, its start time and the faults. All
//! processes that open it see the same state at the same time, because a simulation is a function
//! of its session and the time. Calls read a snapshot of the machine that is valid for 20 ms, so
//! tools that make thousands of calls stay fast.
//!
//! Additional functions identify the library as a simulation: `gpuwsSimulatedMachine`,
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
