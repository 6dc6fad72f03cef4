//! The devices that are visible to llama.cpp.

use super::super::{RoomKind, Rooms, Split};

/// Returns the rooms and the placement as seen by a program to which only the GPUs with layers are
/// visible. GPUs are named as llama.cpp numbers them, starting with `CUDA0`.
pub fn visible(rooms: &Rooms, split: &Split) -> (Rooms, Split) {
    let holds = |at: usize| {
        split.rooms.contains(&Some(at)) || split.moved.iter().any(|moved| moved.room == at)
    };
    let is_kept = |at: usize, kind: RoomKind| kind != RoomKind::Gpu || holds(at);
    let kept: Vec<usize> = rooms
        .rooms
        .iter()
        .enumerate()
        .filter(|(at, room)| is_kept(*at, room.kind))
        .map(|(at, _)| at)
        .collect();
    let new_index = |at: usize| kept.iter().position(|kept| *kept == at);
    let mut numbers = 0..;
    let renamed = kept.iter().filter_map(|at| rooms.rooms.get(*at)).cloned().map(|mut room| {
        if room.kind == RoomKind::Gpu {
            room.name = format!("CUDA{}", numbers.next().unwrap_or(0));
        }
        room
    });
    let mut split = split.clone();
    split.rooms.iter_mut().for_each(|room| *room = room.and_then(new_index));
    for moved in &mut split.moved {
        moved.room = new_index(moved.room).unwrap_or(moved.room);
    }
    (Rooms::new(renamed.collect()), split)
}

#[cfg(test)]
mod tests {
    use super::super::super::{Room, measure};
    use super::*;
    use crate::need::Chain;
    use gpu_core::Bytes;

    #[test]
    fn hides_gpus_without_layers() {
        let gpu = |name: &str| Room::gpu(name, Bytes(1 << 30));
        let rooms = Rooms::new(vec![gpu("GPU 0"), gpu("GPU 3"), Room::cpu(Bytes(1)), gpu("GPU 5")]);
        let mut split = measure(&Chain::default(), &rooms, Vec::new(), Vec::new());
        split.rooms = vec![Some(2), Some(3), Some(1), None];
        let (seen, split) = visible(&rooms, &split);
        let names: Vec<&str> = seen.rooms.iter().map(|room| &*room.name).collect();
        assert_eq!(names, ["CUDA0", "cpu", "CUDA1"]);
        assert_eq!(split.rooms, [Some(1), Some(2), Some(0), None]);
    }
}
