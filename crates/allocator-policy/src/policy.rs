//! The interface of all policies.

use crate::failure::Failure;
use gpu_core::Bytes;

/// A stream on the device. Memory freed on a stream is at first available only to that stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Stream(pub u64);

/// Memory that a policy allocated. [`Policy::free`] or [`Policy::retire`] returns it.
///
/// It cannot be copied, and so cannot be freed twice. A dropped allocation stays in use until its
/// policy is dropped.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "dropping this leaks the memory until the policy is dropped"]
pub struct Allocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) block: u32,
    pub(crate) owner: u32,
}

impl Allocation {
    /// Returns its start address, in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns its size: the requested size, rounded as the policy rounds it.
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }
}

/// Memory that the program has freed and that work on the device may still use.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "the memory stays in use until it is completed or the policy is dropped"]
pub struct Retired(pub(crate) Allocation);

impl Retired {
    /// Returns its start address, in the device's address space.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Returns the original allocation.
    pub fn allocation(&self) -> &Allocation {
        &self.0
    }
}

/// Allocates memory on one device.
///
/// A policy owns the memory that it took from the device, and frees all of it when dropped.
pub trait Policy: Send {
    /// Returns its name on the command line.
    fn name(&self) -> &'static str;

    /// Allocates at least `size` bytes for work on a stream; a request of 0 bytes gets the smallest
    /// block of the policy.
    ///
    /// # Errors
    /// [`Failure::OutOfMemory`] if neither the held memory nor the memory that it may still take
    /// suffices, [`Failure::Device`] if the device fails otherwise. In both cases, no memory is
    /// allocated.
    fn allocate(&mut self, size: Bytes, stream: Stream) -> Result<Allocation, Failure>;

    /// Frees memory that work no longer uses.
    ///
    /// # Errors
    /// [`Failure::Foreign`] for an allocation of another policy, [`Failure::Device`] if the device
    /// does not accept it: the policy then keeps it and tries again when dropped.
    fn free(&mut self, allocation: Allocation) -> Result<(), Failure>;

    /// Frees memory that work on the device may still use. It is not reused before
    /// [`complete`](Policy::complete), or before the policy has waited for all work.
    ///
    /// # Errors
    /// Like [`free`](Policy::free).
    fn retire(&mut self, allocation: Allocation) -> Result<Retired, Failure>;

    /// Records that the work that used retired memory has ended. Has no effect if the policy
    /// already detected this.
    ///
    /// # Errors
    /// Like [`free`](Policy::free).
    fn complete(&mut self, retired: Retired) -> Result<(), Failure>;

    /// Selects the private pool that serves later requests, for example the pool of a CUDA graph;
    /// (0, 0) is the common pool, and the only pool of most policies.
    fn draw_from(&mut self, _pool: (u64, u64)) {}

    /// Returns unused memory to the device, as far as the policy can. Returns its size.
    ///
    /// # Errors
    /// [`Failure::Device`] if the device does not accept a region; other regions are freed.
    fn empty_cache(&mut self) -> Result<Bytes, Failure>;

    /// Returns the sums that every policy maintains.
    fn usage(&self) -> Usage;

    /// Returns the memory in use, in constant time.
    fn in_use(&self) -> Bytes;

    /// Returns the device memory held, in constant time.
    fn reserved(&self) -> Bytes;

    /// Resets the peaks of [`usage`](Policy::usage) to the current values.
    fn reset_peaks(&mut self);

    /// Returns the held regions and their blocks, by address.
    fn segments(&self) -> Vec<SegmentMap>;

    /// Returns the memory summary that the policy's framework prints.
    fn summary(&self) -> String;
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn allocate(&mut self, size: Bytes, stream: Stream) -> Result<Allocation, Failure> {
        (**self).allocate(size, stream)
    }

    fn free(&mut self, allocation: Allocation) -> Result<(), Failure> {
        (**self).free(allocation)
    }

    fn retire(&mut self, allocation: Allocation) -> Result<Retired, Failure> {
        (**self).retire(allocation)
    }

