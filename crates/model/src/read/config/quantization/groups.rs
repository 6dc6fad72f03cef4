//! Groups of modules with their own schemes: compressed-tensors, and formats that copy its form.
//!
//! Source: `compressed_tensors/quantization/quant_args.py`, `quant_config.py`, and the compressors of
//! `compressed_tensors/compressors`.

use super::pattern::Names;
use super::values::Values;
use super::{Quantization, Which};
use crate::quantize::{Group, Packing, columns};

/// Reads `config_groups`, `ignore` and the formats. `format` applies to the whole checkpoint.
pub(super) fn read(quantization: &mut Quantization, values: Values<'_>) {
    quantization.keep(values.texts("ignore"));
    let format = values.lower("format");
    let sparsity = values.within("sparsity_config").or_else(|| {
        let is_sparse = values.get("sparsity_structure").is_some();
        is_sparse.then_some(values)
    });
    let sparse = sparsity.map(|sparsity| Sparsity::read(sparsity, quantization));
    let sparse = sparse.flatten();
    let Some(groups) = values.within("config_groups") else {
        match sparse {
            Some(sparse) => {
                let packing = sparse.packing(16);
                quantization.rule(Which::Linear, Some(packing));
            }
            None if format == "dense" => {}
            None => quantization.doubt("'config_groups' is missing"),
        }
        return;
    };
    let mut classes = Vec::new();
    for (_, group) in groups.objects() {
        let own = group.lower("format");
        let format = if own.is_empty() { format.as_str() } else { own.as_str() };
        let packing = match group.within("weights") {
            None => None,
            Some(weights) => match scheme(weights, format, sparse) {
                Some(packing) => Some(packing),
                None => {
                    quantization.doubt(format!(
                        "weights of {} bits in format '{}' are not understood",
                        weights.number("num_bits").unwrap_or(0),
                        super::super::shown(format)
                    ));
                    None
                }
            },
        };
        let (of_class, named): (Vec<&str>, Vec<&str>) =
            group.texts("targets").partition(|target| is_class(target));
        quantization.named(Names::new(named), packing);
        classes.extend(of_class.into_iter().map(|class| (class, packing)));
    }
    // A module's own name takes precedence over its class.
    for (class, packing) in classes {
        match class {
            "Linear" => {
                quantization.rule(Which::Linear, packing);
                quantization.rule(Which::Output, packing);
            }
            "Embedding" => quantization.rule(Which::Embedding, packing),
            class if class.contains("MoE") || class.contains("Experts") => {
                quantization.rule(Which::Experts, packing);
            }
            class if class.contains("Attention") => {}
            class => {
                let class = super::super::shown(class);
                quantization.doubt(format!("the target '{class}' of a group is not understood"));
            }
        }
    }
}

/// Returns whether a target is a class of modules instead of a name.
fn is_class(target: &str) -> bool {
    target.starts_with(|first: char| first.is_ascii_uppercase())
        && target.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Weights of which only some are stored, with a bit per weight that marks the stored ones.
#[derive(Clone, Copy)]
struct Sparsity {
    /// The stored weights, in thousandths.
    kept: u64,
}

impl Sparsity {
    /// Reads a sparsity; `None` if the weights are stored densely.
    fn read(values: Values<'_>, quantization: &mut Quantization) -> Option<Sparsity> {
        let half = values.lower("sparsity_structure").contains("2:4");
        match values.lower("format").as_str() {
            "" | "dense" => None,
            "sparse-24-bitmask" => Some(Sparsity { kept: 500 }),
            "sparse-bitmask" => {
                let share = values.get("global_sparsity").and_then(serde_json::Value::as_f64);
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                let usual = if half { 0.5 } else { 0.0 };
                Some(Sparsity { kept: ((1.0 - share.unwrap_or(usual)) * 1000.0) as u64 })
            }
            other => {
                let other = super::super::shown(other);
                quantization.doubt(format!("the sparse format '{other}' is not understood"));
                None
            }
        }
    }

    /// Returns how weights with this many bits are stored.
    fn packing(self, bits: u64) -> Packing {
        let base = match bits {
            16 => Packing::halves(),
            _ => Packing::floats(bits, Group::Row, 16),
        };
        Packing { bits: bits * self.kept + 1000, per: 1000, ..base }
    }
}

/// Returns how the weights of a group are stored; `None` if this is not understood.
fn scheme(weights: Values<'_>, format: &str, sparse: Option<Sparsity>) -> Option<Packing> {
    let bits = weights.number("num_bits")?;
    let is_float = weights.lower("type") == "float";
    let size = weights.group(&["group_size"], 0);
    let strategy = weights.lower("strategy");
    let group = match strategy.as_str() {
        "tensor" => Group::Matrix,
        "channel" => Group::Row,
        "group" | "tensor_group" => columns(size),
        "block" => {
            let (rows, across) = weights.pair("block_structure").unwrap_or((128, 128));
            Group::Tile(rows, across)
        }
        "" if size > 0 => columns(size),
        "" => Group::Matrix,
        _ => return None,
    };
    let symmetric = weights.flag("symmetric").unwrap_or(true);
    let zero = if symmetric { 0 } else { bits };
    let ordered = weights.get("actorder").is_some_and(|order| order == "group" || order == true);
    let column_bits = if ordered { 32 } else { 0 };
    // The shape of a packed matrix, as two 64-bit numbers.
    let shape = 128;
    Some(match (format, is_float, bits) {
        (format, true, 4) if format.contains("nvfp4") => Packing::nvfp4(),
        (format, true, 4) if format.contains("mxfp4") => Packing::mxfp4(),
        (format, true, 8) if format.contains("mxfp8") => Packing::mxfp8(),
        (_, true, 4) if size == 16 => Packing::nvfp4(),
        (_, true, 4) if size == 32 => Packing::mxfp4(),
        // Half of the weights, and two bits for the position of each stored one.
        ("marlin-24", false, 4 | 8) => {
            Packing { bits: bits + 2, per: 2, ..Packing::integers(bits, group, 16) }
        }
        ("pack-quantized" | "pack_quantized", false, 2..=8) => Packing {
            word: 32,
            column_bits,
            matrix_bits: shape,
            ..Packing::integers(bits, group, 16 + zero)
        },
        ("int-quantized" | "naive-quantized" | "", false, 2..=8) => {
            Packing { bits: 8, ..Packing::integers(8, group, 16 + if symmetric { 0 } else { 8 }) }
        }
        (_, true, 8) => match sparse.map(|sparse| sparse.packing(8)) {
            Some(packing) => packing,
            None => Packing { matrix_bits: 16, ..Packing::floats(8, group, 16) },
        },
        _ => return None,
    })
}
