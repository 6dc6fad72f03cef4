//! The free blocks, by private pool, stream and kind.
//!
//! PyTorch keeps one ordered set for each pool and kind, with the stream as the first sort key. A
//! set for each stream gives the same results, and the set needed is usually the one used last.

use crate::blocks::{BlockId, Blocks};
use crate::free_set::FreeSet;
use crate::policy::Stream;
use crate::segment::SegmentKind;
use std::collections::BTreeMap;

/// Identifies a private pool, like PyTorch's `MempoolId_t`; (0, 0) is the common pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolId(pub u64, pub u64);

/// Identifies a free list; the lists of a stream's small and large blocks have adjacent IDs.
pub(super) type FreeListId = u32;

/// The list field of a block is the ID of its free list, shifted by this, plus these flags.
const FREE_LIST: u32 = 3;
/// The block belongs to an expandable segment.
pub(super) const EXPANDABLE: u32 = 1;
/// The block's addresses are unmapped.
pub(super) const UNMAPPED: u32 = 2;
/// Streams other than the block's own use it.
pub(super) const SHARED: u32 = 4;

/// Returns the list field for ordinary blocks of a free list.
pub(super) fn list_of(free_list: FreeListId) -> u32 {
    free_list << FREE_LIST
}

/// Returns the free list of a list field.
pub(super) fn free_list_of(list: u32) -> FreeListId {
    list >> FREE_LIST
}

/// Returns the kind of blocks in a free list.
pub(super) fn kind_of(free_list: FreeListId) -> SegmentKind {
    if free_list & 1 == 0 { SegmentKind::Small } else { SegmentKind::Large }
}

/// Free blocks of one pool, stream and kind.
#[derive(Debug)]
pub(super) struct FreeList {
    /// Mapped blocks.
    pub(super) free: FreeSet,
    /// Unmapped blocks, by address.
    pub(super) unmapped: BTreeMap<u64, BlockId>,
    /// The stream that may use them.
    pub(super) stream: Stream,
    /// Their index in [`FreeLists::pools`].
    pub(super) pool: u32,
}

/// A pool of blocks: the common pool, or the pool of a CUDA graph.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) id: PoolId,
    /// The number of captures and graphs that use it.
    pub(super) users: u32,
    /// The bytes that it holds on the device.
    pub(super) reserved: u64,
    /// The number of searches while garbage collection was on, by kind.
    pub(super) searches: [u64; 2],
    /// By kind, the blocks to examine when the cache is emptied: every free block that is a whole
    /// region or may contain a whole page. The list may also contain blocks that have since been
    /// reused, even twice.
    pub(super) queue: [Vec<BlockId>; 2],
}

impl Pool {
    fn new(id: PoolId, users: u32) -> Self {
        Pool { id, users, reserved: 0, searches: [0; 2], queue: Default::default() }
    }
}

/// All free lists.
#[derive(Debug)]
pub(super) struct FreeLists {
    lists: Vec<FreeList>,
    pub(super) pools: Vec<Pool>,
    by_pool_and_stream: BTreeMap<(u32, Stream), FreeListId>,
    recent: Option<(u32, Stream, FreeListId)>,
}

impl Default for FreeLists {
    fn default() -> Self {
        let common = Pool::new(PoolId::default(), 1);
        FreeLists {
            lists: Vec::new(),
            pools: vec![common],
            by_pool_and_stream: BTreeMap::new(),
            recent: None,
        }
    }
}

impl FreeLists {
    /// Returns the free list for a stream's blocks of a kind.
    #[inline]
    pub(super) fn find(&mut self, pool: u32, stream: Stream, kind: SegmentKind) -> FreeListId {
        let first = match self.recent {
            Some((its, recent, free_list)) if recent == stream && its == pool => free_list,
            _ => self.look_up(pool, stream),
        };
        first + (kind as FreeListId)
    }

    #[cold]
    fn look_up(&mut self, pool: u32, stream: Stream) -> FreeListId {
        let first = *self.by_pool_and_stream.entry((pool, stream)).or_insert_with(|| {
            let first = self.lists.len() as FreeListId;
            for _ in 0..2 {
                let (free, unmapped) = (FreeSet::default(), BTreeMap::new());
                self.lists.push(FreeList { free, unmapped, stream, pool });
            }
            first
        });
        self.recent = Some((pool, stream, first));
        first
    }

    /// Returns the index of a private pool.
    pub(super) fn pool(&self, id: PoolId) -> Option<u32> {
        self.pools.iter().position(|pool| pool.id == id).map(|index| index as u32)
    }

    /// Returns the index of a private pool, and creates the pool if it does not exist.
    pub(super) fn pool_or_new(&mut self, id: PoolId) -> u32 {
        self.pool(id).unwrap_or_else(|| {
            self.pools.push(Pool::new(id, 0));
            (self.pools.len() - 1) as u32
        })
    }

    /// Makes [`largest`](Self::largest) fast.
    pub(super) fn sort_largest(&mut self, blocks: &Blocks) {
        self.lists.iter_mut().for_each(|list| list.free.sort_largest(blocks));
    }

    /// Returns the size of the largest free block.
    pub(super) fn largest(&self, blocks: &Blocks) -> u64 {
        self.lists
            .iter()
            .filter_map(|list| list.free.largest(blocks))
            .map(|id| blocks[id].size)
            .max()
            .unwrap_or(0)
    }

    /// Returns the pool of a free list.
    pub(super) fn pool_of(&mut self, free_list: FreeListId) -> &mut Pool {
        &mut self.pools[self.lists[free_list as usize].pool as usize]
    }
}

impl std::ops::Index<FreeListId> for FreeLists {
    type Output = FreeList;
    fn index(&self, free_list: FreeListId) -> &FreeList {
        &self.lists[free_list as usize]
    }
}

impl std::ops::IndexMut<FreeListId> for FreeLists {
    fn index_mut(&mut self, free_list: FreeListId) -> &mut FreeList {
        &mut self.lists[free_list as usize]
    }
}
