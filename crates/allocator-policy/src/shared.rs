//! A policy for several threads, whose memory goes back by itself.

use crate::failure::Failure;
use crate::policy::{Allocation, Policy, Retired, Stream};
use gpu_core::{Bytes, Error, ErrorKind};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// A policy that several threads use; clones are handles on the same one.
///
/// The policy ends, and gives everything back to the device, when the last handle and the last
/// [`Buffer`] are gone, in whatever order that is. A panic while the policy works leaves its books
/// unknown: from then on it hands out nothing and takes nothing back, and all of it goes back to
/// the device in the end.
pub struct Shared<P: Policy> {
    policy: Arc<Mutex<P>>,
}

/// Memory that goes back to its policy when it is dropped.
#[must_use = "memory that is dropped goes back at once"]
pub struct Buffer<P: Policy> {
    policy: Arc<Mutex<P>>,
    /// There until it is given back.
    allocation: Option<Allocation>,
    address: u64,
    size: Bytes,
}

/// Memory that was given back while work may still use it: the work has ended when this is dropped.
#[must_use = "memory that is dropped counts as no longer used"]
pub struct Aside<P: Policy> {
    policy: Arc<Mutex<P>>,
    /// There until it is completed.
    retired: Option<Retired>,
    address: u64,
}

impl<P: Policy> Shared<P> {
    /// Shares a policy.
    pub fn new(policy: P) -> Self {
        Shared { policy: Arc::new(Mutex::new(policy)) }
    }

    /// Hands out memory that goes back by itself.
    ///
    /// # Errors
    /// As [`Policy::allocate`], and `Invalid` after a panic in the policy.
    pub fn allocate(&self, size: Bytes, stream: Stream) -> Result<Buffer<P>, Failure> {
        let allocation = lock(&self.policy)?.allocate(size, stream)?;
        let (address, size) = (allocation.address(), allocation.size());
        let policy = Arc::clone(&self.policy);
        Ok(Buffer { policy, allocation: Some(allocation), address, size })
    }

    /// Says that the work that used retired memory has ended.
    ///
    /// # Errors
    /// As [`Policy::complete`], and `Invalid` after a panic in the policy.
    pub fn complete(&self, retired: Retired) -> Result<(), Failure> {
        lock(&self.policy)?.complete(retired)
    }

    /// Does something with the policy while nobody else does. Whoever uses a buffer of this policy
    /// meanwhile waits, so the work must not drop one.
    ///
    /// # Errors
    /// `Invalid` after a panic in the policy or in such work.
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
    /// Returns where it begins, in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns how long it is: what was asked for, rounded as the policy does.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Does something with the policy and this memory of it while nobody else uses the policy, as
    /// [`record_stream`](crate::Caching::record_stream). As with [`Shared::with`], the work must
    /// not drop a buffer.
    ///
    /// # Errors
    /// `Invalid` after a panic in the policy or in such work.
    pub fn with<T>(&self, work: impl FnOnce(&mut P, &Allocation) -> T) -> Result<T, Failure> {
        let allocation = self.allocation.as_ref();
        let allocation = allocation.ok_or(Failure::Foreign { address: self.address })?;
        Ok(work(&mut *lock(&self.policy)?, allocation))
    }

    /// Gives it back, and says whether that went well, as dropping it cannot.
    ///
    /// # Errors
    /// As [`Policy::free`], and `Invalid` after a panic in the policy.
    pub fn free(mut self) -> Result<(), Failure> {
        match self.allocation.take() {
            Some(allocation) => lock(&self.policy)?.free(allocation),
            None => Ok(()),
        }
    }

    /// Gives it back while work on the device may still use it.
    ///
    /// # Errors
    /// As [`Policy::retire`], and `Invalid` after a panic in the policy.
    pub fn retire(mut self) -> Result<Retired, Failure> {
        let foreign = Failure::Foreign { address: self.address };
        let allocation = self.allocation.take().ok_or(foreign)?;
        lock(&self.policy)?.retire(allocation)
    }

    /// Gives it back while work on the device may still use it, until what is returned is dropped:
    /// it can go to whatever is called when the work has ended.
    ///
    /// # Errors
    /// As [`retire`](Buffer::retire).
    pub fn set_aside(self) -> Result<Aside<P>, Failure> {
        let (policy, address) = (Arc::clone(&self.policy), self.address);
        Ok(Aside { policy, retired: Some(self.retire()?), address })
    }
}

impl<P: Policy> Aside<P> {
    /// Returns where it begins, in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl<P: Policy> Drop for Aside<P> {
    fn drop(&mut self) {
        if let Some(retired) = self.retired.take()
            && let Ok(mut policy) = lock(&self.policy)
        {
            // What the device does not take now the policy keeps and gives back at its end.
            let _ = policy.complete(retired);
        }
    }
}

impl<P: Policy> Drop for Buffer<P> {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take()
            && let Ok(mut policy) = lock(&self.policy)
        {
            // What the device does not take now the policy keeps and gives back at its end.
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
