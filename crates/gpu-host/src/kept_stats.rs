//! The `stat` files of processes that are read repeatedly.
//!
//! To open such a file takes longer than to read it. It belongs to its process: after the end of
//! the process it cannot be read, even if the PID is reused.
//!
//! A process that has not run since the last read is unchanged. Its CPU time shows that. The kernel
//! returns it in nanoseconds (clock_getcpuclockid(3)), in a twentieth of the time of a read, or in
//! a third of it for 250 threads. Changes to an idle process from outside are read after
//! [`LONGEST`].

use crate::namespace::shows_own_namespace;
use crate::proc_dir::ProcRoot;
use crate::process::read_again;
use crate::timer;
use gpu_core::ProcessInfo;
use nix::sys::time::TimeSpec;
use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// No `stat` is longer: 52 numbers and a name of 64 bytes.
const LENGTH: usize = 2048;

/// A file is closed if this many rounds do not read it. A snapshot takes one or two rounds.
const ROUNDS: u64 = 4;

/// The time after which an idle process is read again. Without running, a process can get another
/// parent or process group, lose its terminal or memory, or change its state through the freezer of
/// cgroups v1.
const LONGEST: Duration = Duration::from_secs(5);

/// The open files, by PID.
#[derive(Default)]
pub(crate) struct KeptStats {
    files: BTreeMap<u32, Kept>,
    round: u64,
    /// The time of the current round.
    now: Duration,
    /// Whether the PIDs are those of the system calls of this process, once that is known.
    has_own_numbers: Option<bool>,
}

impl KeptStats {
    /// Starts a round of reads: closes files that the last few rounds did not read.
    pub(crate) fn begin(&mut self, root: &ProcRoot) {
        self.round += 1;
        self.now = timer::now();
        if self.has_own_numbers.is_none() {
            self.has_own_numbers = shows_own_namespace(root).ok();
        }
        let round = self.round;
        self.files.retain(|_, kept| kept.used + ROUNDS > round);
    }

