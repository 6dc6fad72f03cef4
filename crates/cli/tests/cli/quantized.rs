//! `gpuws place model` of quantized models: figures, verdicts, refusals and the printed commands.

use crate::live::text;
use crate::place::LLAMA;
use crate::schema::commands::run;
use serde_json::{Value, json};
use std::process::Output;

/// A model of 8 billion parameters that was trained for 8,192 tokens.
fn config() -> Value {
    json!({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128_256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
        "tie_word_embeddings": false})
}

fn with(key: &str, value: Value) -> Value {
    let mut config = config();
    config[key] = value;
    config
}

/// Places a model that has only a configuration and no weight files.
fn place(config: &Value, words: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    std::fs::write(&file, config.to_string()).unwrap();
    run(&[&["place", "model", file.to_str().unwrap()], words].concat())
}

/// Returns the exit code, and the texts of standard output and standard error, each as one line.
fn said(output: &Output) -> (Option<i32>, String, String) {
    let line = |bytes: &[u8]| text(bytes).split_whitespace().collect::<Vec<_>>().join(" ");
    (output.status.code(), line(&output.stdout), line(&output.stderr))
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn verdict_uses_only_understood_properties() {
    let awq = json!({"quant_method": "AWQ", "bits": 4, "group_size": 128});
    let unknown = json!({"quant_method": "psychic", "bits": 4});
    let mut novel = config();
    novel["model_type"] = json!("novel");
    for (config, memory, code, verdict, fits) in [
        (config(), "24GiB", 0, "fits", true),
        (config(), "12GiB", 1, "does-not-fit", false),
        (with("quantization_config", awq.clone()), "12GiB", 0, "fits", true),
        (with("text_config", with("quantization_config", awq)), "12GiB", 0, "fits", true),
        (with("quantization_config", unknown.clone()), "12GiB", 6, "estimate", true),
        (with("quantization_config", unknown), "4GiB", 6, "estimate", false),
        (novel, "24GiB", 6, "estimate", true),
    ] {
        let words = ["--memory", memory, "--context", "4k"];
        let placed = place(&config, &[&words[..], &["--json"]].concat());
        assert_eq!(placed.status.code(), Some(code), "{config}: {placed:?}");
        let json = object(&placed);
        assert_eq!(json["verdict"], verdict, "{config}");
        assert_eq!(json["fits"], fits, "{config}");
        let is_estimate = verdict == "estimate";
        assert_eq!(!json["doubts"].as_array().unwrap().is_empty(), is_estimate, "{json:#}");
        let (shown, out, _) = said(&place(&config, &words));
        assert_eq!(shown, Some(code));
        assert_eq!(out.contains("not understood:"), is_estimate, "{out}");
        let words = match (is_estimate, fits) {
            (true, true) => "may fit (estimate): ",
            (true, false) => "may not fit (estimate): ",
            (false, true) => " fits 1 GPU",
            (false, false) => " does not fit: ",
        };
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
fn missing_element_type_is_a_doubt() {
    let unstated = with("torch_dtype", Value::Null);
    let doubt = json!(["the configuration does not state torch_dtype; 16 bits are assumed"]);
    for (words, code, doubts) in [
        (&["--engine", "vllm"][..], 6, doubt.clone()),
        (&["--engine", "llama.cpp"], 6, doubt),
        (&["--weights", "Q4_K_M"], 0, json!([])),
    ] {
        let words = [&["--memory", "24GiB", "--context", "4k", "--json"], words].concat();
        let placed = place(&unstated, &words);
        assert_eq!(placed.status.code(), Some(code), "{words:?}: {placed:?}");
        let json = object(&placed);
        assert_eq!(json["doubts"], doubts, "{words:?}");
        assert_eq!(json["fits"], true, "{words:?}");
        assert_eq!(json["model"]["weights_bytes"], 2 * 8_030_261_248_u64, "{words:?}");
    }
}

#[test]
fn weights_are_those_of_the_quantized_checkpoint() {
    for (quantization, hundredths) in [
        (json!({"quant_method": "fp8", "weight_block_size": [128, 128]}), 846),
        (
            json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
                "ignore": ["lm_head"], "config_groups": {"g": {"targets": ["Linear"], "weights":
                {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"}}}}),
            531,
        ),
        (json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), 561),
    ] {
        let words = ["--memory", "24GiB", "--json", "--context", "4k"];
        let json = object(&place(&with("quantization_config", quantization.clone()), &words));
        let bytes = json["model"]["weights_bytes"].as_u64().unwrap();
        assert_eq!(
            (bytes as f64 / 1024f64.powi(3) * 100.0).round() as u64,
            hundredths,
            "{quantization}"
        );
        assert_eq!(json["model"]["parameter_count"].as_u64(), Some(8_030_261_248));
        let method = quantization["quant_method"].as_str().unwrap();
        assert_eq!(json["model"]["quantization"], method);
    }
}

#[test]
fn engine_refuses_unloadable_weights() {
    let awq = with("quantization_config", json!({"quant_method": "awq", "bits": 4}));
    let plain = config();
    for (config, words, parts) in [
        (
            &plain,
            &["--engine", "vllm", "--weights", "Q4_K_M"][..],
            &["vLLM cannot load weights in Q4_K_M", "AWQ"][..],
        ),
        (
            &plain,
            &["--format", "device-map", "--weights", "q4_k"],
            &["transformers cannot load", "NF4"],
        ),
        (&plain, &["--format", "llama", "--weights", "awq"], &["llama.cpp cannot load", "Q4_K_M"]),
        (&plain, &["--engine", "vllm", "--kv", "Q8_0"], &["does not support keys", "F8_E4M3"]),
        (&plain, &["--weights", "Q4_9"], &["read the encoding 'Q4_9'", "Q4_K_M"]),
        (&awq, &["--engine", "llama.cpp"], &["quantized with awq", "--engine vllm"]),
        (&awq, &["--weights", "fp8"], &["already quantized with awq", "omit --weights"]),
    ] {
        let (code, out, message) = said(&place(config, &[&["--memory", "24GiB"], words].concat()));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{words:?}: {message}");
        for part in parts {
            assert!(message.contains(part), "{words:?}: {part}: {message}");
        }
    }
}

#[test]
fn command_has_quantization_or_names_its_requirement() {
    let config = config();
    let base = ["--memory", "24GiB", "--context", "4k"];
    for (words, out_part, message_part) in [
        (&["--format", "vllm", "--weights", "FP8"][..], "--quantization fp8", ""),
        (&["--format", "vllm", "--weights", "nf4"], "--quantization bitsandbytes", ""),
        (&["--format", "vllm", "--weights", "F16"], "--dtype float16", ""),
        (&["--format", "vllm", "--kv", "fp8"], "--kv-cache-dtype fp8", ""),
        (
            &["--format", "vllm", "--weights", "awq"],
            "vllm serve CHECKPOINT_IN_AWQ --max-model-len",
            "get a checkpoint of the model in AWQ",
        ),
        (
            &["--format", "vllm", "--weights", "NVFP4"],
            "vllm serve CHECKPOINT_IN_NVFP4 ",
            "get a checkpoint of the model in NVFP4",
        ),
        (
            &["--format", "device-map", "--weights", "nf4"],
            "{",
            "quantization_config=BitsAndBytesConfig(load_in_4bit=True",
        ),
        (
            &["--format", "llama", "--weights", "Q4_K_M"],
            "-c 4096 -ngl 33",
            "convert it to GGUF in Q4_K_M",
        ),
        (&["--format", "llama", "--kv", "q8_0"], "-fa on -ctk q8_0 -ctv q8_0 -np 1", ""),
        (&["--weights", "FP8"], "--quantization fp8", ""),
        (&["--weights", "UD-Q4_K_XL"], "download a GGUF file of the model in UD-Q4_K_XL", ""),
    ] {
        let (code, out, message) = said(&place(&config, &[&base[..], words].concat()));
        let expected = if words.contains(&"UD-Q4_K_XL") { 6 } else { 0 };
        assert_eq!(code, Some(expected), "{words:?}: {out} {message}");
        assert!(out.contains(out_part), "{words:?}: {out_part}: {out}");
        assert!(message.contains(message_part), "{words:?}: {message_part}: {message}");
    }
}

#[test]
fn unknown_method_has_no_command() {
    let unknown = with("quantization_config", json!({"quant_method": "psychic", "bits": 4}));
    let (code, out, _) = said(&place(&unknown, &["--memory", "24GiB", "--context", "4k"]));
    assert_eq!(code, Some(6), "{out}");
    assert!(!out.contains("next:"), "{out}");
    let words = ["--memory", "24GiB", "--context", "4k", "--format", "vllm"];
    let (code, out, message) = said(&place(&unknown, &words));
    assert_eq!((code, out.as_str()), (Some(1), ""), "{message}");
    assert!(message.contains("vLLM is not known to load"), "{message}");
}

/// llama.cpp loads a GGUF file even if it cannot load the checkpoint of the model.
#[test]
fn quantized_checkpoint_has_a_plan_for_a_gguf_file() {
    let mxfp4 = with("quantization_config", json!({"quant_method": "mxfp4"}));
    let base = ["--memory", "24GiB", "--context", "4k", "--engine", "llama.cpp"];
    let (code, _, message) = said(&place(&mxfp4, &base));
    assert_eq!((code, message.contains("--weights MXFP4_MOE")), (Some(2), true), "{message}");
    let (code, out, message) =
        said(&place(&mxfp4, &[&base[..], &["--weights", "MXFP4_MOE"]].concat()));
    assert_eq!(code, Some(0), "{message}");
    assert!(out.contains("download a GGUF file of the model in MXFP4_MOE"), "{out}");
    assert!(out.contains("llama-server -m MODEL.gguf -c 4096 -ngl 33 -np 1"), "{out}");
}

/// GPUs that cannot run the kernels are not offered, and the working alternatives are named.
#[test]
fn kernels_follow_the_compute_capability() {
    for (machine, weights, code, part) in [
        ("dgx1-v100", "FP8", 1, "compute capability 7.0, but vLLM with FP8 needs 8.0"),
        ("dgx1-v100", "AWQ", 1, "vLLM runs weights in F32, F16, GPTQ, NF4"),
        ("dgx1-v100", "NF4", 0, "--quantization bitsandbytes"),
    ] {
        let words = ["--sim", machine, "place", "model", LLAMA, "--context", "4k"];
        let words = [&words[..], &["--engine", "vllm", "--weights", weights]].concat();
        let (found, out, message) = said(&run(&words));
        assert_eq!(found, Some(code), "{machine} {weights}: {out} {message}");
        assert!(
            out.contains(part) || message.contains(part),
            "{machine} {weights}: {out} {message}"
        );
    }
    let words = ["--sim", "dgx1-v100", "place", "model", LLAMA, "--engine", "vllm", "--json"];
    let tried = object(&run(&words))["encodings"].to_string();
    assert!(tried.contains("NF4") && !tried.contains("FP8") && !tried.contains("AWQ"), "{tried}");
}

#[test]
fn cache_is_kept_as_the_checkpoint_says() {
    let cached = with(
        "quantization_config",
        json!({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}),
    );
    let base = ["--memory", "24GiB", "--context", "4k", "--engine", "vllm"];
    let bytes = |words: &[&str]| {
        let json = object(&place(&cached, &[&base[..], words, &["--json"]].concat()));
        json["needs"]["context_bytes"].as_u64().unwrap()
    };
    assert_eq!(bytes(&["--kv", "F16"]), 2 * bytes(&[]));
    let (_, out, message) = said(&place(&cached, &base));
    assert!(out.contains("--kv-cache-dtype fp8"), "{out} {message}");
}

#[test]
fn context_beyond_training_is_noted_and_not_asked_for() {
    let config = config();
    let words = ["--memory", "24GiB", "--context", "32k"];
    let note = "trained for 8192 tokens of context; 32768 are requested";
    let (_, out, message) = said(&place(&config, &words));
    assert!(out.contains(note) && message.contains(note), "{out} {message}");
    assert!(out.contains(" -c 8192 ") && !out.contains("-c 32768"), "{out}");
    let json = object(&place(&config, &[&words[..], &["--json"]].concat()));
    assert!(
        json["notes"].as_array().unwrap().iter().any(|text| text.as_str().unwrap().contains(note))
    );
    let (_, out, message) = said(&place(&config, &[&words[..], &["--format", "vllm"]].concat()));
    assert!(out.contains("--max-model-len 8192") && message.contains(note), "{out} {message}");
    let (_, out, message) = said(&place(&config, &["--memory", "24GiB", "--context", "8k"]));
    assert!(!out.contains("trained for") && !message.contains("trained for"), "{out} {message}");
}

#[test]
fn tensor_parallelism_is_preferred_to_a_pipeline() {
    let config = config();
    let words = ["--memory", "12GiB,12GiB", "--context", "8k", "--format", "vllm"];
    let (code, out, message) = said(&place(&config, &words));
    assert_eq!(code, Some(0), "{message}");
    assert!(out.contains(" --tensor-parallel-size 2 ") && !out.contains("pipeline"), "{out}");
    let json = object(&place(&config, &[&words[..4], &["--engine", "vllm", "--json"]].concat()));
    assert_eq!(json["tensor_parallel_count"], 2);
    // 7 heads cannot be divided over two GPUs.
    let mut odd = with("num_attention_heads", json!(7));
    odd["num_key_value_heads"] = json!(7);
    odd["head_dim"] = json!(512);
    let (_, out, message) = said(&place(&odd, &words));
    assert!(out.contains("--pipeline-parallel-size 2"), "{out} {message}");
}

#[test]
fn impossible_placement_has_no_table() {
    let small = ["place", "model", LLAMA, "--context", "8k", "--memory", "8GiB,8GiB", "--explain"];
    let (code, out, _) = said(&run(&small));
    assert_eq!(code, Some(1), "{out}");
    assert!(!out.contains("usable") && !out.contains("layer weights"), "{out}");
    let (_, out, _) =
        said(&run(&["place", "model", LLAMA, "--context", "8k", "--memory", "24GiB"]));
    assert!(out.contains("usable"), "{out}");
}

#[test]
fn repository_is_no_local_path() {
    let (code, _, message) =
        said(&run(&["place", "model", "meta-llama/Llama-3-8B", "--memory", "8GiB"]));
    assert_eq!(code, Some(3), "{message}");
    for part in ["PATH is a local path", "hf download meta-llama/Llama-3-8B config.json"] {
        assert!(message.contains(part), "{message}");
    }
    let (_, _, message) = said(&run(&["place", "model", "./a/b/c", "--memory", "8GiB"]));
    assert!(!message.contains("hf download"), "{message}");
}
