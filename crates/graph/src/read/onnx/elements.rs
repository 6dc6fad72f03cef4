//! ONNX's element types.

use crate::dtype::{Dtype, ValueType};

/// An element type by its number in `TensorProto.DataType`; 0 if it is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Element(pub(super) i64);

/// For each number, its number in TensorFlow's `types.proto` (0 if there is none) and its size in
/// bits (0 if it has none).
const ELEMENTS: [(u32, u64); 29] = [
    (0, 0),
    (1, 32),
    (4, 8),
    (6, 8),
    (17, 16),
    (5, 16),
    (3, 32),
    (9, 64),
    (7, 0),
    (10, 8),
    (19, 16),
    (2, 64),
    (22, 32),
    (23, 64),
    (8, 64),
    (18, 128),
    (14, 16),
    (25, 8),
    (26, 8),
    (24, 8),
    (28, 8),
    (30, 4),
    (29, 4),
    (33, 4),
    (0, 8),
    (32, 2),
    (31, 2),
    (0, 6),
    (0, 6),
];

impl Element {
    /// A sequence, a map or an optional value.
    pub(super) const CONTAINER: Element = Element(-1);

    /// Returns the element type, if graphs support it.
    pub(super) fn dtype(self) -> Option<Dtype> {
        if self == Element::CONTAINER {
            return Some(Dtype::VARIANT);
        }
        ValueType::numbered(self.entry()?.0).map(|of| of.dtype)
    }

    /// Returns the size of a tensor in bytes; `None` if its elements have no fixed size or it would
    /// exceed 64 bits.
    pub(super) fn bytes(self, dims: &[i64]) -> Option<u64> {
        let bits = self.entry()?.1;
        let each = |count: u64, size: &i64| count.checked_mul(u64::try_from(*size).ok()?);
        let count = dims.iter().try_fold(1u64, each)?;
        let bits = count.checked_mul(bits).filter(|_| bits > 0)?;
        Some(bits.div_ceil(8))
    }

    fn entry(self) -> Option<&'static (u32, u64)> {
        ELEMENTS.get(usize::try_from(self.0).ok()?)
    }
}

/// Returns the type that an operation prescribes for an output, regardless of its inputs.
pub(super) fn prescribed(op: &str, output: usize) -> Option<Dtype> {
    let bool = Dtype::named("bool");
    match (op, output) {
        ("Shape" | "Size" | "NonZero" | "ArgMax" | "ArgMin", 0) => Some(Dtype::INT64),
        ("TopK" | "MaxPool", 1) | ("Unique", 1..) => Some(Dtype::INT64),
        ("Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual", 0) => bool,
        ("And" | "Or" | "Xor" | "Not" | "IsNaN" | "IsInf", 0) | ("Dropout", 1) => bool,
        ("RandomNormal" | "RandomUniform" | "ConstantOfShape", 0) => Some(Dtype::FLOAT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_those_of_the_element_types() {
        for (number, (_, bits)) in ELEMENTS.iter().enumerate() {
            let element = Element(number as i64);
            if let Some(dtype) = element.dtype() {
                assert_eq!(u64::from(dtype.bits().unwrap_or(0)), *bits, "{number}");
            }
        }
        assert_eq!(Element(16).dtype(), Dtype::named("bfloat16"));
        assert_eq!(Element(6).dtype(), Some(Dtype::INT32));
    }

    #[test]
    fn size_beyond_64_bits_is_none() {
        assert_eq!(Element(1).bytes(&[3, 5]), Some(60));
        assert_eq!(Element(22).bytes(&[3]), Some(2));
        assert_eq!(Element(1).bytes(&[i64::MAX, 3]), None);
        assert_eq!(Element(8).bytes(&[3]), None);
        assert_eq!(Element(29).bytes(&[3]), None);
        assert_eq!(Element(-5).bytes(&[3]), None);
    }
}
