//! The port for events, which show when memory used by several streams is free.

use crate::policy::Stream;
use gpu_core::Result;

/// A marker in the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// Records events in streams and queries their completion.
pub trait Events: Send {
    /// Records an event after the current work of a stream.
    ///
    /// # Errors
    /// `Device` if the device is lost, `Invalid` if the stream does not exist.
    fn record(&mut self, stream: Stream) -> Result<Event>;

    /// Returns whether an event has completed; a completed event is not queried again.
    ///
    /// # Errors
    /// `Device` if the device is lost.
    fn is_done(&mut self, event: Event) -> Result<bool>;

    /// Waits until an event has completed; the event is not queried again.
    ///
    /// # Errors
    /// `Device` if the device is lost.
    fn wait(&mut self, event: Event) -> Result<()>;

    /// Waits until the device is idle.
    ///
    /// # Errors
    /// `Device` if the device is lost.
    fn wait_all(&mut self) -> Result<()>;
}

/// Streams without work: those of a modelled device, or of a program that waits for its work before
/// it frees memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWork;

impl Events for NoWork {
    fn record(&mut self, _: Stream) -> Result<Event> {
        Ok(Event(0))
    }

    fn is_done(&mut self, _: Event) -> Result<bool> {
        Ok(true)
    }

    fn wait(&mut self, _: Event) -> Result<()> {
        Ok(())
    }

    fn wait_all(&mut self) -> Result<()> {
        Ok(())
    }
}
