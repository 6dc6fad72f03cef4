//! Quantized configurations, with the number of bytes in the files of such checkpoints.

use super::super::read;
use crate::model::Model;
use serde_json::{Value, json};

const ROWS: u64 = 512;
const WIDE: u64 = 1536;
const EXPERTS: u64 = 4;
const VOCABULARY: u64 = 1000;

/// A dense model with two layers.
fn dense() -> Value {
    json!({"model_type": "llama", "hidden_size": ROWS, "intermediate_size": WIDE,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "vocab_size": VOCABULARY, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})
}

/// A model with one dense layer, and one with four routed experts and a shared one.
fn sparse() -> Value {
    json!({"model_type": "deepseek_v3", "hidden_size": ROWS, "intermediate_size": WIDE,
        "moe_intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": VOCABULARY, "q_lora_rank": 256, "kv_lora_rank": 256,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64, "first_k_dense_replace": 1,
        "n_routed_experts": EXPERTS, "n_shared_experts": 1, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16"})
}

fn model(mut config: Value, quantization: &Value) -> Model {
    config["quantization_config"] = quantization.clone();
    read(config.to_string().as_bytes()).unwrap().model().unwrap()
}

fn bytes(model: &Model, name: &str) -> u64 {
    let tensor = model.tensors.iter().find(|tensor| tensor.name == name);
    tensor.unwrap_or_else(|| panic!("{name}")).bytes.0
}

const QUERY: &str = "model.layers.1.self_attn.q_proj.weight";
const DOWN: &str = "model.layers.1.mlp.down_proj.weight";
const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";

/// The number of weights in a square matrix, and in the down projection.
const N: u64 = ROWS * ROWS;
const D: u64 = ROWS * WIDE;

#[test]
fn matrix_size_matches_files_of_each_method() {
    let four = json!({"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"});
    let group = |weights: Value| json!({"g": {"targets": ["Linear"], "weights": weights}});
    let listed = |format: &str, weights: Value| {
        json!({"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"],
            "config_groups": group(weights)})
    };
    let float = |strategy: &str| json!({"num_bits": 8, "type": "float", "strategy": strategy});
    let with = |base: &Value, key: &str, value: Value| {
        let mut changed = base.clone();
        changed[key] = value;
        changed
    };
    let awq = D / 2 + D / 128 * 2 + D / 256;
    for (name, config, down) in [
        ("AWQ", json!({"quant_method": "AWQ", "bits": 4, "group_size": 128}), awq),
        ("awq of AutoAWQ", json!({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}), awq),
        ("gptq", json!({"quant_method": "gptq", "bits": 4, "group_size": 128}), awq + WIDE * 4),
        (
            "gptq, whole rows",
            json!({"quant_method": "gptq", "bits": 8, "group_size": -1}),
            D + ROWS * 3 + WIDE * 4,
        ),
        (
            "gptq, Marlin's layout",
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128,
                "checkpoint_format": "marlin"}),
            D / 2 + D / 64,
        ),
        (
            "auto-round",
            json!({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": true,
                "packing_format": "auto_round:auto_gptq"}),
            awq,
        ),
        (
            "auto-round, MXFP4",
            json!({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"}),
            D / 2 + D / 32,
        ),
        ("packed integers", listed("pack-quantized", four.clone()), D / 2 + D / 64 + 16),
        (
            "packed integers with zero points",
            listed("pack-quantized", with(&four, "symmetric", json!(false))),
            D / 2 + D / 64 + D / 256 + 16,
        ),
        (
            "packed integers in an order of their own",
            listed("pack-quantized", with(&four, "actorder", json!("group"))),
            D / 2 + D / 64 + WIDE * 4 + 16,
        ),
        (
            "packed integers in groups without a strategy",
            listed("pack-quantized", json!({"num_bits": 4, "type": "int", "group_size": 128})),
            D / 2 + D / 64 + 16,
        ),
        (
            "int8 without a strategy",
            listed("int-quantized", json!({"num_bits": 8, "type": "int"})),
            D + 2,
        ),
        (
            "int8 channels",
            listed(
                "int-quantized",
                json!({"num_bits": 8, "type": "int",
            "strategy": "channel"}),
            ),
            D + ROWS * 2,
        ),
        ("fp8 channels", listed("float-quantized", float("channel")), D + ROWS * 2 + 2),
        ("fp8 tensor", listed("float-quantized", float("tensor")), D + 4),
        (
            "fp8 blocks",
            listed("float-quantized", with(&float("block"), "block_structure", json!([128, 128]))),
            D + 4 * 12 * 2 + 2,
        ),
        (
            "nvfp4",
            listed(
                "nvfp4-pack-quantized",
                json!({"num_bits": 4, "type": "float",
                "group_size": 16, "strategy": "tensor_group"}),
            ),
            D / 2 + D / 16 + 8,
        ),
        ("2:4 with 4 bits", listed("marlin-24", four.clone()), D / 8 * 3 + D / 64),
        (
            "2:4 without quantization",
            json!({"quant_method": "compressed-tensors", "sparsity_config":
                {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}}),
            D + D / 8,
        ),
        ("modelopt FP8", json!({"quant_method": "modelopt", "quant_algo": "FP8"}), D + 8),
        (
            "modelopt NVFP4",
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}),
            D / 2 + D / 16 + 8,
        ),
        (
            "modelopt NVFP4 without an algorithm",
            json!({"quant_method": "modelopt", "ignore": ["lm_head"], "config_groups":
                group(json!({"num_bits": 4, "type": "float", "group_size": 16}))}),
            D / 2 + D / 16 + 8,
        ),
        (
            "modelopt, 4-bit integers",
            json!({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128}),
            D / 2 + D / 64,
        ),
        (
            "fp8 with blocks",
            json!({"quant_method": "fp8", "weight_block_size": [128, 128]}),
            D + 4 * 12 * 4,
        ),
        (
            "fp8 with scales of the input",
            json!({"quant_method": "FP8", "activation_scheme": "static"}),
            D + 8,
        ),
        ("fbgemm", json!({"quant_method": "fbgemm_fp8"}), D + ROWS * 4),
        (
            "4 bits",
            json!({"quant_method": "bitsandbytes", "load_in_4bit": true}),
            D / 2 + D / 16 + 64 + 90,
        ),
        ("8 bits", json!({"quant_method": "bitsandbytes", "load_in_8bit": true}), D + ROWS * 4),
        (
            "hqq",
            json!({"quant_method": "hqq", "quant_config": {"weight_quant_params":
                {"nbits": 4, "group_size": 64}}}),
            D / 2 + D / 16,
        ),
        (
            "hqq by layer, 3 bits",
            json!({"quant_method": "hqq", "quant_config": {"mlp.down_proj":
                {"weight_quant_params": {"nbits": 3, "group_size": 64}}}}),
            ROWS * (WIDE * 32 / 10_u64).div_ceil(8) + D / 16,
        ),
        (
            "quark, mxfp4",
            json!({"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config":
                {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}}),
            D / 2 + D / 32,
        ),
        (
            "quark, fp8",
            json!({"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config":
                {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}}),
            D + 4,
        ),
        ("eetq", json!({"quant_method": "eetq"}), D + ROWS * 2),
        ("quanto", json!({"quant_method": "quanto", "weights": "int4"}), D / 2 + D / 32),
        (
            "torchao",
            json!({"quant_method": "torchao", "quant_type": "int4_weight_only",
            "quant_type_kwargs": {"group_size": 64}}),
            D / 2 + D / 16,
        ),
        (
            "torchao, by class",
            json!({"quant_method": "torchao", "quant_type":
                {"default": {"_type": "Float8WeightOnlyConfig", "_data": {}}}}),
            D + ROWS * 4,
        ),
        ("bitnet", json!({"quant_method": "bitnet"}), D / 4 + 2),
        ("higgs", json!({"quant_method": "higgs", "bits": 4, "group_size": 256}), D / 2 + D / 128),
        (
            "fp_quant",
            json!({"quant_method": "fp_quant", "forward_dtype": "nvfp4"}),
            D / 2 + D / 16 + 8,
        ),
        (
            "aqlm",
            json!({"quant_method": "aqlm", "in_group_size": 8, "out_group_size": 1,
                "num_codebooks": 1, "nbits_per_codebook": 16}),
            D / 4 + ROWS * 2 + (8 << 16) * 2,
        ),
        (
            "vptq",
            json!({"quant_method": "vptq", "config_for_layers": {DOWN.trim_end_matches(".weight"):
                {"vector_lens": [-1, 8], "num_centroids": [-1, 65536], "group_num": 1,
                "num_res_centroids": [-1, 256]}}}),
            D / 8 * 3 + WIDE * 6 + (65_536 + 256) * 16,
        ),
        (
            "spqr",
            json!({"quant_method": "spqr", "bits": 3, "shapes": {
                "model.layers.1.mlp.down_proj.dense_weights.shape": 24_576,
                "model.layers.1.mlp.down_proj.row_offsets.shape": 513,
                "model.layers.1.mlp.down_proj.col_vals.shape": 4000,
                "model.layers.1.mlp.down_proj.in_perm.shape": WIDE}}),
            24_576 * 8 + (513 + 4000 + WIDE) * 4,
        ),
        ("exl2", json!({"quant_method": "exl2", "bits": 4.25}), ROWS * (WIDE * 17 / 32)),
    ] {
        let model = model(dense(), &config);
        assert_eq!(bytes(&model, DOWN), down, "{name}");
        assert_eq!(model.doubts, [], "{name}");
        assert_eq!(bytes(&model, EMBEDDING), VOCABULARY * ROWS * 2, "{name}");
        if name != "exl2" {
            assert_eq!(bytes(&model, HEAD), VOCABULARY * ROWS * 2, "{name}");
        }
        assert_eq!(bytes(&model, "model.norm.weight"), ROWS * 2, "{name}");
        let parameters: u64 = model.tensors.iter().map(crate::Tensor::elements).sum();
        assert_eq!(parameters, 2 * VOCABULARY * ROWS + 2 * (4 * N + 3 * D + 2 * ROWS) + ROWS);
    }
}

