//! A region that an allocator held, as a recording tells of it: what a policy can take over.

use crate::policy::BlockState;

/// A region that the allocator held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub address: u64,
    /// How long it is; of an expandable segment, its mapped part.
    pub size: u64,
    /// Whose stream may use it.
    pub stream: u64,
    /// Which pool it is of.
    pub kind: SegmentKind,
    /// The private pool (of a CUDA graph) it is of; (0, 0) is the common one.
    pub pool: (u64, u64),
    /// Whether it grows by mapped pages.
    pub expandable: bool,
    /// Its pieces, by address.
    pub blocks: Vec<RecordedBlock>,
}

/// Which of PyTorch's two pools a segment is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum SegmentKind {
    /// Requests of at most 1 MiB.
    Small,
    /// All others, and the only pool of other allocators.
    #[default]
    Large,
}

/// A piece of a segment as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedBlock {
    /// Where it begins.
    pub address: u64,
    /// How long it is.
    pub size: u64,
    /// What was asked for, where the recording tells it (PyTorch 2.0 and later).
    pub requested: Option<u64>,
    /// Whether it was handed out.
    pub state: BlockState,
}
