//! Advice on GPU memory: why a request failed, and how to keep a program within a limit.
//!
//! Advice is a function of plain figures. The caller takes them from a message, a snapshot or a
//! user; this crate reads no log, device or environment. The same rules therefore serve a command,
//! a supervisor that starts a job and a service that collects failures, and tests need only
//! figures. [`explain`] finds the cause of an out-of-memory error and computes the remedies;
//! [`environment`] contains the settings that each framework honours.
//!
//! ```
//! use gpu_core::Bytes;
//! use gpu_memory_advice::environment::{Bound, Framework, Used, Version};
//! use gpu_memory_advice::explain::{Cause, MessageSource, OomFigures, explain};
//!
//! // What PyTorch printed: 2 GiB requested; of 24 GiB, 1.5 GiB free; 20 GiB in use, 1.5 GiB cached.
//! let (gib, mib) = (|count: u64| Bytes(count << 30), Bytes::from_mib);
//! let figures = OomFigures {
//!     asked: Some(gib(2)),
//!     total: Some(gib(24)),
//!     free: Some(mib(1536)),
//!     in_use: Some(gib(20)),
//!     unused: Some(mib(1536)),
//!     process: Some(gib(22)),
//!     ..OomFigures::by(MessageSource::TorchExpandable)
//! };
//! let diagnosis = explain(&figures, None);
//! assert_eq!(diagnosis.cause, Cause::Fragmented);
//! let setting = diagnosis.remedies.iter().find_map(|remedy| remedy.set.as_deref());
//! assert_eq!(setting, Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
//!
//! // The setting that limits PyTorch 2.10 to 6 GiB of such a device.
//! let bound = Bound {
//!     limit: gib(6),
//!     context: mib(512),
//!     totals: &[gib(24)],
//!     mps: None,
//!     inherited: &|_| None,
//! };
//! let torch = Used { framework: Framework::Torch, version: Version::parse("2.10.0") };
//! let advice = bound.advice(&[torch]);
//! assert_eq!(advice.variables[0].name, "PYTORCH_ALLOC_CONF");
//! assert_eq!(advice.variables[0].value, "per_process_memory_fraction:0.2291");
//! ```
//!
//! `docs/memory.md` lists the causes, and the settings for each framework.

/// How much of a limit to reserve for the CUDA context and for the kernels and workspaces of
/// libraries, which no framework counts. Measured on an H200 (driver 580): 518 MiB for a context,
/// about 620 MiB for PyTorch after a matrix multiplication. A context grows with the number of
/// multiprocessors: 107 MiB on an RTX 4060 Ti, 256 on an RTX 3090, 555 on an RTX PRO 6000
/// (llama.cpp#23604, InvokeAI#9413).
pub const CONTEXT: gpu_core::Bytes = gpu_core::Bytes::from_mib(640);

pub mod environment;
pub mod explain;
#[cfg(feature = "text")]
pub mod text;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