#[test]
fn name_rules_apply_to_each_tensor() {
    let plain = 2 * N;
    let awq = N / 2 + N / 64 + N / 256;
    for (name, config, query, head) in [
        (
            "a path keeps a layer",
            json!({"quant_method": "awq", "modules_to_not_convert": ["model.layers.1.self_attn"]}),
            plain,
            2 * VOCABULARY * ROWS,
        ),
        (
            "a regular expression keeps all attention",
            json!({"quant_method": "compressed-tensors", "format": "int-quantized",
                "ignore": ["lm_head", "re:.*self_attn.*"], "config_groups": {"g": {"targets":
                ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}}),
            plain,
            2 * VOCABULARY * ROWS,
        ),
        (
            "the output is a Linear that nothing ignores",
            json!({"quant_method": "compressed-tensors", "format": "int-quantized",
                "config_groups": {"g": {"targets": ["Linear"], "weights":
                {"num_bits": 8, "type": "int", "strategy": "channel"}}}}),
            N + ROWS * 2,
            VOCABULARY * (ROWS + 2),
        ),
        (
            "a group of one's own for attention",
            json!({"quant_method": "compressed-tensors", "format": "mixed-precision",
                "ignore": ["lm_head"], "config_groups": {
                "a": {"targets": ["Linear"], "format": "int-quantized", "weights":
                    {"num_bits": 8, "type": "int", "strategy": "channel"}},
                "b": {"targets": ["re:.*self_attn.*"], "format": "pack-quantized", "weights":
                    {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}}),
            N / 2 + N / 16 + 16,
            2 * VOCABULARY * ROWS,
        ),
        (
            "GPTQModel keeps by one rule and widens by another",
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": true,
                "dynamic": {"-:.*mlp.*": {}, "+:.*q_proj.*": {"bits": 8, "group_size": 64}}}),
            N + N / 64 * 3 + ROWS * 4,
            VOCABULARY * ROWS / 2 + VOCABULARY * 4 * 2 + VOCABULARY * 4 / 2 + ROWS * 4,
        ),
        (
            "only some modules of a block",
            json!({"quant_method": "gptq", "bits": 4, "group_size": 128,
                "modules_in_block_to_quantize": [["mlp.up_proj"], ["mlp.down_proj"]]}),
            plain,
            2 * VOCABULARY * ROWS,
        ),
        (
            "auto-round keeps what has 16 bits",
            json!({"quant_method": "auto_round", "bits": 4, "group_size": 128, "extra_config":
                {"model.layers.1.self_attn.q_proj": {"bits": 16}}}),
            plain,
            2 * VOCABULARY * ROWS,
        ),
        (
            "modelopt by layer",
            json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers":
                {"model.layers.1.self_attn.q_proj": {"quant_algo": "FP8"}}}),
            N + 8,
            2 * VOCABULARY * ROWS,
        ),
        (
            "modelopt excludes by shell patterns",
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4",
                "exclude_modules": ["lm_head", "model.layers.*.self_attn*"]}),
            plain,
            2 * VOCABULARY * ROWS,
        ),
        (
            "a layer of quark",
            json!({"quant_method": "quark", "exclude": ["lm_head"], "layer_quant_config":
                {"*q_proj": {"weight": {"dtype": "int8", "qscheme": "per_channel"}}},
                "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}),
            N + ROWS * 4,
            2 * VOCABULARY * ROWS,
        ),
        (
            "all modules",
            json!({"quant_method": "awq", "bits": 4, "group_size": 128}),
            awq,
            2 * VOCABULARY * ROWS,
        ),
    ] {
        let model = model(dense(), &config);
        assert_eq!(bytes(&model, QUERY), query, "{name}");
        assert_eq!(bytes(&model, HEAD), head, "{name}");
        assert_eq!(model.doubts, [], "{name}");
    }
}

