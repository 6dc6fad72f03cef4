//! Simulates a GPU machine behind every port of gpu-core.
//!
//! The main decision is that a machine is data: no machine's name occurs in the engine. A directory
//! of `sim-fixtures/machines` contains the output of a real machine, byte for byte, and a
//! `machine.toml` for what no output shows: reactions of processes to signals, delays in returning
//! memory, and scripted events. [`Simulation`] runs it behind all ports with one state, one clock
//! that advances only on request, and one seed, so that a whole cycle (observe, decide, act,
//! observe again) is exactly repeatable. It is stricter than hardware: an error that a real machine
//! may sometimes tolerate, such as a signal to a reused PID, always fails here.
//!
//! Its driver answers like a real one: a value that is not described is "not supported", never "not
//! recorded". Its state, including drifting values, is a function of machine, seed and time, so a
//! [`Session`] needs no server: several processes that open one directory see one machine.
//!
//! ```
//! use gpu_core::{ActToken, Bytes, Clock, Pid, ProcessTable, Signal, observe};
//! use gpu_sim::Simulation;
//! use std::time::Duration;
//!
//! let machine = Simulation::embedded("p100-ghost")?;
//! let used = || observe(&machine, &machine, &machine).devices[0].memory_used();
//! assert_eq!(used(), Ok(Bytes::from_mib(15_849)));
//!
//! // The holder ignores SIGTERM. SIGKILL ends it, and its memory comes back a little later.
//! let holder = machine.open(Pid(100_562))?;
//! let token = ActToken::user_confirmed();
//! holder.signal(Signal::Term, &token)?;
//! machine.sleep(Duration::from_secs(10));
//! assert!(!holder.has_exited()?);
//! holder.signal(Signal::Kill, &token)?;
//! machine.sleep(Duration::from_secs(1));
//! assert!(holder.has_exited()?);
//! assert_eq!(used(), Ok(Bytes::from_mib(25)));
//! # Ok::<(), gpu_core::Error>(())
//! ```

mod address_range;
mod anonymize;
mod assemble;
mod backend;
mod cards;
mod clock;
mod crowd;
mod date;
mod defaults;
mod details;
mod device_entry;
mod devices;
mod drift;
mod driver_log;
mod empty;
mod events;
mod external_process;
mod faults;
mod file;
mod holding;
mod host;
mod import;
mod journal;
#[cfg(feature = "live")]
pub mod live;
mod load;
mod machine;
mod memory;
mod placeholder;
mod process_entry;
mod process_list;
mod process_table;
mod product;
#[cfg(feature = "random")]
mod random;
mod recording;
mod script;
mod seed;
mod session;
mod simulation;
mod state;
mod toml_error;
mod toml_source;
mod topology;
mod trusted;
mod viewer;

pub use anonymize::Anonymizer;
pub use cards::Cards;
pub use external_process::{ExternalProcess, Use};
pub use faults::{Call, Fault};
pub use load::{EmbeddedMachine, machines};
pub use machine::{
    ClientUse, Device, Event, Holding, Machine, Process, Reaction, Scheduled, Viewer, When,
    device_file,
};
pub use memory::SimulatedMemory;
#[cfg(feature = "random")]
pub use random::{random, random_faults, random_machine, random_script};
pub use recording::{Header, RecordedSnapshot, Recording, RecordingWriter};
pub use seed::Seed;
pub use session::{CallEffect, CallFault, Placeholder, Session};
pub use simulation::Simulation;
pub use state::SentSignal;
pub use trusted::trusted;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
