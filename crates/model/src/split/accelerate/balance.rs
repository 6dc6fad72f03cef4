//! Balanced use of GPUs (`get_balanced_memory`).

use super::module::Tree;
use super::{Device, Memory, Module};
use gpu_core::Bytes;

/// Returns the memory of the devices, reduced so that the GPUs are used equally.
///
/// Each GPU except the last gets the model's size divided by the number of GPUs, plus 1.25 times
/// the larger of the largest unsplit module and the mean of the leaves. `low_zero` leaves the first
/// GPU as empty as possible. `tied` are groups of names for the same parameter.
pub fn balanced_memory(
    model: &Module,
    memory: &Memory,
    no_split: &[&str],
    tied: &[Vec<String>],
    low_zero: bool,
) -> Memory {
    let mut memory = memory.clone();
    let usable = |(device, size): (&Device, &Bytes)| {
        (matches!(device, Device::Gpu(_)) && size.0 > 0).then_some(*device)
    };
    let gpus: Vec<Device> = memory.iter().filter_map(usable).collect();
    let count = gpus.len() as u64;
    if count == 0 {
        return memory;
    }
    let low_zero = low_zero && count > 1;
    let tree = Tree::new(model, tied);
    let total = tree.nodes.first().map_or(Bytes(0), |root| root.size);
    let largest = tree.nodes.iter().filter(|node| no_split.contains(&node.class.as_str()));
    let largest = largest.map(|node| node.size.0).max().unwrap_or(0);
    let leaves = || tree.nodes.iter().filter(|node| node.children.is_empty());
    let sum: Bytes = leaves().map(|node| node.size).sum();
    let mean = sum.0 / (leaves().count() as u64).max(1);
    let buffer = largest.max(mean);
    let buffer = buffer.saturating_add(buffer / 4);
    let each = total.0 / if low_zero { count - 1 } else { count };
    let each = Bytes(each.saturating_add(buffer));
    let first = memory.get(&Device::Gpu(0)).copied().unwrap_or_default();
    for gpu in gpus.iter().rev().skip(1) {
        let limit = if low_zero && *gpu == Device::Gpu(0) { first } else { each };
        if let Some(size) = memory.get_mut(gpu) {
            *size = limit.min(*size);
        }
    }
    if low_zero {
        let others = (1..count).filter_map(|index| u32::try_from(index).ok());
        let others = others.filter_map(|index| memory.get(&Device::Gpu(index)).copied());
        let least = total.saturating_sub(others.sum());
        if let Some(size) = memory.get_mut(&Device::Gpu(0)) {
            *size = least.min(*size);
        }
    }
    memory
}