#[test]
fn quantizes_experts_but_not_router() {
    let routed = "model.layers.1.mlp.experts.down_proj";
    let n = EXPERTS * 256 * ROWS;
    let int4 = json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*",
            "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "lm_head"],
        "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
            "group_size": 32, "strategy": "group"}}}});
    for (name, config, experts, attention) in [
        ("mxfp4", json!({"quant_method": "mxfp4"}), n / 2 + n / 32, 2),
        ("experts alone", json!({"quant_method": "experts_int8"}), n + EXPERTS * ROWS * 4, 2),
        ("experts by patterns", int4, n / 2 + n / 16 + EXPERTS * 16, 2),
        (
            "fp8",
            json!({"quant_method": "fp8", "modules_to_not_convert": ["gate", "lm_head"]}),
            n + EXPERTS * 4,
            1,
        ),
    ] {
        let model = model(sparse(), &config);
        assert_eq!(bytes(&model, routed), experts, "{name}");
        let router = bytes(&model, "model.layers.1.mlp.gate.weight");
        assert_eq!(router, EXPERTS * ROWS * 2, "{name}");
        let query = bytes(&model, "model.layers.0.self_attn.q_a_proj.weight");
        assert_eq!(query / (256 * ROWS), attention, "{name}");
    }
}

#[test]
fn unknown_input_becomes_a_doubt() {
    for (config, doubt) in [
        (json!({"quant_method": "psychic"}), "method 'psychic' is unknown and not counted"),
        (
            json!({"quant_method": "Psychic", "bits": 4}),
            "'psychic' is unknown and counted as 4 bits",
        ),
        (json!({"scale": 1}), "method without a name is unknown"),
        (json!({"quant_method": "modelopt", "quant_algo": "FP5"}), "algorithm 'FP5' of modelopt"),
        (json!({"quant_method": "compressed-tensors"}), "'config_groups' is missing"),
        (
            json!({"quant_method": "compressed-tensors", "format": "knitted", "config_groups":
                {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}}}),
            "4 bits in format 'knitted'",
        ),
        (
            json!({"quant_method": "compressed-tensors", "format": "int-quantized",
                "config_groups": {"g": {"targets": ["Hat"], "weights":
                {"num_bits": 8, "type": "int", "strategy": "channel"}}}}),
            "target 'Hat'",
        ),
        (json!({"quant_method": "awq", "ignore": ["re:(?<=a)b"]}), "pattern 're:(?<=a)b'"),
        (json!({"quant_method": "torchao", "quant_type": "int7"}), "'quant_type' of torchao"),
        (json!({"quant_method": "quanto", "weights": "int9"}), "weights of quanto"),
        (json!({"quant_method": "quark"}), "'global_quant_config'"),
        (json!({"quant_method": "spqr"}), "shapes of spqr"),
        (json!({"quant_method": "vptq"}), "layers of vptq"),
    ] {
        let model = model(dense(), &config);
        let texts: Vec<&str> = model.doubts.iter().map(|doubt| doubt.text.as_str()).collect();
        assert!(texts.iter().any(|text| text.contains(doubt)), "{config}: {texts:?}");
    }
    assert_eq!(model(dense(), &json!({})).doubts, []);
}

