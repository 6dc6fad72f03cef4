//! Device memory from the driver's pool.

use crate::code::of_device;
use crate::driver::open;
use crate::memory::{current_memory, length};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};
use gpu_core::{Bytes, DeviceMemory, DeviceUuid, Error, ErrorKind, MemoryInfo, Region, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory of one NVIDIA device from its default pool (`cuMemAllocAsync`), for the calling
/// process.
///
/// `reserve` and `release` synchronise the stream. A region is therefore usable on any stream at
/// once, and memory that the pool returns to the device is free when `release` returns. The pool
/// keeps memory up to its release threshold, which is zero by default. It has no virtual memory.
/// Dropping it frees all remaining regions.
#[derive(Debug)]
pub struct CudaPool {
    stream: Arc<CudaStream>,
    taken: Mutex<BTreeMap<u64, u64>>,
}

impl CudaPool {
    /// Opens the pool of `device`, which must be visible to the calling process
    /// (`CUDA_VISIBLE_DEVICES`).
    ///
    /// # Errors
    /// Like [`open`], and `Unsupported` when the device has no pools.
    pub fn open(device: &DeviceUuid) -> Result<Self> {
        let context = open(device)?;
        let what = || format!("open the memory pool of {device}");
        if !context.has_async_alloc() {
            let error = Error::new(ErrorKind::Unsupported, what());
            return Err(error.with_source("the device does not support memory pools"));
        }
        let stream = context.new_stream().map_err(|code| of_device(code, what()))?;
        Ok(CudaPool { stream, taken: Mutex::default() })
    }

    /// Returns the context of the device, for streams and events on it.
    pub fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` with the context current on this thread.
    fn call<T>(
        &self,
        what: impl Fn() -> String,
        call: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T> {
        let made = self.context().bind_to_thread().and_then(|()| call());
        made.map_err(|code| of_device(code, what()))
    }

    fn free(&self, address: u64) -> Result<(), DriverError> {
        // SAFETY: it was allocated on this stream and is freed once.
        unsafe { result::free_async(address, self.stream.cu_stream()) }?;
        self.stream.synchronize()
    }
}

impl DeviceMemory for CudaPool {
    fn info(&self) -> Result<MemoryInfo> {
        let what = || "query the memory of the device".to_owned();
        self.call(what, current_memory)
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        let what = || format!("reserve {} bytes", size.0);
        if size.0 == 0 {
            return Err(Error::new(ErrorKind::Invalid, what()));
        }
        let bytes = length(size.0)?;
        let address = self.call(what, || {
            // SAFETY: the memory is not used before the stream is synchronised.
            let address = unsafe { result::malloc_async(self.stream.cu_stream(), bytes) }?;
            self.stream.synchronize().inspect_err(|_| {
                // Report the first error.
                let _ = self.free(address);
            })?;
            Ok(address)
        })?;
        self.lock().insert(address, size.0);
        Ok(Region { address, size })
    }

    fn release(&self, region: Region) -> Result<()> {
        let what = || format!("release the region at {:#x}", region.address);
        let mut taken = self.lock();
        if taken.get(&region.address) != Some(&region.size.0) {
            return Err(Error::new(ErrorKind::Invalid, what()));
        }
        // SAFETY: it was allocated on this stream and is freed once.
        let free = || unsafe { result::free_async(region.address, self.stream.cu_stream()) };
        self.call(what, free)?;
        // The region is freed even if the synchronisation fails.
        taken.remove(&region.address);
        self.call(what, || self.stream.synchronize())
    }

    fn reserve_addresses(&self, _: Bytes) -> Result<Region> {
        no_pages()
    }

    fn map(&self, _: Region) -> Result<()> {
        no_pages()
    }

    fn unmap(&self, _: Region) -> Result<()> {
        no_pages()
    }

    fn release_addresses(&self, _: Region) -> Result<()> {
        no_pages()
    }

    fn page(&self) -> Result<Bytes> {
        no_pages()
    }
}

impl Drop for CudaPool {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut *self.lock());
        // If this fails, the memory ends with the process.
        let _ = self.context().bind_to_thread();
        for address in taken.into_keys() {
            let _ = self.free(address);
        }
    }
}

fn no_pages<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "reserve addresses of a memory pool"))
}
