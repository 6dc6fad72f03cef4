//! The events of each device.

use super::super::error::TraceError;
use super::super::pickle::Ref;
use super::super::{Action, Annotation, Event, StackId};
use super::Reader;
use super::entry::{Spot, fits};

impl Reader<'_, '_> {
    /// Reads the traces, one for each device of the program.
    pub(super) fn traces(&mut self, list: Ref) -> Result<(), TraceError> {
        for (device, &trace) in self.entries.list(list, Spot::Traces)?.iter().enumerate() {
            let entries = self.entries.list(trace, Spot::Trace(device))?;
            if entries.is_empty() {
                continue;
            }
            let number = u32::try_from(device);
            let number = number.map_err(|_| Spot::Trace(device).wrong("too many devices"))?;
            let (mut events, mut stacks) = (Vec::new(), Vec::new());
            self.room(&mut events, entries.len(), Spot::Trace(device))?;
            self.room(&mut stacks, entries.len(), Spot::Trace(device))?;
            for (index, &entry) in entries.iter().enumerate() {
                let spot = Spot::Event(device, index);
                let Some((event, stack, both)) = self.event(entry, number, spot)? else { continue };
                self.room(&mut events, 1 + usize::from(both), spot)?;
                self.room(&mut stacks, 1 + usize::from(both), spot)?;
                if both {
                    events.push(Event { action: Action::FreeRequested, ..event });
                    stacks.push(stack);
                }
                events.push(event);
                stacks.push(stack);
            }
            if stacks.iter().all(Option::is_none) {
                stacks = Vec::new();
            }
            let trace = self.device(number, Spot::Trace(device))?;
            (trace.events, trace.event_stacks) = (events, stacks);
        }
        Ok(())
    }

    /// Reads an event and its stack, and whether the event represents both the request to free and
    /// its completion, as in the first version with traces. For the start or end of a span, records
    /// it and returns `None`.
    fn event(
        &mut self,
        entry: Ref,
        device: u32,
        spot: Spot,
    ) -> Result<Option<(Event, Option<StackId>, bool)>, TraceError> {
        let (mut action, mut address, mut size) = (None, None, None);
        let (mut stream, mut time_us, mut frames) = (0, 0, None);
        for (key, value) in self.entries.dict(entry, spot)? {
            match &*self.entries.key(key) {
                b"action" => action = Some(value),
                b"addr" | b"address" => address = Some(self.entries.number(value, spot, "addr")?),
                b"device_free" => {
                    address = Some(self.entries.number(value, spot, "device_free")?);
                }
                b"size" => size = Some(self.entries.number(value, spot, "size")?),
                b"stream" => stream = self.entries.number(value, spot, "stream")?,
                b"time_us" => time_us = self.entries.number(value, spot, "time_us")?,
                b"frames" => frames = Some(value),
                _ => {}
            }
        }
        let at = action.ok_or_else(|| spot.without("action"))?;
        let named = self.entries.pickle.word(at).unwrap_or_default();
        let action = match &*named {
            b"alloc" => Action::Alloc,
            b"free_requested" => Action::FreeRequested,
            b"free_completed" | b"free" => Action::FreeCompleted,
            b"segment_alloc" => Action::SegmentAlloc,
            b"segment_free" => Action::SegmentFree,
            b"segment_map" => Action::SegmentMap,
            b"segment_unmap" => Action::SegmentUnmap,
            b"oom" => Action::OutOfMemory,
            b"snapshot" => Action::Snapshot,
            b"user_defined" => {
                self.span(frames, device, time_us, spot)?;
                return Ok(None);
            }
            _ => {
                let action = self.entries.pickle.shown(at);
                return Err(spot.wrong(format!("the action {action} is unknown")));
            }
        };
        let address = address.ok_or_else(|| spot.without("addr"))?;
        let size = size.ok_or_else(|| spot.without("size"))?;
        // A program may request any size, but an allocation must fit on a device.
        if action != Action::OutOfMemory {
            fits(size, spot, "size")?;
        }
        let stack = match frames {
            Some(frames) => self.frames.stack(&self.entries, frames, spot)?,
            None => None,
        };
        let event = Event { action, address, size, stream, time_us };
        Ok(Some((event, stack, *named == *b"free")))
    }

    /// Records the start or end of a span as written before `external_annotations`: a frame with
    /// the span as its function and the stage as its file.
    fn span(
        &mut self,
        frames: Option<Ref>,
        device: u32,
        time_us: u64,
        spot: Spot,
    ) -> Result<(), TraceError> {
        let Some(frames) = frames else { return Ok(()) };
        let Some(&frame) = self.entries.list(frames, spot)?.first() else { return Ok(()) };
        let (mut name, mut begins) = (None, None);
        for (key, value) in self.entries.dict(frame, spot)? {
            match &*self.entries.key(key) {
                b"name" => name = self.frames.text(self.entries.pickle, value, spot)?,
                b"filename" => {
                    begins = match self.entries.pickle.word(value).as_deref() {
                        Some(b"START") => Some(true),
                        Some(b"END") => Some(false),
                        _ => None,
                    }
                }
                _ => {}
            }
        }
        if let (Some(name), Some(begins)) = (name, begins) {
            self.annotate(device, Annotation { name, begins, time_us }, spot)?;
        }
        Ok(())
    }
}