#[test]
fn finds_nested_and_renamed_objects() {
    let awq = json!({"quant_method": "awq", "bits": 4, "group_size": 128});
    let plain = model(dense(), &json!({})).bytes();
    let wanted = model(dense(), &awq).bytes();
    assert!(wanted < plain);
    for key in ["text_config", "llm_config"] {
        let mut text = dense();
        text["quantization_config"] = awq.clone();
        let outer = json!({"model_type": "outer", key: text});
        let found = read(outer.to_string().as_bytes()).unwrap();
        assert_eq!(found.model().unwrap().bytes(), wanted, "{key}");
    }
    let mut renamed = dense();
    renamed["compression_config"] = awq;
    let found = read(renamed.to_string().as_bytes()).unwrap();
    assert_eq!(found.model().unwrap().bytes(), wanted);
    let mut mlx = dense();
    mlx["quantization"] = json!({"group_size": 64, "bits": 4,
        "model.layers.1.self_attn.q_proj": {"bits": 8, "group_size": 64}, "lm_head": false});
    let found = read(mlx.to_string().as_bytes()).unwrap();
    let of_mlx = found.model().unwrap();
    assert_eq!(bytes(&of_mlx, DOWN), D / 2 + D / 16);
    assert_eq!(bytes(&of_mlx, QUERY), N + N / 16);
    assert_eq!(bytes(&of_mlx, EMBEDDING), VOCABULARY * ROWS * 9 / 16);
    assert_eq!(bytes(&of_mlx, HEAD), VOCABULARY * ROWS * 2);
}

