//! The signals that end the watcher or make it read its policy again.

use crate::exit::Exit;
use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{IsTerminal, Read};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What to do next.
pub(super) enum Next {
    Look,
    Reload,
    End,
}

pub(super) struct Signals {
    pipe: UnixStream,
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// Watches for SIGTERM, SIGINT and SIGHUP. The last one means that the terminal is gone if there
    /// was one.
    pub(super) fn watch() -> Result<Self, Failure> {
        let failed = |error| Failure::io("watch for signals", error).ending(Exit::Own);
        let (pipe, sender) = UnixStream::pair().map_err(failed)?;
        pipe.set_nonblocking(true).map_err(failed)?;
        let (end, reload) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let has_terminal = std::io::stdout().is_terminal() || std::io::stdin().is_terminal();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let flag = if signal == SIGHUP && !has_terminal { &reload } else { &end };
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(failed)?;
            let sender = sender.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, sender).map_err(failed)?;
        }
        Ok(Signals { pipe, end, reload })
    }

    /// Returns whether no signal asked for the end.
    pub(super) fn go_on(&self) -> ControlFlow<()> {
        match self.end.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Waits for this long, or for a signal.
    pub(super) fn wait(&self, time: Duration) -> Result<Next, Failure> {
        let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let waits = !self.end.load(Ordering::Relaxed) && !self.reload.load(Ordering::Relaxed);
        if waits {
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&time)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Failure::io("wait for the next look", errno.into())),
            }
        }
        while (&self.pipe).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        if self.go_on().is_break() {
            return Ok(Next::End);
        }
        Ok(if self.reload.swap(false, Ordering::Relaxed) { Next::Reload } else { Next::Look })
    }
}
