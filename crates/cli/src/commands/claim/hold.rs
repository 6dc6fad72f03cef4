//! A lease that is held while this program runs.

use crate::exit::Exit;
use crate::failure::Failure;
use gpu_core::{EntryKind, JobExit, Launch, ProcessKey};
use gpu_host::supervise::{Companions, end_as, end_signals};
use gpu_machine::{RENEWAL, open_process, time_until};
use gpu_steward::{Grant, HeldDevices, Ports};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use signal_hook::consts::SIGTERM;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The time from a failed renewal to the next attempt.
const RETRY: Duration = Duration::from_secs(60);

/// The signals that request the end of this program.
pub(super) struct Signals {
    pipe: UnixStream,
    /// The received signal, or 0.
    reported: Arc<AtomicUsize>,
}

impl Signals {
    pub(super) fn watch() -> Result<Self, Failure> {
        let failed = |error| Failure::io("watch for Ctrl-C", error).ending(Exit::Own);
        let (pipe, sender) = UnixStream::pair().map_err(failed)?;
        let reported = Arc::new(AtomicUsize::new(0));
        for signal in end_signals() {
            let sender = sender.try_clone().map_err(failed)?;
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&reported), number)
                .map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, sender).map_err(failed)?;
        }
        Ok(Signals { pipe, reported })
    }

    pub(super) fn reported(&self) -> ControlFlow<()> {
        match self.reported.load(Ordering::Relaxed) {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Ends this program by the received signal.
    pub(super) fn end(&self) -> Exit {
        let signal = i32::try_from(self.reported.load(Ordering::Relaxed)).unwrap_or(SIGTERM);
        Exit::Passed(u8::try_from(end_as(JobExit::Signal(signal))).unwrap_or(u8::MAX))
    }
}

/// Holds devices until the claiming process ends, a signal requests the end of this program, or the
/// pipe on its standard input, if there is one, is closed.
pub(super) fn hold(
    mut grant: Grant,
    ports: &Ports<'_>,
    root: ProcessKey,
    signals: &Signals,
    placeholder: Option<&Launch>,
) -> Result<Exit, Failure> {
    let failed = |errno: Errno| Failure::io("wait for the lease to end", errno.into());
    let mut devices = placeholder
        .map(|placeholder| HeldDevices::new(&mut grant, root, placeholder, ports, &Companions));
    let Some(root) = open_process(root).map_err(failed)? else { return Ok(Exit::Done) };
    let stdin = std::io::stdin();
    let mut has_pipe = fstat(&stdin).is_ok_and(|stat| {
        matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket)
    });
    let mut is_seen = true;
    let mut due = ports.clock.monotonic() + RENEWAL;
    let warn = |text: &str| {
        crate::terminal::report(format_args!("gpuws: warning: {text}"));
    };
    loop {
        let mut files =
            vec![PollFd::new(&root, PollFlags::IN), PollFd::new(&signals.pipe, PollFlags::IN)];
        if has_pipe {
            files.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let next = devices.as_mut().and_then(|devices| {
            devices.step(&mut |error| warn(&format!("no placeholder: failed to {}", error.fault())))
        });
        let next = next.map_or(due, |next| due.min(ports.clock.monotonic() + next));
        match poll(&mut files, Some(&time_until(next, ports.clock))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
        if ready[0] || ready[1] {
            return Ok(Exit::Done);
        }
        if ready.get(2) == Some(&true) {
            match stdin.lock().read(&mut [0; 4096]) {
                Ok(0) => return Ok(Exit::Done),
                Ok(_) => {}
                Err(_) => has_pipe = false,
            }
        }
        // Whatever caused the wakeup: frequent signals or input must not delay the renewal.
        if ports.clock.monotonic() >= due {
            let renewed = renew(&mut grant, ports);
            if let Err(error) = &renewed
                && is_seen
            {
                warn(&format!("the lease may be invisible to others: failed to {}", error.fault()));
            }
            is_seen = renewed.is_ok();
            due = ports.clock.monotonic() + if is_seen { RENEWAL } else { RETRY };
        }
    }
}

/// Renews the lease, and publishes it again if its file was deleted.
///
/// # Errors
/// When the lease may be invisible to others.
fn renew(grant: &mut Grant, ports: &Ports<'_>) -> gpu_core::Result<()> {
    if !grant.held.renew()? {
        grant.held = ports.locks.publish(EntryKind::Lease, &grant.entry)?;
    }
    Ok(())
}
