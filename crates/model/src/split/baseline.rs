//! Simple placements for comparison: the first room that fits, and balanced use.

use super::plan::pinned_room;
use super::{RoomKind, Rooms, Split, measure};
use crate::need::{Chain, Layer};
use gpu_core::Bytes;

/// Returns the placement that assigns each layer to the same room as the previous one as long as it
/// fits, then to the next room: the GPUs in order, then the CPU, then the disk.
///
/// If the engine computes the first layers on the CPU, layers and GPUs are processed from last to
/// first. Layers that fit nowhere are assigned to the last room, so that the result shows what is
/// lacking.
pub fn first_fit(chain: &Chain, rooms: &Rooms) -> Split {
    pack(chain, rooms, Bytes(u64::MAX))
}

/// Returns the placement in which the fullest GPU is as empty as possible, with rooms in order; the
/// same as [`first_fit`] if the GPUs cannot hold all layers.
pub fn balanced(chain: &Chain, rooms: &Rooms) -> Split {
    let fits = |limit: u64| {
        let split = pack(chain, rooms, Bytes(limit));
        let each = split.used.iter().zip(&rooms.rooms);
        let mut gpus = each.filter(|(_, room)| room.kind == RoomKind::Gpu);
        let fits = split.fits() && split.last_resort == RoomKind::Gpu;
        (fits && gpus.all(|(used, _)| used.total().0 <= limit)).then_some(split)
    };
    let Some(mut best) = fits(u64::MAX) else { return first_fit(chain, rooms) };
    let most = best.used.iter().zip(&rooms.rooms).filter(|(_, room)| room.kind == RoomKind::Gpu);
    let mut high = most.map(|(used, _)| used.total().0).max().unwrap_or(0);
    let mut low = 0;
    while low < high {
        let middle = low + (high - low) / 2;
        match fits(middle) {
            Some(split) => {
                best = split;
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    best
}

/// Fills rooms one after another, GPUs only up to a limit.
fn pack(chain: &Chain, rooms: &Rooms, limit: Bytes) -> Split {
    let mut order: Vec<usize> = (0..rooms.rooms.len()).collect();
    let kind = |room: &usize| rooms.rooms.get(*room).map(|room| room.kind);
    if chain.cpu_first {
        order.reverse();
    }
    order.sort_by_key(kind);
    let mut assigned = vec![None; chain.layers.len()];
    for (_, slot) in chain.layers.iter().zip(&mut assigned).filter(|(layer, _)| layer.pinned) {
        *slot = pinned_room(rooms);
    }
    let mut packing = Packing { chain, rooms, limit, next: 0, held: Vec::new() };
    let free = chain.layers.iter().enumerate().filter(|(_, layer)| !layer.pinned);
    let mut free: Vec<usize> = free.map(|(index, _)| index).collect();
    if chain.cpu_first {
        free.reverse();
    }
    for group in groups(chain, &free) {
        let room = packing.room_of(&order, &group);
        for layer in group {
            if let Some(slot) = assigned.get_mut(layer) {
                *slot = room;
            }
        }
    }
    measure(chain, rooms, assigned, Vec::new())
}

/// Groups layers that must stay together.
fn groups(chain: &Chain, layers: &[usize]) -> Vec<Vec<usize>> {
    let joined = |layer: usize| chain.layers.get(layer).is_some_and(|layer| layer.joined);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for layer in layers {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| joined(*last.max(layer))) => {
                group.push(*layer);
            }
            _ => groups.push(vec![*layer]),
        }
    }
    groups
}

struct Packing<'a> {
    chain: &'a Chain,
    rooms: &'a Rooms,
    limit: Bytes,
    /// The next index in the order of rooms.
    next: usize,
    /// The layers in that room.
    held: Vec<usize>,
}

impl Packing<'_> {
    fn room_of(&mut self, order: &[usize], group: &[usize]) -> Option<usize> {
        while self.next < order.len() {
            let room = order.get(self.next).copied()?;
            let mut held = self.held.clone();
            held.extend(group);
            let last = self.next + 1 == order.len();
            if last || self.fits(room, &held) {
                self.held = held;
                return Some(room);
            }
            self.next += 1;
            self.held.clear();
        }
        None
    }

    fn fits(&self, room: usize, held: &[usize]) -> bool {
        let Some(of) = self.rooms.rooms.get(room) else { return false };
        let gpu = of.kind == RoomKind::Gpu;
        let layers = || held.iter().filter_map(|layer| self.chain.layers.get(*layer));
        // As part of a pipeline, which takes more memory than a single device.
        let pipeline = self.chain.cpu_first && gpu;
        let buffer = |layer: &Layer| if pipeline { layer.pipelined } else { layer.buffer };
        let first = held.iter().min().and_then(|layer| self.chain.layers.get(*layer));
        let entry = first.filter(|_| pipeline).map_or(Bytes(0), |layer| layer.entry);
        let pinned = if Some(room) == pinned_room(self.rooms) {
            self.chain.layers.iter().filter(|layer| layer.pinned).map(Layer::bytes).sum()
        } else {
            Bytes(0)
        };
        let bytes = layers().map(Layer::bytes).sum::<Bytes>()
            + layers().map(buffer).max().unwrap_or_default()
            + entry
            + pinned
            + if gpu { self.chain.overhead } else { Bytes(0) };
        bytes <= if gpu { of.capacity.min(self.limit) } else { of.capacity }
    }
}
