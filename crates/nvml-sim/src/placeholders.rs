//! The real processes that represent simulated ones.

use crate::cache_ttl::CacheTtl;
use crate::stat::start_of;
use gpu_core::Pid;
use gpu_sim::Placeholder;
use std::time::Duration;

/// The placeholders that have not ended.
pub(crate) struct Placeholders {
    running: Vec<Placeholder>,
    cache: CacheTtl,
}

impl Placeholders {
    pub(crate) fn new(placeholders: &[Placeholder]) -> Self {
        Placeholders { running: placeholders.to_vec(), cache: CacheTtl::default() }
    }

    /// Returns the placeholders that have ended since the last call, each once.
    pub(crate) fn ended(&mut self, clock: impl Fn() -> Duration) -> Vec<Pid> {
        let begin = clock();
        if self.running.is_empty() || self.cache.holds(begin) {
            return Vec::new();
        }
        let (running, ended): (Vec<Placeholder>, Vec<Placeholder>) =
            self.running.iter().copied().partition(runs);
        self.running = running;
        self.cache.renew(begin, clock());
        ended.into_iter().map(|placeholder| Pid(placeholder.pid)).collect()
    }
}

/// Returns whether a process still runs: it has not ended, and its PID was not reused.
fn runs(placeholder: &Placeholder) -> bool {
    start_of(placeholder.pid) == Some(placeholder.start_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_of_placeholder_is_reported_once_by_start_time() {
        let pid = std::process::id();
        let start_ticks = start_of(pid).unwrap();
        let same = Placeholder { simulated: 1, pid, start_ticks };
        let before = Placeholder { simulated: 2, pid, start_ticks: start_ticks - 1 };
        let mut stand_ins = Placeholders::new(&[same, before]);
        assert_eq!(stand_ins.ended(|| Duration::from_secs(1)), [Pid(pid)]);
        assert_eq!(stand_ins.ended(|| Duration::from_secs(2)), []);
        assert_eq!(stand_ins.running, [same]);
    }
}
