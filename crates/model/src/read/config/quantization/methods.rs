//! The methods that transformers, vLLM and SGLang document, by their `quant_method`.
//!
//! Sources: `transformers/utils/quantization_config.py` and `transformers/quantizers`,
//! `vllm/model_executor/layers/quantization`, and the files written by the methods' own tools.

use super::pattern::Names;
use super::values::Values;
use super::{Quantization, Which, groups};
use crate::quantize::{Group, Packing, columns};

/// Reads the quantization object.
pub(super) fn read(values: Values<'_>) -> Quantization {
    let method = values.lower("quant_method").replace('_', "-");
    let method = match method.as_str() {
        // Older files of bitsandbytes and modelopt do not name a method.
        "" if values.get("load_in_4bit").or(values.get("load_in_8bit")).is_some() => "bitsandbytes",
        "" if values.get("quant_algo").is_some() => "modelopt",
        "" if values.get("config_groups").is_some() => "compressed-tensors",
        "" if values.get("bits").is_some() && values.get("group_size").is_some() => {
            return mlx(values);
        }
        other => other,
    };
    let mut read = Quantization::new(&super::super::shown(method));
    fill(&mut read, method, values);
    read.check(values);
    read
}

/// Reads a quantization file next to the configuration.
pub(super) fn of_file(name: &str, values: Values<'_>) -> Option<Quantization> {
    match name {
        "hf_quant_config.json" => {
            let values = values.within("quantization")?;
            let mut read = Quantization::new("modelopt");
            modelopt(&mut read, values);
            read.check(values);
            Some(read)
        }
        _ if values.get("quant_method").is_some() => Some(read(values)),
        "quantize_config.json" | "quant_config.json" => {
            let bits = values.number("bits").or(values.number("w_bit"))?;
            let is_gptq = values.get("desc_act").is_some() || values.get("damp_percent").is_some();
            let method = if is_gptq { "gptq" } else { "awq" };
            let mut read = Quantization::new(method);
            fill(&mut read, method, values);
            read.check(values);
            Some(read).filter(|_| bits > 0)
        }
        _ => None,
    }
}

/// Modules that stay unquantized, under the keys of several methods.
const KEPT: [&str; 8] = [
    "modules_to_not_convert",
    "ignored_layers",
    "exclude_modules",
    "ignore",
    "exclude",
    "skip_modules",
    "llm_int8_skip_modules",
    "linear_weights_not_to_quantize",
];

