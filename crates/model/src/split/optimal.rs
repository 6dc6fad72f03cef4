//! The best placement of consecutive layers.
//!
//! Interchangeable rooms form a class, so that sixteen equal GPUs are one class with seventeen
//! possible counts instead of 16! orders. With few classes, the search covers every order of rooms;
//! otherwise it covers the orders that usually matter, and reports this.

use super::plan::{may_follow, pinned_room};
use super::walk::{Measure, OutOfSteps, Paths, Stages, Walk};
use super::{Objective, RoomKind, Rooms, Split, balanced, first_fit, measure};
use crate::need::{Chain, Layer};
use gpu_core::Bytes;

/// The maximum number of steps of a search that covers every order of rooms, about 30 milliseconds.
const STEPS: u64 = 30_000_000;
/// The minimum number of nodes for which searching a few orders first pays off, because it bounds
/// the cost.
const FEW_NODES: usize = 24;
/// A chain longer than those of real models.
const LONG: u64 = 256;
/// The cost of a room, in nanoseconds, if the objective is the fewest rooms. It exceeds the cost of
/// all layers together.
const ROOM: u64 = 1 << 56;
/// The maximum number of pairs of node and layer in such a search; each takes 16 bytes.
const PAIRS: usize = 1 << 21;

/// Returns the placement of consecutive layers with the lowest cost, in which each room holds one
/// run of layers; if no placement fits, the one from [`first_fit`], which shows what is lacking.
///
/// The CPU is used only if the GPUs cannot hold all layers, and the disk only if GPUs and CPU
/// cannot. [`Split::is_optimal`] is false if not all orders of rooms were covered, or if the CPU is
/// used along with several GPUs and the search cannot determine which of them computes batches for
/// it. The time grows with the square of the number of layers, and with the number of orders up to
/// a bound.
pub fn optimal(chain: &Chain, rooms: &Rooms, objective: Objective) -> Split {
    let skipped = chain.layers.iter().take_while(|layer| layer.pinned).count();
    let search = Search { chain, rooms, objective, skipped };
    let mut candidates = vec![first_fit(chain, rooms), balanced(chain, rooms)];
    let mut is_optimal = true;
    for last_resort in [RoomKind::Gpu, RoomKind::Cpu, RoomKind::Disk] {
        candidates.extend(search.single(last_resort));
        is_optimal &= search.within(last_resort, &mut candidates);
        if candidates.iter().any(|split| split.fits() && split.last_resort <= last_resort) {
            break;
        }
    }
    // Among equals, prefer the results of the search, which keeps rooms in order.
    candidates.rotate_left(2);
    let fitting = candidates.iter().filter(|split| split.fits());
    let mut best = match fitting.min_by_key(|split| split.cost(objective)) {
        Some(split) => split.clone(),
        None => first_fit(chain, rooms),
    };
    // The search reserves memory on each GPU that only the first one needs.
    let is_exact = best.last_resort == RoomKind::Gpu || is_simple(chain, rooms);
    best.is_optimal = is_optimal && is_exact && best.fits();
    best
}

/// Returns whether at most one GPU can be the first, which computes batches for the CPU.
fn is_simple(chain: &Chain, rooms: &Rooms) -> bool {
    let gpus = rooms.rooms.iter().filter(|room| room.kind == RoomKind::Gpu);
    chain.offload == Bytes(0) || gpus.count() <= 1
}

/// A walk that the search found.
struct Found {
    /// The limit of its stages, in nanoseconds.
    limit: u64,
    walk: Walk,
}

struct Search<'a> {
    chain: &'a Chain,
    rooms: &'a Rooms,
    objective: Objective,
    skipped: usize,
}

