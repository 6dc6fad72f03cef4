//! A job's memory over time in a few characters.

use crate::replay::{Level, Observer};
use crate::workload::Step;
use gpu_allocator_policy::Allocation;

/// The number of characters.
const COLUMNS: usize = 12;
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The maximum memory held in each part of a replay.
#[derive(Clone, Debug, Default)]
pub struct Sparkline {
    steps: usize,
    most: [u64; COLUMNS],
}

impl Sparkline {
    /// Creates a sparkline for a replay with this many steps.
    pub fn new(steps: usize) -> Self {
        Sparkline { steps: steps.max(1), most: [0; COLUMNS] }
    }

    /// Returns the parts as bars; a part that the replay did not reach is blank.
    pub fn draw(&self) -> String {
        let highest = self.most.iter().copied().max().unwrap_or(0).max(1);
        let reached = self.most.iter().rposition(|most| *most > 0).map_or(0, |last| last + 1);
        let mut held = 0;
        let bar = |most: &u64| {
            // With fewer steps than parts, a part repeats the previous one.
            held = if *most > 0 { *most } else { held };
            HEIGHTS[(u128::from(held) * 7 / u128::from(highest)) as usize]
        };
        self.most[..reached].iter().map(bar).collect()
    }
}

impl Observer for Sparkline {
    fn after(&mut self, number: usize, _step: Step, _given: Option<&Allocation>, now: Level) {
        let column = &mut self.most[number.min(self.steps - 1) * COLUMNS / self.steps];
        *column = (*column).max(now.reserved.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StepKind;
    use gpu_core::Bytes;

    #[test]
    fn sparkline_bar_height_is_maximum_of_bucket() {
        let mut spark = Sparkline::new(24);
        let step = Step { size: 0, slot: 0, stream: 0, kind: StepKind::Free };
        for number in 0..12 {
            let reserved = Bytes(if number == 3 { 800 } else { 100 + number as u64 * 50 });
            spark.after(number, step, None, Level { in_use: Bytes(0), reserved });
        }
        assert_eq!(spark.draw(), "▂█▄▄▅▆");
    }

    #[test]
    fn sparkline_of_short_replay_repeats_last_level() {
        let step = Step { size: 0, slot: 0, stream: 0, kind: StepKind::Free };
        let drawn = |steps: usize, levels: &[u64]| {
            let mut spark = Sparkline::new(steps);
            for (number, reserved) in levels.iter().enumerate() {
                let now = Level { in_use: Bytes(0), reserved: Bytes(*reserved) };
                spark.after(number, step, None, now);
            }
            spark.draw()
        };
        assert_eq!(drawn(3, &[7, 1, 7]), "████▂▂▂▂█");
        assert_eq!(drawn(0, &[5]), "█");
        assert_eq!(drawn(4, &[]), "");
        assert_eq!(drawn(2, &[1, 2, 3]), "▃▃▃▃▃▃█", "a step too many is in the last part");
    }
}
