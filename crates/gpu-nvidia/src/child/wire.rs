//! The protocol between a program and the child that calls NVML: one JSON value per line.

use gpu_core::{
    DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample, DeviceState,
    Driver, Fault, Groups, Partition, PeerAccess, PeerCapability, Topology,
};
use memchr::arch::all::memchr::One;
use rustix::buffer::spare_capacity;
use rustix::fd::AsFd;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The protocol version, incremented with every change. Both sides are usually the same program,
/// but an upgrade may come between their starts.
pub(crate) const PROTOCOL: u32 = 6;

/// The maximum length of a message. The longest is a device with thousands of processes and
/// accounted processes, at less than 300 bytes each.
pub(crate) const LINE_LIMIT: usize = 4 << 20;

/// The maximum length of a reply with all its parts: a few hundred of the longest devices.
pub(crate) const REPLY_LIMIT: usize = 64 << 20;

/// The child sends the parts of a reply together, because each write wakes the program. It sends
/// earlier once they reach this length, half the capacity of a pipe, so that the program reads
/// while the child continues.
pub(crate) const BATCH: usize = 32 << 10;

/// The maximum length of a message to the child; the longest contains a device ID.
pub(crate) const MESSAGE_LIMIT: usize = 64 << 10;

/// A message on the child's standard input, read between queries by the thread that calls NVML.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) query: Query,
    pub(crate) then: Then,
}

/// A message on the pipe that replaces the child's standard error. A separate thread reads it at
/// any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Report the current call at once.
    Where,
    /// The deadline has passed: report the current call and exit.
    End,
}

/// What the child does after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Then {
    /// Keep NVML open for the next query.
    StayOpen,
    /// Shut NVML down before `Done`.
    Close,
    /// Shut NVML down before `Done` and exit after it.
    End,
}

/// A query.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Query {
    Driver,
    Devices,
    Sample(DeviceId),
    Processes(DeviceId),
    MigInstances(DeviceId),
    Details(DeviceId, Groups),
    Topology,
    PeerAccess(PeerCapability),
    Events {
        wait_ms: u64,
    },
    /// A snapshot of the machine, in parts.
    Look(Groups),
    /// Shut NVML down without a query.
    Close,
}

/// A message from the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// The first message, without a request.
    Greeting(Greeting),
    Driver(Result<Driver, Fault>),
    Devices(Result<Vec<DeviceInfo>, Fault>),
    Sample(Result<DeviceSample, Fault>),
    Processes(Result<Vec<DeviceProcess>, Fault>),
    MigInstances(Result<Vec<Partition>, Fault>),
    Details(Result<Box<DeviceDetails>, Fault>),
    Topology(Result<Topology, Fault>),
    PeerAccess(Result<Vec<Vec<PeerAccess>>, Fault>),
    Events(Result<Vec<DeviceEvent>, Fault>),
    /// The first part of a snapshot; `count` `Device` parts follow, in index order.
    Begun {
        driver: Result<Driver, Fault>,
        count: u32,
    },
    /// A part of a snapshot.
    Device(#[serde(with = "super::line")] Box<DeviceState>),
    /// The library could not be loaded; the reply to any query.
    Refused(Fault),
    /// The reply is complete, and NVML is shut down if requested.
    Done,
    /// The running call, if any.
    Where(Option<String>),
}

impl Reply {
    /// Returns whether more messages of the same reply follow.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self, Reply::Begun { .. } | Reply::Device(_))
    }
}

/// Information about the child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) protocol: u32,
    /// The simulation behind the library; `None` for a real library.
    pub(crate) simulated: Option<Simulated>,
}

/// A simulation: its machine and the directory of its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Simulated {
    pub(crate) machine: String,
    pub(crate) session: PathBuf,
}

/// Appends a message as one line.
pub(crate) fn write(lines: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *lines, value)?;
    lines.push(b'\n');
    Ok(())
}

/// Received bytes, split into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// The start of the first line not yet taken.
    begin: usize,
    /// No newline occurs before this offset.
    searched: usize,
}

impl Lines {
    /// Takes the next complete line, without its newline.
    pub(crate) fn take(&mut self) -> Option<&[u8]> {
        let rest = &self.bytes[self.searched..];
        // The default search first queries the processor's features, in the program and in the
        // child. Each query takes a virtual machine tens of microseconds (CPUID leaves the guest).
        let Some(end) = One::new(b'\n').find(rest) else {
            self.searched = self.bytes.len();
            return None;
        };
        let line = self.begin..self.searched + end;
        self.begin = line.end + 1;
        self.searched = self.begin;
        Some(&self.bytes[line])
    }

    /// Reads the available bytes, with room for at least `room` bytes; returns their number, or 0
    /// at the end of the input.
    pub(crate) fn read(&mut self, input: impl AsFd, room: usize) -> rustix::io::Result<usize> {
        self.bytes.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        self.bytes.reserve(room);
        rustix::io::read(input, spare_capacity(&mut self.bytes))
    }

    /// Returns the length of the incomplete line.
    pub(crate) fn pending(&self) -> usize {
        self.bytes.len() - self.begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, ErrorKind, MachineFault};
    use std::io::Write;

    #[test]
    fn lines_are_reassembled_from_any_chunks() {
        let text = b"one\n\nthree is longer\nhalf";
        for piece in 1..text.len() {
            let mut lines = Lines::default();
            let mut taken = Vec::new();
            let (input, mut output) = std::io::pipe().unwrap();
            for bytes in text.chunks(piece) {
                output.write_all(bytes).unwrap();
                assert_eq!(lines.read(&input, text.len()), Ok(bytes.len()));
                while let Some(line) = lines.take() {
                    taken.push(line.to_vec());
                }
            }
            assert_eq!(taken, [&b"one"[..], b"", b"three is longer"], "pieces of {piece}");
            assert_eq!(lines.pending(), 4);
        }
    }

    #[test]
    fn message_is_one_line_with_hostile_names() {
        let hostile = "a\nb\u{2028}\u{1b}[31m\"\\".to_owned();
        let reply =
            Reply::Driver(Ok(Driver { version: Ok(hostile.clone()), cuda: Err(Absent::Failed) }));
        let mut line = Vec::new();
        write(&mut line, &reply).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let Reply::Driver(Ok(driver)) = serde_json::from_slice(&line).unwrap() else {
            panic!("unexpected message");
        };
        assert_eq!(driver.version, Ok(hostile));
        assert_eq!(driver.cuda, Err(Absent::Failed));
    }

    #[test]
    fn fault_kind_round_trips() {
        let kinds = [MachineFault::Unknown(77).into(), ErrorKind::Again, Absent::TooOld.into()];
        for kind in kinds {
            let fault = Fault { kind, text: "x".to_owned() };
            let text = serde_json::to_string(&Reply::Refused(fault.clone())).unwrap();
            let Reply::Refused(back) = serde_json::from_str(&text).unwrap() else {
                panic!("unexpected message");
            };
            assert_eq!(back, fault);
        }
    }
}
