//! The bytes of a matrix with weights that are quantized in groups.

use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;

/// Which weights of a matrix share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// All of them.
    Matrix,
    /// Those of a row (an output channel).
    Row,
    /// This many neighbours in a row.
    Columns(u64),
    /// A tile of rows and columns.
    Tile(u64, u64),
    /// This many neighbours in the flattened matrix.
    Run(u64),
}

/// How a quantized matrix is stored: the bits of the weights, of what a group shares, and of what
/// rows, columns and the matrix have beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The encoding that names the weights.
    pub encoding: Encoding,
    /// The bits that [`Packing::per`] weights take.
    pub bits: u64,
    /// The weights that these bits hold: 1, or the elements of a vector.
    pub per: u64,
    /// The weights of a row fill whole words of this many bits.
    pub word: u64,
    /// Which weights share scales.
    pub group: Group,
    /// The bits of the scales and zero points of a group.
    pub group_bits: u64,
    /// The bits of what 256 groups share, if scales are quantized in turn.
    pub nested_bits: u64,
    /// The bits of a column, such as its place in a permutation.
    pub column_bits: u64,
    /// The bits of a row.
    pub row_bits: u64,
    /// The bits of the matrix: global scales, tables and codebooks.
    pub matrix_bits: u64,
}

impl Packing {
    /// Returns integers with scales (and zero points) of this many bits for each group.
    pub fn integers(bits: u64, group: Group, group_bits: u64) -> Packing {
        let name = match bits {
            ..=2 => "I2",
            3 => "I3",
            4 => "I4",
            _ => "I8",
        };
        Packing::new(name, bits, group, group_bits)
    }

    /// Returns floats with scales of this many bits for each group.
    pub fn floats(bits: u64, group: Group, group_bits: u64) -> Packing {
        let name = match bits {
            ..=4 => "F4",
            5..=6 => "F6_E2M3",
            _ => "F8_E4M3",
        };
        Packing::new(name, bits, group, group_bits)
    }

    /// Returns 16-bit floats that are stored sparsely.
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

    /// 4-bit floats in blocks of 16 with an 8-bit scale, and 32-bit scales of the matrix and of its
    /// input.
    pub fn nvfp4() -> Packing {
        Packing { matrix_bits: 64, ..Packing::floats(4, Group::Columns(16), 8) }
    }

    /// GPTQ: 32-bit words, for each group a 16-bit scale and a zero point, for each column its
    /// group. A group of 0 is a whole row.
    pub fn gptq(bits: u64, group: u64) -> Packing {
        Packing { column_bits: 32, ..Packing::awq(bits, group) }
    }

    /// AWQ: as GPTQ without the permutation.
    pub fn awq(bits: u64, group: u64) -> Packing {
        Packing { word: 32, ..Packing::integers(bits, columns(group), 16 + bits) }
    }

    /// bitsandbytes with 4 bits: a scale for 64 weights in 32 bits, or in 8 bits with 32 bits for
    /// 256 scales; a table of 16 values, one of 256 for quantized scales, and about 90 bytes that
    /// describe the matrix.
    pub fn bnb4(double: bool) -> Packing {
        let base = Packing::floats(4, Group::Run(64), if double { 8 } else { 32 });
        let tables = if double { 16 + 256 + 1 } else { 16 };
        let nested_bits = if double { 32 } else { 0 };
        Packing { nested_bits, matrix_bits: 32 * tables + 8 * 90, ..base }
    }

    /// bitsandbytes with 8 bits: a 32-bit scale for each row.
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

    /// Returns the bytes of a tensor: its last two dimensions are a matrix, those before stack it.
    pub fn bytes_of(&self, tensor: &Tensor) -> Bytes {
        let [before @ .., rows, columns] = tensor.shape.as_slice() else { return tensor.bytes };
        let count = before.iter().fold(1, |product: u64, n| product.saturating_mul(*n));
        Bytes(self.bytes(count, *rows, *columns))
    }

    /// Returns the bits that a weight of a large matrix takes on average, without what rows,
    /// columns and the matrix have beside.
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

/// Returns groups of this many columns; 0 is a whole row.
pub(crate) fn columns(group: u64) -> Group {
    if group == 0 { Group::Row } else { Group::Columns(group) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of each tensor of a file, added.
    #[test]
    fn bytes_are_those_of_the_files() {
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
        // Rows fill whole words; tiles at the edge have a scale of their own.
        assert_eq!(Packing::gptq(4, 32).bytes(1, 1, 9), 8 + 3 + 36);
        assert_eq!(Packing::floats(8, Group::Tile(128, 128), 32).bytes(1, 129, 1), 129 + 8);
        assert_eq!(Packing::bnb8().bytes(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(Packing::mxfp4().bits_per_weight(), 4.25);
        assert_eq!(Packing::nvfp4().bits_per_weight(), 4.5);
    }
}
