//! The audit log: lines in memory.

use crate::faults::Call;
use crate::simulation::Simulation;
use gpu_core::{Journal, Result};

impl Journal for Simulation {
    fn append(&self, line: &str) -> Result<()> {
        self.call(Call::Append, |state| {
            state.journal.push(line.to_owned());
            Ok(())
        })
    }
}
