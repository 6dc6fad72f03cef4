//! The shortest walk of a chain of layers through rooms, by dynamic programming.
//!
//! A node is a room in use after a choice of other rooms, and an edge leads to the next room. The
//! best result up to a layer and node does not depend on the path taken, so each pair is computed
//! once, from all stages that may end there.

use super::plan::pinned_room;
use super::{RoomKind, Rooms};
use crate::need::{Chain, Layer};
use gpu_core::Bytes;
use std::collections::VecDeque;

/// The quantity that is combined along a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// The largest stage.
    Largest,
    /// The sum of all stages, none larger than a limit, plus an amount for each.
    Sum {
        /// The limit, in nanoseconds.
        limit: u64,
        /// The amount added for each stage.
        each: u64,
    },
}

/// Which rooms may follow each other. Nodes are ordered so that edges lead forward; the first node
/// is the start and has no room.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    /// The room of each node, as an index into stages.
    pub(super) rooms: Vec<usize>,
    /// Another room that each node may represent, because its room represents a class of equal
    /// ones.
    pub(super) twins: Vec<usize>,
    /// The successors of each node.
    pub(super) next: Vec<Vec<usize>>,
    /// The rooms that may still follow each node, and their capacity.
    pub(super) left: Vec<(u64, Bytes)>,
}

/// A walk of all layers.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// Its measure.
    pub(super) value: u64,
    /// The room and the end of each stage.
    pub(super) stages: Vec<(usize, usize)>,
}

/// The search exceeded its step limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOfSteps;

/// The sizes of stages: which consecutive layers each room can hold, and how long they take.
pub(super) struct Stages {
    /// The number of layers, without pinned ones.
    pub(super) layers: usize,
    /// For each room, the time of the layers before each layer: `layers + 1` entries.
    nanos: Vec<Vec<u64>>,
    /// For each room and first layer, the end of the longest stage that fits.
    ends: Vec<Vec<usize>>,
    /// The minimum time of the layers from each layer on, in any room.
    rest: Vec<u64>,
    /// The minimum bytes of the layers from each layer on.
    rest_bytes: Vec<Bytes>,
    /// Whether a stage may end before each layer.
    cuts: Vec<bool>,
    /// For each layer, the kind of transfer that enters before it.
    crossings: Vec<usize>,
    /// The time of each kind of transfer, between each pair of rooms.
    transfers: Vec<Vec<Vec<u64>>>,
}

/// Returns the end of the longest stage that fits for each first layer. `fits` returns whether a
/// range of layers fits, given the largest of their buffers. Removing the first layer of a stage
/// never increases its memory, except where `grows` returns true for the new first layer, so the
/// work is linear.
fn longest(
    least: Bytes,
    buffers: &[Bytes],
    grows: impl Fn(usize) -> bool,
    fits: impl Fn(usize, usize, Bytes) -> bool,
) -> Vec<usize> {
    let count = buffers.len();
    // The indices of the largest buffers from the first layer on, each followed by smaller ones.
    let mut window: VecDeque<usize> = VecDeque::new();
    let mut filled = 0;
    let mut ends: Vec<usize> = Vec::with_capacity(count);
    for first in 0..count {
        let mut end = ends.last().copied().unwrap_or(0).max(first);
        if grows(first) {
            (end, filled) = (first, first);
            window.clear();
        }
        while window.front().is_some_and(|at| *at < first) {
            window.pop_front();
        }
        filled = filled.max(first);
        loop {
            while filled < (end + 1).min(count) {
                while window.back().is_some_and(|at| buffers[*at] <= buffers[filled]) {
                    window.pop_back();
                }
                window.push_back(filled);
                filled += 1;
            }
            let widest = window.front().map_or(least, |at| buffers[*at].max(least));
            if end == count || !fits(first, end + 1, widest) {
                break;
            }
            end += 1;
        }
        ends.push(end);
    }
    ends
}

