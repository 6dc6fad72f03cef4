//! A recorded region of an allocator, which a policy can adopt.

use crate::policy::BlockState;

/// A region that the allocator held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Its start address.
    pub address: u64,
    /// Its size; for an expandable segment, the size of its mapped part.
    pub size: u64,
    /// The stream that may use it.
    pub stream: u64,
    /// Its pool.
    pub kind: SegmentKind,
    /// Its private pool (of a CUDA graph); (0, 0) is the common pool.
    pub pool: (u64, u64),
    /// Whether it grows by mapping pages.
    pub expandable: bool,
    /// Its blocks, by address.
    pub blocks: Vec<RecordedBlock>,
}

/// One of PyTorch's two pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum SegmentKind {
    /// Requests of at most 1 MiB.
    Small,
    /// All other requests, and the only pool of other allocators.
    #[default]
    Large,
}

/// A recorded block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedBlock {
    /// Its start address.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// The requested size, if recorded (PyTorch 2.0 and later).
    pub requested: Option<u64>,
    /// Its state.
    pub state: BlockState,
}