    fn complete(&mut self, retired: Retired) -> Result<(), Failure> {
        (**self).complete(retired)
    }

    fn draw_from(&mut self, pool: (u64, u64)) {
        (**self).draw_from(pool);
    }

    fn empty_cache(&mut self) -> Result<Bytes, Failure> {
        (**self).empty_cache()
    }

    fn usage(&self) -> Usage {
        (**self).usage()
    }

    fn in_use(&self) -> Bytes {
        (**self).in_use()
    }

    fn reserved(&self) -> Bytes {
        (**self).reserved()
    }

    fn reset_peaks(&mut self) {
        (**self).reset_peaks();
    }

    fn segments(&self) -> Vec<SegmentMap> {
        (**self).segments()
    }

    fn summary(&self) -> String {
        (**self).summary()
    }
}

/// The sums that every policy maintains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Usage {
    /// Memory in use, rounded as the policy rounds it (PyTorch's `memory_allocated`, BFC's
    /// `InUse`).
    #[cfg_attr(feature = "serde", serde(rename = "in_use_bytes"))]
    pub in_use: Bytes,
    /// Memory in use, as requested.
    #[cfg_attr(feature = "serde", serde(rename = "requested_bytes"))]
    pub requested: Bytes,
    /// Device memory held (PyTorch's `memory_reserved`).
    #[cfg_attr(feature = "serde", serde(rename = "reserved_bytes"))]
    pub reserved: Bytes,
    /// The maximum of `in_use`.
    #[cfg_attr(feature = "serde", serde(rename = "peak_in_use_bytes"))]
    pub peak_in_use: Bytes,
    /// The maximum of `reserved`.
    #[cfg_attr(feature = "serde", serde(rename = "peak_reserved_bytes"))]
    pub peak_reserved: Bytes,
    /// The number of blocks in use.
    pub allocations: u64,
    /// The number of regions held on the device.
    pub segments: u64,
    /// The largest free block.
    #[cfg_attr(feature = "serde", serde(rename = "largest_free_bytes"))]
    pub largest_free: Bytes,
    /// How many times the policy emptied its cache because the device refused.
    pub retries: u64,
    /// The number of out-of-memory errors.
    pub out_of_memory: u64,
    /// The number of device allocations (`cudaMalloc`, or pages mapped).
    pub device_allocations: u64,
    /// The number of device frees.
    pub device_frees: u64,
}

impl Usage {
    /// Returns the held memory that is not in use.
    pub fn cached(&self) -> Bytes {
        self.reserved.saturating_sub(self.in_use)
    }

    /// Returns the fraction of the cached memory that is outside its largest block, from 0 to 1
    /// (TensorFlow's `fragmentation`); 0 if the cache is empty.
    pub fn fragmentation(&self) -> f64 {
        let cached = self.cached().0;
        if cached == 0 {
            return 0.0;
        }
        cached.saturating_sub(self.largest_free.0) as f64 / cached as f64
    }
}

/// A region held on the device, and its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SegmentMap {
    /// Its start address.
    pub address: u64,
    /// Its size; for an expandable segment, its mapped size.
    #[cfg_attr(feature = "serde", serde(rename = "size_bytes"))]
    pub size: Bytes,
    /// The stream that may use it, if it is bound to one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub stream: Option<Stream>,
    /// Its blocks, by address.
    pub blocks: Vec<BlockMap>,
}

/// A block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockMap {
    /// Its start address.
    pub address: u64,
    /// Its size.
    #[cfg_attr(feature = "serde", serde(rename = "size_bytes"))]
    pub size: Bytes,
    /// The requested size; zero for a free block.
    #[cfg_attr(feature = "serde", serde(rename = "requested_bytes"))]
    pub requested: Bytes,
    /// Its state.
    pub state: BlockState,
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BlockState {
    /// In use by the program.
    Active,
    /// Freed by the program; work on the device may still use it.
    AwaitingFree,
    /// Free.
    Free,
}
