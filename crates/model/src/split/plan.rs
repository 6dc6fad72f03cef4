//! A placement of layers and its costs. All algorithms are evaluated here.

use super::{Room, RoomKind, Rooms};
use crate::need::{Chain, Kind, Layer, Part};
use gpu_core::{Bytes, amount};

/// The objective of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Make the slowest stage as fast as possible: tokens per second over many requests.
    Throughput,
    /// Make the sum of the stages as fast as possible: the time of a single request.
    Latency,
    /// Use as few rooms as possible; among equals, optimize latency.
    FewestRooms,
}

/// Parts of a layer that are in another room than the rest of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The index of the layer in the chain.
    pub layer: usize,
    /// The parts.
    pub kinds: Vec<Kind>,
    /// Their room.
    pub room: usize,
}

/// The memory used in a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The weights.
    pub weights: Bytes,
    /// Keys and values, and state.
    pub context: Bytes,
    /// The compute buffer.
    pub buffer: Bytes,
    /// Further memory of the process.
    pub overhead: Bytes,
}

impl Use {
    /// Returns the sum.
    pub fn total(&self) -> Bytes {
        self.weights + self.context + self.buffer + self.overhead
    }
}

/// A room that is too small for a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The index of the room.
    pub room: usize,
    /// The memory that it would need.
    pub needs: Bytes,
    /// The memory that it has.
    pub has: Bytes,
}

/// A placement: the room of each layer, and the results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The room of each layer; `None` for pinned layers if no room is a CPU.
    pub rooms: Vec<Option<usize>>,
    /// Parts that are in another room than their layer.
    pub moved: Vec<Moved>,
    /// The memory used in each room.
    pub used: Vec<Use>,
    /// The time per token in each room, including transfers into it, in nanoseconds.
    pub nanos: Vec<u64>,
    /// The rooms that are too small; empty if the placement fits.
    pub lacks: Vec<Lack>,
    /// The number of layers without a room, except pinned ones.
    pub unplaced: usize,
    /// The number of rooms that hold layers, except pinned ones.
    pub count: usize,
    /// The worst kind of room in use.
    pub last_resort: RoomKind,
    /// Whether no placement is better under the requested objective.
    pub is_optimal: bool,
}

/// The cost of a placement; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// The worst kind of room in use: a GPU is better than the CPU, and the CPU better than a disk.
    pub last_resort: RoomKind,
    /// The quantity to minimize: nanoseconds or rooms.
    pub first: u64,
    /// The tie-breaker: the nanoseconds of a single request.
    pub then: u64,
}

impl Split {
    /// Returns whether every layer has a room, and no room is too small.
    pub fn fits(&self) -> bool {
        self.lacks.is_empty() && self.unplaced == 0
    }

    /// Returns the cost under an objective.
    pub fn cost(&self, objective: Objective) -> Cost {
        let sum = self.nanos.iter().fold(0_u64, |sum, nanos| sum.saturating_add(*nanos));
        let first = match objective {
            Objective::Throughput => self.nanos.iter().copied().max().unwrap_or(0),
            Objective::Latency => sum,
            // Once the CPU is needed, more GPUs are better.
            Objective::FewestRooms if self.last_resort == RoomKind::Gpu => self.count as u64,
            Objective::FewestRooms => sum,
        };
        Cost { last_resort: self.last_resort, first, then: sum }
    }

    /// Returns the runs of layers in one room, in order, as room, first layer, and end (exclusive).
    pub fn stages(&self) -> Vec<(Option<usize>, usize, usize)> {
        let mut stages: Vec<(Option<usize>, usize, usize)> = Vec::new();
        for (layer, room) in self.rooms.iter().enumerate() {
            match stages.last_mut() {
                Some((last, _, end)) if last == room => *end = layer + 1,
                _ => stages.push((*room, layer, layer + 1)),
            }
        }
        stages
    }

