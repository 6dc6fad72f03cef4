//! The sums for policies without statistics of their own.

use crate::policy::Usage;
use gpu_core::{Bytes, MemoryInfo};
use std::fmt::Write;

/// Returns the device's free memory, if it reports it.
pub(crate) fn left(memory: MemoryInfo) -> Option<Bytes> {
    // If the driver's reserve is not reported separately, it is part of the used memory.
    let taken = memory.used.ok()? + memory.reserved.unwrap_or_default();
    Some(memory.total.ok()?.saturating_sub(taken))
}

impl Usage {
    pub(crate) fn hand_out(&mut self, size: u64, requested: u64) {
        self.allocations += 1;
        self.in_use += Bytes(size);
        self.requested += Bytes(requested);
        self.peak_in_use = self.peak_in_use.max(self.in_use);
    }

    pub(crate) fn take_back(&mut self, size: u64, requested: u64) {
        self.allocations -= 1;
        self.in_use = self.in_use.saturating_sub(Bytes(size));
        self.requested = self.requested.saturating_sub(Bytes(requested));
    }

    pub(crate) fn take_of_device(&mut self, size: u64) {
        self.segments += 1;
        self.device_allocations += 1;
        self.reserved += Bytes(size);
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    pub(crate) fn give_to_device(&mut self, size: u64) {
        self.segments -= 1;
        self.device_frees += 1;
        self.reserved = self.reserved.saturating_sub(Bytes(size));
    }

    pub(crate) fn restart_peaks(&mut self) {
        self.peak_in_use = self.in_use;
        self.peak_reserved = self.reserved;
    }

    /// Returns the sums as text, one per line.
    pub(crate) fn lines(&self, name: &str) -> String {
        let mut text =
            format!("{name}: {} allocations in {} regions\n", self.allocations, self.segments);
        for (what, now, peak) in [
            ("in use", self.in_use, Some(self.peak_in_use)),
            ("requested", self.requested, None),
            ("reserved", self.reserved, Some(self.peak_reserved)),
            ("cached", self.cached(), None),
            ("largest free block", self.largest_free, None),
        ] {
            // Writing to a string cannot fail.
            let _ = write!(text, "  {what:<20}{:>20} B", now.0);
            let _ = match peak {
                Some(peak) => writeln!(text, "   peak {:>20} B", peak.0),
                None => writeln!(text),
            };
        }
        let Usage { retries, out_of_memory, device_allocations, device_frees, .. } = self;
        let _ = writeln!(
            text,
            "  {device_allocations} device allocations, {device_frees} device frees; {retries} \
                retries, {out_of_memory} OOMs"
        );
        text
    }
}
