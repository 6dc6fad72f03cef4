//! The bytes of a matrix with weights that are quantized in groups.

use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;

/// Which weights of a matrix share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// All weights.
    Matrix,
    /// The weights of a row (an output channel).
    Row,
    /// This many consecutive weights in a row.
    Columns(u64),
    /// A tile of rows and columns.
    Tile(u64, u64),
    /// This many consecutive weights in the flattened matrix.
    Run(u64),
}

/// How a quantized matrix is stored: the bits of the weights, the bits shared by a group, and
/// additional bits per row, per column and for the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The encoding that represents the weights.
    pub encoding: Encoding,
    /// The bits that [`Packing::per`] weights take.
    pub bits: u64,
    /// The number of weights in these bits: 1, or the number of elements in a vector.
    pub per: u64,
    /// The word size in bits: each row takes whole words.
    pub word: u64,
    /// Which weights share scales.
    pub group: Group,
    /// The bits of the scales and zero points of a group.
    pub group_bits: u64,
    /// The bits shared by 256 groups, if scales are themselves quantized.
    pub nested_bits: u64,
    /// The bits per column, for example for its position in a permutation.
    pub column_bits: u64,
    /// The bits per row.
    pub row_bits: u64,
    /// The bits per matrix: global scales, tables and codebooks.
    pub matrix_bits: u64,
}

impl Packing {
    /// Returns a packing of integers, with scales (and zero points) of this many bits per group.
    pub fn integers(bits: u64, group: Group, group_bits: u64) -> Packing {
        let name = match bits {
            ..=2 => "I2",
            3 => "I3",
            4 => "I4",
            _ => "I8",
        };
        Packing::new(name, bits, group, group_bits)
    }

    /// Returns a packing of floats, with scales of this many bits per group.
    pub fn floats(bits: u64, group: Group, group_bits: u64) -> Packing {
        let name = match bits {
            ..=4 => "F4",
            5..=6 => "F6_E2M3",
            _ => "F8_E4M3",
        };
        Packing::new(name, bits, group, group_bits)
    }

    /// Returns a packing for 16-bit floats that are stored sparsely.
    pub fn halves() -> Packing {
        Packing::new("BF16", 16, Group::Matrix, 0)
    }

    fn new(name: &str, bits: u64, group: Group, group_bits: u64) -> Packing {
        Packing {
            encoding: Encoding::named(name).unwrap_or(Encoding::F16),
            bits,
            per: 1,
            word: 8,
            group,
            group_bits,
            nested_bits: 0,
            column_bits: 0,
            row_bits: 0,
            matrix_bits: 0,
        }
    }

    /// 4-bit floats in blocks of 32 with an 8-bit scale (OCP Microscaling).
    pub fn mxfp4() -> Packing {
        Packing::floats(4, Group::Columns(32), 8)
    }

    /// 8-bit floats in blocks of 32 with an 8-bit scale.
    pub fn mxfp8() -> Packing {
        Packing::floats(8, Group::Columns(32), 8)
    }

    /// 4-bit floats in blocks of 16 with an 8-bit scale, and 32-bit scales for the matrix and for
    /// its input.
    pub fn nvfp4() -> Packing {
        Packing { matrix_bits: 64, ..Packing::floats(4, Group::Columns(16), 8) }
    }

    /// GPTQ: 32-bit words, a 16-bit scale and a zero point per group, and the group number of each
    /// column. A group of 0 means a whole row.
    pub fn gptq(bits: u64, group: u64) -> Packing {
        Packing { column_bits: 32, ..Packing::awq(bits, group) }
    }

    /// AWQ: like GPTQ without the permutation.
    pub fn awq(bits: u64, group: u64) -> Packing {
        Packing { word: 32, ..Packing::integers(bits, columns(group), 16 + bits) }
    }

    /// bitsandbytes with 4 bits: for every 64 weights, a scale in 32 bits, or in 8 bits plus 32
    /// bits for every 256 scales; a table of 16 values, a table of 256 values for quantized scales,
    /// and about 90 bytes that describe the matrix.
    pub fn bnb4(double: bool) -> Packing {
        let base = Packing::floats(4, Group::Run(64), if double { 8 } else { 32 });
        let tables = if double { 16 + 256 + 1 } else { 16 };
        let nested_bits = if double { 32 } else { 0 };
        Packing { nested_bits, matrix_bits: 32 * tables + 8 * 90, ..base }
    }

    /// bitsandbytes with 8 bits: a 32-bit scale per row.
    pub fn bnb8() -> Packing {
        Packing::integers(8, Group::Row, 32)
    }

