//! An append-only history of a machine: its looks, one after the other, in files of a day each.
//!
//! The main decision is that a look is stored as what changed since an earlier one, and that this
//! neither knows nor fixes what a look contains. A [`Frame`] is serialized to a *shape* and a list
//! of numbers; two looks at a machine mostly have the same shape and differ in a few numbers, which
//! an adaptive coder writes in a bit or a few each. So a day of eight GPUs with 256 processes,
//! a look a second, takes 13 to 44 MB instead of some 20 GB of JSON, and a value that is added to
//! [`gpu_core::Snapshot`] is in the history without another line here.
//!
//! The second decision is that damage stays local. Every entry of the index and every frame has a
//! checksum, and a frame depends on at most six others, so a flipped bit or a cut costs the frames
//! that it hits ([`Damage`] names them) and a recorder continues after any end. The format has a
//! version and is described in `docs/history-format.md`.
//!
//! The directory is an argument, as an open descriptor: who may write there is decided by the
//! caller (`gpu_host::TrustedDir`) and checked again by [`Writer::open`]. File access is here and
//! not in an adapter, because the format is one of files; no port would have another
//! implementation. This crate has no clock: the time of a frame is that of its snapshot.
//!
//! ```
//! use gpu_core::{Origin, Snapshot, Timestamp};
//! use gpu_history::{Frame, Reader, Retention, Writer};
//! use std::fs::File;
//!
//! # let made = tempfile::tempdir()?;
//! # let path = made.path();
//! // A directory that only its owner can write to.
//! let mut writer = Writer::open(File::open(path)?, Retention::default())?;
//! for second in 0..60 {
//!     let snapshot = Snapshot::empty(Origin::Live, Timestamp(1_000_000 + second * 1000));
//!     writer.add(&Frame { snapshot, leases: Ok(Vec::new()) })?;
//! }
//!
//! let mut reader = Reader::open(File::open(path)?)?;
//! assert_eq!(reader.len(), 60);
//! let then = reader.at(Timestamp(1_030_500)).ok_or("no such frame")?;
//! assert_eq!(then.time(), Timestamp(1_030_000));
//! assert_eq!(reader.from(Timestamp(1_055_000)).count(), 5);
//! assert!(reader.check().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunk;
mod codec;
mod cost;
mod damage;
mod day;
mod dir;
mod entry;
mod flatten;
mod frame;
mod image;
mod numbers;
mod range;
mod reader;
mod rows;
mod shape;
mod shard;
mod texts;
mod unflatten;
mod varint;
mod writer;

pub use damage::{Damage, DamageKind};
pub use day::{Day, FileKind};
pub use frame::Frame;
pub use reader::Reader;
pub use writer::{Retention, Writer};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
