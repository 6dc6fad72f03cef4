//! Entries of a snapshot, and their names in errors.

use super::super::budget::Exceeded;
use super::super::check::MAX_SIZE;
use super::super::error::{Location, Problem, TraceError};
use super::super::pickle::{Pickle, Ref};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// An entry of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot {
    Root,
    Segments,
    Segment(usize),
    Block(usize, usize),
    Traces,
    Trace(usize),
    Event(usize, usize),
    Annotations,
    Annotation(usize),
    Settings,
}

impl Spot {
    /// Returns the error that this entry is malformed.
    pub(super) fn wrong(self, what: impl Into<String>) -> TraceError {
        let location = match self {
            Spot::Root => Location::Whole,
            _ => Location::Entry(self.to_string()),
        };
        TraceError::malformed(location, what)
    }

    /// Returns the error that this entry exceeds the memory limit.
    #[cold]
    pub(super) fn full(self, exceeded: Exceeded) -> TraceError {
        exceeded.at(Location::Entry(self.to_string()), "the listed content")
    }

    /// Returns the error that this entry lacks a key.
    pub(super) fn without(self, key: &str) -> TraceError {
        self.wrong(format!("'{key}' is missing"))
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::Root => f.write_str("the snapshot"),
            Spot::Segments => f.write_str("segments"),
            Spot::Segment(segment) => write!(f, "segments[{segment}]"),
            Spot::Block(segment, block) => write!(f, "segments[{segment}]['blocks'][{block}]"),
            Spot::Traces => f.write_str("device_traces"),
            Spot::Trace(device) => write!(f, "device_traces[{device}]"),
            Spot::Event(device, event) => write!(f, "device_traces[{device}][{event}]"),
            Spot::Annotations => f.write_str("external_annotations"),
            Spot::Annotation(index) => write!(f, "external_annotations[{index}]"),
            Spot::Settings => f.write_str("allocator_settings"),
        }
    }
}

/// Walks the entries of a pickle, in a bounded number of steps.
///
/// A file can refer to one list from many places, so that a walk would visit it many times;
/// snapshots do not do this. A key or number is read for each reference, but only up to the length
/// of a [word](Pickle::word); a longer string is read once for each occurrence in the file.
/// Together, these rules bound the time and memory of a walk in proportion to the size of the file.
pub(super) struct Entries<'p> {
    pub(super) pickle: &'p Pickle<'p>,
    left: Cell<u64>,
    most: u64,
}

impl<'p> Entries<'p> {
    pub(super) fn new(pickle: &'p Pickle<'p>) -> Self {
        let most = 2 * pickle.references() + 1_000;
        Entries { pickle, left: Cell::new(most), most }
    }

    fn spend(&self, count: usize, spot: Spot) -> Result<(), TraceError> {
        // Even an empty container takes a step.
        let Some(left) = self.left.get().checked_sub(count as u64 + 1) else {
            let what = "entries, because it refers to the same ones repeatedly";
            let problem = Problem::TooMuch { what, limit: self.most };
            return Err(TraceError::new(Location::Entry(spot.to_string()), problem));
        };
        self.left.set(left);
        Ok(())
    }

    /// Returns the items of a list.
    pub(super) fn list(&self, at: Ref, spot: Spot) -> Result<&'p [Ref], TraceError> {
        let items = self
            .pickle
            .items(at)
            .ok_or_else(|| spot.wrong(format!("{} instead of a list", self.pickle.shown(at))))?;
        self.spend(items.len(), spot)?;
        Ok(items)
    }

    /// Returns the keys and values of a dictionary.
    pub(super) fn dict(
        &self,
        at: Ref,
        spot: Spot,
    ) -> Result<impl DoubleEndedIterator<Item = (Ref, Ref)> + ExactSizeIterator + use<'p>, TraceError>
    {
        let pickle = self.pickle;
        let pairs = pickle
            .pairs(at)
            .ok_or_else(|| spot.wrong(format!("{} instead of a dictionary", pickle.shown(at))))?;
        self.spend(pairs.len(), spot)?;
        Ok(pairs)
    }

    /// Returns the name of a key; empty if the key is not a string, or is longer than any known
    /// key.
    #[inline]
    pub(super) fn key(&self, at: Ref) -> Cow<'p, [u8]> {
        self.pickle.word(at).unwrap_or_default()
    }

    /// Returns a nonnegative number.
    #[inline]
    pub(super) fn number(&self, at: Ref, spot: Spot, key: &str) -> Result<u64, TraceError> {
        let number = self.pickle.int(at).and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| {
            spot.wrong(format!("'{key}' is {}, not a nonnegative number", self.pickle.shown(at)))
        })
    }

    /// Returns a size that a device can have.
    #[inline]
    pub(super) fn size(&self, at: Ref, spot: Spot, key: &str) -> Result<u64, TraceError> {
        let size = self.number(at, spot, key)?;
        fits(size, spot, key)?;
        Ok(size)
    }

    /// Returns the number of a device.
    pub(super) fn device(&self, at: Ref, spot: Spot, key: &str) -> Result<u32, TraceError> {
        let number = self.number(at, spot, key)?;
        u32::try_from(number).map_err(|_| spot.wrong(format!("'{key}' is {number}, not a device")))
    }
}

/// Checks that a size is possible for a device.
pub(super) fn fits(size: u64, spot: Spot, key: &str) -> Result<(), TraceError> {
    if size > MAX_SIZE {
        return Err(spot.wrong(format!("'{key}' is {size} bytes, more than any device has")));
    }
    Ok(())
}