    /// Updates a known process from its `stat`. Returns whether it is still the same process and
    /// the same program; if not, it stays unchanged.
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` when no process has its PID, `EINVAL` when its file is malformed.
    pub(crate) fn update(&mut self, root: &ProcRoot, known: &mut Arc<ProcessInfo>) -> Result<bool> {
        let pid = known.key.pid.0;
        if let Some(kept) = self.files.get_mut(&pid) {
            kept.used = self.round;
            if let Ok(is_same) = kept.update(known, self.now) {
                return Ok(is_same);
            }
            // It has ended. Another process may have its PID.
            self.files.remove(&pid);
        }
        let file = root.open_stat(pid)?;
        let clock = match self.has_own_numbers {
            Some(true) => cpu_clock(pid),
            _ => None,
        };
        let mut kept = Kept { file, used: self.round, clock, last: None };
        let is_same = kept.update(known, self.now)?;
        if self.files.len() < most() {
            self.files.insert(pid, kept);
        }
        Ok(is_same)
    }
}

/// The open file of a process.
struct Kept {
    file: OwnedFd,
    /// The last round that requested it.
    used: u64,
    clock: Option<ClockId>,
    /// The last read, if it was of the known process.
    last: Option<Read>,
}

/// A read of a file.
struct Read {
    at: Duration,
    /// The CPU time before it.
    ran: Option<TimeSpec>,
    /// The data of the process after it.
    known: Arc<ProcessInfo>,
}

impl Kept {
    /// Updates a known process from the file, as [`KeptStats::update`].
    ///
    /// # Errors
    /// `ESRCH` when the process has ended, `EINVAL` when the file is malformed.
    fn update(&mut self, known: &mut Arc<ProcessInfo>, now: Duration) -> Result<bool> {
        let ran = self.clock.and_then(|clock| clock.now().ok());
        let is_current = |last: &Read| {
            // The caller may have read the process elsewhere since, which is newer than the last
            // read.
            let is_idle = ran.is_some() && ran == last.ran && Arc::ptr_eq(known, &last.known);
            is_idle && now.saturating_sub(last.at) < LONGEST
        };
        if self.last.as_ref().is_some_and(is_current) {
            return Ok(true);
        }
        let is_same = read_again(&read(&self.file)?, known)?;
        self.last = is_same.then(|| Read { at: now, ran, known: Arc::clone(known) });
        Ok(is_same)
    }
}

/// Returns the clock of the CPU time of all threads of a process.
fn cpu_clock(pid: u32) -> Option<ClockId> {
    ClockId::pid_cpu_clock_id(Pid::from_raw(i32::try_from(pid).ok()?)).ok()
}

/// Returns how many files are kept open at most: half of what the process may have.
fn most() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 2).unwrap_or(usize::MAX)
}

fn read(file: &OwnedFd) -> Result<Vec<u8>> {
    let mut text = [0; LENGTH];
    match rustix::io::pread(file, &mut text, 0)? {
        LENGTH => Err(Errno::INVAL),
        count => Ok(text[..count].to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use crate::users::Users;
    use gpu_core::{Absent, ProcessKey, ProcessState, StartTime};
    use std::path::Path;
    use std::process::{Child, Command};

    fn root() -> ProcRoot {
        ProcRoot::open(Path::new("/proc")).unwrap()
    }

    /// A process that sleeps until it is dropped.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            let sleeper = Sleeper(Command::new("sleep").arg("1000").spawn().unwrap());
            while sleeper.known().state != Ok(ProcessState::Sleeping) {
                timer::sleep(Duration::from_millis(1));
            }
            sleeper
        }

        fn known(&self) -> Arc<ProcessInfo> {
            let dir = root().process(self.0.id()).unwrap();
            Arc::new(process::read(&dir, Err(Absent::NotFound), &Users::default()).unwrap())
        }

        fn last_read(&self, kept: &KeptStats) -> Duration {
            kept.files[&self.0.id()].last.as_ref().unwrap().at
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn stat_is_current_until_process_ends_and_closed_if_unused() {
        let (root, mut kept) = (root(), KeptStats::default());
        let (first, second) = (Sleeper::start(), Sleeper::start());
        let (mut one, mut two) = (first.known(), second.known());
        for _ in 0..2 * ROUNDS {
            kept.begin(&root);
            assert_eq!(kept.update(&root, &mut one), Ok(true));
        }
        assert_eq!(kept.update(&root, &mut two), Ok(true));
        assert_eq!(kept.files.len(), 2);
        // Unchanged data is shared.
        let before = Arc::clone(&one);
        assert_eq!(kept.update(&root, &mut one), Ok(true));
        assert!(Arc::ptr_eq(&before, &one));
        // To stop, the process has to run. The kernel notifies its parent before it accounts for
        // that.
        let pid = rustix::process::Pid::from_child(&first.0);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        for _ in 0..10_000 {
            assert_eq!(kept.update(&root, &mut one), Ok(true));
            if one.state == Ok(ProcessState::Stopped) {
                break;
            }
            timer::sleep(Duration::from_millis(1));
        }
        assert_eq!(one.state, Ok(ProcessState::Stopped));
        assert_eq!(before.state, Ok(ProcessState::Sleeping), "other copies do not change");
        drop((first, second));
        let error = kept.update(&root, &mut one).unwrap_err();
        assert!(matches!(error, Errno::SRCH | Errno::NOENT));
        assert_eq!(kept.files.len(), 1);
        for _ in 0..ROUNDS {
            kept.begin(&root);
        }
        assert!(kept.files.is_empty());
    }

    #[test]
    fn other_process_or_program_does_not_match_known_one() {
        let (root, mut kept, sleeper) = (root(), KeptStats::default(), Sleeper::start());
        kept.begin(&root);
        let mut info = sleeper.known();
        assert_eq!(kept.update(&root, &mut info), Ok(true));
        let start = info.key.start.map(|start| StartTime(start.0 - 1));
        for other in [
            ProcessInfo { name: "other".to_owned(), ..(*info).clone() },
            ProcessInfo { key: ProcessKey { start, ..info.key }, ..(*info).clone() },
        ] {
            let mut other = Arc::new(other);
            for _ in 0..2 {
                assert_eq!(kept.update(&root, &mut other), Ok(false));
            }
        }
    }

    #[test]
    fn idle_process_is_read_only_now_and_then() {
        let (root, mut kept, sleeper) = (root(), KeptStats::default(), Sleeper::start());
        kept.begin(&root);
        let (mut info, first) = (sleeper.known(), kept.now);
        for (passed, read_at) in [(0, 0), (1, 0), (4, 0), (5, 5), (9, 5), (10, 10)] {
            kept.now = first + Duration::from_secs(passed);
            assert_eq!(kept.update(&root, &mut info), Ok(true));
            assert_eq!(sleeper.last_read(&kept), first + Duration::from_secs(read_at));
        }
    }

    #[test]
    fn newer_data_from_elsewhere_is_kept() {
        let (root, mut kept, sleeper) = (root(), KeptStats::default(), Sleeper::start());
        kept.begin(&root);
        assert_eq!(kept.update(&root, &mut sleeper.known()), Ok(true));
        kept.now += Duration::from_secs(1);
        let mut elsewhere = sleeper.known();
        Arc::make_mut(&mut elsewhere).user = Ok("renamed".to_owned());
        assert_eq!(kept.update(&root, &mut elsewhere), Ok(true));
        assert_eq!(sleeper.last_read(&kept), kept.now);
        assert_eq!(elsewhere.user.as_deref(), Ok("renamed"));
    }

    #[test]
    fn process_of_another_namespace_is_read_each_time() {
        let (root, sleeper) = (root(), Sleeper::start());
        let mut kept = KeptStats { has_own_numbers: Some(false), ..KeptStats::default() };
        let mut info = sleeper.known();
        for second in 1..4 {
            kept.now = Duration::from_secs(second);
            kept.update(&root, &mut info).unwrap();
            assert_eq!(sleeper.last_read(&kept), kept.now);
        }
    }
}