    /// Returns the bytes of a stack of matrices.
    pub fn bytes(&self, count: u64, rows: u64, columns: u64) -> u64 {
        let wide = u128::from;
        let (rows, columns) = (wide(rows), wide(columns));
        let row = (columns * wide(self.bits)).div_ceil(wide(self.per.max(1)));
        let row = row.div_ceil(wide(self.word.max(1))) * wide(self.word.max(1));
        let parts = |all: u128, size: u64| all.div_ceil(wide(size.max(1)));
        let groups = match self.group {
            Group::Matrix => 1,
            Group::Row => rows,
            Group::Columns(size) => rows * parts(columns, size),
            Group::Tile(down, across) => parts(rows, down) * parts(columns, across),
            Group::Run(size) => parts(rows.saturating_mul(columns), size),
        };
        let terms = [
            rows.saturating_mul(row),
            groups.saturating_mul(wide(self.group_bits)),
            groups.div_ceil(256).saturating_mul(wide(self.nested_bits)),
            columns.saturating_mul(wide(self.column_bits)),
            rows.saturating_mul(wide(self.row_bits)),
            wide(self.matrix_bits),
        ];
        let bits = terms.into_iter().fold(0u128, u128::saturating_add);
        let bytes = bits.div_ceil(8).saturating_mul(wide(count));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns the bytes of a tensor: its last two dimensions form a matrix, and the dimensions
    /// before them a stack of matrices.
    pub fn bytes_of(&self, tensor: &Tensor) -> Bytes {
        let [before @ .., rows, columns] = tensor.shape.as_slice() else { return tensor.bytes };
        let count = before.iter().fold(1, |product: u64, n| product.saturating_mul(*n));
        Bytes(self.bytes(count, *rows, *columns))
    }

    /// Returns the average bits per weight in a large matrix, without the additional bits per row,
    /// per column and for the matrix.
    pub fn bits_per_weight(&self) -> f64 {
        let shared = match self.group {
            Group::Matrix | Group::Row => 0.0,
            Group::Columns(size) | Group::Run(size) => self.group_bits as f64 / size.max(1) as f64,
            Group::Tile(down, across) => {
                self.group_bits as f64 / (down.max(1) as f64 * across.max(1) as f64)
            }
        };
        self.bits as f64 / self.per.max(1) as f64 + shared
    }
}

/// Returns groups of this many columns; 0 means a whole row.
pub(crate) fn columns(group: u64) -> Group {
    if group == 0 { Group::Row } else { Group::Columns(group) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums over the tensors of files.
    #[test]
    fn packed_sizes_match_published_files() {
        let (rows, columns) = (1024, 4096);
        let n = rows * columns;
        for (name, packing, bytes) in [
            ("fp8 with blocks", Packing::floats(8, Group::Tile(128, 128), 32), n + 8 * 32 * 4),
            ("fp8, one scale", Packing::floats(8, Group::Matrix, 32), n + 4),
            ("mxfp4", Packing::mxfp4(), n / 2 + n / 32),
            ("nvfp4", Packing::nvfp4(), n / 2 + n / 16 + 8),
            ("gptq", Packing::gptq(4, 128), n / 2 + n / 128 * 2 + n / 256 + columns * 4),
            ("gptq, 3 bits", Packing::gptq(3, 128), n / 8 * 3 + n / 128 * 19 / 8 + columns * 4),
            ("gptq, whole rows", Packing::gptq(4, 0), n / 2 + rows * 2 + rows / 2 + columns * 4),
            ("awq", Packing::awq(4, 128), n / 2 + n / 128 * 2 + n / 256),
            ("bnb4", Packing::bnb4(false), n / 2 + n / 64 * 4 + 64 + 90),
            (
                "bnb4, double",
                Packing::bnb4(true),
                n / 2 + n / 64 + n / 64 / 256 * 4 + 64 + 1024 + 4 + 90,
            ),
            ("bnb8", Packing::bnb8(), n + rows * 4),
        ] {
            assert_eq!(packing.bytes(1, rows, columns), bytes, "{name}");
            assert_eq!(packing.bytes(3, rows, columns), 3 * bytes, "{name}");
        }
        // Rows fill whole words, and tiles at the edge have a scale of their own.
        assert_eq!(Packing::gptq(4, 32).bytes(1, 1, 9), 8 + 3 + 36);
        assert_eq!(Packing::floats(8, Group::Tile(128, 128), 32).bytes(1, 129, 1), 129 + 8);
        assert_eq!(Packing::bnb8().bytes(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(Packing::mxfp4().bits_per_weight(), 4.25);
        assert_eq!(Packing::nvfp4().bits_per_weight(), 4.5);
    }
}