impl Stages {
    /// Returns the stages of a chain without its first `skipped` layers. `base` has the bytes that
    /// each room always holds, and its minimum buffer.
    pub(super) fn new(
        chain: &Chain,
        skipped: usize,
        rooms: &Rooms,
        base: &[(Bytes, Bytes)],
        last_resort: RoomKind,
    ) -> Stages {
        let pipelined = chain.cpu_first && last_resort == RoomKind::Gpu;
        // Any GPU may be the first.
        let offload = if last_resort == RoomKind::Gpu { Bytes(0) } else { chain.offload };
        let layers = chain.layers.get(skipped..).unwrap_or_default();
        let count = layers.len();
        let mut nanos = Vec::new();
        let mut ends = Vec::new();
        // Sums over the first layers, and the buffer of each.
        let mut totals = vec![0_u64];
        for layer in layers {
            totals.push(totals[totals.len() - 1].saturating_add(layer.bytes().0));
        }
        let buffer = |layer: &Layer| if pipelined { layer.pipelined } else { layer.buffer };
        let buffers: Vec<Bytes> = layers.iter().map(buffer).collect();
        let entry = |first: usize| {
            let layer = layers.get(first).filter(|_| pipelined);
            layer.map_or(Bytes(0), |layer| layer.entry)
        };
        // The output shares the matrix of a pinned input in the same room.
        let shares = pinned_room(rooms).filter(|_| skipped > 0);
        for (number, (room, (held, least))) in rooms.rooms.iter().zip(base).enumerate() {
            let mut sums = Vec::with_capacity(count + 1);
            let mut sum = 0_u64;
            sums.push(sum);
            for layer in layers {
                sum = sum.saturating_add(room.layer_nanos(layer));
                sums.push(sum);
            }
            nanos.push(sums);
            let overhead = match room.kind {
                RoomKind::Gpu => chain.overhead + offload,
                RoomKind::Cpu | RoomKind::Disk => Bytes(0),
            };
            let fits = |first: usize, end: usize, buffer: Bytes| {
                let own = Bytes(totals[end].saturating_sub(totals[first]));
                let mut bytes = *held + overhead + entry(first) + own;
                if end == count && Some(number) == shares {
                    bytes = bytes.saturating_sub(chain.tied);
                }
                bytes + buffer <= room.capacity
            };
            let grows = |first: usize| first > 0 && entry(first) > entry(first - 1);
            ends.push(longest(*least, &buffers, grows, fits));
        }
        let cut = |layer: usize| layers.get(layer).is_none_or(|layer| !layer.joined);
        let mut sizes: Vec<Bytes> = Vec::new();
        let mut crossings = Vec::with_capacity(count + 1);
        for layer in 0..=count {
            let before = layer.checked_sub(1).and_then(|layer| layers.get(layer));
            let size = before.map_or(Bytes(0), |layer| layer.crossing);
            let known = sizes.iter().position(|known| *known == size);
            crossings.push(known.unwrap_or_else(|| {
                sizes.push(size);
                sizes.len() - 1
            }));
        }
        let all = 0..rooms.rooms.len();
        let from_each = |size: &Bytes| {
            let to_each =
                |from: usize| all.clone().map(|to| rooms.route(from, to).nanos(size.0)).collect();
            all.clone().map(to_each).collect()
        };
        let mut rest = vec![0_u64; count + 1];
        for (index, layer) in layers.iter().enumerate().rev() {
            let least = rooms.rooms.iter().map(|room| room.layer_nanos(layer)).min();
            rest[index] = rest[index + 1].saturating_add(least.unwrap_or(0));
        }
        let mut sum = Bytes(0);
        let mut rest_bytes = vec![sum; count + 1];
        for (index, layer) in layers.iter().enumerate().rev() {
            sum += layer.bytes();
            // The output may share a matrix with the input.
            rest_bytes[index] = sum.saturating_sub(chain.tied);
        }
        Stages {
            layers: count,
            rest,
            rest_bytes,
            nanos,
            ends,
            cuts: (0..=count).map(cut).collect(),
            crossings,
            transfers: sizes.iter().map(from_each).collect(),
        }
    }

    /// Returns the walk with the smallest measure that places all layers, if there is one with at
    /// most `known`. `steps` counts down.
    pub(super) fn shortest(
        &self,
        paths: &Paths,
        measure: Measure,
        mut known: u64,
        steps: &mut u64,
    ) -> Result<Option<Walk>, OutOfSteps> {
        let (count, nodes) = (self.layers, paths.rooms.len());
        let width = count + 1;
        let mut best = vec![u64::MAX; nodes * width];
        let mut from = vec![(0_u32, 0_u32); best.len()];
        best[0] = 0;
        for node in 0..nodes {
            let (left, capacity) = paths.left[node];
            for first in 0..count {
                let value = best[node * width + first];
                let longest = match measure {
                    Measure::Largest => known,
                    Measure::Sum { limit, .. } => limit,
                };
                // The remaining layers need rooms with enough memory, and stages with enough time.
                let is_hopeless = self.rest_bytes[first] > capacity
                    || self.rest[first] > longest.saturating_mul(left);
                if value == u64::MAX || value > known || is_hopeless {
                    continue;
                }
                for next in &paths.next[node] {
                    let room = paths.rooms[*next];
                    let enter = match node {
                        0 => 0,
                        _ => {
                            let last = paths.rooms[node];
                            let last = if last == room { paths.twins[node] } else { last };
                            self.transfers[self.crossings[first]][last][room]
                        }
                    };
                    let sums = &self.nanos[room][first..];
                    let length = self.ends[room][first] - first;
                    let row = *next * width + first;
                    let cuts = &self.cuts[first..];
                    let before = sums[0];
                    let rest = &self.rest[first..];
                    let mut taken = 0;
                    for step in 1..=length {
                        let time = (sums[step] - before).saturating_add(enter);
                        let total = match measure {
                            Measure::Largest => value.max(time),
                            Measure::Sum { limit, .. } if time > limit => break,
                            Measure::Sum { each, .. } => {
                                value.saturating_add(time).saturating_add(each)
                            }
                        };
                        // The remaining layers add at least this share of the sum.
                        let least = match measure {
                            Measure::Largest => total,
                            Measure::Sum { .. } => total.saturating_add(rest[step]),
                        };
                        if least > known {
                            break;
                        }
                        taken += 1;
                        if total < best[row + step] && cuts[step] {
                            best[row + step] = total;
                            from[row + step] = (node as u32, first as u32);
                        }
                    }
                    known = known.min(best[*next * width + count]);
                    *steps = steps.checked_sub(1 + taken).ok_or(OutOfSteps)?;
                }
            }
        }
        let ends = (0..nodes).filter(|node| best[node * width + count] != u64::MAX);
        let Some(mut node) = ends.min_by_key(|node| best[node * width + count]) else {
            return Ok(None);
        };
        let value = best[node * width + count];
        let mut end = count;
        let mut stages = Vec::new();
        while node != 0 {
            stages.push((paths.rooms[node], end));
            let (before, first) = from[node * width + end];
            (node, end) = (before as usize, first as usize);
        }
        stages.reverse();
        Ok(Some(Walk { value, stages }))
    }
}
