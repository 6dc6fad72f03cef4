//! The rows of a value, relative to those of another value.

use crate::shape::Flat;
use crate::varint::{self, unzigzag, zigzag};
use std::collections::HashMap;
use std::ops::Range;

/// The source of consecutive rows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// These rows of the base.
    Copied(Range<usize>),
    /// This many rows that the base lacks.
    New(usize),
}

/// Describes the rows of `flat` in terms of those of `base`, and returns for each number the index
/// of the number in the base that it is compared with.
///
/// A piece is a varint: twice the number of rows, plus one if they are new. For copied rows, the
/// distance of the first from the end of the last piece follows; for new rows, their shapes, each
/// with its length.
pub(crate) fn describe(flat: &Flat, base: &Flat, output: &mut Vec<u8>) -> Sources {
    let pieces = pieces(flat, base);
    varint::put(output, pieces.len() as u64);
    let mut sources = Sources::default();
    let (mut row, mut next) = (0, 0_usize);
    for piece in pieces {
        match piece {
            Piece::Copied(rows) => {
                varint::put(output, (rows.len() as u64) << 1);
                varint::put(output, zigzag(rows.start as i64 - next as i64));
                (row, next) = (row + rows.len(), rows.end);
                sources.copy(base, rows);
            }
            Piece::New(count) => {
                varint::put(output, (count as u64) << 1 | 1);
                for _ in 0..count {
                    let shape = flat.shape_of(row);
                    varint::put(output, shape.len() as u64);
                    output.extend_from_slice(shape);
                    sources.none(flat.numbers_of(row).len());
                    row += 1;
                }
            }
        }
    }
    sources
}

/// Returns the value that [`describe`] described, without its numbers, and the sources that
/// [`describe`] returned; `None` if the description is malformed, or describes a value that the
/// caller does not accept.
pub(crate) fn described(
    input: &mut &[u8],
    base: &Flat,
    texts: usize,
    mut may_have: impl FnMut(&Flat) -> bool,
) -> Option<(Flat, Sources)> {
    let mut flat = Flat::default();
    let mut sources = Sources::default();
    let mut next = 0_usize;
    for _ in 0..varint::take(input)? {
        let piece = varint::take(input)?;
        let count = usize::try_from(piece >> 1).ok()?;
        if piece & 1 == 0 {
            let jump = isize::try_from(unzigzag(varint::take(input)?)).ok()?;
            let start = next.checked_add_signed(jump)?;
            next = start.checked_add(count).filter(|end| *end <= base.rows.len())?;
            flat.add_rows_of(base, start..next)?;
            sources.copy(base, start..next);
        } else {
            for _ in 0..count {
                let shape = varint::take_bytes(input)?;
                sources.none(flat.add_row(shape, texts)?);
            }
        }
        if !may_have(&flat) {
            return None;
        }
    }
    Some((flat, sources))
}

/// For each number, the index of the number in the base that it is compared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(pub(crate) Vec<Option<u32>>);

impl Sources {
    fn copy(&mut self, base: &Flat, rows: Range<usize>) {
        if rows.is_empty() {
            return;
        }
        let numbers = base.numbers_of(rows.start).start..base.numbers_of(rows.end - 1).end;
        self.0.extend(numbers.map(|number| Some(number as u32)));
    }

    fn none(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, None);
    }
}

fn pieces(flat: &Flat, base: &Flat) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    // Most snapshots have the rows of the base in the same order, and need no search.
    let mut rows_by_shape: Option<HashMap<&[u8], Vec<usize>>> = None;
    let mut next = 0;
    for row in 0..flat.rows.len() {
        let shape = flat.shape_of(row);
        let follows = next < base.rows.len() && base.shape_of(next) == shape;
        let found = match follows {
            true => Some(next),
            false => {
                let rows_by_shape = rows_by_shape.get_or_insert_with(|| {
                    let mut rows_by_shape: HashMap<&[u8], Vec<usize>> = HashMap::new();
                    for row in 0..base.rows.len() {
                        rows_by_shape.entry(base.shape_of(row)).or_default().push(row);
                    }
                    rows_by_shape
                });
                rows_by_shape.get(shape).map(|rows| {
                    let later = rows.partition_point(|row| *row < next);
                    *rows.get(later).unwrap_or(&rows[0])
                })
            }
        };
        match (found, pieces.last_mut()) {
            (Some(at), Some(Piece::Copied(rows))) if rows.end == at => rows.end += 1,
            (Some(at), _) => pieces.push(Piece::Copied(at..at + 1)),
            (None, Some(Piece::New(count))) => *count += 1,
            (None, _) => pieces.push(Piece::New(1)),
        }
        next = found.map_or(next, |at| at + 1);
    }
    pieces
}
