//! Values that no method uses, and the encoding of the cache.

use super::Quantization;
use super::values::Values;
use crate::tensor::Encoding;
use serde_json::Value;

/// The maximum depth to which values are checked, and the maximum number of resulting doubts.
const DEPTH: u32 = 6;
const MAX_DOUBTS: usize = 8;

/// Keys for a number of weights, which is positive, or -1 for a row.
const SIZES: [&str; 3] = ["group_size", "q_group_size", "weight_group_size"];
/// Keys for the rows and columns of a tile.
const TILES: [&str; 2] = ["weight_block_size", "block_structure"];

impl Quantization {
    /// Adds doubts about values that no method uses, and reads the encoding of the cache.
    pub(super) fn check(&mut self, values: Values<'_>) {
        self.visit(values, DEPTH);
        self.read_cache(values);
    }

    fn visit(&mut self, values: Values<'_>, depth: u32) {
        for (key, value) in values.0 {
            let wanted = match key.as_str() {
                key if SIZES.contains(&key) && !is_size(value) => "a number of weights",
                key if TILES.contains(&key) && !is_tile(value) => "a pair of rows and columns",
                _ => "",
            };
            if !wanted.is_empty() && self.doubts.len() < MAX_DOUBTS {
                let value = super::super::brief(value);
                self.doubts.push(format!("'{key}' is {value}, not {wanted}"));
            }
            match value {
                Value::Object(inner) if depth > 0 => self.visit(Values(inner), depth - 1),
                _ => {}
            }
        }
    }

    /// Reads `kv_cache_scheme` of compressed-tensors, `kv_cache_quant_algo` of modelopt and
    /// `kv_cache_quant_config` of Quark. By default, vLLM stores keys and values accordingly
    /// (`resolve_kv_cache_dtype_string`, `Attention.__init__`).
    fn read_cache(&mut self, values: Values<'_>) {
        let values = values.within("quantization").unwrap_or(values);
        let scheme = values.get("kv_cache_scheme").map(|scheme| match scheme {
            Value::Object(scheme) => {
                let scheme = Values(scheme);
                let bits = scheme.number("num_bits").unwrap_or(0);
                let kind = scheme.lower("type");
                format!("{}{bits}", if kind == "float" { "fp" } else { kind.as_str() })
            }
            other => super::super::brief(other).trim_matches('"').to_lowercase(),
        });
        let named = values.text("kv_cache_quant_algo").map(str::to_lowercase);
        let quark = values.within("kv_cache_quant_config").filter(|of| !of.0.is_empty());
        let quark = quark.map(|_| "fp8".to_owned());
        let Some(name) = named.or(scheme).or(quark) else { return };
        match name.as_str() {
            "fp8" | "fp8_e4m3" => self.cache = Encoding::named("F8_E4M3"),
            "none" | "auto" | "" => {}
            other => {
                let other = super::super::shown(other);
                self.doubts.push(format!("keys and values in '{other}' count as 16 bits"));
            }
        }
    }
}

fn is_size(value: &Value) -> bool {
    value.is_null() || value.as_i64().is_some_and(|size| size == -1 || size > 0)
}

fn is_tile(value: &Value) -> bool {
    let side = |side: &Value| side.as_u64().is_some_and(|side| side > 0);
    match value.as_array().map(Vec::as_slice) {
        Some([rows, columns]) => side(rows) && side(columns),
        Some(_) => false,
        None => value.is_null(),
    }
}
