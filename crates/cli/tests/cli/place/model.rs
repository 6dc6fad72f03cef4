//! Models on simulated machines and on GPUs of a given size.

use super::*;

#[test]
fn model_is_placed_on_gpus_available_to_a_claim() {
    let words = ["--sim", "labbox", "place", "model", LLAMA, "--context", "8k"];
    hold("llama.txt", &words);
    let placed = object(&run(&[&words[..], &["--json"]].concat()));
    assert_eq!((&placed["fits"], placed["context_tokens"].as_u64()), (&json!(true), Some(8192)));
    assert_eq!(placed["model"]["parameter_count"].as_u64(), Some(8_030_261_248));
    assert_eq!(placed["rooms"].as_array().unwrap().len(), 1, "the other GPUs are in use");
    assert_eq!(placed["unavailable"].as_array().unwrap().len(), 3);
    // 32 layers, 8 heads of keys and of values, 128 elements of 2 bytes, 8,192 tokens.
    assert_eq!(placed["needs"]["context_bytes"].as_u64(), Some(32 * 8 * 2 * 128 * 2 * 8192));
    let used = object(&run(&[&words[..], &["--accept-used", "--json"]].concat()));
    assert_eq!(used["rooms"].as_array().unwrap().len(), 4);
}

#[test]
fn oversized_model_exits_with_1_and_offers_an_encoding() {
    let words = ["place", "model", LLAMA, "--context", "8k", "--memory", "8GiB,8GiB"];
    let small = run(&words);
    assert_eq!(small.status.code(), Some(1), "{small:?}");
    hold("llama.small.txt", &words);
    assert!(out(&small).contains("--weights Q8_0"), "{small:?}");
    let smaller = run(&[&words[..], &["--weights", "Q8_0"]].concat());
    assert_eq!(smaller.status.code(), Some(0), "{smaller:?}");
    let host = run(&[&words[..], &["--host-memory", "64GiB"]].concat());
    assert_eq!(host.status.code(), Some(0), "{host:?}");
}

#[test]
fn split_is_printed_in_the_form_of_other_programs() {
    let words = ["place", "model", LLAMA, "--context", "8k", "--memory", "10GiB,10GiB"];
    let with = |more: &[&str]| run(&[&words[..], more].concat());
    let llama = out(&with(&["--format", "llama"]));
    let shares = llama.trim_end().strip_prefix("-c 8192 -ngl 33 --tensor-split ").unwrap();
    let shares = shares.strip_suffix(" -np 1").unwrap();
    let shares: Vec<u32> = shares.split(',').map(|share| share.parse().unwrap()).collect();
    assert_eq!((shares.len(), shares.iter().sum()), (2, 33));
    let map = object(&with(&["--format", "device-map", "--engine", "transformers"]));
    assert_eq!((&map["model.embed_tokens"], &map["lm_head"]), (&json!(0), &json!(1)));
    let svg = out(&with(&["--svg", "-"]));
    assert!(svg.starts_with("<svg") && svg.contains("GPU 1"), "{svg}");
    let vllm = out(&with(&["--format", "vllm"]));
    let expected = format!(
        "vllm serve {LLAMA} --tensor-parallel-size 2 --max-model-len 8192 \
         --gpu-memory-utilization 0.98\n"
    );
    assert_eq!(vllm, expected);
    let spilled = ["--memory", "10GiB", "--host-memory", "64GiB", "--format", "vllm"];
    let (code, message) = refusal(&[&words[..5], &spilled].concat());
    assert_eq!((code, message.contains("only on GPUs")), (Some(1), true), "{message}");
    let (_, message) = refusal(&[&words[..5], &spilled[..2], &spilled[4..]].concat());
    assert!(!message.contains("--host-memory"), "{message}");
    let (code, message) =
        refusal(&[&words[..], &["--format", "vllm", "--engine", "llama.cpp"]].concat());
    assert_eq!((code, message.contains("of another engine")), (Some(2), true), "{message}");
    let small = ["place", "model", LLAMA, "--memory", "2GiB", "--format", "llama"];
    let (code, message) = refusal(&small);
    assert_eq!((code, message.contains("the GPU has 1.5 GiB")), (Some(1), true), "{message}");
}

/// `gpuws run` lets the program see only the GPUs that hold layers.
#[test]
fn device_map_numbers_the_gpus_in_use() {
    let sizes = ["--memory", "2GiB,24GiB", "--context", "8k", "--format", "device-map"];
    let mapped = run(&[&["place", "model", LLAMA], &sizes[..]].concat());
    assert_eq!(object(&mapped), json!({ "": 0 }));
    let message = String::from_utf8_lossy(&mapped.stderr);
    assert!(message.contains("CUDA_VISIBLE_DEVICES=1'"), "{message}");
}

