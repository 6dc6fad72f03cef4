//! A placement as arguments of llama.cpp.

use super::super::plan::Moved;
use super::super::{RoomKind, Rooms, Split};
use super::gpus;
use crate::need::{Chain, Kind};

/// The reason why llama.cpp cannot express a placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inexpressible {
    /// A layer on the CPU or on disk follows one on a GPU.
    #[error("place '{0}' on the CPU: llama.cpp puts only the first layers there")]
    Order(String),
    /// The layers of a device are not consecutive.
    #[error("place '{0}' on '{1}': llama.cpp requires the layers of a device to be consecutive")]
    Scattered(String, String),
}

/// The start of the pattern for a block.
const BLOCK: &str = "blk\\.";

/// The arguments that reproduce a placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// `-ngl`: the number of blocks on GPUs, where the output counts as one.
    pub layers: usize,
    /// `--device`: the GPUs in the order of their layers; empty if that is the default order.
    pub devices: Vec<String>,
    /// `--tensor-split`: the number of layers on each GPU; empty for a single GPU.
    pub tensor_split: Vec<usize>,
    /// `-ot`: tensor patterns, and the rooms that hold the tensors.
    pub overrides: Vec<(String, String)>,
}

impl Arguments {
    /// Returns the arguments of a command line. Overrides of the same tensors in several blocks are
    /// combined.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["-ngl".to_owned(), self.layers.to_string()];
        if !self.devices.is_empty() {
            words.extend(["--device".to_owned(), self.devices.join(",")]);
        }
        if !self.tensor_split.is_empty() {
            let shares: Vec<String> = self.tensor_split.iter().map(usize::to_string).collect();
            words.extend(["--tensor-split".to_owned(), shares.join(",")]);
        }
        let mut merged: Vec<(&str, Vec<&str>, &str)> = Vec::new();
        for (pattern, room) in &self.overrides {
            let (block, tensors) = pattern
                .strip_prefix(BLOCK)
                .and_then(|rest| rest.split_once("\\."))
                .unwrap_or(("", pattern));
            match merged.last_mut() {
                Some((last, blocks, to)) if (*last, *to) == (tensors, room) => blocks.push(block),
                _ => merged.push((tensors, vec![block], room)),
            }
        }
        for (tensors, blocks, room) in merged {
            let blocks = match blocks[..] {
                [one] => one.to_owned(),
                _ => format!("({})", blocks.join("|")),
            };
            words.extend(["-ot".to_owned(), format!("{BLOCK}{blocks}\\.{tensors}={room}")]);
        }
        words
    }
}

/// Returns the arguments that make llama.cpp place layers according to a split.
///
/// # Errors
/// [`Inexpressible`] if layers on the CPU follow layers on a GPU, or layers of a GPU are not
/// consecutive.
pub fn arguments(chain: &Chain, rooms: &Rooms, split: &Split) -> Result<Arguments, Inexpressible> {
    let mut order: Vec<usize> = Vec::new();
    let mut counts: Vec<usize> = Vec::new();
    for (layer, room) in chain.layers.iter().zip(&split.rooms).filter(|(layer, _)| !layer.pinned) {
        let gpu = room
            .filter(|room| rooms.rooms.get(*room).is_some_and(|room| room.kind == RoomKind::Gpu));
        match gpu {
            None if order.is_empty() => {}
            None => return Err(Inexpressible::Order(layer.name.clone())),
            Some(room) if order.last() == Some(&room) => {
                if let Some(count) = counts.last_mut() {
                    *count += 1;
                }
            }
            Some(room) if order.contains(&room) => {
                let name = rooms.rooms.get(room).map_or(String::new(), |room| room.name.clone());
                return Err(Inexpressible::Scattered(layer.name.clone(), name));
            }
            Some(room) => {
                order.push(room);
                counts.push(1);
            }
        }
    }
    let name = |room: &usize| rooms.rooms.get(*room).map_or(String::new(), |r| r.name.clone());
    let all = gpus(rooms);
    let devices = if order == all { Vec::new() } else { order.iter().map(name).collect() };
    let layers = counts.iter().sum();
    let tensor_split = if counts.len() > 1 { counts } else { Vec::new() };
    let overrides = split.moved.iter().filter_map(|moved| {
        let room = rooms.rooms.get(moved.room)?;
        let room = if room.kind == RoomKind::Gpu { room.name.clone() } else { "CPU".to_owned() };
        Some((pattern(moved), room))
    });
    Ok(Arguments { layers, devices, tensor_split, overrides: overrides.collect() })
}

/// Returns the pattern that matches the moved tensors of a layer by their GGUF names.
fn pattern(moved: &Moved) -> String {
    let has = |kinds: [Kind; 3]| moved.kinds.iter().any(|kind| kinds.contains(kind));
    let mut names = Vec::new();
    if has([Kind::Up, Kind::SharedUp, Kind::ExpertUp]) {
        names.push("up");
    }
    if has([Kind::Gate, Kind::SharedGate, Kind::ExpertGate]) {
        names.extend(["gate", "gate_up"]);
    }
    if has([Kind::Down, Kind::SharedDown, Kind::ExpertDown]) {
        names.push("down");
    }
    let which = if moved.kinds.iter().all(|kind| kind.is_routed()) { "_(ch|)exps" } else { ".*" };
    // The chain begins with the input.
    let block = moved.layer.saturating_sub(1);
    format!("{BLOCK}{block}\\.ffn_({}){which}", names.join("|"))
}
