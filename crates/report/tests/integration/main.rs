//! One test program for the whole crate, so that it is linked once.

mod blind;
mod columns;
mod completion;
mod fixture;
mod forms;
mod messages;
mod monitor;
mod pasted;
mod replayed;
#[cfg(feature = "schema")]
mod schema;
mod usage;
mod words;