/// A program that sees all GPUs would use the small one in the middle.
#[test]
fn command_shows_only_the_gpus_in_use() {
    let sizes = ["--memory", "12GiB,4GiB,12GiB", "--context", "8k"];
    let words = [&["place", "model", LLAMA], &sizes[..]].concat();
    let shown = out(&run(&words)).split_whitespace().collect::<Vec<_>>().join(" ");
    let command = "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,2 llama-server";
    assert!(shown.contains(command) && shown.contains(" -np 1"), "{shown}");
    let equal = ["place", "model", LLAMA, "--memory", "12GiB,12GiB", "--context", "8k"];
    assert!(!out(&run(&equal)).contains("CUDA_VISIBLE_DEVICES"));
    // The first of several equal GPUs is in use.
    let many = ["place", "model", LLAMA, "--memory", "24GiB,24GiB,24GiB", "--context", "8k"];
    for goal in ["fewest", "latency", "throughput"] {
        let placed = object(&run(&[&many[..], &["--goal", goal, "--json"]].concat()));
        assert!(placed["rooms"][0]["layer_count"].as_u64().unwrap() > 0, "{goal}: {placed:#}");
        assert_eq!(placed["layers"][1]["room"], "GPU 0", "{goal}");
    }
}

#[test]
fn as_many_layers_as_fit_stay_on_gpus() {
    let words = ["place", "model", LLAMA, "--context", "8k", "--memory", "8GiB,8GiB"];
    let placed = object(&run(&[&words[..], &["--host-memory", "64GiB", "--json"]].concat()));
    let layers = |at: usize| placed["rooms"][at]["layer_count"].as_u64().unwrap();
    assert!(layers(0) >= 10 && layers(1) >= 10, "{placed:#}");
    // The memory of the host counts for the context.
    let tried = &placed["encodings"][0];
    assert!(tried["largest_context_tokens"].as_u64().unwrap() >= 8192, "{tried}");
}

#[test]
fn vllm_has_sizes_for_each_degree_of_tensor_parallelism() {
    let sizes = ["--memory", "16GiB,24GiB,16GiB", "--context", "8k", "--engine", "vllm"];
    let words = [&["place", "model", LLAMA], &sizes[..]].concat();
    let placed = object(&run(&[&words[..], &["--json"]].concat()));
    let sizes = placed["tensor_parallel"].as_array().unwrap();
    let of = |key: &str| -> Vec<Value> { sizes.iter().map(|size| size[key].clone()).collect() };
    assert_eq!(of("gpu_count"), [1, 2]);
    // One rank goes to the largest GPU.
    assert_eq!(of("fits"), [true, true]);
    assert_eq!(of("memory_percent"), [92, 92]);
    assert_eq!(of("weights_bytes")[1], 8_030_261_248_u64);
    let many = object(&run(&[&words[..], &["--sequences", "8", "--json"]].concat()));
    let fits: Vec<&Value> =
        many["tensor_parallel"].as_array().unwrap().iter().map(|size| &size["fits"]).collect();
    assert_eq!((fits[0], &many["tensor_parallel_count"]), (&json!(false), &json!(2)), "{many:#}");
    // Rooms and layers describe the division.
    let rooms = many["rooms"].as_array().unwrap();
    let ranks: Vec<&Value> = rooms.iter().filter(|room| room["weights_bytes"] != 0).collect();
    assert_eq!(ranks.len(), 2, "{many:#}");
    for rank in ranks {
        assert_eq!(rank["weights_bytes"], 8_030_261_248_u64);
        assert_eq!((&rank["layer_count"], &rank["lacking_bytes"]), (&json!(34), &json!(0)));
    }
    assert!(many["layers"].as_array().unwrap().iter().all(|layer| layer["room"].is_null()));
    let shown = out(&run(&[&words[..], &["--sequences", "8"]].concat()));
    assert!(shown.contains("a part of each") && shown.contains("does not fit"), "{shown}");
}

/// A pipeline needs no more of a GPU than its command requests.
#[test]
fn verdict_of_a_pipeline_has_a_command() {
    for tenths in 86..104 {
        let size = format!("{}MiB", tenths * 1024 / 10);
        let sizes = format!("{size},{size}");
        // Seven heads cannot be divided over two GPUs.
        let words = ["place", "model", ODD, "--memory", &sizes, "--context", "8k"];
        let words = [&words[..], &["--engine", "vllm"]].concat();
        let fits = object(&run(&[&words[..], &["--json"]].concat()))["fits"] == json!(true);
        let shown = out(&run(&words));
        assert_eq!(shown.contains("--pipeline-parallel-size 2"), fits, "{size}: {shown}");
    }
}

#[test]
fn bad_model_is_refused_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let memory = ["--memory", "8GiB"];
    let refused = |words: &[&str]| refusal(&[&["place", "model"], words, &memory].concat());
    for (words, part) in [
        (&[empty][..], "no model found (expected .safetensors, .gguf, .bin or config.json)"),
        (&[LLAMA, "--weights", "Q4"], "read the encoding 'Q4'"),
        (&[LLAMA, "--context", "0"], "must be between 1 and"),
        (&["/nonexistent"], "failed to read '/nonexistent'"),
    ] {
        let (code, message) = refused(words);
        assert!(code != Some(0) && message.contains(part), "{words:?}: {code:?} {message}");
    }
    // A header of two gigabytes in a file of 16 bytes.
    let lying = dir.path().join("model.safetensors");
    std::fs::write(&lying, [&(2_u64 << 30).to_le_bytes()[..], b"{\"a\": {}"].concat()).unwrap();
    let (code, message) = refused(&[empty]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("model.safetensors"), "{message}");
}
