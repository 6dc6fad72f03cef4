//! Parsers from what other tools print to plain data.
//!
//! The main decision is that every parser is total: it never fails and never panics, whatever the
//! bytes. What it cannot read it says in [`Document::unread`] and goes on with the rest, since the
//! text that people paste is cut, wrapped, coloured and mangled, and what is left of it still
//! answers the question. Units stay those printed; [`snapshot`] turns documents into the typed
//! [`gpu_core::Snapshot`].

mod document;
mod field;
mod text;

pub use document::{
    Document, ErrorCode, Gpu, Holder, Kind, MigDevice, Process, Topology, Unread, Value,
};
