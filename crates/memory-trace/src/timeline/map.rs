//! The segments and their blocks in rows, read like text. Each row covers the same amount of
//! memory.

use super::scale::{LEFT, PLOT};
use super::svg::Path;
use gpu_allocator_policy::{BlockState, SegmentMap};
use gpu_core::{Bytes, amount};
use std::fmt::Write;

/// The number of rows, and the height of each with the gap below it, in units.
const ROWS: u64 = 16;
const ROW: (i64, i64) = (16, 6);
/// The number of cells in a row.
const CELLS: u64 = PLOT.0 as u64 * 2;
/// The maximum number of segments with an outline and a tooltip; all are drawn.
const MAX_OUTLINED: usize = 900;

/// The sums over the segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) held: u64,
    pub(super) active: u64,
    pub(super) awaiting: u64,
    pub(super) free: u64,
    pub(super) free_pieces: usize,
    pub(super) largest_free: u64,
    /// Memory in use beyond the requested size.
    pub(super) rounding: u64,
}

impl Totals {
    pub(super) fn of(segments: &[SegmentMap]) -> Self {
        let mut sums = Totals::default();
        for segment in segments {
            sums.held += segment.size.0;
            for block in &segment.blocks {
                let size = block.size.0;
                match block.state {
                    BlockState::Active => sums.active += size,
                    BlockState::AwaitingFree => sums.awaiting += size,
                    BlockState::Free => {
                        sums.free += size;
                        sums.free_pieces += 1;
                        sums.largest_free = sums.largest_free.max(size);
                    }
                }
                if block.state != BlockState::Free {
                    sums.rounding += size.saturating_sub(block.requested.0);
                }
            }
        }
        sums
    }
}

/// Maps the bytes of all segments, laid end to end, to the rows.
struct Rows {
    /// The bytes of a row.
    per_row: u64,
    /// The top of the first row, in units.
    base: i64,
}

impl Rows {
    /// Adds the rectangles that a range of bytes covers.
    fn cover(&self, path: &mut Path, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let row = at / self.per_row;
            let end = to.min((row + 1) * self.per_row);
            let x = |bytes: u64| {
                let inside = u128::from(bytes - row * self.per_row) * u128::from(CELLS);
                LEFT * 10 + (inside / u128::from(self.per_row)) as i64 * 5
            };
            let y = self.base * 10 + row as i64 * (ROW.0 + ROW.1) * 10;
            let width = x(end) - x(at);
            if width > 0 {
                path.rectangle(x(at), y, width, ROW.0 * 10);
            }
            at = end;
        }
    }
}

/// Draws the segments below `base`, and the refused request; returns the lower end.
pub(super) fn draw(
    svg: &mut String,
    segments: &[SegmentMap],
    asked: Option<u64>,
    base: i64,
) -> i64 {
    let total: u64 = segments.iter().map(|segment| segment.size.0).sum();
    let rows = Rows { per_row: (total.max(asked.unwrap_or(0)) / ROWS + 1).max(CELLS), base };
    let cells = Cells::of(segments, &rows);
    for (state, class) in [
        (BlockState::Active, "active"),
        (BlockState::AwaitingFree, "awaiting"),
        (BlockState::Free, "free"),
    ] {
        let mut path = Path::default();
        cells.runs(state, |from, to| rows.cover(&mut path, from, to));
        if !path.is_empty() {
            let _ = writeln!(svg, "<path class=\"{class}\" d=\"{}\"/>", path.text());
        }
    }
    outline(svg, segments, &rows);
    let used = total.div_ceil(rows.per_row);
    for row in 0..used {
        let y = base + row as i64 * (ROW.0 + ROW.1) + ROW.0 - 4;
        let at = amount(Bytes(row * rows.per_row));
        let _ = writeln!(svg, "<text class=\"small end\" x=\"{}\" y=\"{y}\">{at}</text>", LEFT - 8);
    }
    let end = base + used as i64 * (ROW.0 + ROW.1);
    let Some(asked) = asked else { return end };
    let y = end + 6;
    let beneath = Rows { per_row: rows.per_row, base: y };
    let mut path = Path::default();
    beneath.cover(&mut path, 0, asked);
    let _ = writeln!(svg, "<path class=\"asked\" d=\"{}\"/>", path.text());
    let _ = writeln!(
        svg,
        "<text class=\"small end\" x=\"{}\" y=\"{}\">requested</text>",
        LEFT - 8,
        y + ROW.0 - 4
    );
    y + asked.div_ceil(rows.per_row) as i64 * (ROW.0 + ROW.1)
}