impl Search<'_> {
    /// Returns the number of steps of a search. It is smaller for a chain so long that only a
    /// hostile file has it, because each step then causes more work outside the search.
    fn budget(&self) -> u64 {
        STEPS / (self.chain.layers.len() as u64 / LONG).max(1)
    }

    fn kind(&self, room: usize) -> RoomKind {
        self.rooms.rooms.get(room).map_or(RoomKind::Disk, |room| room.kind)
    }

    fn capacity(&self, room: usize) -> Bytes {
        self.rooms.rooms.get(room).map_or(Bytes(0), |room| room.capacity)
    }

    /// Returns the placements of all layers in a single room of a kind.
    fn single(&self, kind: RoomKind) -> Vec<Split> {
        let of_kind = (0..self.rooms.rooms.len()).filter(|room| self.kind(*room) == kind);
        of_kind.map(|room| self.split(&[(room, self.chain.layers.len() - self.skipped)])).collect()
    }

    /// Returns a placement, given the room and the end of each stage.
    fn split(&self, stages: &[(usize, usize)]) -> Split {
        let pinned = pinned_room(self.rooms);
        let mut assigned = vec![pinned; self.skipped];
        for (room, end) in stages {
            assigned.resize(self.skipped + end, Some(*room));
        }
        measure(self.chain, self.rooms, assigned, Vec::new())
    }

    /// Adds the best placement that uses no room worse than `last_resort`; returns whether every
    /// order of rooms was covered.
    fn within(&self, last_resort: RoomKind, candidates: &mut Vec<Split>) -> bool {
        let usable: Vec<usize> =
            (0..self.rooms.rooms.len()).filter(|room| self.kind(*room) <= last_resort).collect();
        let base = self.base();
        let stages = Stages::new(self.chain, self.skipped, self.rooms, &base, last_resort);
        let classes = self.classes(&usable);
        let all = self.all_orders(&classes, &stages, last_resort);
        let mut best: Option<Found> = None;
        if all.as_ref().is_none_or(|paths| paths.rooms.len() > FEW_NODES) {
            let mut steps = self.budget();
            for order in self.orders(&usable) {
                let paths = self.in_order(&order, last_resort);
                let found = self.best(&stages, &paths, last_resort, best.as_ref(), &mut steps);
                if let Ok(Some(found)) = found {
                    candidates.push(self.split(&found.walk.stages));
                    best = Some(found);
                }
            }
        }
        let Some(paths) = all else { return false };
        let mut steps = self.budget();
        match self.best(&stages, &paths, last_resort, best.as_ref(), &mut steps) {
            Ok(found) => {
                let split = |found: Found| self.split(&members(&classes, found.walk.stages));
                candidates.extend(found.map(split));
                true
            }
            Err(OutOfSteps) => false,
        }
    }

    /// Returns the bytes that each room holds in any placement, and its minimum buffer.
    fn base(&self) -> Vec<(Bytes, Bytes)> {
        let mut base = vec![(Bytes(0), Bytes(0)); self.rooms.rooms.len()];
        let pinned = self.chain.layers.iter().take(self.skipped);
        if self.skipped > 0
            && let Some(entry) = pinned_room(self.rooms).and_then(|room| base.get_mut(room))
        {
            *entry = (pinned.map(Layer::bytes).sum(), self.chain.pinned_buffer);
        }
        base
    }

    /// Returns the best walk that is no worse than a known one.
    fn best(
        &self,
        stages: &Stages,
        paths: &Paths,
        last_resort: RoomKind,
        known: Option<&Found>,
        steps: &mut u64,
    ) -> Result<Option<Found>, OutOfSteps> {
        let mut limit = u64::MAX;
        if self.objective == Objective::Throughput {
            let most = known.map_or(u64::MAX, |known| known.limit);
            match stages.shortest(paths, Measure::Largest, most, steps)? {
                Some(walk) => limit = walk.value,
                None => return Ok(None),
            }
        }
        let is_counted = self.objective == Objective::FewestRooms && last_resort == RoomKind::Gpu;
        let each = if is_counted { ROOM } else { 0 };
        // A smaller limit may require a larger sum.
        let known = known.filter(|known| known.limit == limit);
        let most = known.map_or(u64::MAX, |known| known.walk.value);
        let walk = stages.shortest(paths, Measure::Sum { limit, each }, most, steps)?;
        Ok(walk.map(|walk| Found { limit, walk }))
    }

    /// Groups rooms into classes: two rooms are in the same class if they are interchangeable.
    fn classes(&self, usable: &[usize]) -> Vec<Vec<usize>> {
        let mut classes: Vec<Vec<usize>> = Vec::new();
        for room in usable {
            let alike = |class: &&mut Vec<usize>| {
                class.first().is_some_and(|first| self.alike(*first, *room, usable))
            };
            match classes.iter_mut().find(alike) {
                Some(class) => class.push(*room),
                None => classes.push(vec![*room]),
            }
        }
        classes
    }

    fn alike(&self, one: usize, other: usize, usable: &[usize]) -> bool {
        let (Some(a), Some(b)) = (self.rooms.rooms.get(one), self.rooms.rooms.get(other)) else {
            return false;
        };
        let route = |from, to| self.rooms.route(from, to);
        let pinned = pinned_room(self.rooms).filter(|_| self.skipped > 0);
        (a.kind, a.capacity) == (b.kind, b.capacity)
            && (a.bytes_per_second, a.operations_per_second)
                == (b.bytes_per_second, b.operations_per_second)
            && pinned.is_none_or(|pinned| pinned != one && pinned != other)
            && route(one, other) == route(other, one)
            && usable.iter().filter(|room| **room != one && **room != other).all(|room| {
                route(one, *room) == route(other, *room) && route(*room, one) == route(*room, other)
            })
    }

    /// Returns whether a stage on a room may be the first. If the last resort comes first, it must
    /// be used; otherwise the devices would form a pipeline with different memory needs.
    fn may_start(&self, room: usize, last_resort: RoomKind) -> bool {
        !self.chain.cpu_first || last_resort == RoomKind::Gpu || self.kind(room) != RoomKind::Gpu
    }

    /// Returns the paths through all orders of rooms, if there are not too many.
    fn all_orders(
        &self,
        classes: &[Vec<usize>],
        stages: &Stages,
        last_resort: RoomKind,
    ) -> Option<Paths> {
        let mut codes = 1_usize;
        let mut radix = Vec::new();
        for class in classes {
            radix.push(codes);
            codes = codes.checked_mul(class.len() + 1)?;
        }
        let nodes = codes.checked_mul(classes.len())?;
        if nodes.checked_mul(stages.layers + 1).is_none_or(|pairs| pairs > PAIRS) {
            return None;
        }
        let firsts: Vec<usize> =
            classes.iter().filter_map(|class| class.first().copied()).collect();
        // Node 1 + code · classes + last is a room of class `last` after counts `code`.
        let counts = |code: usize, class: usize| code / radix[class] % (classes[class].len() + 1);
        let width = classes.len();
        let follow = |code: usize, last: Option<usize>| -> Vec<usize> {
            let may = |class: &usize| {
                let to = firsts[*class];
                counts(code, *class) < classes[*class].len()
                    && match last {
                        Some(last) => {
                            may_follow(self.chain, self.kind(firsts[last]), self.kind(to))
                        }
                        None => self.may_start(to, last_resort),
                    }
            };
            (0..width).filter(may).map(|to| 1 + (code + radix[to]) * width + to).collect()
        };
        let left = |code: usize| {
            let unused = |class: usize| (classes[class].len() - counts(code, class)) as u64;
            let bytes = |class: usize| self.capacity(firsts[class]).0.saturating_mul(unused(class));
            ((0..width).map(unused).sum(), (0..width).map(|class| Bytes(bytes(class))).sum())
        };
        let mut paths = Paths {
            rooms: vec![0],
            twins: vec![0],
            next: vec![follow(0, None)],
            left: vec![left(0)],
        };
        for code in 0..codes {
            for (last, first) in firsts.iter().enumerate() {
                paths.rooms.push(*first);
                paths.twins.push(classes[last].get(1).copied().unwrap_or(*first));
                paths.left.push(left(code));
                let used = counts(code, last) > 0;
                paths.next.push(if used { follow(code, Some(last)) } else { Vec::new() });
            }
        }
        Some(paths)
    }

    /// Returns the paths through rooms in an order, in which some may be skipped.
    fn in_order(&self, order: &[usize], last_resort: RoomKind) -> Paths {
        let left = |from: usize| {
            let rooms = order.get(from..).unwrap_or_default();
            (rooms.len() as u64, rooms.iter().map(|room| self.capacity(*room)).sum())
        };
        let start = (0..order.len()).filter(|index| self.may_start(order[*index], last_resort));
        let mut paths = Paths {
            rooms: vec![0],
            twins: vec![0],
            left: vec![left(0)],
            next: vec![start.map(|index| index + 1).collect()],
        };
        for (index, room) in order.iter().enumerate() {
            paths.rooms.push(*room);
            paths.twins.push(*room);
            paths.left.push(left(index + 1));
            let after = index + 1..order.len();
            paths.next.push(after.map(|index| index + 1).collect());
        }
        paths
    }

    /// Returns orders of rooms that are worth searching: as given, by speed, by capacity, and along
    /// fast routes.
    fn orders(&self, usable: &[usize]) -> Vec<Vec<usize>> {
        let room = |index: &usize| self.rooms.rooms.get(*index);
        let by = |key: &dyn Fn(&usize) -> u64| {
            let mut order = usable.to_vec();
            order.sort_by_key(|room| std::cmp::Reverse(key(room)));
            order
        };
        let mut orders = vec![
            usable.to_vec(),
            by(&|index| room(index).map_or(0, |room| room.bytes_per_second)),
            by(&|index| room(index).map_or(0, |room| room.capacity.0)),
            self.along_routes(usable),
        ];
        for order in &mut orders {
            order.sort_by_key(|room| self.kind(*room));
            if self.chain.cpu_first {
                // The last resorts come first, followed by the GPUs in order.
                order.sort_by_key(|room| std::cmp::Reverse(self.kind(*room)));
            }
        }
        orders.dedup();
        orders
    }

    /// Returns the rooms in an order in which each has the fastest route from the previous one.
    fn along_routes(&self, usable: &[usize]) -> Vec<usize> {
        let bytes = self.chain.layers.first().map_or(Bytes(0), |layer| layer.crossing);
        let mut left = usable.to_vec();
        let mut order: Vec<usize> = Vec::new();
        while !left.is_empty() {
            let nearest = match order.last() {
                Some(last) => (0..left.len())
                    .min_by_key(|index| self.rooms.route(*last, left[*index]).nanos(bytes.0)),
                None => Some(0),
            };
            order.push(left.remove(nearest.unwrap_or(0)));
        }
        order
    }
}