fn fill(q: &mut Quantization, method: &str, v: Values<'_>) {
    let bits = v.number("bits").or(v.number("w_bit")).or(v.number("nbits"));
    let group = v.group(&["group_size", "q_group_size"], 128);
    let is_listed = matches!(method, "compressed-tensors" | "modelopt" | "quark");
    if !is_listed {
        for key in KEPT {
            q.keep(v.texts(key));
        }
    }
    let linear = |q: &mut Quantization, packing| q.rule(Which::Linear, Some(packing));
    let is_plausible = |bits: &u64| (1..=16).contains(bits);
    let given = ["bits", "w_bit", "nbits"].into_iter().find(|key| v.get(key).is_some());
    if let Some(key) = given
        && !bits.is_some_and(|bits| is_plausible(&bits))
        && !matches!(method, "exl2" | "exl3")
    {
        q.doubt(format!("'{key}' of '{method}' is not a number of bits"));
    }
    let bits = bits.filter(is_plausible);
    match method {
        "compressed-tensors" => groups::read(q, v),
        "fp8" | "w8a8-fp8" | "fbgemm-fp8" | "ptpc-fp8" => linear(q, fp8(method, v)),
        "mxfp8" => linear(q, Packing::mxfp8()),
        "blockwise-int8" => {
            let (rows, across) = v.pair("weight_block_size").unwrap_or((128, 128));
            linear(q, Packing::integers(8, Group::Tile(rows, across), 32));
        }
        "mxfp4" | "gpt-oss-mxfp4" => q.rule(Which::Experts, Some(Packing::mxfp4())),
        "experts-int8" => q.rule(Which::Experts, Some(Packing::integers(8, Group::Row, 32))),
        "modelopt" | "modelopt-fp4" | "modelopt-mxfp8" | "modelopt-mixed" | "petit-nvfp4"
        | "nvfp4" => modelopt(q, v),
        "gptq" | "gptq-marlin" | "gptq-bitblas" | "gptqmodel" | "moe-wna16" | "ipex" => {
            gptq(q, v, bits.unwrap_or(4), group);
        }
        "marlin" | "gptq-marlin-24" | "bitblas" => {
            linear(q, Packing::integers(bits.unwrap_or(4), columns(group), 16));
        }
        "awq" | "awq-marlin" | "cpu-awq" => linear(q, Packing::awq(bits.unwrap_or(4), group)),
        "auto-round" | "intel/auto-round" | "autoround" | "inc" | "intel" => {
            auto_round(q, v, bits.unwrap_or(4), group);
        }
        "bitsandbytes" | "bitsandbytes-4bit" | "bitsandbytes-8bit" => linear(q, bnb(method, v)),
        "hqq" => hqq(q, v),
        "quark" => quark(q, v),
        "eetq" => linear(q, Packing::integers(8, Group::Row, 16)),
        "w8a8-int8" | "tpu-int8" | "rtn-int8" => {
            linear(q, Packing::integers(8, Group::Row, 32));
        }
        "rtn" => linear(q, Packing::integers(bits.unwrap_or(8), columns(group), 16)),
        "quanto" | "optimum-quanto" => quanto(q, v),
        "torchao" => torchao(q, v),
        "bitnet" => {
            linear(q, Packing { matrix_bits: 16, ..Packing::integers(2, Group::Matrix, 0) })
        }
        "higgs" => {
            let group = v.group(&["group_size"], 256);
            linear(q, Packing::integers(bits.unwrap_or(4), columns(group), 16));
        }
        "fp-quant" | "fpquant" => match v.lower("forward_dtype").as_str() {
            "nvfp4" => linear(q, Packing::nvfp4()),
            _ => linear(q, Packing::mxfp4()),
        },
        "deepspeedfp" => {
            let group = v.group(&["group_size"], 512);
            linear(q, Packing::floats(bits.unwrap_or(8), columns(group), 32));
        }
        "aqlm" => aqlm(q, v),
        "vptq" => vptq(q, v),
        "spqr" => spqr(q, v),
        "exl2" | "exl3" => {
            // Fractional bits are an average over matrices that the tool chose.
            let average = v.get("bits").and_then(serde_json::Value::as_f64).unwrap_or(4.0);
            let of = |bits: f64| Packing {
                bits: (bits.clamp(1.0, 16.0) * 1000.0) as u64,
                per: 1000,
                ..Packing::integers(4, Group::Matrix, 0)
            };
            linear(q, of(average));
            let head = v.get("head_bits").and_then(serde_json::Value::as_f64).unwrap_or(6.0);
            q.rule(Which::Output, Some(of(head)));
        }
        _ => unknown(q, method, bits, group),
    }
}

/// Reads an unknown method. Its number of bits applies only to the matrices of blocks.
fn unknown(q: &mut Quantization, method: &str, bits: Option<u64>, group: u64) {
    let name = super::super::shown(method);
    let named = if name.is_empty() { "without a name".to_owned() } else { format!("'{name}'") };
    match bits.filter(|bits| (1..=8).contains(bits)) {
        Some(bits) => {
            q.doubt(format!("quantization method {named} is unknown and counted as {bits} bits"));
            q.rule(Which::Linear, Some(Packing::integers(bits, columns(group), 16 + bits)));
        }
        None => q.doubt(format!("quantization method {named} is unknown and not counted")),
    }
}

fn fp8(method: &str, v: Values<'_>) -> Packing {
    let is_static = v.lower("activation_scheme") == "static";
    let input = if is_static { 32 } else { 0 };
    let group = match (v.pair("weight_block_size"), method) {
        (Some((rows, across)), _) => Group::Tile(rows, across),
        (None, "fp8") => Group::Matrix,
        (None, _) => Group::Row,
    };
    Packing { matrix_bits: input, ..Packing::floats(8, group, 32) }
}

