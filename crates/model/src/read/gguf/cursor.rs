//! The bytes of a header, read in order and never past a limit.

use super::error::GgufError;
use std::io::{ErrorKind, Read};

/// The maximum size of a header in bytes. Vocabularies take a few tens of megabytes.
pub(super) const MAX_HEADER_BYTES: u64 = 1 << 28;

/// The position in a header.
pub(super) struct Cursor<R> {
    file: R,
    length: Option<u64>,
    /// The offset of the next byte.
    pub(super) at: u64,
}

impl<R: Read> Cursor<R> {
    pub(super) fn new(file: R, length: Option<u64>) -> Self {
        Cursor { file, length, at: 0 }
    }

    /// Rejects a length past the limit of a header or the end of the file.
    pub(super) fn fits(&self, bytes: u64, what: &'static str) -> Result<(), GgufError> {
        let at = self.at;
        let end = at.saturating_add(bytes);
        if self.length.is_some_and(|length| end > length) {
            return Err(GgufError::Truncated { what, at });
        }
        self.limit(end, MAX_HEADER_BYTES, what)
    }

    /// Rejects a number above a limit.
    pub(super) fn limit(
        &self,
        found: u64,
        limit: u64,
        what: &'static str,
    ) -> Result<(), GgufError> {
        if found > limit {
            Err(GgufError::TooMuch { what, at: self.at, found, limit })
        } else {
            Ok(())
        }
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], GgufError> {
        self.fits(N as u64, what)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => GgufError::Truncated { what, at: self.at },
            _ => GgufError::Io(error),
        })?;
        self.at += N as u64;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads a string that is preceded by its length.
    pub(super) fn text(&mut self, limit: u64, what: &'static str) -> Result<String, GgufError> {
        let length = self.u64(what)?;
        self.limit(length, limit, what)?;
        self.fits(length, what)?;
        let mut bytes = Vec::new();
        (&mut self.file).take(length).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < length {
            return Err(GgufError::Truncated { what, at: self.at });
        }
        self.at += length;
        String::from_utf8(bytes).map_err(|error| GgufError::Name {
            name: super::shown(&String::from_utf8_lossy(error.as_bytes())),
            problem: "is not UTF-8",
        })
    }

    /// Skips bytes without keeping them.
    pub(super) fn skip(&mut self, bytes: u64, what: &'static str) -> Result<(), GgufError> {
        self.fits(bytes, what)?;
        let skipped = std::io::copy(&mut (&mut self.file).take(bytes), &mut std::io::sink())?;
        if skipped < bytes {
            return Err(GgufError::Truncated { what, at: self.at });
        }
        self.at += bytes;
        Ok(())
    }
}
