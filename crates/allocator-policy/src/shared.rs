//! A policy for several threads. Its buffers are freed when dropped.

use crate::failure::Failure;
use crate::policy::{Allocation, Policy, Retired, Stream};
use gpu_core::{Bytes, Error, ErrorKind};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// A policy shared by several threads; clones are handles to the same policy.
///
/// The policy is dropped, and returns all its memory to the device, once the last handle and the
/// last [`Buffer`] are gone, in any order. A panic in the policy may leave its state inconsistent,
/// so it then neither allocates nor frees until all memory returns to the device at the end.
pub struct Shared<P: Policy> {
    policy: Arc<Mutex<P>>,
}

/// Memory that is freed when dropped.
#[must_use = "memory that is dropped goes back at once"]
pub struct Buffer<P: Policy> {
    policy: Arc<Mutex<P>>,
    /// `Some` until it is freed.
    allocation: Option<Allocation>,
    address: u64,
    size: Bytes,
}

/// Memory that was freed while work may still use it. Dropping this marks the work as ended.
#[must_use = "memory that is dropped counts as no longer used"]
pub struct Aside<P: Policy> {
    policy: Arc<Mutex<P>>,
    /// `Some` until it is completed.
    retired: Option<Retired>,
    address: u64,
}

impl<P: Policy> Shared<P> {
    /// Shares a policy.
    pub fn new(policy: P) -> Self {
        Shared { policy: Arc::new(Mutex::new(policy)) }
    }

    /// Allocates memory that is freed when dropped.
    ///
    /// # Errors
    /// Like [`Policy::allocate`], and `Invalid` after a panic in the policy.
    pub fn allocate(&self, size: Bytes, stream: Stream) -> Result<Buffer<P>, Failure> {
        let allocation = lock(&self.policy)?.allocate(size, stream)?;
        let (address, size) = (allocation.address(), allocation.size());
        let policy = Arc::clone(&self.policy);
        Ok(Buffer { policy, allocation: Some(allocation), address, size })
    }

    /// Records that the work that used retired memory has ended.
    ///
    /// # Errors
    /// Like [`Policy::complete`], and `Invalid` after a panic in the policy.
    pub fn complete(&self, retired: Retired) -> Result<(), Failure> {
        lock(&self.policy)?.complete(retired)
    }

    /// Calls `work` with exclusive access to the policy. Other users of its buffers wait in the
    /// meantime, so the closure must not drop a buffer.
    ///
    /// # Errors
    /// `Invalid` after a panic in the policy or in such a closure.
    pub fn with<T>(&self, work: impl FnOnce(&mut P) -> T) -> Result<T, Failure> {
        Ok(work(&mut *lock(&self.policy)?))
    }
}

impl<P: Policy> Clone for Shared<P> {
    fn clone(&self) -> Self {
        Shared { policy: Arc::clone(&self.policy) }
    }
}

impl<P: Policy> Buffer<P> {
    /// Returns its start address, in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns its size: the requested size, rounded as the policy rounds it.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Calls `work` with exclusive access to the policy and this allocation, for example for
    /// [`record_stream`](crate::Caching::record_stream). As with [`Shared::with`], the closure must
    /// not drop a buffer.
    ///
    /// # Errors
    /// `Invalid` after a panic in the policy or in such a closure.
    pub fn with<T>(&self, work: impl FnOnce(&mut P, &Allocation) -> T) -> Result<T, Failure> {
        let allocation = self.allocation.as_ref();
        let allocation = allocation.ok_or(Failure::Foreign { address: self.address })?;
        Ok(work(&mut *lock(&self.policy)?, allocation))
    }

    /// Frees it and reports errors, which dropping cannot do.
    ///
    /// # Errors
    /// Like [`Policy::free`], and `Invalid` after a panic in the policy.
    pub fn free(mut self) -> Result<(), Failure> {
        match self.allocation.take() {
            Some(allocation) => lock(&self.policy)?.free(allocation),
            None => Ok(()),
        }
    }

    /// Frees it while work on the device may still use it.
    ///
    /// # Errors
    /// Like [`Policy::retire`], and `Invalid` after a panic in the policy.
    pub fn retire(mut self) -> Result<Retired, Failure> {
        let foreign = Failure::Foreign { address: self.address };
        let allocation = self.allocation.take().ok_or(foreign)?;
        lock(&self.policy)?.retire(allocation)
    }

    /// Frees it while work on the device may still use it, until the returned guard is dropped. The
    /// guard can be passed to a callback that runs when the work has ended.
    ///
    /// # Errors
    /// Like [`retire`](Buffer::retire).
    pub fn set_aside(self) -> Result<Aside<P>, Failure> {
        let (policy, address) = (Arc::clone(&self.policy), self.address);
        Ok(Aside { policy, retired: Some(self.retire()?), address })
    }
}

impl<P: Policy> Aside<P> {
    /// Returns its start address, in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl<P: Policy> Drop for Aside<P> {
    fn drop(&mut self) {
        if let Some(retired) = self.retired.take()
            && let Ok(mut policy) = lock(&self.policy)
        {
            // The policy keeps memory that the device does not accept now, and frees it when
            // dropped.
            let _ = policy.complete(retired);
        }
    }
}

impl<P: Policy> Drop for Buffer<P> {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take()
            && let Ok(mut policy) = lock(&self.policy)
        {
            // The policy keeps memory that the device does not accept now, and frees it when
            // dropped.
            let _ = policy.free(allocation);
        }
    }
}

impl<P: Policy> fmt::Debug for Shared<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<P: Policy> fmt::Debug for Buffer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = format_args!("{:#x}", self.address);
        f.debug_struct("Buffer").field("address", &address).field("size", &self.size).finish()
    }
}

impl<P: Policy> fmt::Debug for Aside<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = format_args!("{:#x}", self.address);
        f.debug_struct("Aside").field("address", &address).finish_non_exhaustive()
    }
}

fn lock<P>(policy: &Mutex<P>) -> Result<MutexGuard<'_, P>, Failure> {
    policy.lock().map_err(|_| {
        let error = Error::new(ErrorKind::Invalid, "use the memory policy");
        Failure::Device(error.with_source("it panicked earlier; its state may be inconsistent"))
    })
}
