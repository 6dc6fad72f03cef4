//! Waits that Ctrl-C can interrupt.

use crate::failure::{Failure, Result};
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The interval at which a wait checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Whether work should stop: its caller was interrupted, or another thread requested it.
#[pyclass(frozen, module = "gpuws._gpuws")]
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Stop::default()
    }

    /// Requests that the work ends.
    fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stop {
    /// Returns whether the work should stop.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `work` on its own thread and waits for it without the GIL. If a Python signal handler
/// raises, `work` is asked to stop and has `patience` to clean up; its result is dropped.
///
/// # Errors
/// The error of the work or of the signal handler.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    patience: Duration,
    work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    run_until(py, &Stop::default(), patience, work)
}

/// Like [`run`], but `stop` can also end the work.
pub(crate) fn run_until<T: Send + 'static>(
    py: Python<'_>,
    stop: &Stop,
    patience: Duration,
    work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    let theirs = stop.clone();
    let start = std::thread::Builder::new().name("gpuws".to_owned());
    start
        .spawn(move || {
            // If the work was interrupted, no receiver is left and the result is dropped here.
            let _ = sender.send(work(&theirs));
        })
        .map_err(|error| Failure::new("failed", format!("start a thread: {error}")))?;
    // A channel has a single receiver, which must not be shared between threads, so it is moved
    // back and forth.
    let mut receiver = Some(receiver);
    let mut wait = |time: Duration| {
        let inner = receiver.take();
        let (inner, received) = py.detach(move || {
            let received = inner.as_ref().map(|inner| inner.recv_timeout(time));
            (inner, received)
        });
        receiver = inner;
        received.unwrap_or(Err(RecvTimeoutError::Disconnected))
    };
    loop {
        match wait(SIGNAL_INTERVAL) {
            Ok(done) => return Ok(done?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new("failed", "finish: a thread has panicked").into());
            }
        }
        let Err(raised) = py.check_signals() else { continue };
        stop.request();
        let mut left = patience;
        while !left.is_zero() {
            // A second Ctrl-C also ends this wait.
            if !matches!(wait(left.min(SIGNAL_INTERVAL)), Err(RecvTimeoutError::Timeout))
                || py.check_signals().is_err()
            {
                break;
            }
            left = left.saturating_sub(SIGNAL_INTERVAL);
        }
        return Err(raised);
    }
}
