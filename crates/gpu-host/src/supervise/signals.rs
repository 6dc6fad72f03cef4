//! Signals to the supervisor, as events that can be waited for and queried.

use super::moment;
use crate::proc_dir::ProcRoot;
use nix::sys::signal::{SigSet, Signal};
use rustix::fd::{AsFd, BorrowedFd};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The signals that request the end of a program.
pub(crate) const ASKING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// The signals without a fixed meaning.
pub(crate) const FREE: [i32; 2] = [SIGUSR1, SIGUSR2];

/// Within this time, the same signal counts once: a signal that is sent to all processes of a job,
/// as by systemd.kill(5), reaches the supervisor directly and again through the frontend.
const ECHO: Duration = Duration::from_secs(1);

/// The same for SIGINT, because a user may press Ctrl-C twice.
const ECHO_OF_INTERRUPT: Duration = Duration::from_millis(250);

/// The maximum length of `status`.
const STATUS_LIMIT: usize = 64 << 10;

/// The signals of this process, caught.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    ignored: u64,
    /// Requests that were not reported yet.
    asked: VecDeque<i32>,
    /// When each signal was last received.
    heard: BTreeMap<i32, Duration>,
    /// All other signals that were not reported yet, each once.
    other: Vec<i32>,
}

impl Signals {
    /// Catches signals that request an end, that report children, and that are forwarded. Signals
    /// that this process was started to ignore (nohup(1)) stay ignored, here and in programs that
    /// it starts.
    pub(crate) fn catch(root: &ProcRoot) -> io::Result<Self> {
        let ignored = ignored(root)?;
        let (read, write) = UnixStream::pair()?;
        // The status of children is kept only if SIGCHLD is not ignored.
        let wanted = ASKING.iter().chain(&FREE).filter(|signal| !is_in(ignored, **signal));
        let wanted = wanted.chain(&[SIGCHLD, SIGCONT]);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, wanted)?;
        let (asked, heard, other) = (VecDeque::new(), BTreeMap::new(), Vec::new());
        Ok(Signals { delivery, ignored, asked, heard, other })
    }

    /// Catches Ctrl-Z from now on: with a job, the job stops first.
    pub(crate) fn catch_stop(&self) -> io::Result<()> {
        if is_in(self.ignored, SIGTSTP) {
            Ok(())
        } else {
            self.delivery.handle().add_signal(SIGTSTP)
        }
    }

    /// Unblocks the caught signals for the calling thread, whatever its original mask.
    pub(crate) fn let_through() -> nix::Result<()> {
        let mut caught = SigSet::empty();
        for signal in ASKING.into_iter().chain(FREE).chain([SIGCHLD, SIGCONT, SIGTSTP]) {
            caught.add(Signal::try_from(signal)?);
        }
        caught.thread_unblock()
    }

    /// Records received signals.
    pub(crate) fn record_received(&mut self) {
        for signal in self.delivery.pending() {
            let asks = ASKING.contains(&signal);
            if (asks || FREE.contains(&signal)) && is_echo(&mut self.heard, signal) {
                continue;
            }
            if asks && !self.asked.contains(&signal) {
                self.asked.push_back(signal);
            } else if !asks && !self.other.contains(&signal) {
                self.other.push(signal);
            }
        }
    }

    /// Returns the next request to end.
    pub(crate) fn next_asked(&mut self) -> Option<i32> {
        self.asked.pop_front()
    }

    /// Returns the other received signals.
    pub(crate) fn take_other(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.other)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// Returns whether a signal was received just before; if not, records it.
fn is_echo(heard: &mut BTreeMap<i32, Duration>, signal: i32) -> bool {
    let (now, echo) = (moment(), if signal == SIGINT { ECHO_OF_INTERRUPT } else { ECHO });
    let echoes = heard.get(&signal).is_some_and(|last| now.saturating_sub(*last) < echo);
    if !echoes {
        heard.insert(signal, now);
    }
    echoes
}

/// Returns the signals that ask this program to end: SIGTERM, and SIGINT and SIGHUP unless it was
/// started to ignore them. A holder of a lease that ignored SIGTERM could not be asked to end.
pub fn end_signals() -> impl Iterator<Item = i32> {
    [SIGTERM].into_iter().chain(unless_ignored([SIGINT, SIGHUP]))
}

/// Returns the signals that this program was not started to ignore, as nohup(1) starts it: an
/// ignored signal stays ignored. Returns all if `/proc` does not show them.
pub fn unless_ignored<const N: usize>(signals: [i32; N]) -> impl Iterator<Item = i32> {
    let root = ProcRoot::open(Path::new("/proc")).ok();
    let ignored = root.and_then(|root| ignored(&root).ok()).unwrap_or(0);
    signals.into_iter().filter(move |signal| !is_in(ignored, *signal))
}

/// Returns the ignored signals of this process, as bits.
pub(crate) fn ignored(root: &ProcRoot) -> io::Result<u64> {
    mask(&root.read("self/status", STATUS_LIMIT)?, "SigIgn:")
}

/// Returns whether a signal to a whole process waits only until the process continues: its first
/// thread does not block the signal.
pub(crate) fn is_pending(root: &ProcRoot, pid: u32, signal: i32) -> io::Result<bool> {
    let status = root.process(pid)?.read("status", STATUS_LIMIT)?;
    let (pending, blocked) = (mask(&status, "ShdPnd:")?, mask(&status, "SigBlk:")?);
    Ok(is_in(pending & !blocked, signal))
}

/// Returns a mask of signals in `/proc/PID/status` (proc_pid_status(5)).
fn mask(status: &[u8], label: &str) -> io::Result<u64> {
    let status = String::from_utf8_lossy(status);
    let mask = status.lines().find_map(|line| line.strip_prefix(label));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns whether a signal is in such a mask.
pub(crate) fn is_in(mask: u64, signal: i32) -> bool {
    u32::try_from(signal - 1).is_ok_and(|bit| mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_repeat_of_signal_is_an_echo() {
        let mut heard = BTreeMap::new();
        assert!(!is_echo(&mut heard, SIGTERM) && is_echo(&mut heard, SIGTERM));
        assert!(!is_echo(&mut heard, SIGHUP) && is_echo(&mut heard, SIGTERM));
        let before = moment().saturating_sub(ECHO);
        heard.insert(SIGTERM, before);
        assert!(!is_echo(&mut heard, SIGTERM), "a second later it is a word of its own");
    }

    #[test]
    fn signal_mask_bits_start_at_one() {
        assert!(is_in(1, 1) && !is_in(1, 2));
        assert!(is_in(0x4000, SIGTERM) && is_in(1 << 63, 64));
        assert!(!is_in(u64::MAX, 0) && !is_in(u64::MAX, 65));
    }
}
