//! Stand-ins of device files, held as a CUDA program holds the real ones.

use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// How much of a file is mapped: a page.
const MAPPED: usize = 4096;

/// Opens a file for reading and writing.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Maps the beginning of a file for as long as the process lives.
pub(crate) fn map(file: &File) -> io::Result<()> {
    let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: the kernel chooses an address where nothing is mapped, and nobody reads or writes
    // there: the mapping is only there to be seen in /proc/PID/maps.
    unsafe { mmap(std::ptr::null_mut(), MAPPED, protection, flags, file, 0) }?;
    Ok(())
}
