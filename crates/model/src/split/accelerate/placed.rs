//! The device map for a placement by another algorithm.

use super::super::{RoomKind, Rooms, Split};
use super::module::Tree;
use super::{Device, DeviceMap, Module};
use crate::model::Model;
use crate::need::{TensorLayer, tensor_layer};

/// Returns the map of a placement, for `device_map=` of transformers. The index of a GPU is its
/// position among the GPUs of the rooms, as numbered by a program that sees only these GPUs
/// ([`visible`](super::super::llama::visible) removes unused ones). If only the configuration of a
/// model is known, it has no names, and its map is empty.
pub fn device_map(model: &Model, rooms: &Rooms, split: &Split) -> DeviceMap {
    let mut gpus = 0..;
    let devices: Vec<Device> = rooms
        .rooms
        .iter()
        .map(|room| match room.kind {
            RoomKind::Gpu => Device::Gpu(gpus.next().unwrap_or_default()),
            RoomKind::Cpu => Device::Cpu,
            RoomKind::Disk => Device::Disk,
        })
        .collect();
    let last = split.rooms.len().saturating_sub(1);
    let mut map = DeviceMap::default();
    for tensor in &model.tensors {
        let layer = match tensor_layer(&tensor.name) {
            TensorLayer::Input => 0,
            // Blocks beyond those of the architecture predict further tokens, like the output.
            TensorLayer::Block(number) => usize::try_from(number)
                .map_or(last, |block| block.checked_add(1).map_or(last, |layer| layer.min(last))),
            TensorLayer::Output => last,
        };
        let room = split.rooms.get(layer).copied().flatten();
        let device = room.and_then(|room| devices.get(room)).copied().unwrap_or(Device::Cpu);
        let module = tensor.name.rsplit_once('.').map_or(&*tensor.name, |(module, _)| module);
        map.devices.insert(module.to_owned(), device);
    }
    map.merged(&Tree::new(&Module::of(&model.tensors), &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::{Room, Use};
    use crate::tensor::{Encoding, Tensor};
    use gpu_core::Bytes;

    #[test]
    fn modules_on_one_device_are_one_entry() {
        let names = [
            "model.embed_tokens.weight",
            "model.layers.0.mlp.up_proj.weight",
            "model.layers.0.input_layernorm.weight",
            "model.layers.1.mlp.up_proj.weight",
            "model.layers.1.input_layernorm.weight",
            "model.norm.weight",
            "lm_head.weight",
        ];
        let tensor = |name: &str| Tensor {
            name: name.to_owned(),
            encoding: Encoding::F16,
            shape: vec![1],
            bytes: Bytes(2),
        };
        let model = Model { tensors: names.map(tensor).into(), ..Model::default() };
        let gpu = |name: &str| Room::gpu(name, Bytes(100));
        let rooms = Rooms::new(vec![Room::cpu(Bytes(100)), gpu("a"), gpu("b")]);
        let split = Split {
            rooms: [1, 1, 2, 2].map(Some).into(),
            moved: Vec::new(),
            used: vec![Use::default(); 3],
            nanos: vec![0; 3],
            lacks: Vec::new(),
            unplaced: 0,
            count: 2,
            last_resort: RoomKind::Gpu,
            is_optimal: true,
        };
        let expected = serde_json::json!({
            "model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": 1,
            "model.norm": 1, "lm_head": 1,
        });
        assert_eq!(device_map(&model, &rooms, &split).json(), expected);
        let tensors = ["model.layers.2.a", "model.layers.18446744073709551615.b"].map(tensor);
        let beyond = Model { tensors: tensors.into(), ..Model::default() };
        assert_eq!(
            device_map(&beyond, &rooms, &split).json(),
            serde_json::json!({ "model.layers": 1 })
        );
        let whole = Split { rooms: [2; 4].map(Some).into(), ..split };
        assert_eq!(device_map(&model, &rooms, &whole).json(), serde_json::json!({ "": 1 }));
    }
}
