//! The input of a pickle, read piece by piece.

use super::super::budget::Exceeded;
use super::super::error::{Location, Problem, TraceError};
use super::opcode::name;

/// The position of a reader in its input.
pub(super) struct Cursor<'a> {
    pub(super) input: &'a [u8],
    pub(super) at: usize,
    /// The offset and the value of the current opcode.
    pub(super) opcode: (usize, u8),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Cursor { input, at: 0, opcode: (0, b'.') }
    }

    /// Reads the next opcode; `None` at the end of the input.
    #[inline]
    pub(super) fn opcode(&mut self, at: usize) -> Option<u8> {
        let opcode = *self.input.get(at)?;
        (self.at, self.opcode) = (at + 1, (at, opcode));
        Some(opcode)
    }

    /// Returns the error that the current opcode exceeds the memory limit.
    #[cold]
    pub(super) fn full(&self, exceeded: Exceeded) -> TraceError {
        let (at, opcode) = self.opcode;
        exceeded.at(Location::Byte(at as u64), name(opcode))
    }

    /// Returns the error that the current opcode is malformed.
    pub(super) fn wrong(&self, what: impl std::fmt::Display) -> TraceError {
        let (at, opcode) = self.opcode;
        TraceError::malformed(Location::Byte(at as u64), format!("{} {what}", name(opcode)))
    }

    /// Returns the error that the current opcode requires code execution.
    pub(super) fn code(&self, wanted: String) -> TraceError {
        let (at, opcode) = self.opcode;
        let opcode = name(opcode);
        TraceError::new(Location::Byte(at as u64), Problem::Code { opcode, wanted })
    }

    fn cut(&self, wanted: u64) -> TraceError {
        let (at, opcode) = self.opcode;
        let left = self.input.len() - self.at;
        let what = format!("{} needs {wanted} bytes, but only {left} are left", name(opcode));
        TraceError::new(Location::Byte(at as u64), Problem::Truncated { what })
    }

    /// Reads `length` bytes; the length is checked against the rest of the input first.
    #[inline]
    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], TraceError> {
        let left = &self.input[self.at..];
        if length > left.len() as u64 {
            return Err(self.cut(length));
        }
        self.at += length as usize;
        Ok(&left[..length as usize])
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], TraceError> {
        match self.input[self.at..].first_chunk() {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(self.cut(N as u64)),
        }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, TraceError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, TraceError> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, TraceError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, TraceError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a length that the format stores as a signed number.
    pub(super) fn signed_length(&mut self) -> Result<u64, TraceError> {
        let length = self.array().map(i32::from_le_bytes)?;
        u64::try_from(length).map_err(|_| self.wrong(format!("has the length {length}")))
    }

    /// Reads a line, without its end.
    pub(super) fn line(&mut self) -> Result<&'a [u8], TraceError> {
        let left = &self.input[self.at..];
        let Some(end) = left.iter().position(|&byte| byte == b'\n') else {
            let (at, opcode) = self.opcode;
            let what = format!("the line of {} does not end", name(opcode));
            return Err(TraceError::new(Location::Byte(at as u64), Problem::Truncated { what }));
        };
        self.at += end + 1;
        Ok(left[..end].strip_suffix(b"\r").unwrap_or(&left[..end]))
    }
}
