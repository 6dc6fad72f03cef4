//! The layout of the picture.

use gpu_core::{Bytes, amount};

/// Sizes, in units of the picture.
pub(super) const WIDTH: i64 = 1200;
pub(super) const LEFT: i64 = 84;
pub(super) const RIGHT: i64 = 36;
pub(super) const PLOT: (i64, i64) = (WIDTH - LEFT - RIGHT, 400);
/// The resolution of the time axis, in tenths.
const GRAIN: i64 = 5;
/// The maximum number of lines on the memory axis.
const MAX_LINES: u64 = 9;

/// The axes of the upper part, in tenths of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The length of the time axis in events.
    pub(super) events: u64,
    /// The upper end of the memory axis.
    pub(super) top: u64,
    /// The lower end of the memory axis, in units.
    pub(super) base: i64,
}

impl Scale {
    pub(super) fn x(&self, event: usize) -> i64 {
        let width = i128::from(PLOT.0 * 10 / GRAIN);
        let x = event as i128 * width / i128::from(self.events.max(1));
        LEFT * 10 + x.min(width) as i64 * GRAIN
    }

    pub(super) fn height(&self, bytes: u64) -> i64 {
        let height = i128::from(bytes) * i128::from(PLOT.1 * 10);
        let top = i128::from(self.top.max(1));
        (((height + top / 2) / top) as i64).min(PLOT.1 * 10)
    }

    pub(super) fn y(&self, bytes: u64) -> i64 {
        self.base * 10 - self.height(bytes)
    }

    /// Returns the amounts that have a line, and their labels.
    pub(super) fn memory_lines(&self) -> Vec<(u64, String)> {
        let step = (self.top / MAX_LINES).max(1).next_power_of_two();
        let lines = (0..=self.top / step).map(|line| line * step);
        lines.map(|bytes| (bytes, amount(Bytes(bytes)))).collect()
    }

    /// Returns the events that have a line.
    pub(super) fn event_lines(&self) -> Vec<usize> {
        let step = round_step(self.events);
        (0..=self.events / step).map(|line| (line * step) as usize).collect()
    }
}

/// Returns the smallest step of 1, 2 or 5 times a power of ten that divides a length into at most
/// nine parts.
fn round_step(length: u64) -> u64 {
    let mut step = 1u64;
    loop {
        for factor in [1, 2, 5] {
            if length / (step * factor) < 10 {
                return step * factor;
            }
        }
        step *= 10;
    }
}

/// Formats a number with a thin space between thousands.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digits.len() > 4 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of microseconds with a suitable unit.
pub(super) fn duration(us: u64) -> String {
    match us {
        0 => "0 s".to_owned(),
        1..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..600_000_000 => format!("{:.2} s", us as f64 / 1e6),
        _ => format!("{:.0} min", us as f64 / 6e7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_span_plot_area() {
        let scale = Scale { events: 20_128, top: 60 << 30, base: 500 };
        assert_eq!((scale.x(0), scale.x(20_128)), (LEFT * 10, (WIDTH - RIGHT) * 10));
        assert_eq!((scale.y(0), scale.y(60 << 30), scale.y(u64::MAX)), (5000, 1000, 1000));
        assert!((0..20_128).all(|event| scale.x(event) % GRAIN == 0));
        let lines: Vec<_> = scale.memory_lines().into_iter().map(|(_, text)| text).collect();
        assert_eq!(
            lines,
            ["0", "8 GiB", "16 GiB", "24 GiB", "32 GiB", "40 GiB", "48 GiB", "56 GiB"]
        );
        assert_eq!(scale.event_lines(), [0, 5000, 10_000, 15_000, 20_000]);
    }

    #[test]
    fn empty_plot_has_axes() {
        let scale = Scale { events: 0, top: 0, base: 500 };
        assert_eq!((scale.x(0), scale.y(0)), (LEFT * 10, 5000));
        assert_eq!((scale.memory_lines().len(), scale.event_lines()), (1, vec![0]));
    }

    #[test]
    fn digits_are_grouped() {
        for (number, text) in
            [(0, "0"), (9_999, "9999"), (20_128, "20 128"), (1_000_000, "1 000 000")]
        {
            assert_eq!(thousands(number), text);
        }
        assert_eq!(duration(1_250_000), "1.25 s");
    }

    #[test]
    fn durations_have_suitable_units() {
        for (us, text) in [
            (0, "0 s"),
            (1, "1 µs"),
            (999, "999 µs"),
            (1000, "1.0 ms"),
            (999_900, "999.9 ms"),
            (1_000_000, "1.00 s"),
            (599_990_000, "599.99 s"),
            (600_000_000, "10 min"),
            (6_000_000_000, "100 min"),
        ] {
            assert_eq!(duration(us), text);
        }
    }

    #[test]
    fn axes_have_at_most_ten_lines() {
        for (top, step, lines) in
            [(0, 1, 1), (8, 1, 9), (9, 1, 10), (18, 2, 10), (27, 4, 7), (36, 4, 10)]
        {
            let scale = Scale { events: 1, top, base: 400 };
            let drawn: Vec<u64> =
                scale.memory_lines().into_iter().map(|(bytes, _)| bytes).collect();
            assert_eq!(drawn, (0..lines).map(|line| line * step).collect::<Vec<_>>(), "{top}");
        }
        for (length, step) in [
            (0, 1),
            (9, 1),
            (10, 2),
            (19, 2),
            (20, 5),
            (49, 5),
            (50, 10),
            (99, 10),
            (100, 20),
            (500, 100),
        ] {
            assert_eq!(round_step(length), step, "{length}");
        }
    }

    #[test]
    fn positions_are_rounded_to_tenths_and_bounded() {
        let scale = Scale { events: 3, top: 3, base: 400 };
        assert_eq!([0, 1, 2, 3, 9].map(|event| scale.x(event)), [840, 4440, 8040, 11_640, 11_640]);
        assert_eq!([0, 1, 2, 3, 9].map(|bytes| scale.height(bytes)), [0, 1333, 2667, 4000, 4000]);
        assert_eq!(scale.y(1), 4000 - 1333);
        assert_eq!(
            [9999, 10_000, 123_456, 1_234_567].map(thousands),
            ["9999", "10 000", "123 456", "1 234 567"]
        );
    }
}
