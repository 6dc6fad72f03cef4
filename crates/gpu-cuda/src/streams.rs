//! Streams of one or several devices, and events between them.

use crate::code::of_device;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError};
use gpu_core::Result;
use std::sync::Arc;

/// Streams of one or several devices, identified by index.
///
/// The operations are those that a graph executor needs: work on a stream runs in order, and an
/// event makes a stream wait for another stream, even on another device, without blocking the host.
#[derive(Debug)]
pub struct CudaStreams {
    streams: Vec<Arc<CudaStream>>,
}

impl CudaStreams {
    /// Creates a stream for each entry, on the device of that context.
    ///
    /// # Errors
    /// `Device` for CUDA's error codes.
    pub fn open(contexts: &[Arc<CudaContext>]) -> Result<Self> {
        let open = |context: &Arc<CudaContext>| context.new_stream();
        let streams = contexts.iter().map(open).collect::<std::result::Result<_, _>>();
        let streams = streams.map_err(|code| of_device(code, "create a stream".to_owned()))?;
        Ok(CudaStreams { streams })
    }

    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns whether there are no streams.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns a stream, to launch work on it.
    ///
    /// # Panics
    /// If there is no stream with this index.
    pub fn stream(&self, at: usize) -> &Arc<CudaStream> {
        &self.streams[at]
    }

    /// Records an event after the work submitted to a stream so far.
    ///
    /// # Errors
    /// `Device` for CUDA's error codes.
    ///
    /// # Panics
    /// If there is no stream with this index.
    pub fn record(&self, at: usize) -> Result<CudaEvent> {
        let recorded = self.stream(at).record_event(None);
        recorded.map_err(|code| of_device(code, format!("record an event on stream {at}")))
    }

    /// Makes the later work of a stream wait for an event. The host does not wait.
    ///
    /// # Errors
    /// `Device` for CUDA's error codes.
    ///
    /// # Panics
    /// If there is no stream with this index.
    pub fn wait_event(&self, at: usize, event: &CudaEvent) -> Result<()> {
        let waits = self.stream(at).wait(event);
        waits.map_err(|code| of_device(code, format!("make stream {at} wait for an event")))
    }

    /// Waits until all work of all streams is done.
    ///
    /// # Errors
    /// `Device` for CUDA's error codes, from this call or from earlier work.
    pub fn synchronize(&self) -> Result<()> {
        let each = self.streams.iter().map(|stream| stream.synchronize());
        // Wait for every stream, even if an earlier one failed.
        let results: Vec<std::result::Result<(), DriverError>> = each.collect();
        let done: std::result::Result<(), DriverError> = results.into_iter().collect();
        done.map_err(|code| of_device(code, "wait for the streams".to_owned()))
    }
}