fn bnb(method: &str, v: Values<'_>) -> Packing {
    let four = ["load_in_4bit", "_load_in_4bit"].iter().any(|key| v.flag(key) == Some(true));
    if four || method.ends_with("4bit") {
        Packing::bnb4(v.flag("bnb_4bit_use_double_quant") == Some(true))
    } else {
        Packing::bnb8()
    }
}

/// GPTQ, including GPTQModel's rules: `dynamic` has regular expressions, with `-:` for modules that
/// stay unquantized, and with `+:` or no prefix for modules with other numbers.
fn gptq(q: &mut Quantization, v: Values<'_>, bits: u64, group: u64) {
    for (pattern, rule) in v.within("dynamic").iter().flat_map(|dynamic| dynamic.objects()) {
        let (is_kept, pattern) = match (pattern.strip_prefix("-:"), pattern.strip_prefix("+:")) {
            (Some(pattern), _) => (true, pattern),
            (_, Some(pattern)) => (false, pattern),
            _ => (false, pattern),
        };
        let mut names = Names::default();
        names.add_regex(pattern);
        let bits = rule.number("bits").unwrap_or(bits);
        let group = rule.group(&["group_size"], group);
        q.named(names, (!is_kept).then(|| Packing::gptq(bits, group)));
    }
    let packing = match v.lower("checkpoint_format").as_str() {
        "marlin" => Packing::integers(bits, columns(group), 16),
        _ => Packing::gptq(bits, group),
    };
    // Lists of module names within a block; all other modules stay unquantized.
    let only = v.get("modules_in_block_to_quantize").and_then(serde_json::Value::as_array);
    let flat = only.into_iter().flatten().flat_map(|entry| match entry {
        serde_json::Value::Array(names) => names.iter().collect::<Vec<_>>(),
        name => vec![name],
    });
    let only: Vec<&str> = flat.filter_map(serde_json::Value::as_str).collect();
    if only.is_empty() {
        q.rule(Which::Linear, Some(packing))
    } else {
        q.named(Names::new(only), Some(packing))
    }
    if v.flag("lm_head") == Some(true) {
        q.rule(Which::Output, Some(packing));
    }
}

/// AutoRound: packed like GPTQ or AWQ, with the numbers for some layers in `extra_config`.
fn auto_round(q: &mut Quantization, v: Values<'_>, bits: u64, group: u64) {
    let data = v.lower("data_type");
    let packed = |bits: u64, group: u64| -> Option<Packing> {
        match (data.as_str(), bits) {
            (_, 16..) => None,
            (data, 4) if data.contains("nv_fp") => Some(Packing::nvfp4()),
            (data, 4) if data.contains("mx_fp") => Some(Packing::mxfp4()),
            (data, 8) if data.contains("mx_fp") => Some(Packing::mxfp8()),
            (data, 8) if data.starts_with("fp") => Some(Packing::floats(8, Group::Row, 32)),
            _ => Some(Packing::awq(bits, group)),
        }
    };
    for (name, own) in v.within("extra_config").iter().flat_map(|extra| extra.objects()) {
        let bits = own.number("bits").unwrap_or(bits);
        let group = own.group(&["group_size"], group);
        q.named(Names::new([name]), packed(bits, group));
    }
    q.rule(Which::Linear, packed(bits, group));
    if v.flag("quant_lm_head") == Some(true) {
        q.rule(Which::Output, packed(bits, group));
    }
}

/// HQQ: a 16-bit scale and zero point per group, and rules by layer name within a block.
fn hqq(q: &mut Quantization, v: Values<'_>) {
    let packed = |params: Values<'_>| {
        let bits = params.number("nbits").unwrap_or(4);
        let group = params.group(&["group_size"], 64);
        let base = Packing::integers(bits, columns(group), 32);
        // Ten 3-bit weights fit in 32 bits.
        if bits == 3 { Packing { bits: 32, per: 10, ..base } } else { base }
    };
    let config = v.within("quant_config").unwrap_or(v);
    if let Some(params) = config.within("weight_quant_params") {
        q.rule(Which::Linear, Some(packed(params)));
        return;
    }
    let mut is_any = false;
    for (name, own) in config.objects() {
        let Some(params) = own.within("weight_quant_params") else { continue };
        q.named(Names::new([name]), Some(packed(params)));
        is_any = true;
    }
    if !is_any {
        q.rule(Which::Linear, Some(packed(config)));
    }
}

