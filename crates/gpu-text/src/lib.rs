//! Parses the output of other tools into plain data.
//!
//! The main decision is that every parser is total: it never fails and never panics on any input.
//! Pasted text is truncated, wrapped, coloured and garbled, but the intact part still answers the
//! question, so a parser lists what it cannot read in [`Document::unread`] and continues. Values
//! keep their printed units; [`snapshot()`] turns documents into the typed [`gpu_core::Snapshot`].
//!
//! ```
//! use gpu_core::{Absent, Bytes, Timestamp};
//! use gpu_text::{Hint, Kind, parse, snapshot};
//!
//! // A paste with a line that is of no tool.
//! let text = b"index, name, memory.used [MiB], memory.total [MiB]\n\
//!              0, Tesla P100-PCIE-16GB, 15849 MiB, 16280 MiB\n\
//!              1, Tesla P100-PCIE-16GB, [N/A], 16280 MiB\n\
//!              Connection to labbox closed.\n";
//! let document = parse(text, &Hint::default())?;
//! assert_eq!(document.kind, Kind::QueryGpu);
//! assert_eq!(document.gpus[0].memory_used_mib, Ok(15_849));
//! assert_eq!(document.unread[0].line, 4);
//!
//! let snapshot = snapshot(&[document], Timestamp(0));
//! assert_eq!(snapshot.devices[0].memory_used(), Ok(Bytes::from_mib(15_849)));
//! assert_eq!(snapshot.devices[1].memory_used(), Err(Absent::NotSupported));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod command;
mod csv;
mod detect;
mod document;
mod driver_line;
mod escaped;
mod failure;
mod field;
mod fuser;
mod gpustat;
mod gpustat_json;
mod health;
mod judged;
mod kernel_log;
mod list;
mod log_prefix;
mod lsof;
mod mig_list;
mod monitor;
mod of_kind;
pub mod oom;
mod other;
mod parse;
mod paste;
mod placement;
mod q;
mod report;
mod sections;
mod snapshot;
mod stamp;
mod table;
mod tensorflow;
mod text;
mod topology;
mod work_meter;
mod xml;

pub use document::{
    DeviceFailure, Document, DriverMessage, ErrorCode, Gpu, Holder, Kind, LogicalDevice, MigDevice,
    NamedDevice, PartitionMode, Placement, Process, ReportedFailure, TensorFlowDevice, Tool,
    Topology, Unread, Value,
};
pub use failure::unattributed;
pub use judged::{lacking, shows_health};
pub use parse::{Hint, Unrecognized, parse};
pub use sections::sections;
pub use snapshot::{differing, moment, snapshot};
pub use stamp::TextTimes;
pub use topology::topology;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
