//! The HTTP server for scrapes.
//!
//! The main decision is that one thread polls, and so serves all connections without blocking on
//! any. A client that is slow, silent or greedy costs a few kilobytes for a few seconds, and never
//! another client's answer. It is not a general server: a request has no body, and an answer ends
//! the connection.
//!
//! A [`Sampler`] takes the snapshots. If no snapshot completes within the time that Prometheus
//! allows, the scrape gets a page that says so, and the snapshot continues for the next scrape.

mod connection;
mod request;
mod sampler;

pub use sampler::Sampler;

use crate::catalog::Metric;
use crate::metrics::Metrics;
use connection::{Connection, Progress};
use gpu_core::Clock;
use request::{Reply, Request, answer, refusal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// The limits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at a time. One more evicts the connection that has been sending its
    /// request for the longest time, or else a scrape.
    pub connections: usize,
    /// The time to send a request.
    pub reading: Duration,
    /// The time to receive an answer.
    pub writing: Duration,
    /// The time for a scrape that does not state its own.
    pub scrape: Duration,
    /// A scrape this soon after the end of a snapshot gets the same snapshot.
    pub reuse: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 64,
            reading: Duration::from_secs(5),
            writing: Duration::from_secs(10),
            scrape: Duration::from_secs(10),
            reuse: Duration::from_secs(1),
        }
    }
}

/// A server of metrics.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    sampler: Sampler,
    limits: Limits,
    connections: Vec<Connection>,
    /// The last snapshot.
    latest: Option<Taken>,
    /// The snapshot in progress.
    pending: Option<PendingSnapshot>,
    /// New connections are not accepted before this time, because the process has no descriptor
    /// for them.
    pause: Duration,
}

/// A snapshot in progress.
#[derive(Clone, Copy, Debug)]
struct PendingSnapshot {
    /// The time of the scrape for which it is taken.
    given: Duration,
    /// When it began, on the monotonic clock.
    since: Duration,
}

/// A finished snapshot.
#[derive(Debug)]
struct Taken {
    metrics: Arc<Metrics>,
    /// The time of the scrape for which it was taken.
    given: Duration,
    /// When it ended, on the monotonic clock.
    at: Duration,
}

impl Taken {
    /// Returns whether it answers a scrape with this total time. A snapshot in which the driver did
    /// not answer does not, if it had less time than that: a scrape with a short timeout must not
    /// report the driver as down to others.
    fn answers(&self, allowed: Duration) -> bool {
        self.given >= allowed || self.metrics.value(Metric::Up, &[]) != Some(0.0)
    }
}