/// Quark: a configuration for all layers, others by pattern, and an exclusion list.
fn quark(q: &mut Quantization, v: Values<'_>) {
    q.keep(v.texts("exclude"));
    let packed = |config: Values<'_>| -> Option<Packing> {
        // Weights that are quantized twice are stored as the last step specifies.
        let weight = config.get("weight")?;
        let weight = match weight {
            serde_json::Value::Array(steps) => steps.last()?,
            other => other,
        };
        let weight = Values(weight.as_object()?);
        let size = weight.group(&["group_size"], 0);
        let group = match weight.lower("qscheme").as_str() {
            "per_tensor" => Group::Matrix,
            "per_channel" => Group::Row,
            _ => columns(size),
        };
        match weight.lower("dtype").as_str() {
            "fp4" | "mxfp4" | "mx" if size == 16 => Some(Packing::nvfp4()),
            "fp4" | "mxfp4" | "mx" => Some(Packing::mxfp4()),
            "fp6_e2m3" | "fp6_e3m2" => Some(Packing::floats(6, columns(size), 8)),
            "fp8_e4m3" | "fp8_e5m2" => Some(Packing::floats(8, group, 32)),
            "int4" | "uint4" => Some(Packing::integers(4, group, 20)),
            "int2" | "uint2" => Some(Packing::integers(2, group, 18)),
            "int8" | "uint8" => Some(Packing::integers(8, group, 32)),
            _ => None,
        }
    };
    for (pattern, own) in v.within("layer_quant_config").iter().flat_map(|of| of.objects()) {
        let packing = packed(own);
        if packing.is_none() && own.get("weight").is_some() {
            q.doubt("the type of weights in 'layer_quant_config' is not understood");
        }
        q.named(Names::new([pattern]), packing);
    }
    match v.within("global_quant_config").and_then(packed) {
        Some(packing) => {
            q.rule(Which::Linear, Some(packing));
            q.rule(Which::Output, Some(packing));
        }
        None => q.doubt("the type of weights in 'global_quant_config' is not understood"),
    }
}

/// NVIDIA's modelopt: an algorithm for all layers, or one for each.
fn modelopt(q: &mut Quantization, v: Values<'_>) {
    q.keep(v.texts("ignore"));
    q.keep(v.texts("exclude_modules"));
    let v = v.within("quantization").unwrap_or(v);
    let group = v.group(&["group_size"], 128);
    let packed = |name: &str, group: u64| -> Option<Packing> {
        Some(match name.to_uppercase().as_str() {
            "FP8" => Packing { matrix_bits: 32, ..Packing::floats(8, Group::Matrix, 32) },
            "FP8_PER_CHANNEL_PER_TOKEN" => Packing::floats(8, Group::Row, 32),
            "FP8_PB_WO" | "FP8_PB_REAL" | "FP8_2D_BLOCKWISE_WEIGHT_ONLY" => {
                Packing::floats(8, Group::Tile(128, 128), 32)
            }
            name if name.starts_with("NVFP4") || name.ends_with("NVFP4") => Packing::nvfp4(),
            name if name.contains("MXFP4") => Packing::mxfp4(),
            "MXFP8" => Packing::mxfp8(),
            "INT8_SQ" | "W8A8_SQ_PER_CHANNEL" | "INT8" | "W8A16" => {
                Packing::integers(8, Group::Row, 32)
            }
            "W4A16_AWQ" | "W4A8_AWQ" | "INT4_AWQ" | "W4A16" => {
                Packing::integers(4, columns(group), 16)
            }
            _ => return None,
        })
    };
    let mut layers = false;
    for (name, own) in v.within("quantized_layers").iter().flat_map(|of| of.objects()) {
        let group = own.group(&["group_size"], group);
        let algorithm = own.text("quant_algo").unwrap_or_default();
        let packing = packed(algorithm, group);
        if packing.is_none() && !algorithm.is_empty() {
            let algorithm = super::super::shown(algorithm);
            q.doubt(format!("the algorithm '{algorithm}' of modelopt is unknown"));
        }
        q.named(Names::new([name]), packing);
        layers = true;
    }
    let algorithm = v.text("quant_algo").unwrap_or_default();
    match packed(algorithm, group) {
        Some(packing) => q.rule(Which::Linear, Some(packing)),
        None if layers => {}
        None if v.get("config_groups").is_some() => groups::read(q, v),
        None if q.method.contains("fp4") => q.rule(Which::Linear, Some(Packing::nvfp4())),
        None => {
            let algorithm = super::super::shown(algorithm);
            q.doubt(format!("the algorithm '{algorithm}' of modelopt is unknown and not counted"));
        }
    }
}

