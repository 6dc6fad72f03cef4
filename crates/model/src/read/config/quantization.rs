//! How a configuration says that weights are quantized, and what a matrix is then in the files.

use super::ConfigError;
use super::keys::Keys;

/// How the weights are quantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quantization {
    /// 8-bit floats with a 32-bit scale for each block of rows and columns, or for the matrix.
    Fp8 {
        /// Rows and columns of a block, if there are blocks.
        block: Option<(u64, u64)>,
    },
    /// 4-bit floats with an 8-bit scale for 32 of them (MXFP4); experts alone.
    Mxfp4,
    /// Integers of a few bits with scales and zero points for groups of rows (GPTQ).
    Gptq {
        /// Bits of a weight.
        bits: u64,
        /// Weights of a group.
        group: u64,
    },
    /// As GPTQ, packed along the other dimension, with no permutation (AWQ).
    Awq {
        /// Bits of a weight.
        bits: u64,
        /// Weights of a group.
        group: u64,
    },
    /// bitsandbytes with 4 bits, and a 32-bit scale for 64 weights.
    Bnb4 {
        /// Whether the scales are quantized in turn.
        double: bool,
    },
    /// bitsandbytes with 8 bits, and a 32-bit scale for each row.
    Bnb8,
}

impl Quantization {
    /// Reads the object of quantization; `None` if there is none, or its method is unknown.
    pub(super) fn read(keys: &Keys<'_>) -> Result<Option<Quantization>, ConfigError> {
        let Some(keys) = keys.within("quantization_config") else { return Ok(None) };
        let bits = keys.number(&["bits", "w_bit"], 4)?;
        // A group of -1 is a whole column.
        let group = match keys.given("group_size").and_then(serde_json::Value::as_i64) {
            Some(-1) => 0,
            _ => keys.number(&["group_size", "q_group_size"], 128)?,
        };
        let packed = matches!(bits, 2 | 4 | 8);
        let four = keys.flag("load_in_4bit", false)? || keys.flag("_load_in_4bit", false)?;
        Ok(Some(match keys.text("quant_method").unwrap_or_default() {
            "fp8" | "fbgemm_fp8" => {
                let block = keys.integers("weight_block_size")?;
                let block = block.and_then(|block| <[u64; 2]>::try_from(block).ok());
                let block = block.filter(|sides| !sides.contains(&0));
                Quantization::Fp8 { block: block.map(|[rows, columns]| (rows, columns)) }
            }
            "mxfp4" => Quantization::Mxfp4,
            "gptq" if packed => Quantization::Gptq { bits, group },
            "awq" if packed => Quantization::Awq { bits, group },
            "bitsandbytes" if four => {
                Quantization::Bnb4 { double: keys.flag("bnb_4bit_use_double_quant", false)? }
            }
            "bitsandbytes" => Quantization::Bnb8,
            _ => return Ok(None),
        }))
    }

    /// Returns what a matrix is in the files: the suffix, the type (`None`: that of the model) and
    /// the shape of each tensor. `count` matrices are stacked; 1 is one alone.
    pub(super) fn parts(
        self,
        count: u64,
        rows: u64,
        columns: u64,
    ) -> Vec<(&'static str, Option<&'static str>, Vec<u64>)> {
        let groups = |group: u64| if group == 0 { 1 } else { columns.div_ceil(group) };
        let packed = |weights: u64, bits: u64| weights.saturating_mul(bits).div_ceil(32);
        let elements = rows.saturating_mul(columns);
        let stacked = |shape: &[u64]| match count {
            1 => shape.to_vec(),
            _ => [&[count], shape].concat(),
        };
        match self {
            Quantization::Fp8 { block } => {
                let scales = match block {
                    Some((down, across)) => {
                        stacked(&[rows.div_ceil(down), columns.div_ceil(across)])
                    }
                    None => stacked(&[1]),
                };
                vec![
                    ("weight", Some("F8_E4M3"), stacked(&[rows, columns])),
                    ("weight_scale_inv", Some("F32"), scales),
                ]
            }
            Quantization::Mxfp4 => vec![
                ("weight_blocks", Some("U8"), stacked(&[rows, columns.div_ceil(32), 16])),
                ("weight_scales", Some("U8"), stacked(&[rows, columns.div_ceil(32)])),
            ],
            Quantization::Gptq { bits, group } => vec![
                ("qweight", Some("I32"), stacked(&[packed(columns, bits), rows])),
                ("qzeros", Some("I32"), stacked(&[groups(group), packed(rows, bits)])),
                ("scales", Some("F16"), stacked(&[groups(group), rows])),
                ("g_idx", Some("I32"), stacked(&[columns])),
            ],
            Quantization::Awq { bits, group } => vec![
                ("qweight", Some("I32"), stacked(&[columns, packed(rows, bits)])),
                ("qzeros", Some("I32"), stacked(&[groups(group), packed(rows, bits)])),
                ("scales", Some("F16"), stacked(&[groups(group), rows])),
            ],
            Quantization::Bnb4 { double } => {
                let scales = elements.div_ceil(64);
                let mut parts = vec![
                    ("weight", Some("U8"), stacked(&[elements.div_ceil(2), 1])),
                    ("weight.absmax", Some(if double { "U8" } else { "F32" }), stacked(&[scales])),
                    ("weight.quant_map", Some("F32"), stacked(&[16])),
                ];
                if double {
                    let nested = stacked(&[scales.div_ceil(256)]);
                    parts.push(("weight.nested_absmax", Some("F32"), nested));
                    parts.push(("weight.nested_quant_map", Some("F32"), stacked(&[256])));
                }
                parts
            }
            Quantization::Bnb8 => vec![
                ("weight", Some("I8"), stacked(&[rows, columns])),
                ("SCB", Some("F32"), stacked(&[rows])),
            ],
        }
    }
}
