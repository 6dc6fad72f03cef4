//! Samples without GPUs.

use crate::fault::account;
use crate::wording;
use gpu_core::{Fault, Snapshot};

/// The samples of a recording in which the driver reported no GPU. They are written, too, because a
/// failing machine is worth recording.
#[derive(Clone, Debug, Default)]
pub struct Blind {
    count: usize,
    last: Option<Fault>,
}

impl Blind {
    /// Counts a sample without GPUs.
    pub fn add(&mut self, sample: &Snapshot) {
        if let Err(fault) = &sample.driver {
            self.count += 1;
            self.last = Some(fault.clone());
        }
    }

    /// Returns `2 samples have no GPU` and why; `None` if every sample has GPUs.
    pub fn text(&self) -> Option<String> {
        let fault = self.last.as_ref()?;
        let samples = wording::count(self.count, "sample has", "samples have");
        Some(format!("{samples} no GPU: {}", account(fault)))
    }
}