fn quanto(q: &mut Quantization, v: Values<'_>) {
    let packing = match v.lower("weights").as_str() {
        "int8" | "float8" => Packing::integers(8, Group::Row, 16),
        "int4" => Packing::integers(4, Group::Columns(128), 32),
        "int2" => Packing::integers(2, Group::Columns(128), 32),
        _ => return q.doubt("the type of weights of quanto is unknown and not counted"),
    };
    q.rule(Which::Linear, Some(packing));
}

/// torchao: the name of a function or configuration class, with arguments.
fn torchao(q: &mut Quantization, v: Values<'_>) {
    let packed = |name: &str, arguments: Option<Values<'_>>| -> Option<Packing> {
        let name = name.to_lowercase().replace('_', "");
        let group = |default| arguments.map_or(default, |a| a.group(&["group_size"], default));
        Some(match name.as_str() {
            name if name.contains("nvfp4") => Packing::nvfp4(),
            name if name.contains("mxfp4") => Packing::mxfp4(),
            name if name.starts_with("float8") => Packing::floats(8, Group::Row, 32),
            "int4weightonly" | "int4weightonlyconfig" => {
                Packing::integers(4, columns(group(128)), 32)
            }
            // Four bits in bytes, and one scale per 32.
            name if name.starts_with("int8dynamicactivationint4weight") => {
                Packing::integers(8, columns(group(32)), 32)
            }
            name if name.starts_with("int8") => Packing::integers(8, Group::Row, 32),
            _ => return None,
        })
    };
    let kind = v.get("quant_type");
    let named = |object: Values<'_>| match object.text("_type") {
        Some(name) => packed(name, object.within("_data")),
        None => None,
    };
    let default = kind
        .and_then(serde_json::Value::as_object)
        .map(Values)
        .map(|object| object.within("default").unwrap_or(object));
    let packing = match (kind.and_then(serde_json::Value::as_str), default) {
        (Some(name), _) => packed(name, v.within("quant_type_kwargs")),
        (None, Some(object)) => {
            let data = object.within("_data");
            let modules = data.and_then(|data| data.within("module_fqn_to_config"));
            for (name, own) in modules.iter().flat_map(|modules| modules.objects()) {
                if name != "_default" {
                    q.named(Names::new([name]), named(own));
                }
            }
            let fallback = modules.and_then(|modules| modules.within("_default"));
            fallback.map_or_else(|| named(object), named)
        }
        _ => None,
    };
    match packing {
        Some(packing) => q.rule(Which::Linear, Some(packing)),
        None => return q.doubt("the 'quant_type' of torchao is unknown and not counted"),
    }
    if v.flag("include_input_output_embeddings") == Some(true) {
        q.rule(Which::Output, packing);
        q.rule(Which::Embedding, packing);
    }
}

/// AQLM: codes for vectors, codebooks of 16-bit vectors, and a scale per row of vectors.
fn aqlm(q: &mut Quantization, v: Values<'_>) {
    let (inside, outside) = (v.number("in_group_size"), v.number("out_group_size"));
    let books = v.number("num_codebooks").unwrap_or(1).min(64);
    let bits = v.number("nbits_per_codebook").unwrap_or(16).clamp(1, 16);
    let (inside, outside) = (inside.unwrap_or(8).max(1), outside.unwrap_or(1).max(1));
    let code = if bits > 8 { 16 } else { 8 };
    let vector = inside.saturating_mul(outside);
    let packing = Packing {
        per: vector,
        row_bits: 16_u64.div_ceil(outside),
        matrix_bits: books.saturating_mul(1 << bits).saturating_mul(vector).saturating_mul(16),
        ..Packing::integers(2, Group::Matrix, 0)
    };
    q.rule(Which::Linear, Some(Packing { bits: books.saturating_mul(code), ..packing }));
}

