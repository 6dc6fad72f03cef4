//! PyTorch's memory snapshots, of every version.
//!
//! `torch.cuda.memory._dump_snapshot` writes a dictionary of `segments` and `device_traces`, since
//! 2.1 also of `allocator_settings`, since 2.5 also of `external_annotations`;
//! `torch.cuda.memory_snapshot` returns only the list of segments. Unknown keys are ignored. All
//! versions write only plain data into the pickle.

mod entry;
mod events;
mod frames;
mod segments;

use super::budget::Budget;
use super::error::{Location, Problem, TraceError};
use super::pickle::{Pickle, Ref, Value};
use super::{Annotation, DeviceTrace, Format, Limits, Recording};
use entry::{Entries, Spot};
use frames::Frames;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Reads a snapshot.
pub(super) fn read(input: &[u8], limits: Limits) -> Result<Recording, TraceError> {
    let budget = Budget::new(input.len(), limits);
    let pickle = Pickle::read(input, &budget)?;
    let root = pickle.root();
    let mut reader = Reader {
        budget: &budget,
        entries: Entries::new(&pickle),
        frames: Frames::new(&pickle, &budget).map_err(|full| Spot::Root.full(full))?,
        devices: BTreeMap::new(),
    };
    let mut settings = BTreeMap::new();
    match pickle.value(root) {
        Value::Sequence => reader.segments(root)?,
        Value::Dict => {
            let (mut segments, mut traces, mut spans, mut chosen) = (None, None, None, None);
            for (key, value) in reader.entries.dict(root, Spot::Root)? {
                match &*reader.entries.key(key) {
                    b"segments" => segments = Some(value),
                    b"device_traces" => traces = Some(value),
                    b"external_annotations" => spans = Some(value),
                    b"allocator_settings" => chosen = Some(value),
                    _ => {}
                }
            }
            if segments.is_none() && traces.is_none() {
                return Err(Spot::Root.wrong("the dictionary has no 'segments'"));
            }
            traces.map(|traces| reader.traces(traces)).transpose()?;
            spans.map(|spans| reader.annotations(spans)).transpose()?;
            // This comes last, when all devices are known: a device without listed segments held
            // none.
            segments.map(|segments| reader.segments(segments)).transpose()?;
            if let Some(chosen) = chosen {
                settings = reader.settings(chosen)?;
            }
        }
        _ => {
            let what = format!("it is {}, not a snapshot", pickle.shown(root));
            return Err(Spot::Root.wrong(what));
        }
    }
    Ok(Recording {
        format: Format::TorchSnapshot,
        settings,
        devices: reader.devices.into_values().collect(),
        stacks: reader.frames.finish(),
    })
}

/// The data collected from a snapshot.
struct Reader<'p, 'b> {
    budget: &'b Budget,
    entries: Entries<'p>,
    frames: Frames<'b>,
    devices: BTreeMap<u32, DeviceTrace>,
}

/// The memory that an empty device takes.
const DEVICE: usize = 2 * size_of::<DeviceTrace>();

impl Reader<'_, '_> {
    fn device(&mut self, device: u32, spot: Spot) -> Result<&mut DeviceTrace, TraceError> {
        Ok(match self.devices.entry(device) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                self.budget.take(DEVICE).map_err(|full| spot.full(full))?;
                vacant.insert(DeviceTrace { device, ..DeviceTrace::default() })
            }
        })
    }

    /// Reserves room in a table for the entries of a list.
    fn room<T>(&self, table: &mut Vec<T>, more: usize, spot: Spot) -> Result<(), TraceError> {
        self.budget.room(table, more).map_err(|full| spot.full(full))
    }

    fn annotate(
        &mut self,
        device: u32,
        annotation: Annotation,
        spot: Spot,
    ) -> Result<(), TraceError> {
        let budget = self.budget;
        let annotations = &mut self.device(device, spot)?.annotations;
        budget.push(annotations, annotation).map_err(|full| spot.full(full))
    }

    fn annotations(&mut self, list: Ref) -> Result<(), TraceError> {
        for (index, &item) in self.entries.list(list, Spot::Annotations)?.iter().enumerate() {
            let spot = Spot::Annotation(index);
            let (mut name, mut stage, mut device, mut time) = (None, None, 0, 0);
            for (key, value) in self.entries.dict(item, spot)? {
                match &*self.entries.key(key) {
                    b"name" => name = Some(value),
                    b"stage" => stage = Some(value),
                    b"device" => device = self.entries.device(value, spot, "device")?,
                    b"time_us" => time = self.entries.number(value, spot, "time_us")?,
                    _ => {}
                }
            }
            let name = name.ok_or_else(|| spot.without("name"))?;
            let name = self
                .frames
                .text(self.entries.pickle, name, spot)?
                .ok_or_else(|| spot.wrong("'name' is not a string"))?;
            let stage = stage.and_then(|stage| self.entries.pickle.word(stage));
            let begins = match stage.as_deref() {
                Some(b"START") => true,
                Some(b"END") => false,
                _ => return Err(spot.wrong("'stage' is neither 'START' nor 'END'")),
            };
            self.annotate(device, Annotation { name, begins, time_us: time }, spot)?;
        }
        Ok(())
    }

    /// Reads settings as text, in the form of `PYTORCH_CUDA_ALLOC_CONF`; a dictionary in them
    /// becomes `1:0,2:0`. Values that are neither numbers nor strings are ignored.
    fn settings(&mut self, dict: Ref) -> Result<BTreeMap<String, String>, TraceError> {
        let pickle = self.entries.pickle;
        let mut settings = BTreeMap::new();
        let pairs = self.entries.dict(dict, Spot::Settings)?;
        if pairs.len() > MAX_SETTINGS {
            let problem = Problem::TooMuch { what: "settings", limit: MAX_SETTINGS as u64 };
            return Err(TraceError::new(Location::Entry(Spot::Settings.to_string()), problem));
        }
        for (key, value) in pairs {
            let text = match pickle.brief(value, MAX_SETTING_BYTES) {
                Some(Value::Dict) => joined(pickle, self.entries.dict(value, Spot::Settings)?),
                _ => short(pickle, value),
            };
            if let (Some(name), Some(text)) = (short(pickle, key), text) {
                settings.insert(name, text);
            }
        }
        Ok(settings)
    }
}

/// The maximum number of settings, and of pairs in a dictionary setting. PyTorch 2.6 has eight
/// settings.
const MAX_SETTINGS: usize = 256;

/// The maximum size of a setting in bytes, in the file and as text; longer settings are ignored.
const MAX_SETTING_BYTES: usize = 4096;

/// Joins pairs of numbers and strings into one text, if there are not too many.
fn joined(pickle: &Pickle<'_>, pairs: impl ExactSizeIterator<Item = (Ref, Ref)>) -> Option<String> {
    if pairs.len() > MAX_SETTINGS {
        return None;
    }
    let mut text = String::new();
    for (key, value) in pairs {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&short(pickle, key)?);
        text.push(':');
        text.push_str(&short(pickle, value)?);
        if text.len() > MAX_SETTING_BYTES {
            return None;
        }
    }
    Some(text)
}

/// Returns a number or string, if it is at most as long as a setting.
fn short(pickle: &Pickle<'_>, at: Ref) -> Option<String> {
    match pickle.brief(at, MAX_SETTING_BYTES)? {
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(pickle.shown(at)),
        Value::Text(_) => pickle.text(at).map(|text| text.into_owned()),
        _ => None,
    }
}
