//! A log of any length, parsed in overlapping pieces.
//!
//! Each message is parsed in exactly one piece, with text on both sides of it. Open events pass
//! from one piece to the next, so a dump may span several.

use super::event::Report;
use super::flatten;
use super::reader::Reader;
use crate::text;

/// The size of a piece.
const PIECE: usize = 16 << 20;

/// The overlap of consecutive pieces, which is also the maximum distance over which text belongs
/// together.
const OVERLAP: usize = 1 << 20;

/// Parses a log of any length in bounded memory; the work is linear in the length.
#[derive(Debug)]
pub struct LogReader {
    piece: usize,
    overlap: usize,
    buffer: Vec<u8>,
    /// The number of lines before the buffer.
    lines_before: usize,
    /// The first line, from 1, that no piece has parsed.
    next_line: usize,
    reader: Reader,
}

impl Default for LogReader {
    fn default() -> Self {
        LogReader::with_pieces(PIECE, OVERLAP)
    }
}

impl LogReader {
    pub(super) fn with_pieces(piece: usize, overlap: usize) -> Self {
        let (buffer, reader) = (Vec::new(), Reader::default());
        LogReader { piece, overlap, buffer, lines_before: 0, next_line: 1, reader }
    }

    /// Parses the next bytes of the log.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.reader.is_full {
            let room = self.piece.saturating_sub(self.buffer.len());
            let (head, rest) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(head);
            bytes = rest;
            if self.buffer.len() >= self.piece && !bytes.is_empty() {
                self.parse_piece();
            }
        }
    }

    /// Parses the rest and returns all messages.
    pub fn finish(mut self) -> Report {
        self.parse(self.buffer.len(), usize::MAX);
        self.reader.finish()
    }

    /// Parses the whole lines of the buffer, and keeps the overlap.
    fn parse_piece(&mut self) {
        let encoding = Encoding::of(&self.buffer);
        let end = encoding.line_start_up_to(&self.buffer, self.buffer.len());
        let kept = encoding.line_start_up_to(&self.buffer, end.saturating_sub(self.overlap));
        let next = encoding.line_start_up_to(&self.buffer, end.saturating_sub(self.overlap / 2));
        if kept == 0 {
            // A single line fills the piece.
            let end = self.buffer.len();
            self.parse(end, usize::MAX);
            self.drop_before(encoding, end);
            self.next_line = self.lines_before + 1;
            return;
        }
        let next_line = self.lines_before + 1 + encoding.lines(&self.buffer[..next]);
        self.parse(end, next_line);
        self.next_line = next_line;
        self.drop_before(encoding, kept);
    }

    /// Parses the messages from the next line up to this line, given the buffer up to `end`.
    fn parse(&mut self, end: usize, to_line: usize) {
        let text = text::clean(&self.buffer[..end]).numbered_from(self.lines_before + 1);
        self.reader.is_cut |= text.is_cut();
        self.reader.read(&flatten::flatten(&text), self.next_line..to_line);
    }

    fn drop_before(&mut self, encoding: Encoding, end: usize) {
        self.lines_before += encoding.lines(&self.buffer[..end]);
        // The byte order mark identifies the encoding of the next piece.
        self.buffer.drain(encoding.mark_length()..end);
    }
}

/// The encoding of line breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    /// UTF-16 with a byte order mark, and the bytes of a line break in it.
    Utf16([u8; 2]),
}

impl Encoding {
    fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0xff, 0xfe, ..] => Encoding::Utf16([b'\n', 0]),
            [0xfe, 0xff, ..] => Encoding::Utf16([0, b'\n']),
            _ => Encoding::Utf8,
        }
    }

    fn mark_length(self) -> usize {
        if self == Encoding::Utf8 { 0 } else { 2 }
    }

    /// Returns the number of line breaks.
    fn lines(self, bytes: &[u8]) -> usize {
        match self {
            Encoding::Utf8 => bytes.iter().filter(|byte| **byte == b'\n').count(),
            Encoding::Utf16(end) => bytes.chunks_exact(2).filter(|unit| *unit == end).count(),
        }
    }

    /// Returns the last start of a line up to a position; 0 if there is none after the first line.
    fn line_start_up_to(self, bytes: &[u8], position: usize) -> usize {
        match self {
            Encoding::Utf8 => {
                bytes[..position].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
            }
            Encoding::Utf16(end) => {
                let mut units = bytes[..position].chunks_exact(2);
                units.rposition(|unit| unit == end).map_or(0, |at| 2 * at + 2)
            }
        }
    }
}