/// VPTQ: indices into centroids for each vector, by layer.
fn vptq(q: &mut Quantization, v: Values<'_>) {
    let packed = |config: Values<'_>| -> Option<Packing> {
        let last = |key| config.get(key)?.as_array()?.last()?.as_i64();
        let positive = |key| last(key).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
        let vector = positive("vector_lens")?;
        let centroids = positive("num_centroids")?;
        let more = positive("num_res_centroids").unwrap_or(0);
        let index = |count: u64| u64::from(count.checked_ilog2().unwrap_or(0));
        let groups = config.number("group_num").unwrap_or(1).max(1);
        let table = centroids.saturating_add(more).saturating_mul(vector).saturating_mul(16);
        Some(Packing {
            bits: index(centroids) + index(more),
            per: vector,
            word: 32,
            column_bits: 16 + 32,
            matrix_bits: table.saturating_mul(groups),
            ..Packing::integers(2, Group::Matrix, 0)
        })
    };
    let mut common = None;
    for (name, own) in v.within("config_for_layers").iter().flat_map(|of| of.objects()) {
        let packing = packed(own);
        common = common.or(packing);
        q.named(Names::new([name]), packing);
    }
    let shared = v.within("shared_layer_config").and_then(|shared| shared.objects().next());
    let common = shared.and_then(|(_, own)| packed(own)).or(common);
    match common {
        Some(packing) => q.rule(Which::Linear, Some(packing)),
        None => q.doubt("the layers of vptq are not understood and not counted"),
    }
}

/// SpQR: `shapes` has the number of elements of each tensor.
fn spqr(q: &mut Quantization, v: Values<'_>) {
    let Some(shapes) = v.within("shapes") else {
        return q.doubt("the shapes of spqr are missing, and its weights are not counted");
    };
    let mut matrices = std::collections::BTreeMap::<&str, u64>::new();
    for key in shapes.0.keys() {
        let name = key.strip_suffix(".shape").unwrap_or(key);
        let Some((module, part)) = name.rsplit_once('.') else { continue };
        let bytes = if part == "dense_weights" { 8 } else { 4 };
        let count = shapes.number(key).or_else(|| {
            let list = shapes.get(key)?.as_array()?;
            list.iter().try_fold(1u64, |product, n| product.checked_mul(n.as_u64()?))
        });
        let sum = matrices.entry(module).or_default();
        *sum = sum.saturating_add(count.unwrap_or(0).saturating_mul(bytes * 8));
    }
    for (module, matrix_bits) in matrices {
        let empty = Packing { bits: 0, ..Packing::integers(3, Group::Matrix, 0) };
        q.named(Names::new([module]), Some(Packing { matrix_bits, ..empty }));
    }
}

/// MLX: every matrix, including embedding and output, with a 16-bit scale and bias per group; other
/// numbers, or `false`, by module.
pub(super) fn mlx(v: Values<'_>) -> Quantization {
    let mut q = Quantization::new("mlx");
    let packed = |own: Values<'_>| {
        let bits = own.number("bits").or(v.number("bits")).unwrap_or(4);
        let group = own.group(&["group_size"], v.group(&["group_size"], 64));
        match own.lower("mode").as_str() {
            "mxfp4" => Packing::mxfp4(),
            _ => Packing { word: 32, ..Packing::integers(bits, columns(group), 32) },
        }
    };
    q.keep(v.0.iter().filter(|(_, own)| own.as_bool() == Some(false)).map(|(name, _)| &**name));
    for (name, own) in v.objects() {
        q.named(Names::new([name]), Some(packed(own)));
    }
    let packing = Some(packed(v));
    for which in [Which::Linear, Which::Output, Which::Embedding] {
        q.rule(which, packing);
    }
    q.check(v);
    q
}
