//! Compression with zstd, which is in C, so that a program without histories builds without it.

use gpu_core::{Error, ErrorKind, Result};
use std::io;

/// The level of zstd.
#[cfg(feature = "zstd")]
const LEVEL: i32 = 9;

/// Checks that this crate can read and write histories.
///
/// # Errors
/// `Unsupported` without the feature `zstd`.
pub(crate) fn check() -> Result<()> {
    if cfg!(feature = "zstd") {
        return Ok(());
    }
    let why = "gpu-history was built without its feature zstd";
    Err(Error::new(ErrorKind::Unsupported, "open a history").with_source(why))
}

/// Compresses bytes with a dictionary.
#[cfg(feature = "zstd")]
pub(crate) fn compress(bytes: &[u8], dictionary: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::Compressor::with_dictionary(LEVEL, dictionary)?.compress(bytes)
}

/// Decompresses to at most `length` bytes; nothing else is allocated for the output.
#[cfg(feature = "zstd")]
pub(crate) fn decompress(bytes: &[u8], dictionary: &[u8], length: usize) -> io::Result<Vec<u8>> {
    zstd::bulk::Decompressor::with_dictionary(dictionary)?.decompress(bytes, length)
}

#[cfg(not(feature = "zstd"))]
pub(crate) fn compress(_: &[u8], _: &[u8]) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(feature = "zstd"))]
pub(crate) fn decompress(_: &[u8], _: &[u8], _: usize) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}
