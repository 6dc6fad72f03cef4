//! The port to events, by which memory that several streams use is known to be free.

use crate::policy::Stream;
use gpu_core::Result;

/// A mark in the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// Marks places in the work of streams and tells when the work has come there.
pub trait Events: Send {
    /// Marks the end of the work that a stream has now.
    ///
    /// # Errors
    /// `Device` when the device is lost, `Invalid` for a stream that is not there.
    fn record(&mut self, stream: Stream) -> Result<Event>;

    /// Tells whether the work has come to an event; one that it has come to is not asked for again.
    ///
    /// # Errors
    /// `Device` when the device is lost.
    fn is_done(&mut self, event: Event) -> Result<bool>;

    /// Waits until the work has come to an event, which is not asked for again.
    ///
    /// # Errors
    /// `Device` when the device is lost.
    fn wait(&mut self, event: Event) -> Result<()>;

    /// Waits until the device has no work.
    ///
    /// # Errors
    /// `Device` when the device is lost.
    fn wait_all(&mut self) -> Result<()>;
}

/// Streams on which no work runs: those of a modelled device, or of a program that waits for its
/// work itself before it gives memory back.
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
