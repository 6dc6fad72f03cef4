//! The real processes that stand for simulated ones.

use gpu_core::Pid;
use gpu_sim::Placeholder;
use std::fs::File;
use std::io::Read;
use std::time::Duration;

/// How long it is believed that they still run, at least.
const BELIEVED: Duration = Duration::from_millis(20);
/// How many times as long as it took to find out: with thousands of them it takes its time.
const TIMES: u32 = 10;
/// The most that is read of a process's `stat`, in bytes.
const MAX_STAT: u64 = 4096;

/// Those that have not ended.
pub(crate) struct StandIns {
    running: Vec<Placeholder>,
    believed_until: Option<Duration>,
}

impl StandIns {
    pub(crate) fn new(placeholders: &[Placeholder]) -> Self {
        StandIns { running: placeholders.to_vec(), believed_until: None }
    }

    /// Returns those that have ended since the last call, each once.
    pub(crate) fn ended(&mut self, clock: impl Fn() -> Duration) -> Vec<Pid> {
        let begin = clock();
        if self.running.is_empty() || self.believed_until.is_some_and(|until| begin < until) {
            return Vec::new();
        }
        let (running, ended): (Vec<Placeholder>, Vec<Placeholder>) =
            self.running.iter().copied().partition(runs);
        self.running = running;
        let end = clock();
        let took = end.saturating_sub(begin).saturating_mul(TIMES);
        self.believed_until = Some(end.saturating_add(took.max(BELIEVED)));
        ended.into_iter().map(|placeholder| Pid(placeholder.pid)).collect()
    }
}

/// Tells whether a process still runs: it has not ended, and nobody else has its number.
fn runs(placeholder: &Placeholder) -> bool {
    let mut stat = Vec::new();
    let file = File::open(format!("/proc/{}/stat", placeholder.pid));
    let read = file.and_then(|file| file.take(MAX_STAT).read_to_end(&mut stat));
    read.is_ok() && alive_since(&stat).is_some_and(|start| start == placeholder.start_ticks)
}

/// Returns when the process of a `stat` started; `None` when only its entry is left. Fields are
/// counted from the end of the name, which may hold anything.
fn alive_since(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    // The third field is the first after the name.
    let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3);
    let zombie = matches!(field(3)?, "Z" | "X");
    // A zombie whose other threads live has not ended: it still has what it had.
    let threads: u64 = field(20)?.parse().ok()?;
    if zombie && threads <= 1 { None } else { field(22)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: char, threads: u32) -> Vec<u8> {
        let between = "0 ".repeat(16);
        format!("7 ({name}) {state} {between}{threads} 0 4242 1 1").into_bytes()
    }

    #[test]
    fn a_zombie_has_ended_when_its_last_thread_has() {
        assert_eq!(alive_since(&stat("python", 'S', 1)), Some(4242));
        assert_eq!(alive_since(&stat("a) Z 0 0 (b", 'S', 1)), Some(4242));
        assert_eq!(alive_since(&stat("python", 'Z', 2)), Some(4242));
        assert_eq!(alive_since(&stat("python", 'Z', 1)), None);
        assert_eq!(alive_since(b"garbage"), None);
    }

    #[test]
    fn one_that_ended_is_told_once_and_only_by_its_start() {
        let own = std::fs::read("/proc/self/stat").unwrap();
        let start_ticks = alive_since(&own).unwrap();
        let pid = std::process::id();
        let same = Placeholder { simulated: 1, pid, start_ticks };
        let before = Placeholder { simulated: 2, pid, start_ticks: start_ticks - 1 };
        let mut stand_ins = StandIns::new(&[same, before]);
        assert_eq!(stand_ins.ended(|| Duration::from_secs(1)), [Pid(pid)]);
        assert_eq!(stand_ins.ended(|| Duration::from_secs(2)), []);
        assert_eq!(stand_ins.running, [same]);
    }
}