    /// Returns why each stage is where it is, and what is lacking, one sentence each.
    pub fn reasons(&self, chain: &Chain, rooms: &Rooms) -> Vec<String> {
        let mut reasons = Vec::new();
        for (room, first, end) in self.stages() {
            let layers = chain.layers.get(first..end).unwrap_or_default();
            for run in layers.chunk_by(|one, next| one.pinned == next.pinned) {
                reasons.push(reason(run, room.and_then(|room| rooms.rooms.get(room))));
            }
        }
        let is_next = |one: &Moved, next: &Moved| {
            (one.room, &one.kinds, one.layer + 1) == (next.room, &next.kinds, next.layer)
        };
        for run in self.moved.chunk_by(is_next) {
            let mut layers = run.iter().filter_map(|moved| chain.layers.get(moved.layer));
            let bytes = layers.clone().zip(run).map(|(of, moved)| bytes_of(of, &moved.kinds)).sum();
            let room = run.first().and_then(|moved| rooms.rooms.get(moved.room));
            let (Some(first), Some(last), Some(room)) =
                (layers.clone().next(), layers.next_back(), room)
            else {
                continue;
            };
            let names = if first.name == last.name {
                first.name.clone()
            } else {
                format!("{} to {}", first.name, last.name)
            };
            let experts = run.iter().flat_map(|moved| &moved.kinds).all(|kind| kind.is_routed());
            let part = if experts { "the experts" } else { "parts" };
            reasons.push(format!(
                "{part} of {names} ({}) on {}: the rest of these layers leaves no room for them",
                amount(bytes),
                room.name
            ));
        }
        for lack in &self.lacks {
            if let Some(room) = rooms.rooms.get(lack.room) {
                reasons.push(format!(
                    "{} is short by {}: it needs {} and has {}",
                    room.name,
                    amount(lack.needs.saturating_sub(lack.has)),
                    amount(lack.needs),
                    amount(lack.has)
                ));
            }
        }
        reasons
    }
}

fn reason(layers: &[Layer], room: Option<&Room>) -> String {
    let names = match layers {
        [one] => one.name.clone(),
        [first, .., last] => format!("{} to {}", first.name, last.name),
        [] => String::new(),
    };
    let bytes = amount(layers.iter().map(Layer::bytes).sum());
    match room {
        _ if layers.iter().all(|layer| layer.pinned) => {
            format!("{names} ({bytes}) in CPU memory: the engine keeps it there")
        }
        None => format!("{names} ({bytes}) does not fit anywhere"),
        Some(room) => match room.kind {
            RoomKind::Gpu => format!("{names} ({bytes}) on {}", room.name),
            RoomKind::Cpu | RoomKind::Disk => {
                format!("{names} ({bytes}) on {}: the GPUs have no room for more", room.name)
            }
        },
    }
}

/// Returns the bytes of some parts of a layer.
pub(crate) fn bytes_of(layer: &Layer, kinds: &[Kind]) -> Bytes {
    let some = layer.parts.iter().filter(|part: &&Part| kinds.contains(&part.kind));
    some.map(|part| part.bytes).sum()
}

