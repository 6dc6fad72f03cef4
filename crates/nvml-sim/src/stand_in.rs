//! The real processes that stand for simulated ones.

use crate::belief::Belief;
use crate::stat::start_of;
use gpu_core::Pid;
use gpu_sim::Placeholder;
use std::time::Duration;

/// Those that have not ended.
pub(crate) struct StandIns {
    running: Vec<Placeholder>,
    belief: Belief,
}

impl StandIns {
    pub(crate) fn new(placeholders: &[Placeholder]) -> Self {
        StandIns { running: placeholders.to_vec(), belief: Belief::default() }
    }

    /// Returns those that have ended since the last call, each once.
    pub(crate) fn ended(&mut self, clock: impl Fn() -> Duration) -> Vec<Pid> {
        let begin = clock();
        if self.running.is_empty() || self.belief.holds(begin) {
            return Vec::new();
        }
        let (running, ended): (Vec<Placeholder>, Vec<Placeholder>) =
            self.running.iter().copied().partition(runs);
        self.running = running;
        self.belief.renew(begin, clock());
        ended.into_iter().map(|placeholder| Pid(placeholder.pid)).collect()
    }
}

/// Tells whether a process still runs: it has not ended, and nobody else has its number.
fn runs(placeholder: &Placeholder) -> bool {
    start_of(placeholder.pid) == Some(placeholder.start_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ended_is_told_once_and_only_by_its_start() {
        let pid = std::process::id();
        let start_ticks = start_of(pid).unwrap();
        let same = Placeholder { simulated: 1, pid, start_ticks };
        let before = Placeholder { simulated: 2, pid, start_ticks: start_ticks - 1 };
        let mut stand_ins = StandIns::new(&[same, before]);
        assert_eq!(stand_ins.ended(|| Duration::from_secs(1)), [Pid(pid)]);
        assert_eq!(stand_ins.ended(|| Duration::from_secs(2)), []);
        assert_eq!(stand_ins.running, [same]);
    }
}
