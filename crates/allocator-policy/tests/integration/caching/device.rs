//! A modelled device that records its calls and fails on demand.

use gpu_allocator_policy::caching::{Caching, Event, Events, Settings};
use gpu_allocator_policy::{Failure, ModelMemory, Stream};
use gpu_core::{Bytes, DeviceFault, DeviceMemory, Error, ErrorKind, MemoryInfo, Region, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) const MIB: u64 = 1 << 20;

/// A call to the device; sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Reserve(u64),
    Release(u64),
    ReserveAddresses(u64),
    Map(u64),
    Unmap(u64),
    ReleaseAddresses(u64),
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) model: ModelMemory,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    /// The number of calls before the failure, and its error.
    failing: Option<(usize, ErrorKind)>,
}

impl Device {
    pub(crate) fn new(total: u64) -> Arc<Self> {
        let model = ModelMemory::new(Bytes(total));
        Arc::new(Device { model, state: Mutex::default() })
    }

    /// Makes the call after `calls` more calls fail.
    pub(crate) fn fail_after(&self, calls: usize, kind: impl Into<ErrorKind>) {
        self.lock().failing = Some((calls, kind.into()));
    }

    /// Returns the calls since the last query.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, call: Call) -> Result<()> {
        let mut state = self.lock();
        state.calls.push(call);
        match &mut state.failing {
            Some((0, kind)) => {
                let error = Error::new(*kind, format!("{call:?}"));
                state.failing = None;
                Err(error)
            }
            Some((calls, _)) => {
                *calls -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl DeviceMemory for Device {
    fn info(&self) -> Result<MemoryInfo> {
        self.model.info()
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        self.note(Call::Reserve(size.0))?;
        self.model.reserve(size)
    }

    fn release(&self, region: Region) -> Result<()> {
        self.note(Call::Release(region.size.0))?;
        self.model.release(region)
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        self.note(Call::ReserveAddresses(size.0))?;
        self.model.reserve_addresses(size)
    }

    fn map(&self, part: Region) -> Result<()> {
        self.note(Call::Map(part.size.0))?;
        self.model.map(part)
    }

    fn unmap(&self, part: Region) -> Result<()> {
        self.note(Call::Unmap(part.size.0))?;
        self.model.unmap(part)
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        self.note(Call::ReleaseAddresses(range.size.0))?;
        self.model.release_addresses(range)
    }

    fn page(&self) -> Result<Bytes> {
        self.model.page()
    }
}

/// Streams with work that ends when the test ends it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work(Arc<Mutex<WorkState>>);

#[derive(Debug, Default)]
struct WorkState {
    recorded: BTreeMap<u64, Stream>,
    next: u64,
    pub(crate) waits: usize,
    refuse: bool,
    destroyed: Option<Stream>,
}

impl Work {
    fn lock(&self) -> MutexGuard<'_, WorkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the current work of a stream.
    pub(crate) fn end(&self, stream: Stream) {
        self.lock().recorded.retain(|_, its| *its != stream);
    }

    /// Returns the number of waits.
    pub(crate) fn waits(&self) -> usize {
        self.lock().waits
    }

    /// Sets whether recording events fails.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.lock().refuse = refuse;
    }

    pub(crate) fn destroy(&self, stream: Stream) {
        self.lock().destroyed = Some(stream);
    }
}

impl Events for Work {
    fn record(&mut self, stream: Stream) -> Result<Event> {
        let mut state = self.lock();
        if state.refuse {
            return Err(Error::new(DeviceFault::Lost, "record an event"));
        }
        if state.destroyed == Some(stream) {
            return Err(Error::new(ErrorKind::Invalid, "record an event"));
        }
        state.next += 1;
        let event = state.next;
        state.recorded.insert(event, stream);
        Ok(Event(event))
    }

    fn is_done(&mut self, event: Event) -> Result<bool> {
        Ok(!self.lock().recorded.contains_key(&event.0))
    }

    fn wait(&mut self, event: Event) -> Result<()> {
        let mut state = self.lock();
        state.recorded.remove(&event.0);
        state.waits += 1;
        Ok(())
    }

    fn wait_all(&mut self) -> Result<()> {
        let mut state = self.lock();
        state.recorded.clear();
        state.waits += 1;
        Ok(())
    }
}

/// Creates an allocator with settings in PyTorch's form.
pub(crate) fn caching(device: &Arc<Device>, settings: &str) -> Caching<Arc<Device>> {
    let settings = settings.parse::<Settings>().expect("the settings are valid");
    Caching::new(device.clone(), settings).expect("the device reports its memory")
}

/// Changes the settings to a text in PyTorch's form.
pub(crate) fn set(caching: &mut Caching<Arc<Device>>, settings: &str) {
    let settings = settings.parse::<Settings>().expect("the settings are valid");
    caching.set_settings(settings).expect("the device reports its memory");
}

/// Returns whether the result is an out-of-memory error.
pub(crate) fn out_of_memory<T>(result: std::result::Result<T, Failure>) -> bool {
    matches!(result, Err(Failure::OutOfMemory(_)))
}