/// Evaluates a placement: memory use, times, and rooms that are too small.
///
/// A room holds its layers, the largest buffer among them and the overhead of a process. llama.cpp
/// runs several GPUs as a pipeline if they hold all layers whole; each GPU then has copies of its
/// inputs. If layers are on the CPU, the first GPU computes batches for them. Input and output
/// share their matrix if they are in the same room.
pub fn measure(
    chain: &Chain,
    rooms: &Rooms,
    assigned: Vec<Option<usize>>,
    moved: Vec<Moved>,
) -> Split {
    let count = rooms.rooms.len();
    let mut used = vec![Use::default(); count];
    let mut nanos = vec![0_u64; count];
    let pipelined = is_pipeline(chain, rooms, &assigned, &moved);
    let mut before: Option<usize> = None;
    for (index, layer) in chain.layers.iter().enumerate() {
        let Some(room) = assigned.get(index).copied().flatten() else { continue };
        let (Some(usage), Some(of)) = (used.get_mut(room), rooms.rooms.get(room)) else { continue };
        usage.weights += layer.weights;
        usage.context += layer.context;
        let buffer = if layer.pinned {
            chain.pinned_buffer
        } else if pipelined {
            layer.pipelined
        } else if without_experts(layer, index, &moved) {
            layer.buffer_without_experts
        } else {
            layer.buffer
        };
        usage.buffer = usage.buffer.max(buffer);
        let mut time = if layer.pinned { 0 } else { of.layer_nanos(layer) };
        if of.kind == RoomKind::Gpu {
            usage.overhead = chain.overhead;
        }
        if let Some(from) = before.filter(|from| *from != room) {
            let bytes = chain.layers.get(index - 1).map_or(Bytes(0), |layer| layer.crossing);
            time = time.saturating_add(rooms.route(from, room).nanos(bytes.0));
        }
        if let Some(spent) = nanos.get_mut(room) {
            *spent = spent.saturating_add(time);
        }
        before = if layer.pinned { None } else { Some(room) };
    }
    let on_cpu = |room: usize| rooms.rooms.get(room).is_some_and(|of| of.kind != RoomKind::Gpu);
    let mut unpinned = chain.layers.iter().zip(&assigned).filter(|(layer, _)| !layer.pinned);
    let first_gpu = unpinned.clone().find_map(|(_, room)| room.filter(|room| !on_cpu(*room)));
    if let Some(usage) = first_gpu.and_then(|room| used.get_mut(room))
        && (unpinned.any(|(_, room)| room.is_some_and(on_cpu))
            || moved.iter().any(|part| on_cpu(part.room)))
    {
        usage.buffer += chain.offload;
    }
    if pipelined {
        add_entries(chain, &assigned, &mut used);
    }
    if let (Some(Some(first)), Some(last)) = (assigned.first(), assigned.last())
        && Some(*first) == *last
        && let Some(room) = used.get_mut(*first)
    {
        room.weights = room.weights.saturating_sub(chain.tied);
    }
    for part in &moved {
        move_part(chain, rooms, &assigned, part, (&mut used, &mut nanos));
    }
    let lacks = lacks(rooms, &used);
    let free = chain.layers.iter().zip(&assigned).filter(|(layer, _)| !layer.pinned);
    let free: Vec<Option<usize>> = free.map(|(_, room)| *room).collect();
    let unplaced = free.iter().filter(|room| room.is_none()).count();
    let mut holders: Vec<usize> = free.into_iter().flatten().collect();
    holders.extend(moved.iter().map(|part| part.room));
    holders.sort_unstable();
    holders.dedup();
    let kind = |room: &usize| rooms.rooms.get(*room).map(|room| room.kind);
    let last_resort = holders.iter().filter_map(kind).max().unwrap_or(RoomKind::Gpu);
    let count = holders.len();
    Split {
        rooms: assigned,
        moved,
        used,
        nanos,
        lacks,
        unplaced,
        count,
        last_resort,
        is_optimal: false,
    }
}

/// Returns whether all experts of a layer are in another room.
fn without_experts(layer: &Layer, index: usize, moved: &[Moved]) -> bool {
    let away = |kind| moved.iter().any(|part| part.layer == index && part.kinds.contains(&kind));
    let mut routed = layer.parts.iter().filter(|part| part.kind.is_routed()).peekable();
    routed.peek().is_some() && routed.all(|part| away(part.kind))
}

fn is_pipeline(chain: &Chain, rooms: &Rooms, assigned: &[Option<usize>], moved: &[Moved]) -> bool {
    if !chain.cpu_first || !moved.is_empty() {
        return false;
    }
    let mut first = None;
    let mut several = false;
    for (_, room) in chain.layers.iter().zip(assigned).filter(|(layer, _)| !layer.pinned) {
        let Some(room) = *room else { return false };
        if rooms.rooms.get(room).is_none_or(|room| room.kind != RoomKind::Gpu) {
            return false;
        }
        several |= *first.get_or_insert(room) != room;
    }
    several
}

/// Adds the incoming data that each device of a pipeline holds.
fn add_entries(chain: &Chain, assigned: &[Option<usize>], used: &mut [Use]) {
    let mut before = None;
    for (layer, room) in chain.layers.iter().zip(assigned).filter(|(layer, _)| !layer.pinned) {
        if *room != before
            && let Some(usage) = room.and_then(|room| used.get_mut(room))
        {
            usage.buffer += layer.entry;
        }
        before = *room;
    }
}

