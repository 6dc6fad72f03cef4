//! Quantized checkpoints of public models, beside the sizes of their files.

use gpu_model::read::config;
use serde_json::{Value, json};

fn llama(hidden: u64, wide: u64, layers: u64, heads: (u64, u64), vocabulary: u64) -> Value {
    json!({"model_type": "llama", "hidden_size": hidden, "intermediate_size": wide,
        "num_hidden_layers": layers, "num_attention_heads": heads.0,
        "num_key_value_heads": heads.1, "vocab_size": vocabulary, "torch_dtype": "bfloat16",
        "tie_word_embeddings": false})
}

fn llama_3_8b() -> Value {
    llama(4096, 14_336, 32, (32, 8), 128_256)
}

fn qwen_32b() -> Value {
    let mut config = llama(5120, 27_648, 64, (40, 8), 152_064);
    config["model_type"] = json!("qwen2");
    config
}

fn gpt_oss(layers: u64, experts: u64) -> Value {
    json!({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": layers, "num_local_experts": experts,
        "torch_dtype": "bfloat16"})
}

fn gptq(bits: u64, group: i64) -> Value {
    json!({"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": true})
}

fn awq() -> Value {
    json!({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"})
}

fn listed(format: &str, weights: Value) -> Value {
    json!({"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}})
}

/// Returns repositories with their configurations, and hundredths of 10^9 bytes.
fn published() -> Vec<(&'static str, Value, Value, u64)> {
    let llama_2_7b = || llama(4096, 11_008, 32, (32, 32), 32_000);
    let llama_2_13b = || llama(5120, 13_824, 40, (40, 40), 32_000);
    let llama_2_70b = || llama(8192, 28_672, 80, (64, 8), 32_000);
    let channel = json!({"num_bits": 8, "type": "float", "strategy": "channel"});
    let group = json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128});
    let double = json!({"quant_method": "bitsandbytes", "load_in_4bit": true,
        "bnb_4bit_use_double_quant": true, "bnb_4bit_quant_type": "nf4"});
    let mxfp4 = json!({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn",
        "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]});
    vec![
        ("TheBloke/Llama-2-7B-GPTQ", llama_2_7b(), gptq(4, 128), 390),
        ("TheBloke/Llama-2-7B-GPTQ, 64g", llama_2_7b(), gptq(4, 64), 402),
        ("TheBloke/Llama-2-7B-GPTQ, 32g", llama_2_7b(), gptq(4, 32), 428),
        ("TheBloke/Llama-2-7B-AWQ", llama_2_7b(), awq(), 389),
        ("TheBloke/Llama-2-13B-GPTQ", llama_2_13b(), gptq(4, 128), 726),
        ("TheBloke/Llama-2-13B-GPTQ, 64g", llama_2_13b(), gptq(4, 64), 751),
        ("TheBloke/Llama-2-13B-GPTQ, 32g", llama_2_13b(), gptq(4, 32), 800),
        ("TheBloke/Llama-2-13B-GPTQ, 8 bits", llama_2_13b(), gptq(8, -1), 1336),
        ("TheBloke/Llama-2-13B-GPTQ, 8 bits, 128g", llama_2_13b(), gptq(8, 128), 1365),
        ("TheBloke/Llama-2-70B-AWQ", llama_2_70b(), awq(), 3661),
        ("TheBloke/Llama-2-70B-GPTQ, 3 bits, 128g", llama_2_70b(), gptq(3, 128), 2803),
        (
            "TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ",
            json!({"model_type": "mixtral", "torch_dtype": "bfloat16", "hidden_size": 4096, "num_hidden_layers": 32}),
            awq(),
            2465,
        ),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", llama_3_8b(), awq(), 573),
        (
            "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4",
            llama(8192, 28_672, 80, (64, 8), 128_256),
            awq(),
            3977,
        ),
        ("unsloth/llama-3-8b-bnb-4bit", llama_3_8b(), double, 570),
        (
            "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic",
            llama_3_8b(),
            listed("float-quantized", channel.clone()),
            908,
        ),
        (
            "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16",
            llama_3_8b(),
            listed("pack-quantized", group),
            570,
        ),
        ("casperhansen/qwq-32b-preview-awq", qwen_32b(), awq(), 1933),
        ("ig1/QwQ-32B-FP8-Dynamic", qwen_32b(), listed("float-quantized", channel), 3434),
        (
            "predibase/Qwen2.5-32B-Instruct-FP8",
            qwen_32b(),
            json!({"quant_method": "fp8", "activation_scheme": "static"}),
            3434,
        ),
        ("openai/gpt-oss-20b", gpt_oss(24, 32), mxfp4.clone(), 1376),
        ("openai/gpt-oss-120b", gpt_oss(36, 128), mxfp4, 6525),
    ]
}

#[test]
fn quantized_checkpoints_are_within_two_percent_of_their_files() {
    let mut misses = Vec::new();
    for (name, mut config, quantization, hundredths) in published() {
        config["quantization_config"] = quantization;
        let model = config::read(config.to_string().as_bytes()).unwrap().model().unwrap();
        let bytes = model.bytes().0 as f64;
        let error = bytes / (hundredths as f64 * 1e7) - 1.0;
        println!("{name}: {:.2} GB, {:+.2} %", bytes / 1e9, error * 100.0);
        if error.abs() > 0.02 || !model.doubts.is_empty() {
            misses.push(format!("{name}: {error:+.4} {:?}", model.doubts));
        }
    }
    assert_eq!(misses, [""; 0]);
}
