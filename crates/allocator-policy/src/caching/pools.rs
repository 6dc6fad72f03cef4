//! Private pools, which hold the memory of CUDA graphs.

use super::{Caching, Events, PoolId};
use crate::policy::Stream;
use gpu_core::{Bytes, DeviceMemory};

/// A capture in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capture {
    pool: u32,
    /// The captured stream; `None` stands for all.
    stream: Option<Stream>,
}

/// Why a private pool could not be used or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// (0, 0) is the common pool.
    #[error("use the default pool as a private pool")]
    Common,
    /// A capture into it is already in progress.
    #[error("begin capture into pool ({}, {}): already capturing", .0.0, .0.1)]
    Busy(PoolId),
    /// No capture into it is in progress, or it is not in use.
    #[error("release pool ({}, {}): not in use", .0.0, .0.1)]
    Unused(PoolId),
}

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Serves requests on a stream, or on all streams, from a private pool until
    /// [`end_capture`](Caching::end_capture). During a capture, the allocator cannot wait for work,
    /// so blocks in use by other streams stay in use, and the cache is not emptied.
    ///
    /// # Errors
    /// [`PoolError::Common`] and [`PoolError::Busy`].
    pub fn begin_capture(&mut self, id: PoolId, stream: Option<Stream>) -> Result<(), PoolError> {
        if id == PoolId::default() {
            return Err(PoolError::Common);
        }
        let pool = self.free_lists.pool_or_new(id);
        if self.captures.iter().any(|capture| capture.pool == pool) {
            return Err(PoolError::Busy(id));
        }
        self.free_lists.pools[pool as usize].users += 1;
        self.captures.push(Capture { pool, stream });
        Ok(())
    }

    /// Ends a capture; its graph continues to use the pool.
    ///
    /// # Errors
    /// [`PoolError::Unused`].
    pub fn end_capture(&mut self, id: PoolId) -> Result<(), PoolError> {
        let pool = self.free_lists.pool(id);
        let index = self.captures.iter().position(|capture| Some(capture.pool) == pool);
        self.captures.remove(index.ok_or(PoolError::Unused(id))?);
        Ok(())
    }

    /// Serves all requests from this pool, and ends all captures in progress.
    pub(super) fn capture_all(&mut self, id: PoolId) {
        self.captures.clear();
        // This fails only for the common pool, which needs no capture.
        let _ = self.begin_capture(id, None);
    }

    /// Records that a graph no longer uses a pool. Once no graph uses the pool, emptying the cache
    /// returns its free memory to the device.
    ///
    /// # Errors
    /// [`PoolError::Common`] and [`PoolError::Unused`].
    pub fn release_pool(&mut self, id: PoolId) -> Result<(), PoolError> {
        match self.free_lists.pool(id) {
            Some(0) => Err(PoolError::Common),
            Some(pool) if self.free_lists.pools[pool as usize].users > 0 => {
                self.free_lists.pools[pool as usize].users -= 1;
                Ok(())
            }
            _ => Err(PoolError::Unused(id)),
        }
    }

    /// Returns the private pools and the device memory that each holds.
    pub fn private_pools(&self) -> impl Iterator<Item = (PoolId, Bytes)> + '_ {
        self.free_lists.pools.iter().skip(1).map(|pool| (pool.id, Bytes(pool.reserved)))
    }

    /// Returns the index of the pool that currently serves a stream.
    #[inline]
    pub(super) fn pool_for(&self, stream: Stream) -> u32 {
        if self.captures.is_empty() {
            return 0;
        }
        let captured = |capture: &&Capture| capture.stream.is_none_or(|its| its == stream);
        self.captures.iter().find(captured).map_or(0, |capture| capture.pool)
    }
}
