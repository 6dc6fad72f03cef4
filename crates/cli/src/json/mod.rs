//! What `--json` prints of memory; all else is in gpu-report.

mod env;
mod explain;
mod memory;

pub(crate) use env::{Bounded, Seen};
pub(crate) use explain::Explained;
pub(crate) use gpu_report::json::*;
pub(crate) use memory::{Fit, Fitted, Recorded, Replayed};
