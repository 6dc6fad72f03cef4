//! The handle of a running simulation.

use crate::faults::{Call, Fault};
use crate::machine::{Event, Machine};
use crate::seed::Seed;
use crate::state::{SentSignal, State};
use gpu_core::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A simulated machine: every port of gpu-core over one state, one clock and one seed.
///
/// Clones are handles of the same machine. Time advances only by [`Clock::sleep`] and injected
/// delays. A call blocks another only while it works, and a panic elsewhere does not affect the
/// machine.
///
/// [`Clock::sleep`]: gpu_core::Clock::sleep
#[derive(Clone, Debug)]
pub struct Simulation {
    state: Arc<Mutex<State>>,
}

impl Simulation {
    /// Starts a machine.
    pub fn start(machine: Machine, seed: Seed) -> Self {
        Simulation { state: Arc::new(Mutex::new(State::new(machine, seed))) }
    }

    /// Starts an embedded machine by name, with seed 0.
    ///
    /// # Errors
    /// As [`Machine::embedded`].
    pub fn embedded(name: &str) -> Result<Self> {
        Ok(Self::start(Machine::embedded(name)?, Seed(0)))
    }

    /// Starts a machine by name or path, with seed 0.
    ///
    /// # Errors
    /// As [`Machine::named`].
    pub fn named(machine: &Path) -> Result<Self> {
        Ok(Self::start(Machine::named(machine)?, Seed(0)))
    }

    /// Locks the state. Do not hold the lock while taking another lock, calling out, or waiting.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call of a port and runs it.
    pub(crate) fn call<T>(
        &self,
        call: Call,
        answer: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        state.enter(call)?;
        answer(&mut state)
    }

    /// Returns the machine's name.
    pub fn name(&self) -> String {
        self.lock().machine.name.clone()
    }

    /// Returns the machine's description, in one line.
    pub fn description(&self) -> String {
        self.lock().machine.description.clone()
    }

    /// Returns a recording of the machine, byte for byte, by file name.
    pub fn recording(&self, file: &str) -> Option<Vec<u8>> {
        self.lock().machine.recordings.get(file).cloned()
    }

    /// Injects `fault` into the `nth` call of a kind, counted from 1 since the start.
    pub fn inject(&self, call: Call, nth: u64, fault: Fault) {
        self.lock().faults.inject(call, nth, nth, fault);
    }

    /// Injects `fault` into every call of a kind from the `nth` on, counted from 1 since the start.
    pub fn inject_from(&self, call: Call, nth: u64, fault: Fault) {
        self.lock().faults.inject(call, nth, u64::MAX, fault);
    }

    /// Schedules an event `after` from now.
    pub fn schedule(&self, after: Duration, event: Event) {
        self.lock().schedule(after, event);
    }

    /// Applies an event now.
    pub fn happen(&self, event: Event) {
        self.lock().happen(event);
    }

    /// Returns how often each call was made, including failed calls.
    pub fn calls(&self) -> BTreeMap<Call, u64> {
        self.lock().faults.counts().clone()
    }

    /// Returns how often a call was made, including failed calls.
    pub fn count(&self, call: Call) -> u64 {
        self.lock().faults.counts().get(&call).copied().unwrap_or(0)
    }

    /// Returns the signals that reached a process, in order.
    pub fn signals(&self) -> Vec<SentSignal> {
        self.lock().signals.clone()
    }

    /// Returns the lines of the journal.
    pub fn journal(&self) -> Vec<String> {
        self.lock().journal.clone()
    }

    /// Returns the time since the start, without counting a call.
    pub fn elapsed(&self) -> Duration {
        self.lock().now
    }

    /// Advances time to this time since the start, without counting a call; a past time has no
    /// effect.
    pub fn advance_to(&self, since_start: Duration) {
        let mut state = self.lock();
        let left = since_start.saturating_sub(state.now);
        state.advance(left);
    }
}
