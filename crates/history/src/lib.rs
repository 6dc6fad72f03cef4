//! An append-only history of a machine: its snapshots in order, in one pair of files per day.
//!
//! The main decision is that a snapshot is stored as the changes since an earlier one, by code that
//! does not depend on the contents of a snapshot. A [`Frame`] is serialized to a *shape* and a list
//! of numbers; two snapshots of a machine mostly have the same shape and differ in a few numbers,
//! and an adaptive coder writes each of these in one or a few bits. So a day of eight GPUs with 256
//! processes, at one snapshot a second, takes 13 to 44 MB instead of some 20 GB of JSON, and a
//! value that is added to [`gpu_core::Snapshot`] is in the history without a change here.
//!
//! The second decision is that damage stays local. Every entry of the index and every frame has a
//! checksum, and a frame depends on at most six others, so a flipped bit or a truncation costs only
//! the frames that it hits ([`Damage`] names them) and a recorder can continue after any
//! interruption. The format has a version and is described in `docs/history-format.md`.
//!
//! The directory is passed as an open descriptor: the caller decides who may write there
//! (`gpu_host::TrustedDir`) and checked again by [`Writer::open`]. File access is here and not in
//! an adapter, because the format is one of files; a port would have only one implementation. This
//! crate has no clock: the time of a frame is that of its snapshot.
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
