//! The rooms for layers, and how fast data passes between them.

use crate::need::Layer;
use gpu_core::{Bytes, DeviceDetails, Rates, Route};

/// The kind of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoomKind {
    /// The memory of a GPU.
    Gpu,
    /// CPU memory, where layers are computed slowly.
    Cpu,
    /// A disk, from which layers are read each time.
    Disk,
}

/// A location for layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// A name for display.
    pub name: String,
    /// Its kind.
    pub kind: RoomKind,
    /// The usable bytes.
    pub capacity: Bytes,
    /// The speed of reading weights, in bytes per second.
    pub bytes_per_second: u64,
    /// The speed of computation, in operations per second.
    pub operations_per_second: u64,
    /// The CUDA compute capability, major and minor; `None` if it is unknown, or if the room is not
    /// a GPU.
    pub compute_capability: Option<(u32, u32)>,
    /// Whether other programs of the host can take the memory, too.
    pub is_shared: bool,
}

impl Room {
    /// Returns a GPU that reads 1 TB and computes 20 trillion operations per second, roughly like
    /// an A100 without its tensor cores.
    pub fn gpu(name: impl Into<String>, capacity: Bytes) -> Room {
        let (bytes_per_second, operations_per_second) = (1_000_000_000_000, 20_000_000_000_000);
        let kind = RoomKind::Gpu;
        let name = name.into();
        let compute_capability = None;
        Room {
            name,
            kind,
            capacity,
            bytes_per_second,
            operations_per_second,
            compute_capability,
            is_shared: false,
        }
    }

    /// Sets whether other programs of the host can take the memory.
    #[must_use]
    pub fn shared(self, is_shared: bool) -> Room {
        Room { is_shared, ..self }
    }

    /// Sets the speeds to the peaks of a GPU, and its compute capability, where known.
    #[must_use]
    pub fn as_fast_as(mut self, details: &DeviceDetails) -> Room {
        self.bytes_per_second = details.peak_memory_rate().unwrap_or(self.bytes_per_second);
        self.operations_per_second =
            details.peak_operations().unwrap_or(self.operations_per_second);
        let product = details.product.as_ref();
        self.compute_capability = product.and_then(|known| known.compute_capability.ok());
        self
    }

    /// Returns a CPU that reads 50 GB and computes 1 trillion operations per second.
    pub fn cpu(capacity: Bytes) -> Room {
        let (bytes_per_second, operations_per_second) = (50_000_000_000, 1_000_000_000_000);
        Room {
            kind: RoomKind::Cpu,
            bytes_per_second,
            operations_per_second,
            ..Room::gpu("cpu", capacity)
        }
    }

    /// Returns a disk of unlimited size that reads 2 GB per second, in front of a CPU.
    pub fn disk() -> Room {
        Room {
            name: "disk".to_owned(),
            kind: RoomKind::Disk,
            capacity: Bytes(u64::MAX),
            bytes_per_second: 2_000_000_000,
            operations_per_second: 1_000_000_000_000,
            compute_capability: None,
            is_shared: false,
        }
    }

    /// Returns the time of a layer per token in nanoseconds: reading its bytes, then computing it.
    pub fn layer_nanos(&self, layer: &Layer) -> u64 {
        self.nanos(layer.reads, layer.operations)
    }

    /// Returns the time for reading some bytes and for some operations, in nanoseconds.
    pub(super) fn nanos(&self, reads: Bytes, operations: u64) -> u64 {
        let at = |per_second| Route { latency_nanos: 0, bytes_per_second: per_second };
        let read = at(self.bytes_per_second).nanos(reads.0);
        read.saturating_add(at(self.operations_per_second).nanos(operations))
    }
}

/// The rooms, and the routes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    /// The rooms, in the caller's order.
    pub rooms: Vec<Room>,
    /// The route from each room to each other room. An absent route has the default [`Rates`];
    /// between GPUs, it goes through host memory.
    pub routes: Vec<Vec<Route>>,
}

impl Rooms {
    /// Returns rooms with data passing between them through host memory.
    pub fn new(rooms: Vec<Room>) -> Rooms {
        Rooms { rooms, routes: Vec::new() }
    }

    /// Removes the rooms that do not satisfy a condition, with their routes.
    pub fn retain(&mut self, is_kept: impl Fn(&Room) -> bool) {
        let kept: Vec<bool> = self.rooms.iter().map(is_kept).collect();
        let is_kept = |at: usize| kept.get(at).copied().unwrap_or(false);
        let of_kept = |(at, value)| is_kept(at).then_some(value);
        self.rooms = std::mem::take(&mut self.rooms)
            .into_iter()
            .zip(&kept)
            .filter_map(|(room, kept)| kept.then_some(room))
            .collect();
        let routes = std::mem::take(&mut self.routes).into_iter().enumerate();
        let routes = routes.filter(|(at, _)| is_kept(*at));
        self.routes = routes
            .map(|(_, row)| row.into_iter().enumerate().filter_map(of_kept).collect())
            .collect();
    }

    /// Returns the lowest compute capability of the GPUs; `None` if none is known.
    pub fn compute_capability(&self) -> Option<(u32, u32)> {
        self.rooms.iter().filter_map(|room| room.compute_capability).min()
    }

    /// Returns the route from one room to another.
    pub fn route(&self, from: usize, to: usize) -> Route {
        let given = self.routes.get(from).and_then(|row| row.get(to));
        let is_gpu = |at: usize| self.rooms.get(at).is_some_and(|room| room.kind == RoomKind::Gpu);
        match (given, is_gpu(from), is_gpu(to)) {
            (Some(route), ..) => *route,
            _ if from == to => Route::default(),
            (None, true, true) => Rates::default().through_host(),
            (None, false, false) => Route::default(),
            _ => Rates::default().host(),
        }
    }

    /// Returns the first room of a kind.
    pub fn first(&self, kind: RoomKind) -> Option<usize> {
        self.rooms.iter().position(|room| room.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_pass_through_host_without_route() {
        let gpu = |at: usize| Room::gpu(format!("GPU {at}"), Bytes(1));
        let mut rooms = Rooms::new(vec![gpu(0), gpu(1), Room::cpu(Bytes(1)), Room::disk()]);
        let rates = Rates::default();
        assert_eq!(rooms.route(0, 1), rates.through_host());
        assert_eq!((rooms.route(0, 2), rooms.route(3, 1)), (rates.host(), rates.host()));
        assert_eq!((rooms.route(1, 1), rooms.route(2, 3)), (Route::default(), Route::default()));
        let fast = Route { latency_nanos: 1, bytes_per_second: 2 };
        rooms.routes = vec![vec![Route::default(), fast]];
        assert_eq!((rooms.route(0, 1), rooms.route(1, 0)), (fast, rates.through_host()));
        let none = Route::default();
        rooms.routes = vec![vec![none, none, none], vec![none, none, fast], vec![fast, none, none]];
        rooms.retain(|room| room.name != "GPU 0");
        assert_eq!((rooms.rooms.len(), &*rooms.rooms[0].name), (3, "GPU 1"));
        assert_eq!((rooms.route(0, 1), rooms.route(1, 0)), (fast, none));
    }
}