/// How long to stop accepting after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Returns a server on a socket.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub fn new(listener: TcpListener, sampler: Sampler, limits: Limits) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Server {
            listener,
            sampler,
            limits,
            connections: Vec::new(),
            latest: None,
            pending: None,
            pause: Duration::ZERO,
        })
    }

    /// Serves until `end` is readable.
    ///
    /// # Errors
    /// When poll(2) fails, or the sampler's thread has ended.
    pub fn run(&mut self, clock: &dyn Clock, end: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            let now = clock.monotonic();
            self.expire(now);
            self.start_snapshot(now)?;
            let accepts = now >= self.pause;
            let mut waits = vec![
                PollFd::from_borrowed_fd(end, PollFlags::IN),
                PollFd::new(self.sampler.waker(), PollFlags::IN),
                PollFd::new(
                    &self.listener,
                    if accepts { PollFlags::IN } else { PollFlags::empty() },
                ),
            ];
            waits.extend(self.connections.iter().map(Connection::wait));
            match poll(&mut waits, self.timeout(now).as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
            drop(waits);
            if ready[0] {
                return Ok(());
            }
            let now = clock.monotonic();
            // The latest connections are at the end, beyond the entries of `ready`.
            self.progress(&ready[3..], now);
            if ready[1] {
                self.take_snapshot(now)?;
            }
            if ready[2] {
                self.accept(now);
            }
        }
    }

    /// Returns the time until the next deadline; `None` if there is none.
    fn timeout(&self, now: Duration) -> Option<Timespec> {
        let due = self.connections.iter().map(Connection::until);
        let due = due.chain((now < self.pause).then_some(self.pause)).min()?;
        // Add a whole millisecond: poll(2) may return early, and would be called again and again.
        Timespec::try_from(due.saturating_sub(now) + Duration::from_millis(1)).ok()
    }

    /// Answers the scrapes whose time is over, and drops the clients whose time is over.
    fn expire(&mut self, now: Duration) {
        let is_due = |connection: &&mut Connection| connection.until() <= now;
        for connection in self.connections.iter_mut().filter(is_due) {
            if let Some((wanted, _)) = connection.awaits() {
                let page = Arc::new(Metrics::without_answer());
                connection.answer(answer(&page, wanted), now + self.limits.writing);
            }
        }
        self.connections.retain(|connection| connection.until() > now);
    }

    /// Starts a snapshot if a scrape waits for one and none is in progress. It gets the time of the
    /// scrape that has most.
    fn start_snapshot(&mut self, now: Duration) -> io::Result<()> {
        let waiting = self.connections.iter().filter_map(|connection| {
            let (_, allowed) = connection.awaits()?;
            Some((allowed, connection.until()))
        });
        let Some((allowed, until)) = waiting.max() else { return Ok(()) };
        if self.pending.is_none() {
            // It is too old for the next scrape, and as large as its replacement.
            self.latest = None;
            self.sampler.request(until.saturating_sub(now))?;
            self.pending = Some(PendingSnapshot { given: allowed, since: now });
        }
        Ok(())
    }

    /// Takes the result of a snapshot, and answers the scrapes that wait for it.
    fn take_snapshot(&mut self, now: Duration) -> io::Result<()> {
        let Some(metrics) = self.sampler.take()? else {
            return Ok(());
        };
        let given = self.pending.take().map(|pending| pending.given).unwrap_or_default();
        let taken = Taken { metrics, given, at: now };
        self.connections.retain_mut(|connection| {
            let waits = connection.awaits().filter(|(_, allowed)| taken.answers(*allowed));
            let Some((wanted, _)) = waits else { return true };
            connection.answer(answer(&taken.metrics, wanted), now + self.limits.writing);
            // A client that receives it at once does not delay the next client.
            matches!(connection.progress(), Progress::GoesOn)
        });
        self.latest = Some(taken);
        Ok(())
    }

    /// Reads from and writes to the connections that are ready.
    fn progress(&mut self, ready: &[bool], now: Duration) {
        let mut ready = ready.iter();
        let (limits, latest) = (self.limits, &self.latest);
        self.connections.retain_mut(|connection| {
            if ready.next() != Some(&true) {
                return true;
            }
            match connection.progress() {
                Progress::GoesOn => true,
                Progress::IsOver => false,
                Progress::Asks(Request::Page(wanted, allowed)) => {
                    let allowed = allowed.unwrap_or(limits.scrape);
                    let answers = |taken: &&Taken| {
                        now.saturating_sub(taken.at) < limits.reuse && taken.answers(allowed)
                    };
                    match latest.as_ref().filter(answers) {
                        Some(taken) => {
                            let page = answer(&taken.metrics, wanted);
                            connection.answer(page, now + limits.writing);
                        }
                        None => connection.wait_for(wanted, now, allowed),
                    }
                    true
                }
                Progress::Asks(Request::Other(reply)) => {
                    connection.answer(refusal(reply), now + limits.writing);
                    true
                }
            }
        });
    }

    fn accept(&mut self, now: Duration) {
        // Accept few at a time, and evict at most one for each: a client that has already sent its
        // request is then read before a flood of others evicts it.
        for _ in 0..(self.limits.connections / 4).max(1) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // The client is already gone, so its options cannot be set.
                    let Ok(mut new) = Connection::new(stream, now + self.limits.reading) else {
                        continue;
                    };
                    if self.connections.len() < self.limits.connections {
                        self.connections.push(new);
                    } else if self.evict(now) {
                        self.connections.push(new);
                        return;
                    } else {
                        // All others are already receiving answers.
                        new.answer(refusal(Reply::Busy), now);
                        new.progress();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client is already gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.pause = now + PAUSE;
                    return;
                }
            }
        }
    }

    /// Ends the connection that has been sending its request for the longest time. If there is
    /// none, ends a scrape: the one that allows the most time, if that is more than usual, or else
    /// the oldest. Returns false if there is neither.
    fn evict(&mut self, now: Duration) -> bool {
        let all = || self.connections.iter().enumerate();
        let reading = all().filter(|(_, other)| other.reads());
        if let Some((index, _)) = reading.min_by_key(|(_, other)| other.until()) {
            self.connections.remove(index);
            return true;
        }
        let waiting = all().filter_map(|(index, other)| {
            let (wanted, allowed) = other.awaits()?;
            Some((index, wanted, allowed, other.until().saturating_sub(allowed)))
        });
        let usual = self.limits.scrape;
        let last =
            waiting.min_by_key(|(.., allowed, since)| (Reverse(*allowed.max(&usual)), *since));
        let Some((index, wanted, allowed, _)) = last else { return false };
        // Only a snapshot that took as long as the scrape allows shows that the driver is silent.
        let is_silent =
            self.pending.is_some_and(|pending| now.saturating_sub(pending.since) >= allowed);
        let mut evicted = self.connections.remove(index);
        evicted.answer(
            match is_silent {
                true => answer(&Arc::new(Metrics::without_answer()), wanted),
                false => refusal(Reply::Busy),
            },
            now,
        );
        // It is short enough to be sent at once.
        evicted.progress();
        true
    }
}
