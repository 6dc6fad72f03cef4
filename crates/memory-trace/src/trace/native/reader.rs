//! Reads recordings from JSON lines.

use super::{
    AnnotationLine, BlockLine, DeviceLine, EventLine, FrameLine, Header, KIND, Line, SCHEMA,
    SegmentLine,
};
use crate::trace::budget::{Budget, Exceeded};
use crate::trace::check::{self, ADDRESSES, MAX_SIZE};
use crate::trace::error::{Location, Problem, TraceError, shown};
use crate::trace::stacks::{BLOCK_STACK, Collector, StackId};
use crate::trace::{
    Action, Annotation, DeviceTrace, Event, Limits, RecordedBlock, Recording, Segment,
};
use gpu_core::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The maximum length of the first line, which contains all settings.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Reads a file of the project's own format.
pub(in crate::trace) fn read(input: &[u8], limits: Limits) -> Result<Recording, TraceError> {
    let mut lines = input
        .split_inclusive(|&byte| byte == b'\n')
        .zip(1..)
        .filter(|(line, _)| !line.trim_ascii().is_empty());
    let Some((first, number)) = lines.next() else {
        return Err(TraceError::new(Location::Whole, Problem::UnknownFormat));
    };
    if first.len() > MAX_HEADER_BYTES {
        let problem = Problem::TooMuch { what: "bytes", limit: MAX_HEADER_BYTES as u64 };
        return Err(TraceError::new(Location::Line(number), problem));
    }
    let header: Header = parsed(first).map_err(|what| what.at(number, first))?;
    if header.kind != KIND {
        let what = format!("the kind is '{}', not '{KIND}'", shown(header.kind.as_bytes()));
        return Err(TraceError::malformed(Location::Line(number), what));
    }
    if header.schema > SCHEMA {
        let what = format!("the schema is {}; this program knows up to {SCHEMA}", header.schema);
        return Err(TraceError::malformed(Location::Line(number), what));
    }
    let budget = Budget::new(input.len(), limits);
    let mut reader = Reader {
        budget: &budget,
        collector: Collector::new(&budget),
        frames: Vec::new(),
        stacks: Vec::new(),
        devices: BTreeMap::new(),
    };
    let mut last = number;
    for (line, number) in lines {
        let parsed = parsed(line).map_err(|what| what.at(number, line))?;
        reader.line(parsed).map_err(|what| what.at(number, line))?;
        last = number;
    }
    let devices =
        reader.finish().map_err(|problem| TraceError::new(Location::Line(last), problem))?;
    Ok(Recording {
        format: header.recorded_by,
        settings: header.settings,
        devices,
        stacks: reader.collector.finish(),
    })
}

/// A problem in a line.
enum Wrong {
    Malformed(String),
    Memory(Exceeded),
}

impl Wrong {
    /// Returns the error. A line without an end counts as truncated.
    fn at(self, number: u64, line: &[u8]) -> TraceError {
        let problem = match self {
            Wrong::Memory(exceeded) => exceeded.by("the content of the line"),
            Wrong::Malformed(_) if !line.ends_with(b"\n") => {
                Problem::Truncated { what: "the last line does not end".to_owned() }
            }
            Wrong::Malformed(what) => Problem::Malformed { what },
        };
        TraceError::new(Location::Line(number), problem)
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Wrong::Malformed(what)
    }
}

impl From<Exceeded> for Wrong {
    fn from(exceeded: Exceeded) -> Self {
        Wrong::Memory(exceeded)
    }
}

fn parsed<'a, T: serde::Deserialize<'a>>(line: &'a [u8]) -> Result<T, Wrong> {
    serde_json::from_slice(line).map_err(|error| {
        // The parser counts its own lines.
        let text = error.to_string();
        let text = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
        Wrong::Malformed(format!("{} in column {}", shown(text.as_bytes()), error.column()))
    })
}

struct Reader<'b> {
    budget: &'b Budget,
    collector: Collector<'b>,
    /// The frames and stacks by their numbers in the file.
    frames: Vec<u32>,
    stacks: Vec<Option<StackId>>,
    devices: BTreeMap<u32, Device>,
}

#[derive(Default)]
struct Device {
    trace: DeviceTrace,
    announced: DeviceLine,
}

