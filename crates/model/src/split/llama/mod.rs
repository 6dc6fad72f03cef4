//! llama.cpp's placement of layers, and the arguments that reproduce a placement.

mod arguments;
mod fit;
mod visible;

pub use arguments::{Arguments, Inexpressible, arguments};
pub use fit::{Fit, FitError, FitOptions, fit, with_experts_on_cpu};
pub use visible::visible;

use super::plan::pinned_room;
use super::{RoomKind, Rooms, Split, measure};
use crate::need::{Chain, Position};

/// Returns the placement of llama.cpp without `--fit` (`llama-model.cpp`). The last `ngl` of the
/// blocks and the output (all by default) go to the GPUs in order, in proportion to `shares`
/// (`--tensor-split`; by default, the memory of each). The rest go to the CPU.
pub fn placed(chain: &Chain, rooms: &Rooms, ngl: Option<usize>, shares: &[f32]) -> Split {
    let gpus: Vec<usize> = gpus(rooms);
    let capacity = |room: &usize| rooms.rooms.get(*room).map_or(0.0, |r| r.capacity.0 as f32);
    let shares: Vec<f32> = if shares.iter().any(|share| *share > 0.0) {
        (0..gpus.len()).map(|index| shares.get(index).copied().unwrap_or(0.0).max(0.0)).collect()
    } else {
        gpus.iter().map(capacity).collect()
    };
    let total: f32 = shares.iter().sum();
    let mut sum = 0.0;
    let bounds: Vec<f32> = shares
        .iter()
        .map(|share| {
            sum += share;
            sum / total
        })
        .collect();
    let all = chain.blocks() + 1;
    let offloaded = ngl.unwrap_or(all).min(all);
    let first = all - offloaded;
    let room_of = |number: usize| {
        let fraction = number.checked_sub(first)? as f32 / offloaded as f32;
        let device = bounds.iter().position(|bound| *bound > fraction)?;
        gpus.get(device).copied()
    };
    let cpu = pinned_room(rooms);
    let assigned = chain.layers.iter().map(|layer| match layer.position {
        _ if layer.pinned => cpu,
        Position::Input => room_of(0).or(cpu),
        Position::Block(number) => room_of(number).or(cpu),
        Position::Output => room_of(all - 1).or(cpu),
    });
    measure(chain, rooms, assigned.collect(), Vec::new())
}

/// Returns the GPUs among rooms, in order.
fn gpus(rooms: &Rooms) -> Vec<usize> {
    let each = rooms.rooms.iter().enumerate();
    each.filter(|(_, room)| room.kind == RoomKind::Gpu).map(|(index, _)| index).collect()
}

/// Returns the parts with tensors that llama.cpp names `ffn_gate…`, `ffn_up…` and `ffn_down…`.
fn feed_forward(gate: bool, up: bool, down: bool) -> Vec<crate::need::Kind> {
    use crate::need::Kind::{
        Down, ExpertDown, ExpertGate, ExpertUp, Gate, Router, SharedDown, SharedGate, SharedUp, Up,
    };
    let mut kinds = Vec::new();
    if gate {
        kinds.extend([Router, Gate, SharedGate, ExpertGate]);
    }
    if up {
        kinds.extend([Up, SharedUp, ExpertUp]);
    }
    if down {
        kinds.extend([Down, SharedDown, ExpertDown]);
    }
    kinds
}
