//! Parses the output of other tools into plain data.
//!
//! The main decision is that every parser is total: it never fails and never panics, whatever the
//! bytes. It lists what it cannot parse in [`Document::unread`] and continues with the rest,
//! because pasted text is truncated, wrapped, coloured and garbled, and the rest still answers the
//! question. Units stay those printed; [`snapshot()`] turns documents into the typed
//! [`gpu_core::Snapshot`].

mod command;
mod csv;
mod detect;
mod document;
mod failure;
mod field;
mod fuser;
mod list;
mod lsof;
mod monitor;
pub mod oom;
mod parse;
mod q;
mod report;
mod sections;
mod snapshot;
mod table;
mod tensorflow;
mod text;
mod topology;
mod work_meter;
mod xml;

pub use document::{
    Document, ErrorCode, Gpu, Holder, Kind, MigDevice, Process, Topology, Unread, Value,
};
pub use parse::{Hint, Unrecognized, parse};
pub use sections::sections;
pub use snapshot::{snapshot, topology};