/// Moves a part of a layer: its bytes, its time, and the data that passes to it and back.
fn move_part(
    chain: &Chain,
    rooms: &Rooms,
    assigned: &[Option<usize>],
    part: &Moved,
    (used, nanos): (&mut [Use], &mut [u64]),
) {
    let Some(layer) = chain.layers.get(part.layer) else { return };
    let bytes = bytes_of(layer, &part.kinds);
    let of_kinds = || layer.parts.iter().filter(|of| part.kinds.contains(&of.kind));
    let reads: Bytes = of_kinds().map(|of| of.reads).sum();
    let operations = of_kinds().fold(0_u64, |sum, of| sum.saturating_add(of.operations));
    let home = assigned.get(part.layer).copied().flatten();
    if let Some(home) = home.and_then(|home| used.get_mut(home)) {
        home.weights = home.weights.saturating_sub(bytes);
    }
    let time = |room: usize| rooms.rooms.get(room).map_or(0, |of| of.nanos(reads, operations));
    if let Some(home) = home
        && let Some(spent) = nanos.get_mut(home)
    {
        *spent = spent.saturating_sub(time(home));
    }
    let gpu = rooms.rooms.get(part.room).is_some_and(|room| room.kind == RoomKind::Gpu);
    if let Some(away) = used.get_mut(part.room) {
        away.weights += bytes;
        away.overhead = if gpu { chain.overhead } else { away.overhead };
    }
    if let Some(spent) = nanos.get_mut(part.room) {
        let passing = home.map_or(0, |home| {
            let there = rooms.route(home, part.room).nanos(layer.crossing.0);
            there.saturating_add(rooms.route(part.room, home).nanos(layer.crossing.0))
        });
        *spent = spent.saturating_add(time(part.room)).saturating_add(passing);
    }
}

/// Returns the rooms that are too small for their contents.
pub(super) fn lacks(rooms: &Rooms, used: &[Use]) -> Vec<Lack> {
    let each = rooms.rooms.iter().zip(used).enumerate();
    each.filter(|(_, (room, used))| used.total() > room.capacity)
        .map(|(index, (room, used))| Lack { room: index, needs: used.total(), has: room.capacity })
        .collect()
}

/// Returns whether a room of one kind may follow another: the last resorts come before or after the
/// GPUs, depending on the engine, and each room has one run of layers.
pub(super) fn may_follow(chain: &Chain, from: RoomKind, to: RoomKind) -> bool {
    if chain.cpu_first { from >= to } else { from <= to }
}

/// Returns the room of pinned layers: the first CPU.
pub(super) fn pinned_room(rooms: &Rooms) -> Option<usize> {
    rooms.first(RoomKind::Cpu)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::need::Position;

    pub(in super::super) fn layer(at: usize) -> Layer {
        Layer {
            name: format!("layer {at}"),
            position: Position::Block(at),
            weights: Bytes(4096),
            context: Bytes(0),
            parts: Vec::new(),
            reads: Bytes(0),
            operations: 0,
            crossing: Bytes(1000),
            buffer: Bytes(0),
            pipelined: Bytes(0),
            buffer_without_experts: Bytes(0),
            entry: Bytes(0),
            joined: false,
            pinned: false,
        }
    }

    #[test]
    fn reasons_join_moved_parts_of_consecutive_layers() {
        let experts = vec![Kind::ExpertUp, Kind::ExpertDown];
        let part =
            |kind| Part { kind, bytes: Bytes(1024), elements: 0, reads: Bytes(0), operations: 0 };
        let parts = vec![part(Kind::ExpertUp), part(Kind::ExpertDown), part(Kind::ExpertGate)];
        let layers = (0..8).map(|at| Layer { parts: parts.clone(), ..layer(at) }).collect();
        let chain = Chain { layers, ..Chain::default() };
        let rooms = Rooms::new(vec![Room::gpu("CUDA0", Bytes(1)), Room::cpu(Bytes(1))]);
        let moved = |layer, kinds: &[Kind]| Moved { layer, kinds: kinds.to_vec(), room: 1 };
        let split = Split {
            rooms: vec![Some(0); 8],
            moved: vec![
                moved(2, &experts),
                moved(3, &experts),
                moved(4, &experts),
                moved(6, &experts),
                moved(7, &[Kind::ExpertUp]),
            ],
            used: Vec::new(),
            nanos: Vec::new(),
            lacks: vec![Lack { room: 0, needs: Bytes(5 << 20), has: Bytes(2 << 20) }],
            unplaced: 0,
            count: 1,
            last_resort: RoomKind::Gpu,
            is_optimal: false,
        };
        let why = "on cpu: the rest of these layers leaves no room for them";
        assert_eq!(
            split.reasons(&chain, &rooms),
            [
                "layer 0 to layer 7 (32 KiB) on CUDA0".to_owned(),
                format!("the experts of layer 2 to layer 4 (6 KiB) {why}"),
                format!("the experts of layer 6 (2 KiB) {why}"),
                format!("the experts of layer 7 (1 KiB) {why}"),
                "CUDA0 is short by 3 MiB: it needs 5 MiB and has 2 MiB".to_owned(),
            ]
        );
    }
}
