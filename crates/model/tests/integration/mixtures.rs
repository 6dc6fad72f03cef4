//! llama.cpp files in commonly downloaded mixtures, compared with the sizes on their model cards.

use gpu_model::Model;
use gpu_model::need::{Engine, Run, chain, estimate};
use gpu_model::quantize::{Scheme, Use};
use gpu_model::read::config;

fn model(text: &str) -> Model {
    config::read(text.as_bytes()).unwrap().model().unwrap()
}

const LLAMA_3_8B: &str = r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,
    "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,
    "torch_dtype":"bfloat16","tie_word_embeddings":false}"#;
const LLAMA_3_70B: &str = r#"{"model_type":"llama","hidden_size":8192,"intermediate_size":28672,
    "num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":128256,
    "torch_dtype":"bfloat16","tie_word_embeddings":false}"#;
const LLAMA_7B: &str = r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,
    "num_hidden_layers":32,"num_attention_heads":32,"vocab_size":32000,"torch_dtype":"float16",
    "tie_word_embeddings":false}"#;
/// As first published, with each key head stored twice.
const LLAMA_3_405B: &str = r#"{"model_type":"llama","hidden_size":16384,"intermediate_size":53248,
    "num_hidden_layers":126,"num_attention_heads":128,"num_key_value_heads":16,"vocab_size":128256,
    "torch_dtype":"bfloat16","tie_word_embeddings":false}"#;
const QWEN3_30B: &str = r#"{"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,
    "moe_intermediate_size":768,"num_hidden_layers":48,"num_attention_heads":32,
    "num_key_value_heads":4,"head_dim":128,"num_experts":128,"num_experts_per_tok":8,
    "vocab_size":151936,"torch_dtype":"bfloat16","tie_word_embeddings":false}"#;
const MIXTRAL: &str = r#"{"model_type":"mixtral","torch_dtype":"bfloat16"}"#;

/// A name, its configuration, and for each mixture the size of the published file.
type Published = (&'static str, &'static str, &'static [(&'static str, u64)]);

/// Sizes in hundredths of 10^9 bytes.
const PUBLISHED: &[Published] = &[
    (
        "Llama 3.1 8B",
        LLAMA_3_8B,
        &[
            ("Q8_0", 854),
            ("Q6_K", 660),
            ("Q5_K_M", 573),
            ("Q5_K_S", 560),
            ("Q4_K_L", 531),
            ("Q4_K_M", 492),
            ("Q4_K_S", 469),
            ("IQ4_XS", 445),
            ("Q3_K_XL", 478),
            ("Q3_K_L", 432),
            ("Q3_K_M", 402),
            ("Q3_K_S", 366),
            ("IQ3_M", 378),
            ("IQ3_XS", 352),
            ("Q2_K", 318),
            ("IQ2_M", 295),
        ],
    ),
    (
        "Llama 3.1 70B",
        LLAMA_3_70B,
        &[
            ("Q8_0", 7498),
            ("Q6_K", 5789),
            ("Q5_K_L", 5060),
            ("Q5_K_M", 4995),
            ("Q5_K_S", 4866),
            ("Q4_K_L", 4330),
            ("Q4_K_M", 4252),
            ("Q4_K_S", 4035),
            ("Q4_0", 4012),
            ("IQ4_NL", 4010),
            ("IQ4_XS", 3790),
            ("Q3_K_XL", 3806),
            ("Q3_K_L", 3714),
            ("Q3_K_M", 3427),
            ("Q3_K_S", 3091),
            ("IQ3_M", 3194),
            ("IQ3_S", 3090),
            ("IQ3_XS", 2930),
            ("IQ3_XXS", 2750),
            ("Q2_K", 2640),
            ("IQ2_M", 2410),
            ("IQ2_S", 2220),
            ("IQ2_XS", 2110),
            ("IQ2_XXS", 1910),
            ("IQ1_M", 1680),
            ("IQ1_S", 1530),
        ],
    ),
    (
        "Llama 7B",
        LLAMA_7B,
        &[
            ("Q4_K_M", 408),
            ("Q4_K_S", 386),
            ("Q4_0", 383),
            ("IQ4_XS", 365),
            ("Q3_K_L", 360),
            ("Q3_K_M", 330),
            ("Q3_K_S", 295),
            ("IQ3_M", 311),
            ("IQ3_S", 295),
            ("IQ3_XS", 280),
            ("Q2_K", 253),
        ],
    ),
    (
        "Llama 3.1 405B",
        LLAMA_3_405B,
        &[
            ("Q4_K_M", 24_580),
            ("Q4_K_S", 23_300),
            ("Q4_0", 23_220),
            ("IQ4_XS", 21_920),
            ("Q3_K_L", 21_530),
            ("Q3_K_M", 19_760),
            ("Q3_K_S", 17_720),
            ("IQ3_M", 18_390),
            ("IQ3_S", 17_770),
            ("IQ3_XS", 16_820),
            ("IQ3_XXS", 15_780),
            ("Q2_K", 15_130),
            ("IQ2_M", 13_860),
            ("IQ2_S", 12_750),
            ("IQ2_XS", 12_120),
            ("IQ2_XXS", 10_910),
            ("IQ1_M", 9520),
            ("IQ1_S", 8690),
        ],
    ),
    (
        "Mixtral 8x7B",
        MIXTRAL,
        &[
            ("Q8_0", 4960),
            ("Q6_K", 3840),
            ("Q5_K_M", 3320),
            ("Q5_K_S", 3220),
            ("Q4_K_M", 2840),
            ("Q4_K_S", 2670),
            ("IQ4_XS", 2540),
            ("Q3_K_L", 2420),
            ("Q3_K_M", 2250),
            ("Q3_K_S", 2040),
            ("IQ3_M", 2140),
            ("IQ3_S", 2040),
            ("IQ3_XS", 1940),
            ("Q2_K", 1730),
        ],
    ),
    (
        "Qwen3 30B-A3B",
        QWEN3_30B,
        &[
            ("BF16", 6110),
            ("Q8_0", 3248),
            ("Q6_K_L", 2526),
            ("Q6_K", 2510),
            ("Q5_K_L", 2194),
            ("Q5_K_M", 2174),
            ("Q5_K_S", 2110),
            ("IQ4_XS", 1660),
        ],
    ),
];

