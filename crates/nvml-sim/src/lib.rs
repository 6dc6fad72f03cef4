//! Serves a simulated machine to any program as `libnvidia-ml.so.1`.
//!
//! The main decision is that a caller notices no difference: functions, structs, codes and buffer
//! protocols are those of the public interface. Every function here answers as a driver would on
//! that machine, and a function that no simulated machine can answer is missing, as in the library
//! of another driver. A [session](gpu_sim::Session) has the machine, its start time and the faults.
//! All processes that open it see the same machine at the same moment, because a simulation is a
//! function of its session and the time. Each call is answered from a snapshot of the machine that
//! is valid for 20 ms, so tools that make thousands of calls do not wait for it.
//!
//! The library is recognisable as a simulation by its own functions: `gpuwsSimulatedMachine`,
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
