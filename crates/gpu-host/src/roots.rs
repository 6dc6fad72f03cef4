//! The roots of a machine's file systems.

use std::path::PathBuf;

/// The roots of a machine's file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Processes: `/proc`.
    pub proc: PathBuf,
    /// Device files and the kernel log: `/dev`.
    pub dev: PathBuf,
    /// Drivers of devices: `/sys`.
    pub sys: PathBuf,
}