/// Returns the bytes of a file: the memory on GPU and host, without the second copy of a tied
/// matrix.
fn file_bytes(model: &Model, scheme: &str) -> u64 {
    let run = Run { weights: Scheme::named(scheme), ..Run::new(Engine::LlamaCpp, 256) };
    let chain = chain(model, &run).unwrap();
    let estimate = estimate(&chain);
    (estimate.weights + estimate.pinned).0 - chain.tied.0
}

#[test]
fn mixtures_are_within_two_percent_of_published_files() {
    let mut misses = Vec::new();
    for (name, config, sizes) in PUBLISHED {
        let model = model(config);
        for (scheme, published) in *sizes {
            let bytes = file_bytes(&model, scheme) as f64;
            let error = bytes / (*published as f64 * 1e7) - 1.0;
            println!("{name} {scheme}: {:.2} GB, {:+.2} %", bytes / 1e9, error * 100.0);
            if error.abs() > 0.02 {
                misses.push(format!("{name} {scheme}: {error:+.4}"));
            }
        }
    }
    assert_eq!(misses, [""; 0]);
}

#[test]
fn rows_of_partial_blocks_get_blocks_of_32() {
    // Rows of 896, which is not a multiple of 256.
    let narrow = model(
        r#"{"model_type":"llama","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":1,
        "num_attention_heads":14,"num_key_value_heads":2,"vocab_size":1000,"torch_dtype":"bfloat16",
        "tie_word_embeddings":false}"#,
    );
    let (row, wide, keys) = (896 / 32, 4864 / 256, 128);
    // Q5_0 for queries and outputs, gates and ups; the values of one layer get Q6_K, and therefore
    // Q8_0.
    let attention = (2 * 896 + keys) * row * 22 + keys * row * 34;
    let feeds = 2 * 4864 * row * 22 + 896 * wide * 210;
    // Q5_0 for the embedding, Q8_0 for the output, and three norms.
    let ends = 1000 * row * (22 + 34) + 3 * 896 * 4;
    assert_eq!(file_bytes(&narrow, "Q4_K_M"), attention + feeds + ends);
}

#[test]
fn finds_schemes_in_any_case_and_by_alias() {
    for (name, found) in [
        ("q4_k_m", "Q4_K_M"),
        ("Q4_K", "Q4_K_M"),
        ("q4-k-m", "Q4_K_M"),
        ("i1-IQ3_XXS", "IQ3_XXS"),
        ("ud-q4_k_xl", "UD-Q4_K_XL"),
        ("fp8", "FP8"),
        ("F8_E4M3", "FP8"),
        ("awq", "AWQ"),
        ("W4A16", "INT4"),
        ("bnb-4bit", "NF4"),
        ("bf16", "BF16"),
        ("fp16", "F16"),
    ] {
        assert_eq!(Scheme::named(name).map(Scheme::name), Some(found), "{name}");
    }
    for name in ["", "Q4", "Q4_K_X", "UD", "Q9_0", "i1"] {
        assert_eq!(Scheme::named(name), None, "{name}");
    }
    for engine in [Engine::LlamaCpp, Engine::Vllm, Engine::Transformers] {
        for name in Scheme::names(engine) {
            let scheme = Scheme::for_engine(name, engine).unwrap();
            assert!(!matches!(scheme.used_by(engine), Use::Refused(_)), "{name}");
        }
    }
}

#[test]
fn rejects_unloadable_schemes_with_alternatives() {
    for (name, engine, works) in [
        ("Q4_K_M", Engine::Vllm, "AWQ"),
        ("Q8_0", Engine::Vllm, "FP8"),
        ("IQ2_XXS", Engine::Transformers, "NF4"),
        ("AWQ", Engine::LlamaCpp, "Q4_K_M"),
        ("FP8", Engine::LlamaCpp, "Q8_0"),
        ("NVFP4", Engine::Transformers, "NF4"),
        ("BNB8", Engine::Vllm, "FP8"),
    ] {
        let used = Scheme::for_engine(name, engine).unwrap().used_by(engine);
        let Use::Refused(others) = used else { panic!("{name}: {used:?}") };
        assert!(others.split(", ").any(|other| other == works), "{name}: {others}");
        for other in others.split(", ") {
            let usable = Scheme::for_engine(other, engine).unwrap().used_by(engine);
            assert!(!matches!(usable, Use::Refused(_)), "{name}: {other}");
        }
    }
    let mxfp4 = Scheme::for_engine("mxfp4", Engine::LlamaCpp);
    assert_eq!(mxfp4.map(Scheme::name), Some("MXFP4_MOE"));
    assert!(Scheme::named("UD-Q4_K_XL").unwrap().is_estimate());
    assert!(!Scheme::named("Q4_K_M").unwrap().is_estimate());
}

#[test]
fn mixtures_order_by_size() {
    let model = model(LLAMA_3_8B);
    let sizes: Vec<u64> =
        ["Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_K_S", "IQ4_XS", "Q3_K_M", "Q2_K"]
            .iter()
            .map(|name| file_bytes(&model, name))
            .collect();
    assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
}
