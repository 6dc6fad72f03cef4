//! The free blocks, by private pool, stream and kind.
//!
//! PyTorch keeps one ordered set for each pool and kind, in which the stream is the first part of
//! the order. A set for each stream gives the same answers, and the one that is needed is nearly
//! always the one that was needed last.

use crate::blocks::{BlockId, Blocks};
use crate::free_set::FreeSet;
use crate::policy::Stream;
use crate::segment::SegmentKind;
use std::collections::BTreeMap;

/// Names a private pool, as PyTorch's `MempoolId_t`; (0, 0) is the common one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolId(pub u64, pub u64);

/// Names a shelf; the small blocks of a stream and its large ones are on neighbouring shelves.
pub(super) type FreeListId = u32;

/// A block's list is the number of its shelf, shifted by this, and what follows.
const FREE_LIST: u32 = 3;
/// The block is of an expandable segment.
pub(super) const EXPANDABLE: u32 = 1;
/// There is no memory behind the block's addresses.
pub(super) const UNMAPPED: u32 = 2;
/// Other streams than its own use the block.
pub(super) const SHARED: u32 = 4;

/// Returns the list of ordinary blocks of a shelf.
pub(super) fn list_of(shelf: FreeListId) -> u32 {
    shelf << FREE_LIST
}

/// Returns the shelf that a list is of.
pub(super) fn free_list_of(list: u32) -> FreeListId {
    list >> FREE_LIST
}

/// Returns the kind of blocks on a shelf.
pub(super) fn kind_of(shelf: FreeListId) -> SegmentKind {
    if shelf & 1 == 0 { SegmentKind::Small } else { SegmentKind::Large }
}

/// Free blocks of one pool, stream and kind.
#[derive(Debug)]
pub(super) struct FreeList {
    /// Blocks with memory.
    pub(super) free: FreeSet,
    /// Blocks without, by where they begin.
    pub(super) unmapped: BTreeMap<u64, BlockId>,
    /// Whose stream may use them.
    pub(super) stream: Stream,
    /// Which of [`FreeLists::pools`] they are of.
    pub(super) pool: u32,
}

/// A pool of blocks: the common one, or one of a CUDA graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    pub(super) id: PoolId,
    /// How many captures and graphs use it.
    pub(super) users: u32,
    /// How many bytes of the device it holds.
    pub(super) reserved: u64,
    /// How often a block was looked for while garbage was collected, by kind.
    pub(super) searches: [u64; 2],
}

/// All shelves.
#[derive(Debug)]
pub(super) struct FreeLists {
    shelves: Vec<FreeList>,
    pub(super) pools: Vec<Pool>,
    by_pool_and_stream: BTreeMap<(u32, Stream), FreeListId>,
    recent: Option<(u32, Stream, FreeListId)>,
}

impl Default for FreeLists {
    fn default() -> Self {
        let common = Pool { id: PoolId::default(), users: 1, reserved: 0, searches: [0; 2] };
        FreeLists {
            shelves: Vec::new(),
            pools: vec![common],
            by_pool_and_stream: BTreeMap::new(),
            recent: None,
        }
    }
}

impl FreeLists {
    /// Returns the shelf for a stream's blocks of a kind.
    #[inline]
    pub(super) fn find(&mut self, pool: u32, stream: Stream, kind: SegmentKind) -> FreeListId {
        let first = match self.recent {
            Some((its, recent, shelf)) if recent == stream && its == pool => shelf,
            _ => self.look_up(pool, stream),
        };
        first + (kind as FreeListId)
    }

    #[cold]
    fn look_up(&mut self, pool: u32, stream: Stream) -> FreeListId {
        let first = *self.by_pool_and_stream.entry((pool, stream)).or_insert_with(|| {
            let first = self.shelves.len() as FreeListId;
            for _ in 0..2 {
                let (free, unmapped) = (FreeSet::default(), BTreeMap::new());
                self.shelves.push(FreeList { free, unmapped, stream, pool });
            }
            first
        });
        self.recent = Some((pool, stream, first));
        first
    }

    /// Returns the shelves of a pool and kind in the order of their streams.
    pub(super) fn of_pool(
        &self,
        pool: u32,
        kind: SegmentKind,
    ) -> impl Iterator<Item = FreeListId> + '_ {
        let every = (pool, Stream(0))..=(pool, Stream(u64::MAX));
        self.by_pool_and_stream.range(every).map(move |(_, first)| first + (kind as FreeListId))
    }

    /// Returns the number of a private pool.
    pub(super) fn pool(&self, id: PoolId) -> Option<u32> {
        self.pools.iter().position(|pool| pool.id == id).map(|place| place as u32)
    }

    /// Returns the number of a private pool, which is new if there is none with its name.
    pub(super) fn pool_or_new(&mut self, id: PoolId) -> u32 {
        self.pool(id).unwrap_or_else(|| {
            self.pools.push(Pool { id, users: 0, reserved: 0, searches: [0; 2] });
            (self.pools.len() - 1) as u32
        })
    }

    /// Returns the largest free block's size.
    pub(super) fn largest(&self, blocks: &Blocks) -> u64 {
        self.shelves
            .iter()
            .filter_map(|shelf| shelf.free.largest(blocks))
            .map(|id| blocks[id].size)
            .max()
            .unwrap_or(0)
    }

    /// Returns the pool that a shelf is of.
    pub(super) fn pool_of(&mut self, shelf: FreeListId) -> &mut Pool {
        &mut self.pools[self.shelves[shelf as usize].pool as usize]
    }
}

impl std::ops::Index<FreeListId> for FreeLists {
    type Output = FreeList;
    fn index(&self, shelf: FreeListId) -> &FreeList {
        &self.shelves[shelf as usize]
    }
}

impl std::ops::IndexMut<FreeListId> for FreeLists {
    fn index_mut(&mut self, shelf: FreeListId) -> &mut FreeList {
        &mut self.shelves[shelf as usize]
    }
}
