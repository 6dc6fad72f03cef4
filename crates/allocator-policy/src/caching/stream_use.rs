//! Blocks used by streams other than their own, and blocks that the caller completes.

use super::events::Event;
use super::free_lists::{SHARED, free_list_of};
use super::{Caching, Events};
use crate::blocks::BlockId;
use crate::failure::Failure;
use crate::policy::{Allocation, Retired, Stream};
use gpu_core::{DeviceMemory, Error};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The use of blocks by other streams.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// The other streams that use a block that is allocated or deferred.
    users: BTreeMap<BlockId, Users>,
    /// Blocks that were freed during a capture and have no recorded events yet.
    deferred: Vec<BlockId>,
    /// Whether recording an event failed, so that blocks wait until the device is idle.
    stuck: bool,
    /// Recorded events by stream, with the blocks that wait for them.
    events: BTreeMap<Stream, VecDeque<(Event, BlockId)>>,
    /// The number of events that each block waits for, including those that could not be recorded.
    waiting: BTreeMap<BlockId, usize>,
    /// The blocks that wait for the caller.
    retired: BTreeSet<BlockId>,
}

#[derive(Debug, Default)]
struct Users {
    streams: Vec<Stream>,
    /// Streams that a graph captured: their work does not run on the stream itself.
    captured: Vec<Stream>,
}

impl Sharing {
    /// Returns whether no block waits for events.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.deferred.is_empty()
    }
}

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Records that work on another stream uses the memory. After the memory is freed, it is not
    /// reused until the work submitted to that stream before the free has ended.
    ///
    /// # Errors
    /// [`Failure::Foreign`] for an allocation of another policy.
    pub fn record_stream(
        &mut self,
        allocation: &Allocation,
        stream: Stream,
    ) -> Result<(), Failure> {
        let id = self.check(allocation)?;
        let block = &mut self.blocks[id];
        if self.free_lists[free_list_of(block.list)].stream == stream {
            return Ok(());
        }
        block.list |= SHARED;
        let users = self.sharing.users.entry(id).or_default();
        let captured = (!self.captures.is_empty()).then_some(&mut users.captured);
        for streams in [Some(&mut users.streams), captured].into_iter().flatten() {
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
        Ok(())
    }

    /// Makes a freed block wait for the streams that use it.
    ///
    /// # Errors
    /// If an event cannot be recorded; the block then waits until the device is idle.
    #[cold]
    pub(super) fn await_other_streams(&mut self, id: BlockId) -> Result<(), Failure> {
        self.await_end(id);
        if self.captures.is_empty() {
            return Ok(self.record_events(id)?);
        }
        if let Some(users) = self.sharing.users.get_mut(&id) {
            let captured = std::mem::take(&mut users.captured);
            users.streams.retain(|stream| !captured.contains(stream));
        }
        self.sharing.deferred.push(id);
        Ok(())
    }

    /// Records the events that a block then waits for.
    fn record_events(&mut self, id: BlockId) -> Result<(), Error> {
        let users = self.sharing.users.remove(&id).unwrap_or_default();
        self.blocks[id].list &= !SHARED;
        let mut result = Ok(());
        let mut waits = 0;
        for stream in users.streams {
            waits += 1;
            match self.events.record(stream) {
                Ok(event) => {
                    self.sharing.events.entry(stream).or_default().push_back((event, id));
                }
                Err(error) => {
                    self.sharing.stuck = true;
                    result = result.and(Err(error));
                }
            }
        }
        if waits == 0 {
            self.end(id);
        } else {
            self.sharing.waiting.insert(id, waits);
        }
        result
    }

    /// Records the events of blocks that were freed during captures. If one cannot be recorded,
    /// only its block stays in use.
    fn record_deferred(&mut self) {
        for id in std::mem::take(&mut self.sharing.deferred) {
            let _ = self.record_events(id);
        }
    }

    /// Frees blocks whose events have completed.
    #[cold]
    pub(super) fn free_what_is_done(&mut self) -> Result<(), Failure> {
        self.record_deferred();
        let streams: Vec<_> = self.sharing.events.keys().copied().collect();
        for stream in streams {
            while let Some(&(event, _)) = self.next_event(stream) {
                if !self.events.is_done(event)? {
                    break;
                }
                self.note_done(stream);
            }
        }
        Ok(())
    }

    /// Waits for all work that blocks wait for, and frees them.
    pub(super) fn wait_for_all_work(&mut self) -> Result<(), Failure> {
        self.counters.synchronizations += 1;
        self.record_deferred();
        let streams: Vec<_> = self.sharing.events.keys().copied().collect();
        for stream in streams {
            while let Some(&(event, _)) = self.next_event(stream) {
                self.events.wait(event)?;
                self.note_done(stream);
            }
        }
        if !self.sharing.retired.is_empty() || self.sharing.stuck {
            self.events.wait_all()?;
            let waiting = std::mem::take(&mut self.sharing.waiting).into_keys();
            let mut ended = std::mem::take(&mut self.sharing.retired);
            ended.extend(waiting);
            self.sharing.stuck = false;
            for id in ended {
                self.end(id);
            }
            self.waits += 1;
        }
        Ok(())
    }

    fn next_event(&self, stream: Stream) -> Option<&(Event, BlockId)> {
        self.sharing.events.get(&stream)?.front()
    }

    /// Handles the completion of the first event of a stream.
    fn note_done(&mut self, stream: Stream) {
        let Some(queue) = self.sharing.events.get_mut(&stream) else { return };
        let done = queue.pop_front();
        if queue.is_empty() {
            self.sharing.events.remove(&stream);
        }
        let Some((_, id)) = done else { return };
        let Some(left) = self.sharing.waiting.get_mut(&id) else { return };
        *left -= 1;
        if *left == 0 {
            self.sharing.waiting.remove(&id);
            self.end(id);
        }
    }

    /// Makes a block wait for the caller, which knows when its use ends.
    pub(super) fn retire_block(&mut self, id: BlockId, allocation: Allocation) -> Retired {
        self.await_end(id);
        let block = &mut self.blocks[id];
        if block.list & SHARED != 0 {
            block.list &= !SHARED;
            self.sharing.users.remove(&id);
        }
        self.sharing.retired.insert(id);
        // If the allocator has waited for all work since, the block is already free.
        Retired(Allocation { size: self.waits, ..allocation })
    }

    /// Frees a block that is no longer in use, unless it is already free.
    pub(super) fn complete_block(&mut self, retired: Retired) -> Result<(), Failure> {
        let Retired(Allocation { address, size: waits, block: id, owner }) = retired;
        if owner != self.owner {
            return Err(Failure::Foreign { address });
        }
        if waits == self.waits {
            self.sharing.retired.remove(&id);
            self.end(id);
        }
        Ok(())
    }
}
