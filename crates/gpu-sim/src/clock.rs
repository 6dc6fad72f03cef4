//! The clock, which advances only on request.

use crate::faults::Call;
use crate::simulation::Simulation;
use gpu_core::{Clock, Timestamp};
use std::time::Duration;

impl Clock for Simulation {
    fn wall(&self) -> Timestamp {
        let mut state = self.lock();
        let _cannot_fail = state.enter(Call::Wall);
        state.wall()
    }

    fn monotonic(&self) -> Duration {
        let mut state = self.lock();
        let _cannot_fail = state.enter(Call::Monotonic);
        state.now
    }

    fn sleep(&self, duration: Duration) {
        let mut state = self.lock();
        let _cannot_fail = state.enter(Call::Sleep);
        state.advance(duration);
    }
}