#[test]
fn hostile_numbers_and_lists_do_not_panic() {
    let most = u64::MAX;
    for method in [
        "awq",
        "gptq",
        "hqq",
        "aqlm",
        "vptq",
        "spqr",
        "quark",
        "torchao",
        "modelopt",
        "exl2",
        "compressed-tensors",
        "higgs",
        "fp8",
        "bitsandbytes",
        "deepspeedfp",
        "mlx",
        "quanto",
    ] {
        for value in [json!(most), json!(-1), json!(0), json!("x"), json!([0, 0]), json!({"a": 1})]
        {
            let config = json!({"quant_method": method, "bits": value, "group_size": value,
                "weight_block_size": value, "in_group_size": value, "num_codebooks": value,
                "nbits_per_codebook": value, "shapes": {"a.dense_weights.shape": value},
                "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": value,
                    "group_size": value}}},
                "config_for_layers": {"a": {"vector_lens": [value, value],
                    "num_centroids": [value, value]}}});
            let model = model(dense(), &config);
            assert!(!model.tensors.is_empty());
        }
    }
}

#[test]
fn values_outside_all_methods_are_doubts() {
    let row = |quantization: Value, part: &str| {
        let doubts = model(dense(), &quantization).doubts;
        let texts: Vec<&str> = doubts.iter().map(|doubt| doubt.text.as_str()).collect();
        match part {
            "" => assert_eq!(texts, [""; 0], "{quantization}"),
            part => {
                assert!(texts.iter().any(|text| text.contains(part)), "{quantization}: {texts:?}")
            }
        }
    };
    let four = |size: Value| json!({"quant_method": "awq", "bits": 4, "group_size": size});
    row(four(json!(128)), "");
    row(four(json!(-1)), "");
    row(four(json!(0)), "'group_size' is 0, not a number of weights");
    row(four(json!(-128)), "'group_size' is -128, not a number of weights");
    row(four(json!("128")), "'group_size' is \"128\", not");
    let eight = |tile: Value| json!({"quant_method": "fp8", "weight_block_size": tile});
    row(eight(json!([128, 128])), "");
    row(eight(json!(null)), "");
    row(eight(json!([128])), "'weight_block_size' is [128], not a pair");
    row(eight(json!([0, 128])), "'weight_block_size' is [0,128], not a pair");
    row(eight(json!(128)), "'weight_block_size' is 128, not a pair");
    let weights = json!({"num_bits": 4, "type": "int", "group_size": 0, "strategy": "group"});
    let listed = json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"g": {"targets": ["Linear"], "weights": weights}}});
    row(listed, "'group_size' is 0");
    row(json!("awq"), "'quantization_config' is \"awq\", not an object");
    row(json!(["awq"]), "'quantization_config' is [\"awq\"], not an object");
}

