//! The thread that takes snapshots.

use crate::metrics::Metrics;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

/// Takes snapshots on its own thread, one at a time, on request.
#[derive(Debug)]
pub struct Sampler {
    requests: Sender<Duration>,
    results: Receiver<Metrics>,
    waker: UnixStream,
}

impl Sampler {
    /// Starts the thread. `sample` is called with the time that is left for the scrape; a snapshot
    /// that takes longer is used for the next scrapes.
    ///
    /// When this value is dropped, the thread ends after the current snapshot. The drop does not
    /// wait for it, because that snapshot may never end.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(sample: impl FnMut(Duration) -> Metrics + Send + 'static) -> io::Result<Self> {
        let (requests, asked) = channel::<Duration>();
        let (results, samples) = channel();
        let (waker, mut wakes) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        let mut sample = sample;
        let work = move || {
            for left in asked {
                // The server has ended if it does not receive.
                if results.send(sample(left)).is_err() || wakes.write_all(&[0]).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("look".to_owned()).spawn(work)?;
        Ok(Sampler { requests, results: samples, waker })
    }

    /// Becomes readable after a snapshot, and when the thread has ended.
    pub(super) fn waker(&self) -> &UnixStream {
        &self.waker
    }

    pub(super) fn request(&self, left: Duration) -> io::Result<()> {
        self.requests.send(left).map_err(|_| ended())
    }

    /// Returns the result of a finished snapshot; `None` if there is none.
    pub(super) fn take(&mut self) -> io::Result<Option<Arc<Metrics>>> {
        while (&self.waker).read(&mut [0; 16]).is_ok_and(|count| count > 0) {}
        match self.results.try_recv() {
            Ok(metrics) => Ok(Some(Arc::new(metrics))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ended()),
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the snapshot thread has ended")
}
