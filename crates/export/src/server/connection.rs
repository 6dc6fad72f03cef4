//! A client: it sends a request, waits for a snapshot, and receives an answer.

use super::request::{MOST_BYTES, Reply, Request, Wanted};
use rustix::event::{PollFd, PollFlags};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    state: State,
    /// The end of its present state, on the monotonic clock.
    until: Duration,
}

#[derive(Debug)]
enum State {
    /// It has sent this part of its request.
    Reads(Vec<u8>),
    /// It waits for a snapshot, and has this much time in total.
    Waits(Wanted, Duration),
    /// It has received this many bytes of the head and the body of its answer.
    Writes([String; 2], usize),
}

/// The result of reading or writing.
#[derive(Debug)]
pub(super) enum Progress {
    GoesOn,
    /// The connection should be closed.
    IsOver,
    Asks(Request),
}

impl Connection {
    pub(super) fn new(stream: TcpStream, until: Duration) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, state: State::Reads(Vec::new()), until })
    }

    /// Returns the events to poll for. While it waits for a snapshot, only its end matters, which
    /// poll(2) always reports.
    pub(super) fn wait(&self) -> PollFd<'_> {
        let flags = match self.state {
            State::Reads(_) => PollFlags::IN,
            State::Waits(..) => PollFlags::empty(),
            State::Writes(..) => PollFlags::OUT,
        };
        PollFd::new(&self.stream, flags)
    }

    /// Returns the end of the present state.
    pub(super) fn until(&self) -> Duration {
        self.until
    }

    /// Returns the page that it wants and its total time, if it waits for a snapshot.
    pub(super) fn awaits(&self) -> Option<(Wanted, Duration)> {
        match self.state {
            State::Waits(wanted, allowed) => Some((wanted, allowed)),
            State::Reads(_) | State::Writes(..) => None,
        }
    }

    /// Returns whether it is still sending its request.
    pub(super) fn reads(&self) -> bool {
        matches!(self.state, State::Reads(_))
    }

    pub(super) fn wait_for(&mut self, wanted: Wanted, now: Duration, allowed: Duration) {
        (self.state, self.until) = (State::Waits(wanted, allowed), now + allowed);
    }

    pub(super) fn answer(&mut self, answer: [String; 2], until: Duration) {
        (self.state, self.until) = (State::Writes(answer, 0), until);
    }

    /// Reads or writes as much as is possible without waiting.
    pub(super) fn progress(&mut self) -> Progress {
        match &mut self.state {
            State::Reads(bytes) => read(&mut self.stream, bytes),
            // The client hung up; otherwise the connection would not be ready.
            State::Waits(..) => Progress::IsOver,
            State::Writes(answer, done) => {
                let written = write(&mut self.stream, answer, done);
                match written {
                    Ok(false) => Progress::GoesOn,
                    Ok(true) => {
                        // Send the answer before the connection is closed.
                        let _ = self.stream.shutdown(Shutdown::Write);
                        Progress::IsOver
                    }
                    Err(_) => Progress::IsOver,
                }
            }
        }
    }
}

fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Progress {
    let mut chunk = [0; 2048];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Progress::IsOver,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::GoesOn,
            Err(_) => return Progress::IsOver,
        }
        if let Some(request) = Request::parse(bytes) {
            return Progress::Asks(request);
        }
        if bytes.len() >= MOST_BYTES {
            return Progress::Asks(Request::Other(Reply::TooLarge));
        }
    }
}

/// Returns whether everything was written.
fn write(stream: &mut TcpStream, answer: &[String; 2], done: &mut usize) -> io::Result<bool> {
    let [head, body] = answer.each_ref().map(|part| part.as_bytes());
    while *done < head.len() + body.len() {
        let left = [&head[head.len().min(*done)..], &body[done.saturating_sub(head.len())..]];
        match stream.write_vectored(&left.map(IoSlice::new)) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => *done += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