/// Draws a frame with a tooltip around each visible segment.
fn outline(svg: &mut String, segments: &[SegmentMap], rows: &Rows) {
    let least = rows.per_row / (CELLS / 4);
    let mut seen: Vec<_> =
        segments.iter().map(|segment| segment.size.0).filter(|size| *size >= least).collect();
    seen.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let least = seen.get(MAX_OUTLINED).map_or(least, |size| size + 1);
    let mut at = 0;
    for segment in segments {
        let (from, size) = (at, segment.size.0);
        at += size;
        if size < least {
            continue;
        }
        let mut path = Path::default();
        rows.cover(&mut path, from, at);
        let sums = Totals::of(std::slice::from_ref(segment));
        let stream =
            segment.stream.map_or(String::new(), |stream| format!(", stream {}", stream.0));
        let free = match sums.free_pieces {
            0 => "nothing free".to_owned(),
            1 => format!("{} free in one block", amount(Bytes(sums.free))),
            pieces => format!(
                "{} free in {pieces} blocks, the largest {}",
                amount(Bytes(sums.free)),
                amount(Bytes(sums.largest_free))
            ),
        };
        let blocks = segment.blocks.len() - sums.free_pieces;
        let blocks = if blocks == 1 { "1 block".to_owned() } else { format!("{blocks} blocks") };
        let _ = writeln!(
            svg,
            "<path class=\"segment\" d=\"{}\"><title>segment of {}{stream}: {} in {blocks}, {free}</title></path>",
            path.text(),
            amount(segment.size),
            amount(Bytes(sums.active + sums.awaiting)),
        );
    }
}

/// The prevailing state of each cell.
struct Cells {
    /// Bytes in use, awaiting their free, and free.
    parts: Vec<[u64; 3]>,
    per_row: u64,
}

impl Cells {
    fn of(segments: &[SegmentMap], rows: &Rows) -> Self {
        let total: u64 = segments.iter().map(|segment| segment.size.0).sum();
        let per_row = rows.per_row;
        let count = total.div_ceil(per_row) * CELLS;
        let mut cells = Cells { parts: vec![[0; 3]; count as usize], per_row };
        let mut at = 0;
        for segment in segments {
            let mut end = at;
            for block in &segment.blocks {
                let kind = match block.state {
                    BlockState::Active => 0,
                    BlockState::AwaitingFree => 1,
                    BlockState::Free => 2,
                };
                cells.add(kind, end, end + block.size.0);
                end += block.size.0;
            }
            at += segment.size.0;
        }
        cells
    }

    fn cell(&self, byte: u64) -> u64 {
        let (row, inside) = (byte / self.per_row, byte % self.per_row);
        row * CELLS + (u128::from(inside) * u128::from(CELLS) / u128::from(self.per_row)) as u64
    }

    /// Returns the first byte of a cell.
    fn begin(&self, cell: u64) -> u64 {
        let inside = u128::from(cell % CELLS) * u128::from(self.per_row);
        cell / CELLS * self.per_row + inside.div_ceil(u128::from(CELLS)) as u64
    }

    fn add(&mut self, kind: usize, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let cell = self.cell(at);
            let end = to.min(self.begin(cell + 1));
            if let Some(part) = self.parts.get_mut(cell as usize) {
                part[kind] += end - at;
            }
            at = end;
        }
    }

    /// Calls `draw` with the byte range of each run of cells that are mostly in this state.
    fn runs(&self, state: BlockState, mut draw: impl FnMut(u64, u64)) {
        let kind = match state {
            BlockState::Active => 0,
            BlockState::AwaitingFree => 1,
            BlockState::Free => 2,
        };
        let is = |part: &[u64; 3]| {
            let most = part.iter().copied().max().unwrap_or(0);
            most > 0 && part.iter().position(|bytes| *bytes == most) == Some(kind)
        };
        let mut since = None;
        for (cell, part) in self.parts.iter().enumerate() {
            match (is(part), since) {
                (true, None) => since = Some(cell),
                (false, Some(from)) => {
                    draw(self.begin(from as u64), self.begin(cell as u64));
                    since = None;
                }
                _ => {}
            }
        }
        if let Some(from) = since {
            draw(self.begin(from as u64), self.begin(self.parts.len() as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_allocator_policy::BlockMap;

    fn segment(address: u64, blocks: &[(u64, BlockState)]) -> SegmentMap {
        let mut at = address;
        let mut pieces = Vec::new();
        for &(size, state) in blocks {
            let requested = Bytes(if state == BlockState::Free { 0 } else { size - 1 });
            pieces.push(BlockMap { address: at, size: Bytes(size), requested, state });
            at += size;
        }
        SegmentMap { address, size: Bytes(at - address), stream: None, blocks: pieces }
    }

    #[test]
    fn held_memory_is_sum_of_states() {
        use BlockState::*;
        let sums = Totals::of(&[
            segment(0, &[(10, Active), (20, Free), (30, AwaitingFree)]),
            segment(500, &[(40, Free)]),
        ]);
        assert_eq!((sums.held, sums.active, sums.awaiting, sums.free), (100, 10, 30, 60));
        assert_eq!((sums.free_pieces, sums.largest_free, sums.rounding), (2, 40, 2));
    }

    #[test]
    fn rows_preserve_bytes_per_state() {
        use BlockState::*;
        let mib = 1u64 << 20;
        let segments = [
            segment(0, &[(7 * mib, Active), (9 * mib, Free)]),
            segment(64 * mib, &[(16 * mib, Active)]),
        ];
        let rows = Rows { per_row: 2 * mib, base: 0 };
        let cells = Cells::of(&segments, &rows);
        for (state, expected) in [(Active, 23 * mib), (Free, 9 * mib), (AwaitingFree, 0)] {
            let mut sum = 0;
            cells.runs(state, |from, to| sum += to - from);
            // Each cell has a single state.
            assert!(sum.abs_diff(expected) <= 2 * (2 * mib / CELLS + 1), "{state:?}: {sum}");
        }
        let bytes: u64 = cells.parts.iter().flatten().sum();
        assert_eq!(bytes, 32 * mib);
    }
}