impl Reader<'_> {
    fn line(&mut self, line: Line<'_>) -> Result<(), Wrong> {
        match line {
            Line::Frame(FrameLine { function, file, line }) => {
                let function = self.collector.text(&function)?;
                let file = self.collector.text(&file)?;
                let frame = self.collector.frame(function, file, line)?;
                self.budget.push(&mut self.frames, frame)?;
            }
            Line::Stack(frames) => {
                let known = |frame: &u32| self.frames.get(*frame as usize).copied();
                let frames = frames.iter().map(known).collect::<Option<Vec<_>>>();
                let frames =
                    frames.ok_or_else(|| "a frame that no earlier line defines".to_owned())?;
                let stack = self.collector.stack(&frames)?;
                self.budget.push(&mut self.stacks, stack)?;
            }
            Line::Device(announced) => {
                let device = self.device(announced.device)?;
                device.trace.total = announced.total_bytes.map(Bytes);
                device.announced = announced;
            }
            Line::Segment(segment) => self.segment(segment)?,
            Line::Annotation(AnnotationLine { device, name, begins, time_us }) => {
                let name = self.collector.text(&name)?;
                let name = self.collector.text_of(name);
                let budget = self.budget;
                let annotations = &mut self.device(device)?.trace.annotations;
                budget.push(annotations, Annotation { name, begins, time_us })?;
            }
            Line::Event(event) => self.event(event)?,
        }
        Ok(())
    }

    fn device(&mut self, device: u32) -> Result<&mut Device, Exceeded> {
        Ok(match self.devices.entry(device) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                self.budget.take(2 * size_of::<Device>())?;
                vacant.insert(Device {
                    trace: DeviceTrace { device, ..DeviceTrace::default() },
                    announced: DeviceLine::default(),
                })
            }
        })
    }

    fn stack(&self, number: Option<u32>) -> Result<Option<StackId>, Wrong> {
        let known = |number: u32| self.stacks.get(number as usize).copied();
        match number {
            Some(number) => {
                Ok(known(number)
                    .ok_or_else(|| "a stack that no earlier line defines".to_owned())?)
            }
            None => Ok(None),
        }
    }

    fn segment(&mut self, line: SegmentLine) -> Result<(), Wrong> {
        let mut segment = Segment {
            address: address(line.address)?,
            size: size(line.size_bytes)?,
            stream: line.stream,
            kind: line.pool,
            pool: line.private_pool,
            expandable: line.expandable,
            blocks: Vec::new(),
        };
        self.budget.room(&mut segment.blocks, line.blocks.len())?;
        if segment.size == 0 {
            return Err("a segment of zero bytes".to_owned().into());
        }
        let (mut next, mut stacks) = (segment.address, Vec::new());
        for BlockLine { size_bytes, requested_bytes, state, stack } in line.blocks {
            let requested = requested_bytes.map(size).transpose()?;
            let size = size(size_bytes)?;
            stacks.extend(self.stack(stack)?.map(|stack| (next, stack)));
            segment.blocks.push(RecordedBlock { address: next, size, requested, state: state.0 });
            next = next.saturating_add(size);
        }
        check::blocks_of(&segment).map_err(|inconsistent| inconsistent.what)?;
        let budget = self.budget;
        let trace = &mut self.device(line.device)?.trace;
        budget.take(stacks.len() * BLOCK_STACK)?;
        trace.block_stacks.extend(stacks);
        budget.push(trace.segments.get_or_insert_default(), segment)?;
        Ok(())
    }

    fn event(&mut self, line: EventLine) -> Result<(), Wrong> {
        let stack = self.stack(line.stack)?;
        let (address, size) = match (line.action, line.address) {
            (Action::OutOfMemory, _) => {
                (line.device_free_bytes.unwrap_or(Event::NOT_REPORTED), line.size_bytes)
            }
            (_, Some(at)) => (address(at)?, size(line.size_bytes)?),
            (_, None) => return Err("the address is missing".to_owned().into()),
        };
        let EventLine { action, stream, time_us, .. } = line;
        let budget = self.budget;
        let trace = &mut self.device(line.device)?.trace;
        budget.push(&mut trace.events, Event { action, address, size, stream, time_us })?;
        if stack.is_some() || !trace.event_stacks.is_empty() {
            // Stays empty until the first event with a stack.
            let missing = trace.events.len() - trace.event_stacks.len();
            budget.room(&mut trace.event_stacks, missing)?;
            trace.event_stacks.resize(trace.events.len() - 1, None);
            trace.event_stacks.push(stack);
        }
        Ok(())
    }

    /// Returns the traces, after checking the counts of their `device` lines.
    fn finish(&mut self) -> Result<Vec<DeviceTrace>, Problem> {
        let devices = std::mem::take(&mut self.devices).into_values();
        let finished = devices.map(|Device { mut trace, announced }| {
            let held = trace.segments.as_ref().map_or(0, Vec::len) as u64;
            let happened = trace.events.len() as u64;
            for (what, listed, announced) in
                [("segments", held, announced.segments), ("events", happened, announced.events)]
            {
                if let Some(announced) = announced.filter(|&announced| announced != listed) {
                    let device = trace.device;
                    let what =
                        format!("{listed} of {announced} {what} of device {device} are listed");
                    return Err(if listed < announced {
                        Problem::Truncated { what }
                    } else {
                        Problem::Malformed { what }
                    });
                }
            }
            if announced.segments.is_some() {
                trace.segments.get_or_insert_default();
            }
            if let Some(segments) = &mut trace.segments {
                check::order(segments).map_err(|(one, other)| Problem::Malformed {
                    what: format!("the segments at {one:#x} and {other:#x} overlap"),
                })?;
            }
            Ok(trace)
        });
        finished.collect()
    }
}

fn address(address: u64) -> Result<u64, Wrong> {
    if address >= ADDRESSES {
        return Err(format!("the address {address:#x} is larger than any device has").into());
    }
    Ok(address)
}

fn size(size: u64) -> Result<u64, Wrong> {
    if size > MAX_SIZE {
        return Err(format!("{size} bytes are more than any device has").into());
    }
    Ok(size)
}
