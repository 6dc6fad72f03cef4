//! Filled graphs of a history, newest sample on the right.

use super::paint::{Paint, Tone};
use crate::options::Marker;
use ratatui_core::layout::Rect;
use std::time::Duration;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 3] = ['.', ':', '#'];
/// The dots of a braille pattern from the bottom up: those on the left, and those on the right.
const DOTS: [[u32; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];

/// Draws a graph of percentages; `back` returns the sample of that many snapshots ago. A known
/// value has at least the lowest level, so that it differs from an unknown one.
pub(super) fn draw(
    paint: &mut Paint<'_>,
    area: Rect,
    marker: Marker,
    back: impl Fn(usize) -> Option<u8>,
) {
    for column in 0..area.width {
        let x = area.right() - 1 - column;
        let samples = samples(marker, usize::from(column), &back);
        if samples == [None, None] {
            continue;
        }
        let tone =
            if samples.iter().flatten().all(|value| *value == 0) { Tone::Dim } else { Tone::Graph };
        for line in 0..area.height {
            if let Some(symbol) = symbol(marker, samples, area.height, line) {
                paint.symbol(x, area.y + line, symbol, tone);
            }
        }
    }
}

/// Returns the lines of a graph of this size, from the top.
pub(super) fn lines(
    (width, height): (u16, u16),
    marker: Marker,
    back: impl Fn(usize) -> Option<u8>,
) -> Vec<String> {
    let line = |line| {
        let columns = (0..usize::from(width)).rev();
        let symbols = columns.map(|column| {
            symbol(marker, samples(marker, column, &back), height, line).unwrap_or(' ')
        });
        symbols.collect()
    };
    (0..height).map(line).collect()
}

/// The ages that an axis may name, in seconds.
const AGES: [u64; 26] = [
    1, 2, 5, 10, 20, 30, 40, 60, 120, 180, 300, 600, 1200, 1800, 3600, 7200, 18_000, 36_000,
    86_400, 172_800, 432_000, 864_000, 1_728_000, 4_320_000, 8_640_000, 86_400_000,
];

/// Returns the time axis of a graph: the largest age that fits, which begins below the column of
/// that age, and `end` below the last column. `snapshot` returns which snapshot is as old as this,
/// counted from the last one.
pub(super) fn axis(
    width: u16,
    marker: Marker,
    end: &str,
    snapshot: impl Fn(Duration) -> Option<usize>,
) -> String {
    let (width, per_column) = (usize::from(width), if marker == Marker::Braille { 2 } else { 1 });
    let label = |age: &u64| {
        let column = snapshot(Duration::from_secs(*age))? / per_column;
        let label = match age {
            0..60 => format!("-{age}s"),
            60..3600 => format!("-{}m", age / 60),
            3600..86_400 => format!("-{}h", age / 3600),
            _ => format!("-{}d", age / 86_400),
        };
        let fits = column < width && label.len() + 1 + end.len() <= column + 1;
        fits.then(|| format!("{label}{end:>0$}", column + 1 - label.len()))
    };
    let axis = AGES.iter().rev().find_map(label);
    let axis = axis.or_else(|| (end.len() <= width).then(|| end.to_owned())).unwrap_or_default();
    format!("{axis:>width$}")
}

/// Returns the samples in a column, counted from the right.
fn samples(marker: Marker, column: usize, back: impl Fn(usize) -> Option<u8>) -> [Option<u8>; 2] {
    match marker {
        Marker::Braille => [back(2 * column + 1), back(2 * column)],
        Marker::Block | Marker::Ascii => [None, back(column)],
    }
}

/// Returns the symbol of a column in one of the lines of a graph, counted from the top.
fn symbol(marker: Marker, samples: [Option<u8>; 2], lines: u16, line: u16) -> Option<char> {
    let below = usize::from(lines - 1 - line);
    let in_line =
        |levels: usize| samples.map(|value| filled(value, levels, usize::from(lines), below));
    match marker {
        Marker::Braille => braille(in_line(4)),
        Marker::Block => pick(&BLOCKS, in_line(8)[1]),
        Marker::Ascii => pick(&ASCII, in_line(3)[1]),
    }
}

/// Returns how many of the levels of one line are filled, with `below` lines below it.
fn filled(value: Option<u8>, levels: usize, lines: usize, below: usize) -> usize {
    let Some(value) = value else { return 0 };
    let all = levels * lines;
    let exact = (usize::from(value.min(100)) * all).div_ceil(100).max(1);
    exact.saturating_sub(below * levels).min(levels)
}

fn braille([left, right]: [usize; 2]) -> Option<char> {
    let dots = |side: usize, count: usize| DOTS[side][..count].iter().sum::<u32>();
    let dots = dots(0, left) + dots(1, right);
    (dots > 0).then(|| char::from_u32(0x2800 + dots)).flatten()
}

fn pick(symbols: &[char], level: usize) -> Option<char> {
    symbols.get(level.checked_sub(1)?).copied()
}