#[test]
fn reads_cache_encoding_from_checkpoint() {
    let base = json!({"quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"g": {"targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}}});
    let cache = |base: &Value, key: &str, value: Value| {
        let mut config = dense();
        config["quantization_config"] = base.clone();
        config["quantization_config"][key] = value;
        let read = read(config.to_string().as_bytes()).unwrap();
        let doubts: Vec<String> = read.doubts.into_iter().map(|doubt| doubt.text).collect();
        (read.quantization.unwrap().cache.map(|cache| cache.name()), doubts.join("; "))
    };
    let none = String::new();
    let float = json!({"num_bits": 8, "type": "float", "strategy": "tensor"});
    assert_eq!(cache(&base, "kv_cache_scheme", json!(null)), (None, none.clone()));
    assert_eq!(cache(&base, "kv_cache_scheme", float), (Some("F8_E4M3"), none.clone()));
    let int = json!({"num_bits": 8, "type": "int", "strategy": "tensor"});
    let (kept, doubts) = cache(&base, "kv_cache_scheme", int);
    assert_eq!((kept, doubts.as_str()), (None, "keys and values in 'int8' count as 16 bits"));
    let modelopt = json!({"quant_method": "modelopt", "quant_algo": "FP8"});
    assert_eq!(cache(&modelopt, "kv_cache_quant_algo", json!("FP8")), (Some("F8_E4M3"), none));
    let (kept, doubts) = cache(&modelopt, "kv_cache_quant_algo", json!("NVFP4"));
    assert_eq!((kept, doubts.contains("'nvfp4'")), (None, true));
}
