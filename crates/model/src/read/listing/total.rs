//! The size that an index claims, compared with the size that follows from a configuration.

use crate::model::{Doubt, Model};
use crate::need::assumed_tensors;
use crate::read::index::Index;
use crate::tensor::Tensor;
use gpu_core::Bytes;

/// The maximum difference between the sizes, in percent.
const TOLERANCE: u128 = 2;

/// Compares the size of a model derived from a configuration with the size that the index of its
/// files claims. If they differ by more than 2 %, the index takes precedence: each tensor gets its
/// share of that total, and a doubt reports this.
pub(super) fn compare(model: &mut Model, index: &Index) {
    if model.tensors.is_empty()
        && let Some(shape) = &model.shape
    {
        model.tensors = assumed_tensors(shape);
    }
    let derived = model.bytes();
    let Some(claimed) = index.total_bytes.or_else(|| counted(&model.tensors, index)) else {
        return;
    };
    let apart = u128::from(derived.0.abs_diff(claimed)) * 100;
    if claimed == 0 || derived.0 == 0 || apart <= u128::from(claimed) * TOLERANCE {
        return;
    }
    model.doubts.push(Doubt::of_weights(format!(
        "the index lists {}, but the configuration implies {}; the index is used",
        Bytes(claimed),
        derived
    )));
    for tensor in &mut model.tensors {
        let share = u128::from(tensor.bytes.0) * u128::from(claimed) / u128::from(derived.0);
        tensor.bytes = Bytes(u64::try_from(share).unwrap_or(u64::MAX));
    }
}

/// Returns the bytes of as many parameters as the index claims, in the most common encoding.
fn counted(tensors: &[Tensor], index: &Index) -> Option<u64> {
    let largest = tensors.iter().max_by_key(|tensor| tensor.bytes)?;
    largest.encoding.bytes(index.total_parameters?)
}
