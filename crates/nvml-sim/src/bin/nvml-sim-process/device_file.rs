//! Opens and maps stand-ins for device files, as a CUDA program does with the real ones.

use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// How much of a file is mapped: one page.
const MAPPED: usize = 4096;

/// Opens a file for reading and writing.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Maps the beginning of a file for the lifetime of the process.
pub(crate) fn map(file: &File) -> io::Result<()> {
    let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: the kernel chooses an address where nothing is mapped, and no code reads or writes
    // there: the mapping only has to appear in /proc/PID/maps.
    unsafe { mmap(std::ptr::null_mut(), MAPPED, protection, flags, file, 0) }?;
    Ok(())
}