/// Replaces the representative room of each class by its members, one after another.
fn members(classes: &[Vec<usize>], walk: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut taken = vec![0_usize; classes.len()];
    let mut member = |(room, end): (usize, usize)| {
        let class = classes.iter().position(|class| class.first() == Some(&room));
        let of = class.and_then(|class| {
            let taken = taken.get_mut(class)?;
            *taken += 1;
            classes.get(class)?.get(*taken - 1).copied()
        });
        (of.unwrap_or(room), end)
    };
    walk.into_iter().map(&mut member).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Room;
    use super::super::plan::tests::layer;
    use super::*;
    use gpu_core::Route;

    #[test]
    fn orders_worth_searching_are_as_given_by_speed_by_capacity_and_along_fast_routes() {
        let gpu = |at: u64, speed: u64, capacity: u64| Room {
            bytes_per_second: speed,
            ..Room::gpu(format!("GPU {at}"), Bytes(capacity))
        };
        let rooms = vec![gpu(0, 10, 9), gpu(1, 30, 8), Room::cpu(Bytes(1)), gpu(3, 20, 7)];
        let rate = |pair: (usize, usize)| match (pair.0.min(pair.1), pair.0.max(pair.1)) {
            (0, 3) | (1, 3) => 100,
            _ => 1,
        };
        let route = |from, to| Route { bytes_per_second: rate((from, to)), ..Route::default() };
        let routes = (0..4).map(|from| (0..4).map(|to| route(from, to)).collect()).collect();
        let rooms = Rooms { rooms, routes };
        let orders = |cpu_first: bool, usable: &[usize]| {
            let chain = Chain { layers: vec![layer(0)], cpu_first, ..Chain::default() };
            let objective = Objective::Latency;
            Search { chain: &chain, rooms: &rooms, objective, skipped: 0 }.orders(usable)
        };
        let all = [0, 1, 2, 3];
        let expected = [[0, 1, 3, 2], [1, 3, 0, 2], [0, 1, 3, 2], [0, 3, 1, 2]];
        assert_eq!(orders(false, &all), expected);
        let expected = [[2, 0, 1, 3], [2, 1, 3, 0], [2, 0, 1, 3], [2, 0, 3, 1]];
        assert_eq!(orders(true, &all), expected);
        assert_eq!(orders(false, &[3]), [[3]]);
    }
}
