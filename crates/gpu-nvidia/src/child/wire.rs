//! What is said between a program and the child that asks NVML for it: one JSON value per line.

use gpu_core::{
    DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample, DeviceState,
    Driver, Fault, Groups, MigInstance, Topology,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Changes with every change of what is said; the two sides are usually one program, yet an
/// upgrade may come between the start of the one and of the other.
pub(crate) const PROTOCOL: u32 = 3;

/// No part of an answer is longer. The longest by far is a device with some thousand processes
/// and accounted processes, at less than 300 bytes each.
pub(crate) const LINE_LIMIT: usize = 4 << 20;

/// No answer is longer, all its parts together: some hundred devices of the longest kind.
pub(crate) const ANSWER_LIMIT: usize = 64 << 20;

/// No order is longer: the longest names a device.
pub(crate) const ORDER_LIMIT: usize = 64 << 10;

/// What the program says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Ask NVML.
    Ask { question: Question, then: Then },
    /// Say at once which call is being waited for.
    Where,
    /// The deadline has passed: say which call is being waited for, and end.
    End,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Then {
    /// NVML stays open for the next question.
    StayOpen,
    /// NVML is shut down before `Done`.
    Close,
    /// So it is, and the child ends behind `Done`: there is no next question.
    End,
}

/// A question to NVML.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Question {
    Driver,
    Devices,
    Sample(DeviceId),
    Processes(DeviceId),
    MigInstances(DeviceId),
    Details(DeviceId, Groups),
    Topology,
    Events {
        wait_ms: u64,
    },
    /// All of the machine, part by part.
    Look(Groups),
    /// Nothing: only shut NVML down.
    Close,
}

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// Comes first and unasked.
    Greeting(Greeting),
    Driver(Result<Driver, Fault>),
    Devices(Result<Vec<DeviceInfo>, Fault>),
    Sample(Result<DeviceSample, Fault>),
    Processes(Result<Vec<DeviceProcess>, Fault>),
    MigInstances(Result<Vec<MigInstance>, Fault>),
    Details(Result<Box<DeviceDetails>, Fault>),
    Topology(Result<Topology, Fault>),
    Events(Result<Vec<DeviceEvent>, Fault>),
    /// The first part of a look; so many times `Device` follows, by index.
    Begun {
        driver: Result<Driver, Fault>,
        count: u32,
    },
    /// A part of a look.
    Device(Box<DeviceState>),
    /// The library could not be loaded; the answer to any question.
    Refused(Fault),
    /// The answer is whole, and NVML is shut down where that was asked for.
    Done,
    /// The call that is being waited for, if any.
    Where(Option<String>),
}

/// What the child says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) protocol: u32,
    /// The simulation that the library belongs to.
    pub(crate) simulated: Option<Simulated>,
}

/// A simulation: its machine and the directory of its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Simulated {
    pub(crate) machine: String,
    pub(crate) session: PathBuf,
}

/// Writes one line.
pub(crate) fn write(line: &mut Vec<u8>, value: &impl Serialize) -> serde_json::Result<()> {
    line.clear();
    serde_json::to_writer(&mut *line, value)?;
    line.push(b'\n');
    Ok(())
}

/// Bytes that were read, and the lines in them.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// Where the first line begins that was not taken.
    begin: usize,
    /// Up to where there surely is no end of a line.
    searched: usize,
}

impl Lines {
    /// Takes the next line, without its end; `None` when it is not whole.
    pub(crate) fn take(&mut self) -> Option<&[u8]> {
        let rest = &self.bytes[self.searched..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let line = self.begin..self.searched + end;
        self.begin = line.end + 1;
        self.searched = self.begin;
        Some(&self.bytes[line])
    }

    /// Adds bytes that were read.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns how long the line is that is not whole.
    pub(crate) fn pending(&self) -> usize {
        self.bytes.len() - self.begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, ErrorKind, MachineFault};

    #[test]
    fn lines_are_reassembled_from_any_chunks() {
        let text = b"one\n\nthree is longer\nhalf";
        for piece in 1..text.len() {
            let mut lines = Lines::default();
            let mut taken = Vec::new();
            for bytes in text.chunks(piece) {
                lines.add(bytes);
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
        let said =
            Said::Driver(Ok(Driver { version: Ok(hostile.clone()), cuda: Err(Absent::Failed) }));
        let mut line = Vec::new();
        write(&mut line, &said).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let Said::Driver(Ok(driver)) = serde_json::from_slice(&line).unwrap() else {
            panic!("another answer came back");
        };
        assert_eq!(driver.version, Ok(hostile));
        assert_eq!(driver.cuda, Err(Absent::Failed));
    }

    #[test]
    fn fault_kind_round_trips() {
        let kinds = [MachineFault::Unknown(77).into(), ErrorKind::Again, Absent::TooOld.into()];
        for kind in kinds {
            let fault = Fault { kind, text: "x".to_owned() };
            let text = serde_json::to_string(&Said::Refused(fault.clone())).unwrap();
            let Said::Refused(back) = serde_json::from_str(&text).unwrap() else {
                panic!("another answer came back");
            };
            assert_eq!(back, fault);
        }
    }
}
