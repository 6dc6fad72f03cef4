//! The log of RMM, the RAPIDS memory manager.
//!
//! RMM's `logging_resource_adaptor` writes lines of `Thread,Time,Action,Pointer,Size,Stream`. The
//! times have no date, and some versions write pointers without `0x`. A crashed program leaves an
//! incomplete last line, which is ignored.
//!
//! Source: `logging_resource_adaptor.hpp` of RMM 0.15 to 25.12, and RMM's guide on logging.

use super::budget::Budget;
use super::check::{ADDRESSES, MAX_SIZE};
use super::error::{Location, TraceError, shown};
use super::{Action, DeviceTrace, Event, Format, Limits, Recording};

const HEADER: &[u8] = b"Thread,Time,Action,Pointer,Size,Stream";

const DAY_US: u64 = 86_400_000_000;

/// Returns whether a file is an RMM log.
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
            Err(what) => return Err(TraceError::malformed(Location::Line(index as u64 + 1), what)),
        };
        // Threads write slightly out of order; a time that falls by half a day starts a new day.
        if row.time_us + DAY_US / 2 < last {
            days += 1;
        }
        last = row.time_us;
        budget
            .room(&mut events, row.actions.len())
            .map_err(|full| full.at(Location::Line(index as u64 + 1), "an event"))?;
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

/// Parses a line; `None` if it is not about memory.
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
        // The memory is available to its own stream at once; other streams wait for that stream.
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
        .filter(|&size| failed || size <= MAX_SIZE)
        .ok_or_else(|| format!("the size is '{}', which no device has", shown(size)))?;
    let stream = field("stream")?;
    let stream =
        self::address(stream).ok_or_else(|| format!("the stream is '{}'", shown(stream)))?;
    if let Some(more) = fields.next() {
        return Err(format!("unexpected '{}' after the stream", shown(more)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_and_seconds_are_read() {
        for (text, want) in [
            ("00:00:00.000000", Some(0)),
            ("01:02:03.000004", Some(3_723_000_004)),
            ("23:59:60:999999", Some(86_400_999_999)),
            ("24:00:00.000000", None),
            ("00:60:00.000000", None),
            ("00:00:61.000000", None),
            ("7.000001", Some(7_000_001)),
            ("7.00001", None),
            ("1844674407370.000000", Some(1_844_674_407_370_000_000)),
            ("1844674407371.000000", None),
            ("1:2.000000", None),
            ("00:00:00.000:000", None),
            ("7", None),
            ("-7.000000", None),
        ] {
            assert_eq!(clock(text.as_bytes()), want, "{text}");
        }
        for (text, want) in [
            ("(nil)", Some(0)),
            ("0x1f", Some(31)),
            ("1F", Some(31)),
            ("0x", None),
            ("+1", None),
            ("g", None),
        ] {
            assert_eq!(address(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn detects_log_by_heading_or_first_row() {
        let row = "1,10:00:00.000002,allocate,0x100,8,0";
        for (text, is) in [
            ("Thread,Time,Action,Pointer,Size,Stream\r\n", true),
            (row, true),
            ("1,10:00:00.000002,allocate,0x100,0,0", false),
            ("1,10:00:00.000002,allocate,0x100,8", false),
            ("Thread,Time\n", false),
            ("", false),
        ] {
            assert_eq!(is_log(text.as_bytes()), is, "{text}");
        }
    }

    #[test]
    fn only_drop_by_half_a_day_starts_new_day() {
        let times = |times: &[&str]| -> Vec<u64> {
            let rows: String =
                times.iter().map(|time| format!("1,{time},allocate,0x100,8,0\n")).collect();
            let recording = read(rows.as_bytes(), Limits::default()).unwrap();
            recording.devices[0].events.iter().map(|event| event.time_us / 1_000_000).collect()
        };
        assert_eq!(times(&["13:00:00.000000", "01:00:00.000000"]), [46_800, 3600]);
        assert_eq!(times(&["13:00:01.000000", "01:00:00.000000"]), [46_801, 90_000]);
        assert_eq!(
            times(&["20:00:00.000000", "01:00:00.000000", "20:00:00.000000", "01:00:00.000000"]),
            [72_000, 90_000, 158_400, 176_400]
        );
    }
}
