//! What all policies have in common.

use crate::failure::Failure;
use gpu_core::Bytes;

/// A queue of work on the device; memory that one stream freed is at once fit for that stream only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Stream(pub u64);

/// Memory that a policy handed out; it goes back by [`Policy::free`] or [`Policy::retire`].
///
/// It cannot be copied, so it cannot be given back twice. One that is dropped stays taken until its
/// policy ends; [`Shared`](crate::Shared) hands out buffers that go back by themselves.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "memory that is dropped stays taken until its policy ends"]
pub struct Allocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) block: u32,
    pub(crate) owner: u32,
}

impl Allocation {
    /// Returns where it begins, in the device's address space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns how long it is: what was asked for, rounded as the policy does.
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }
}

/// Memory that the program has given back and that work on the device may still use.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "memory that is never completed stays taken until its policy ends"]
pub struct Retired(pub(crate) Allocation);

impl Retired {
    /// Returns where it begins, in the device's address space.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Returns the memory as it was handed out.
    pub fn allocation(&self) -> &Allocation {
        &self.0
    }
}

/// Hands out memory of one device.
///
/// A policy owns what it took of the device and gives all of it back when it is dropped.
pub trait Policy: Send {
    /// Returns its name, as the command line spells it.
    fn name(&self) -> &'static str;

    /// Hands out at least `size` bytes for work on a stream; no bytes are handed out as the
    /// smallest piece of the policy.
    ///
    /// # Errors
    /// [`Failure::OutOfMemory`] when neither what is held nor what may still be taken suffices,
    /// [`Failure::Device`] when the device fails otherwise. Nothing is taken then.
    fn allocate(&mut self, size: Bytes, stream: Stream) -> Result<Allocation, Failure>;

    /// Takes memory back that nothing uses any more.
    ///
    /// # Errors
    /// [`Failure::Foreign`] for an allocation of another policy, [`Failure::Device`] when the
    /// device does not take it: the policy then keeps it and tries again when it is dropped.
    fn free(&mut self, allocation: Allocation) -> Result<(), Failure>;

    /// Takes memory back that work on the device may still use: it is not handed out again before
    /// [`complete`](Policy::complete) or before the policy waited for all work.
    ///
    /// # Errors
    /// As [`free`](Policy::free).
    fn retire(&mut self, allocation: Allocation) -> Result<Retired, Failure>;

    /// Says that the work that used retired memory has ended. Where the policy found that out
    /// before, nothing happens.
    ///
    /// # Errors
    /// As [`free`](Policy::free).
    fn complete(&mut self, retired: Retired) -> Result<(), Failure>;

    /// Says from which private pool, as of a CUDA graph, is taken what is asked for from now on;
    /// (0, 0) is the common one, which is the only one of most policies.
    fn draw_from(&mut self, _pool: (u64, u64)) {}

    /// Gives back to the device what is held and not in use, as far as the policy can; returns how
    /// much that was.
    ///
    /// # Errors
    /// [`Failure::Device`] when the device does not take a region; the others are given back.
    fn empty_cache(&mut self) -> Result<Bytes, Failure>;

    /// Returns the sums that every policy keeps.
    fn usage(&self) -> Usage;

    /// Returns how much is handed out, at no more cost than a look at a number.
    fn in_use(&self) -> Bytes;

    /// Returns how much is held of the device, at no more cost than a look at a number.
    fn reserved(&self) -> Bytes;

    /// Starts the peaks of [`usage`](Policy::usage) anew from what is so now.
    fn reset_peaks(&mut self);

    /// Returns what is held of the device and how it is divided, by address.
    fn segments(&self) -> Vec<SegmentMap>;

    /// Returns what the policy's framework prints of its memory, line by line.
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

/// The sums that every policy keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Usage {
    /// Handed out, rounded as the policy does (PyTorch's `memory_allocated`, BFC's `InUse`).
    #[cfg_attr(feature = "serde", serde(rename = "in_use_bytes"))]
    pub in_use: Bytes,
    /// Handed out, as it was asked for.
    #[cfg_attr(feature = "serde", serde(rename = "requested_bytes"))]
    pub requested: Bytes,
    /// Held of the device (PyTorch's `memory_reserved`).
    #[cfg_attr(feature = "serde", serde(rename = "reserved_bytes"))]
    pub reserved: Bytes,
    /// The most that was handed out at once.
    #[cfg_attr(feature = "serde", serde(rename = "peak_in_use_bytes"))]
    pub peak_in_use: Bytes,
    /// The most that was held at once.
    #[cfg_attr(feature = "serde", serde(rename = "peak_reserved_bytes"))]
    pub peak_reserved: Bytes,
    /// Pieces handed out now.
    pub allocations: u64,
    /// Regions held of the device now.
    pub segments: u64,
    /// The largest piece that is held and not handed out.
    #[cfg_attr(feature = "serde", serde(rename = "largest_free_bytes"))]
    pub largest_free: Bytes,
    /// How often the policy emptied its cache because the device refused.
    pub retries: u64,
    /// How often memory did not suffice.
    pub out_of_memory: u64,
    /// How often the device was asked for memory (`cudaMalloc`, or pages mapped).
    pub device_allocations: u64,
    /// How often memory was given back to the device.
    pub device_frees: u64,
}

impl Usage {
    /// Returns what is held and not handed out.
    pub fn cached(&self) -> Bytes {
        self.reserved.saturating_sub(self.in_use)
    }

    /// Returns the share of what is cached that is not in its largest piece, from 0 to 1
    /// (TensorFlow's `fragmentation`); 0 where nothing is cached.
    pub fn fragmentation(&self) -> f64 {
        let cached = self.cached().0;
        if cached == 0 {
            return 0.0;
        }
        cached.saturating_sub(self.largest_free.0) as f64 / cached as f64
    }
}

/// A region that is held of the device, and how it is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SegmentMap {
    /// Where it begins.
    pub address: u64,
    /// How long it is; of an expandable segment, how much of it is mapped.
    #[cfg_attr(feature = "serde", serde(rename = "size_bytes"))]
    pub size: Bytes,
    /// Whose stream may use it, where it is bound to one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub stream: Option<Stream>,
    /// Its pieces, by address.
    pub blocks: Vec<BlockMap>,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockMap {
    /// Where it begins.
    pub address: u64,
    /// How long it is.
    #[cfg_attr(feature = "serde", serde(rename = "size_bytes"))]
    pub size: Bytes,
    /// What was asked for; nothing for a free piece.
    #[cfg_attr(feature = "serde", serde(rename = "requested_bytes"))]
    pub requested: Bytes,
    /// Whether it is handed out.
    pub state: BlockState,
}

/// Whether a piece of a segment is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BlockState {
    /// The program has it.
    Active,
    /// The program gave it back; work on the device may still use it.
    AwaitingFree,
    /// Nobody has it.
    Free,
}
