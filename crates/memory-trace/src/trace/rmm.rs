//! The log of RMM, the RAPIDS memory manager.
//!
//! Its `logging_resource_adaptor` writes lines of `Thread,Time,Action,Pointer,Size,Stream`. The
//! times have no date, and some versions write pointers without `0x`. A crashed program leaves an
//! incomplete last line, which is ignored.
//!
//! Source: `logging_resource_adaptor.hpp` of RMM 0.15 to 25.12, and RMM's guide on logging.

use super::budget::Budget;
use super::check::{ADDRESSES, LARGEST};
use super::error::{Place, TraceError, shown};
use super::{Action, DeviceTrace, Event, Format, Limits, Recording};

const HEADER: &[u8] = b"Thread,Time,Action,Pointer,Size,Stream";

const DAY_US: u64 = 86_400_000_000;

/// Returns whether a file is such a log.
pub(super) fn is_log(input: &[u8]) -> bool {
    let line = input.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.trim_ascii_end() == HEADER || matches!(row(line), Ok(Some(_)))
}

/// Reads a log.
pub(super) fn read(input: &[u8], limits: Limits) -> Result<Recording, TraceError> {
    let budget = Budget::new(input.len(), limits);
    let mut events = Vec::new();
    let (mut last, mut days) = (0, 0);
    let lines = input.split_inclusive(|&byte| byte == b'\n').enumerate();
    for (index, line) in lines {
        let whole = line.ends_with(b"\n");
        if line.trim_ascii().is_empty() || line.trim_ascii_end() == HEADER {
            continue;
        }
        let row = match row(line.trim_ascii_end()) {
            Ok(Some(row)) => row,
            Ok(None) => continue,
            Err(_) if !whole && !events.is_empty() => continue,
            Err(what) => return Err(TraceError::malformed(Place::Line(index as u64 + 1), what)),
        };
        // Threads write slightly out of order; a time that falls by half a day starts a new day.
        if row.time_us + DAY_US / 2 < last {
            days += 1;
        }
        last = row.time_us;
        budget
            .room(&mut events, row.actions.len())
            .map_err(|full| full.at(Place::Line(index as u64 + 1), "an event"))?;
        let time_us = row.time_us + days * DAY_US;
        events.extend(row.actions.iter().map(|&action| Event {
            action,
            address: row.address,
            size: row.size,
            stream: row.stream,
            time_us,
        }));
    }
    let trace = DeviceTrace { events, ..DeviceTrace::default() };
    Ok(Recording { format: Format::RmmLog, devices: vec![trace], ..Recording::default() })
}

struct Row {
    time_us: u64,
    actions: &'static [Action],
    address: u64,
    size: u64,
    stream: u64,
}

/// Parses a line; `None` if it does not concern memory.
fn row(line: &[u8]) -> Result<Option<Row>, String> {
    let mut fields = line.split(|&byte| byte == b',');
    let mut field = |name: &str| fields.next().ok_or_else(|| format!("the {name} is missing"));
    let thread = field("thread")?;
    number(thread, 10).ok_or_else(|| format!("the thread is '{}'", shown(thread)))?;
    let time = field("time")?;
    let time_us = clock(time).ok_or_else(|| format!("the time is '{}'", shown(time)))?;
    let action = field("action")?;
    let actions: &[Action] = match action {
        b"allocate" => &[Action::Alloc],
        // Memory is free for its stream at once; other streams wait for that one.
        b"free" | b"deallocate" => &[Action::FreeRequested, Action::FreeCompleted],
        b"allocate failure" => &[Action::OutOfMemory],
        other => return Err(format!("the action '{}' is unknown", shown(other))),
    };
    let pointer = field("pointer")?;
    let address = address(pointer).filter(|&address| address < ADDRESSES);
    let address = address.ok_or_else(|| format!("the pointer is '{}'", shown(pointer)))?;
    let size = field("size")?;
    let failed = action == b"allocate failure";
    let size = number(size, 10)
        .filter(|&size| failed || size <= LARGEST)
        .ok_or_else(|| format!("the size is '{}', which no device has", shown(size)))?;
    let stream = field("stream")?;
    let stream =
        self::address(stream).ok_or_else(|| format!("the stream is '{}'", shown(stream)))?;
    if let Some(more) = fields.next() {
        return Err(format!("'{}' follows the stream", shown(more)));
    }
    if size == 0 {
        return Ok(None);
    }
    let address = if failed { Event::NOT_REPORTED } else { address };
    Ok(Some(Row { time_us, actions, address, size, stream }))
}

/// Parses `14:21:19.998533`, in some versions `14:21:19:998533`, or fractional seconds.
fn clock(text: &[u8]) -> Option<u64> {
    let parts: Vec<&[u8]> = text.splitn(5, |&byte| byte == b':' || byte == b'.').collect();
    let part = |index: usize, most: u64| number(parts[index], 10).filter(|&part| part <= most);
    let seconds = match parts.len() {
        4 => part(0, 23)? * 3600 + part(1, 59)? * 60 + part(2, 60)?,
        2 => part(0, u64::MAX / 10_000_000)?,
        _ => return None,
    };
    let fraction = parts[parts.len() - 1];
    if fraction.len() != 6 {
        return None;
    }
    Some(seconds * 1_000_000 + number(fraction, 10)?)
}

/// Parses a hexadecimal pointer, with or without a prefix.
fn address(text: &[u8]) -> Option<u64> {
    match text {
        b"(nil)" => Some(0),
        _ => number(text.strip_prefix(b"0x").unwrap_or(text), 16),
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let digits = digits.first().filter(|byte| byte.is_ascii_hexdigit()).map(|_| digits)?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}
