//! Reads that end in time, although the kernel or a file system may never answer them.

use gpu_core::{Error, ErrorKind, Result};
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Returns the time on the monotonic clock.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// An answer that may not come.
pub(crate) struct Pending<T>(Result<Receiver<T>>);

/// Starts a read in a thread of its own. A thread whose read never returns ends with the process.
pub(crate) fn start<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Pending<T> {
    let (sender, answer) = sync_channel(1);
    // Without a receiver, the answer came too late.
    let thread = Builder::new().name("drm".to_owned()).spawn(move || drop(sender.send(read())));
    let started = thread.map(|_| answer);
    Pending(started.map_err(|error| Error::new(ErrorKind::Io, "start a thread").with_source(error)))
}

impl<T> Pending<T> {
    /// Waits for the answer until `end` on the monotonic clock.
    ///
    /// # Errors
    /// `TimedOut`, with what was read as the text.
    pub(crate) fn wait(self, end: Duration, what: impl FnOnce() -> String) -> Result<T> {
        let left = end.saturating_sub(now());
        self.0?.recv_timeout(left).map_err(|_| Error::new(ErrorKind::TimedOut, what()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_without_end_is_left_behind() {
        let (_keep, never) = std::sync::mpsc::channel::<()>();
        let hangs = start(move || never.recv()).wait(now(), || "read".into());
        assert_eq!(hangs.unwrap_err().kind(), ErrorKind::TimedOut);
        let end = now() + Duration::from_secs(60);
        assert_eq!(start(|| 7).wait(end, || "read".into()).unwrap(), 7);
    }
}
