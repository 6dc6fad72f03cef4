//! The port to the device files and the processes that have them.

use crate::error::Result;
use crate::file::DeviceFile;
use crate::holder::HolderScan;

/// Finds the device files of a machine and their holders.
pub trait DeviceFiles: Send + Sync {
    /// Returns the GPU device files that exist.
    ///
    /// # Errors
    /// `Io` when the device directory cannot be read.
    fn device_files(&self) -> Result<Vec<DeviceFile>>;

    /// Starts to watch for files being opened and closed; `None` if that is impossible here.
    fn file_activity(&self, _files: &[DeviceFile]) -> Option<Box<dyn FileActivity>> {
        None
    }

    /// Returns every process that has one of `files` open, mapped, or as executable, current or
    /// root directory. A process that ends during the walk is left out.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan>;
}

/// Notices when files are opened and closed.
///
/// It is a hint: a process can also receive an open file from another, or close one of two.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait FileActivity: Send {
    /// Returns whether one of the files may have been opened or closed since the previous call.
    fn noticed(&mut self) -> bool;
}
