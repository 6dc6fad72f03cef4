//! Writes recordings as JSON lines.

use super::{
    AnnotationLine, BlockLine, DeviceLine, EventLine, FrameLine, Header, KIND, Line, SCHEMA,
    SegmentLine, State,
};
use crate::trace::{DeviceTrace, Event, Format, Recording, Segment, StackId};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::collections::BTreeMap;
use std::io;

/// Writes a recording line by line, while the recorded program runs.
///
/// [`Recording::read`] can read the output even if the program ends early.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
}

impl<W: io::Write> Writer<W> {
    /// Writes the first line: the recorded allocator and its settings.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn new(out: W, format: Format, settings: &BTreeMap<String, String>) -> io::Result<Self> {
        let settings = settings.clone();
        let header = Header { schema: SCHEMA, kind: KIND.into(), recorded_by: format, settings };
        let mut writer = Writer { out };
        writer.line(&header)?;
        Ok(writer)
    }

    /// Writes an event of a device.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn event(&mut self, device: u32, event: &Event) -> io::Result<()> {
        self.line(&Line::Event(EventLine::of(device, event, None)))
    }

    /// Writes a segment that the allocator holds at the end of the recording.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn segment(&mut self, device: u32, segment: &Segment) -> io::Result<()> {
        self.line(&Line::Segment(segment_line(device, segment, &BTreeMap::new())))
    }

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        line.serialize(&mut Serializer::with_formatter(&mut self.out, Ascii))?;
        self.out.write_all(b"\n")
    }

    fn device(&mut self, trace: &DeviceTrace) -> io::Result<()> {
        let device = trace.device;
        self.line(&Line::Device(DeviceLine {
            device,
            total_bytes: trace.total.map(|total| total.0),
            segments: trace.segments.as_ref().map(|segments| segments.len() as u64),
            events: Some(trace.events.len() as u64),
        }))?;
        for segment in trace.segments.iter().flatten() {
            self.line(&Line::Segment(segment_line(device, segment, &trace.block_stacks)))?;
        }
        for annotation in &trace.annotations {
            self.line(&Line::Annotation(AnnotationLine {
                device,
                name: (&*annotation.name).into(),
                begins: annotation.begins,
                time_us: annotation.time_us,
            }))?;
        }
        for (index, event) in trace.events.iter().enumerate() {
            let stack = trace.event_stacks.get(index).copied().flatten();
            self.line(&Line::Event(EventLine::of(device, event, stack)))?;
        }
        Ok(())
    }
}

/// Writes strings in printable ASCII, so that text from a recording cannot control a terminal.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(|character| !matches!(character, ' '..='~')) {
            let (printable, other) = rest.split_at(at);
            out.write_all(printable.as_bytes())?;
            let mut characters = other.chars();
            for unit in characters.next().iter().flat_map(|other| {
                let mut units = [0; 2];
                other.encode_utf16(&mut units).to_vec()
            }) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

impl Recording {
    /// Writes the recording as JSON lines. [`Recording::read`] restores the same recording from
    /// them.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn write(&self, out: impl io::Write) -> io::Result<()> {
        let mut writer = Writer::new(out, self.format, &self.settings)?;
        for frame in self.stacks.all_frames() {
            let (function, file) = ((&*frame.function).into(), (&*frame.file).into());
            writer.line(&Line::Frame(FrameLine { function, file, line: frame.line }))?;
        }
        for stack in self.stacks.all() {
            writer.line(&Line::Stack(stack.to_vec()))?;
        }
        self.devices.iter().try_for_each(|trace| writer.device(trace))?;
        writer.out.flush()
    }
}

fn segment_line(device: u32, segment: &Segment, stacks: &BTreeMap<u64, StackId>) -> SegmentLine {
    let blocks = segment.blocks.iter().map(|block| BlockLine {
        size_bytes: block.size,
        requested_bytes: block.requested,
        state: State(block.state),
        stack: stacks.get(&block.address).map(|stack| stack.index() as u32),
    });
    SegmentLine {
        device,
        address: segment.address,
        size_bytes: segment.size,
        stream: segment.stream,
        pool: segment.kind,
        private_pool: segment.pool,
        expandable: segment.expandable,
        blocks: blocks.collect(),
    }
}
