//! Tensors, and the encodings of their elements.

use gpu_core::Bytes;
use std::fmt;

/// The encoding of a tensor's elements: blocks of elements that take a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Encoding {
    name: &'static str,
    block: u64,
    block_bits: u64,
}

/// The encodings of safetensors and of ggml, with the elements and bits in a block, and the
/// integers that quantized checkpoints pack into words.
///
/// Sources: `safetensors/src/tensor.rs` and the structs of `ggml-common.h`.
const ENCODINGS: &[Encoding] = &[
    plain("F64", 64),
    plain("F32", 32),
    plain("F16", 16),
    plain("BF16", 16),
    plain("F8_E4M3", 8),
    plain("F8_E5M2", 8),
    plain("F8_E8M0", 8),
    plain("F8_E4M3FNUZ", 8),
    plain("F8_E5M2FNUZ", 8),
    plain("F6_E2M3", 6),
    plain("F6_E3M2", 6),
    plain("F4", 4),
    plain("I4", 4),
    plain("I3", 3),
    plain("I2", 2),
    plain("C64", 64),
    plain("I64", 64),
    plain("I32", 32),
    plain("I16", 16),
    plain("I8", 8),
    plain("U64", 64),
    plain("U32", 32),
    plain("U16", 16),
    plain("U8", 8),
    plain("BOOL", 8),
    blocks("Q4_0", 32, 18),
    blocks("Q4_1", 32, 20),
    blocks("Q5_0", 32, 22),
    blocks("Q5_1", 32, 24),
    blocks("Q8_0", 32, 34),
    blocks("Q8_1", 32, 36),
    blocks("IQ4_NL", 32, 18),
    blocks("MXFP4", 32, 17),
    blocks("NVFP4", 64, 36),
    blocks("Q1_0", 128, 18),
    blocks("Q2_0", 64, 18),
    blocks("Q2_K", 256, 84),
    blocks("Q3_K", 256, 110),
    blocks("Q4_K", 256, 144),
    blocks("Q5_K", 256, 176),
    blocks("Q6_K", 256, 210),
    blocks("Q8_K", 256, 292),
    blocks("IQ2_XXS", 256, 66),
    blocks("IQ2_XS", 256, 74),
    blocks("IQ3_XXS", 256, 98),
    blocks("IQ1_S", 256, 50),
    blocks("IQ3_S", 256, 110),
    blocks("IQ2_S", 256, 82),
    blocks("IQ4_XS", 256, 136),
    blocks("IQ1_M", 256, 56),
    blocks("TQ1_0", 256, 54),
    blocks("TQ2_0", 256, 66),
];

/// The numbers of ggml's types.
const GGML: &[(u32, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (30, "BF16"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
];

const fn plain(name: &'static str, bits: u64) -> Encoding {
    Encoding { name, block: 1, block_bits: bits }
}

const fn blocks(name: &'static str, block: u64, bytes: u64) -> Encoding {
    Encoding { name, block, block_bits: bytes * 8 }
}

impl Encoding {
    /// IEEE half precision, the default for caches and activations.
    pub const F16: Encoding = plain("F16", 16);

    /// IEEE single precision, which norms and routers keep.
    pub const F32: Encoding = plain("F32", 32);

    /// Returns the encoding with a name such as `BF16` or `q4_K`, in any case.
    pub fn named(name: &str) -> Option<Encoding> {
        ENCODINGS.iter().copied().find(|known| known.name.eq_ignore_ascii_case(name))
    }

    /// Returns the encoding of a ggml type by number; `None` for a number that ggml never had or no
    /// longer has (4, 5, 31–33, 36–38).
    ///
    /// Source: `enum ggml_type` of `ggml.h`.
    pub fn of_ggml(number: u32) -> Option<Encoding> {
        let (_, name) = GGML.iter().find(|(known, _)| *known == number)?;
        Encoding::named(name)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns the number of elements in a block. The first dimension of a ggml tensor is a
    /// multiple of it.
    pub fn block(self) -> u64 {
        self.block
    }

    /// Returns the bytes of this many elements; `None` if they do not fill whole blocks and bytes,
    /// or are too many to count.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block) {
            return None;
        }
        let bits = (elements / self.block).checked_mul(self.block_bits)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Returns the bits in a block.
    pub fn block_bits(self) -> u64 {
        self.block_bits
    }

    /// Returns the average bits per element.
    pub fn bits_per_element(self) -> f64 {
        self.block_bits as f64 / self.block as f64
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A tensor of a model, as described by a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// The encoding of the elements.
    pub encoding: Encoding,
    /// The dimensions, slowest first: rows, then columns.
    pub shape: Vec<u64>,
    /// The bytes of its data.
    pub bytes: Bytes,
}

impl Tensor {
    /// Returns the number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product, dimension| product.saturating_mul(*dimension))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_ggml_numbers_to_encodings() {
        for (number, name) in GGML {
            assert_eq!(Encoding::of_ggml(*number).map(Encoding::name), Some(*name));
        }
        for gone in [4, 5, 31, 32, 33, 36, 37, 38, 43, u32::MAX] {
            assert_eq!(Encoding::of_ggml(gone), None);
        }
    }

    #[test]
    fn bytes_are_whole_blocks() {
        let named = |name| Encoding::named(name).unwrap();
        assert_eq!(named("q4_K").bytes(512), Some(288));
        assert_eq!(named("Q4_K").bytes(100), None);
        assert_eq!(named("F4").bytes(3), None);
        assert_eq!(named("F4").bytes(4), Some(2));
        assert_eq!(named("F32").bytes(u64::MAX), None);
        assert_eq!(named("Q8_0").bits_per_element(), 8.5);
        assert_eq!(Encoding::named("Q4_2"), None);
    }
}
