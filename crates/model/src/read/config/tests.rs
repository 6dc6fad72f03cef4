//! Configurations of real models, with their known parameter counts.

use super::*;
use crate::model::Mixer;
use gpu_core::Bytes;

fn parse(text: &str) -> Config {
    read(text.as_bytes()).expect(text)
}

fn parameters(config: &Config) -> u64 {
    config.tensors().expect("derived").iter().map(Tensor::elements).sum()
}

const LLAMA_3_8B: &str = r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,
    "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,
    "max_position_embeddings":8192,"torch_dtype":"bfloat16","tie_word_embeddings":false}"#;

const GEMMA_3_4B: &str = r#"{"model_type":"gemma3","torch_dtype":"bfloat16","vision_config":{
    "model_type":"siglip_vision_model","hidden_size":1152,"intermediate_size":4304,"image_size":896,
    "num_attention_heads":16,"num_hidden_layers":27,"patch_size":14,"vision_use_head":false},"text_config":{"model_type":"gemma3_text","hidden_size":2560,
    "intermediate_size":10240,"num_hidden_layers":34,"sliding_window":1024}}"#;

const DEEPSEEK_V2_LITE: &str = r#"{"model_type":"deepseek_v2","hidden_size":2048,"intermediate_size":10944,
    "moe_intermediate_size":1408,"num_hidden_layers":27,"num_attention_heads":16,
    "num_key_value_heads":16,"vocab_size":102400,"kv_lora_rank":512,"q_lora_rank":null,
    "qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"n_routed_experts":64,
    "n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1,"moe_layer_freq":1,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16"}"#;

const GPT_OSS_20B: &str = r#"{"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,
    "num_hidden_layers":24,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,
    "num_local_experts":32,"num_experts_per_tok":4,"vocab_size":201088,"sliding_window":128,
    "dtype":"bfloat16"}"#;

/// Models with the parameter counts of the published files.
const KNOWN: &[(&str, &str, u64)] = &[
    ("Llama 3 8B", LLAMA_3_8B, 8_030_261_248),
    (
        "Llama 3.2 1B",
        r#"{"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,
        "num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"vocab_size":128256,
        "tie_word_embeddings":true}"#,
        1_235_814_400,
    ),
    ("Mistral 7B", r#"{"model_type":"mistral"}"#, 7_241_732_096),
    ("Mixtral 8x7B", r#"{"model_type":"mixtral"}"#, 46_702_792_704),
    (
        "Qwen2.5 7B",
        r#"{"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,
        "num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,
        "vocab_size":152064}"#,
        7_615_616_512,
    ),
    (
        "Qwen3 30B-A3B",
        r#"{"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,
        "moe_intermediate_size":768,"num_hidden_layers":48,"num_attention_heads":32,
        "num_key_value_heads":4,"head_dim":128,"num_experts":128,"num_experts_per_tok":8,
        "vocab_size":151936,"decoder_sparse_step":1,"mlp_only_layers":[]}"#,
        30_532_122_624,
    ),
    ("Gemma 2 2B", r#"{"model_type":"gemma2"}"#, 2_614_341_888),
    ("Gemma 3 4B", GEMMA_3_4B, 4_300_079_472),
    ("DeepSeek V2 Lite", DEEPSEEK_V2_LITE, 15_706_484_224),
    ("GPT-OSS 20B", GPT_OSS_20B, 20_914_757_184),
    (
        "Mamba 130M",
        r#"{"model_type":"mamba","hidden_size":768,"num_hidden_layers":24,"vocab_size":50280}"#,
        129_135_360,
    ),
    (
        "Mamba-Codestral 7B",
        r#"{"model_type":"mamba2","num_hidden_layers":64,"hidden_size":4096}"#,
        7_285_403_648,
    ),
    ("Jamba 52B", r#"{"model_type":"jamba"}"#, 51_570_323_328),
    (
        "GPT-2",
        r#"{"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024}"#,
        124_439_808,
    ),
    (
        "LFM2 1.2B",
        r#"{"model_type":"lfm2","hidden_size":2048,"block_ff_dim":12288,"num_hidden_layers":16,
        "num_attention_heads":32,"num_key_value_heads":8,"full_attn_idxs":[2,5,8,10,12,14],
        "vocab_size":65536}"#,
        1_170_340_608,
    ),
    (
        "OPT 125M",
        r#"{"model_type":"opt","hidden_size":768,"ffn_dim":3072,"num_hidden_layers":12,
        "num_attention_heads":12,"max_position_embeddings":2048}"#,
        125_239_296,
    ),
    (
        "Bloom 560M",
        r#"{"model_type":"bloom","hidden_size":1024,"n_layer":24,"n_head":16}"#,
        559_214_592,
    ),
    ("Falcon 7B", r#"{"model_type":"falcon"}"#, 6_921_720_704),
    (
        "Falcon 40B",
        r#"{"model_type":"falcon","hidden_size":8192,"num_hidden_layers":60,
        "num_attention_heads":128,"new_decoder_architecture":true,"num_kv_heads":8}"#,
        41_303_293_952,
    ),
    (
        "Qwen3 0.6B",
        r#"{"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,"head_dim":128,
        "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,
        "tie_word_embeddings":true}"#,
        596_049_920,
    ),
    // Without the layer that predicts a second token.
    ("DeepSeek V3", r#"{"model_type":"deepseek_v3"}"#, 671_026_419_200),
    (
        "MPT 7B",
        r#"{"model_type":"mpt","d_model":4096,"n_heads":32,"n_layers":32,"vocab_size":50432}"#,
        6_649_286_656,
    ),
    (
        "Pythia 160M",
        r#"{"model_type":"gpt_neox","hidden_size":768,"intermediate_size":3072,
        "num_hidden_layers":12,"num_attention_heads":12,"vocab_size":50304}"#,
        162_322_944,
    ),
    (
        "Qwen3-Next 80B-A3B",
        r#"{"model_type":"qwen3_next","hidden_size":2048,"num_hidden_layers":48}"#,
        79_674_391_296,
    ),
    (
        "RecurrentGemma 2B",
        r#"{"model_type":"recurrent_gemma","intermediate_size":15360,"num_key_value_heads":1}"#,
        2_682_862_080,
    ),
];

#[test]
fn parameter_counts_match_published_files() {
    let wrong: Vec<String> = (KNOWN.iter())
        .map(|(name, text, wanted)| (name, parameters(&parse(text)), *wanted))
        .filter(|(_, found, wanted)| found != wanted)
        .map(|(name, found, wanted)| format!("{name}: {found}, not {wanted}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn attention(kv_heads: u64, head: u64, window: Option<u64>) -> Mixer {
    Mixer::Attention { kv_heads, key: head, value: head, window }
}

/// Returns one letter per layer: full, window, latent, recurrent, parallel, or none.
fn letters(config: &Config) -> String {
    let letter = |mixer: &Mixer| match mixer {
        Mixer::Attention { window: None, .. } => 'F',
        Mixer::Attention { .. } => 'w',
        Mixer::Latent { .. } => 'L',
        Mixer::Recurrent { .. } => 'r',
        Mixer::Parallel { .. } => 'P',
        Mixer::Nothing => '-',
    };
    config.architecture.layers.iter().map(letter).collect()
}

fn layers_of(model_type: &str, count: u64, keys: &str) -> String {
    let text = format!(
        r#"{{"model_type":"{model_type}","num_hidden_layers":{count},"hidden_size":64,
        "intermediate_size":128,"num_attention_heads":4,"vocab_size":32{keys}}}"#
    );
    letters(&parse(&text))
}

#[test]
fn llama_keeps_keys_of_every_token() {
    let architecture = parse(LLAMA_3_8B).architecture;
    assert_eq!(architecture.layers, [attention(8, 128, None); 32]);
    assert_eq!(architecture.context, Some(8192));
    assert_eq!(architecture.encoding, Encoding::named("BF16"));
    assert_eq!(architecture.experts, None);
    assert!(!architecture.tied);
    // Two bytes per parameter.
    let model = parse(LLAMA_3_8B).model().unwrap();
    assert_eq!(model.bytes(), Bytes(2 * 8_030_261_248));
}

#[test]
fn nested_text_configuration_uses_class_defaults() {
    let config = parse(GEMMA_3_4B);
    assert_eq!(config.model_type, "gemma3");
    assert!(config.architecture.tied);
    let layers = &config.architecture.layers;
    assert_eq!(layers.len(), 34);
    assert_eq!(layers[0], attention(4, 256, Some(1024)));
    assert_eq!(layers[5], attention(4, 256, None));
    assert_eq!(layers.iter().filter(|layer| **layer == layers[5]).count(), 5);
}

#[test]
fn latent_attention_keeps_one_vector_for_all_heads() {
    let architecture = parse(DEEPSEEK_V2_LITE).architecture;
    assert_eq!(architecture.layers, [Mixer::Latent { rank: 512, rope: 64 }; 27]);
    let experts = architecture.experts.unwrap();
    assert_eq!((experts.count, experts.used, experts.shared), (64, 6, 2));
    assert_eq!((experts.feed_forward, experts.dense_layers), (1408, 1));
}

#[test]
fn windows_follow_the_class() {
    assert_eq!(layers_of("mistral", 2, ""), "ww");
    assert_eq!(layers_of("mistral", 2, r#","sliding_window":null"#), "FF");
    assert_eq!(layers_of("mixtral", 2, ""), "FF");
    assert_eq!(layers_of("qwen2", 3, r#","sliding_window":9"#), "FFF");
    let used = r#","sliding_window":9,"use_sliding_window":true,"max_window_layers":1"#;
    assert_eq!(layers_of("qwen2", 3, used), "Fww");
    assert_eq!(layers_of("gemma2", 4, ""), "wFwF");
    assert_eq!(layers_of("gpt_oss", 4, ""), "wFwF");
    assert_eq!(layers_of("cohere2", 5, ""), "wwwFw");
    assert_eq!(layers_of("gemma3", 7, ""), "wwwwwFw");
    assert_eq!(layers_of("llama4", 5, ""), "wwwFw");
    assert_eq!(layers_of("llama4", 3, r#","no_rope_layers":[0,1,1]"#), "Fww");
    // A list takes precedence over the rule.
    let list = r#","layer_types":["full_attention","sliding_attention","full_attention"]"#;
    assert_eq!(layers_of("gemma3", 3, list), "FwF");
    assert_eq!(
        parse(r#"{"model_type":"llama4"}"#).architecture.layers[0],
        attention(8, 128, Some(8192))
    );
    let shared = r#","layer_types":["sliding_attention","full_attention","sliding_attention"],"num_kv_shared_layers":1"#;
    assert_eq!(layers_of("gemma4", 3, shared), "wF-");
}

#[test]
fn hybrids_mix_states_and_attention() {
    assert_eq!(layers_of("qwen3_next", 5, ""), "rrrFr");
    assert_eq!(layers_of("jamba", 13, ""), "rrrrFrrrrrrrF");
    assert_eq!(layers_of("bamba", 3, r#","attn_layer_indices":[1]"#), "rFr");
    assert_eq!(layers_of("falcon_h1", 2, ""), "PP");
    assert_eq!(layers_of("granitemoehybrid", 2, r#","layer_types":["mamba","attention"]"#), "rF");
    assert_eq!(layers_of("nemotron_h", 4, r#","hybrid_override_pattern":"M-*M""#), "r-Fr");
    let blocks = r#","layers_block_type":["mamba","mlp","attention","moe"]"#;
    assert_eq!(layers_of("nemotron_h", 4, blocks), "r-F-");
    assert_eq!(layers_of("falcon_h1", 2, r#","layer_types":["hybrid","hybrid"]"#), "PP");
    assert_eq!(layers_of("lfm2", 3, r#","full_attn_idxs":[1]"#), "rFr");
    assert_eq!(layers_of("recurrent_gemma", 4, ""), "rrwr");
    assert_eq!(layers_of("minimax", 4, ""), "FrFr");
    assert_eq!(layers_of("minimax", 3, r#","attn_type_list":[0,1,1]"#), "rFF");
    let kimi = r#","linear_attn_config":{"full_attn_layers":[2],"kda_layers":[1,3],"head_dim":16,"num_heads":4}"#;
    assert_eq!(layers_of("kimi_linear", 3, kimi), "rLr");
}

#[test]
fn state_sizes_match_llama_cpp() {
    let first = |text: &str| parse(text).architecture.layers[0];
    // 98,304 bytes and 2 MiB in 32-bit floats.
    let delta = Mixer::Recurrent { convolution: 98_304 / 4, state: (2 << 20) / 4 };
    assert_eq!(first(r#"{"model_type":"qwen3_next"}"#), delta);
    let mamba = Mixer::Recurrent { convolution: 3 * 1536, state: 16 * 1536 };
    assert_eq!(first(r#"{"model_type":"mamba"}"#), mamba);
    let mamba2 = Mixer::Recurrent { convolution: 3 * (8192 + 2 * 8 * 128), state: 128 * 8192 };
    assert_eq!(first(r#"{"model_type":"mamba2"}"#), mamba2);
    let lfm2 = Mixer::Recurrent { convolution: 2 * 2560, state: 0 };
    assert_eq!(first(r#"{"model_type":"lfm2","full_attn_idxs":[]}"#), lfm2);
}

#[test]
fn nemotron_layers_have_mixer_or_feed_forward() {
    let text = r#"{"model_type":"nemotron_h","num_hidden_layers":4,"hidden_size":64,"head_dim":16,
        "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":32,"vocab_size":10,
        "mamba_num_heads":4,"mamba_head_dim":16,"ssm_state_size":16,"n_groups":2,
        "n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":24,
        "moe_shared_expert_intermediate_size":40,"hybrid_override_pattern":"M*-E"}"#;
    let mamba = 64 * (2 * 64 + 2 * 2 * 16 + 4) + 128 * 5 + 3 * 4 + 64 + 64 * 64;
    let attention = 2 * 64 * 64 + 2 * 64 * 32;
    let experts = 4 * 2 * 64 * 24 + 2 * 64 * 40 + 4 * 64 + 4;
    let rest = 2 * 10 * 64 + 5 * 64;
    assert_eq!(parameters(&parse(text)), mamba + attention + 2 * 64 * 32 + experts + rest);
}

#[test]
fn reads_null_and_lists_like_transformers_classes() {
    let dense = DEEPSEEK_V2_LITE.replace(r#""n_routed_experts":64"#, r#""n_routed_experts":null"#);
    assert_eq!(parse(&dense).architecture.experts, None);
    let widths = r#"{"model_type":"gemma3n","num_hidden_layers":20,"intermediate_size":[8,16]}"#;
    let config = parse(widths);
    assert_eq!(config.architecture.feed_forward, 16);
    // The last 15 layers use the keys of other layers.
    assert_eq!(letters(&config), "wwwwF---------------");
    let wide = widths.replace("16", "4294967296");
    assert!(matches!(read(wide.as_bytes()), Err(ConfigError::Value { .. })));
}

#[test]
fn reads_unknown_type_with_llama_keys_or_names_it() {
    let text = r#"{"model_type":"novel","hidden_size":64,"intermediate_size":128,"head_dim":16,
        "num_hidden_layers":2,"num_attention_heads":4,"vocab_size":32}"#;
    let config = parse(text);
    assert!(config.generic);
    assert_eq!(config.architecture.layers, [attention(4, 16, None); 2]);
    assert!(matches!(config.tensors(), Err(ConfigError::Underived(name)) if name == "novel"));
    // A rank identifies latent attention.
    let latent = parse(&text.replacen('{', r#"{"kv_lora_rank":32,"qk_rope_head_dim":8,"#, 1));
    assert_eq!(latent.architecture.layers, [Mixer::Latent { rank: 32, rope: 8 }; 2]);
    assert!(!parse(LLAMA_3_8B).generic);
    let error = read(br#"{"model_type":"bert\u001b","hidden_size":64}"#).unwrap_err().to_string();
    assert!(error.contains(r"model type 'bert\x1b' is not one of the"), "{error}");
}

#[test]
fn unknown_types_of_layers_are_doubts() {
    let doubts = |text: &str| -> Vec<String> {
        parse(text).doubts.into_iter().map(|doubt| doubt.text).collect()
    };
    let psychic = r#"{"model_type":"llama","hidden_size":4096,"num_hidden_layers":1,
        "layer_types":["psychic"]}"#;
    assert_eq!(doubts(psychic), ["the layers of type 'psychic' are unknown"]);
    let state = r#"{"model_type":"llama","hidden_size":4096,"num_hidden_layers":1,
        "layer_types":["linear_attention"]}"#;
    assert_eq!(doubts(state), ["the states of 'llama' are unknown"]);
    let unknown = r#"{"model_type":"novel_vl","text_config":{"model_type":"qwen3","head_dim":64,
        "hidden_size":1024,"num_hidden_layers":2}}"#;
    assert_eq!(doubts(unknown), ["for model type 'novel_vl', only the language model is known"]);
    let omni = r#"{"model_type":"novel_omni","thinker_config":{"model_type":"qwen2","hidden_size":896,
        "num_hidden_layers":2}}"#;
    assert_eq!(doubts(omni), ["for model type 'novel_omni', only the language model is known"]);
    let tower = r#"{"model_type":"llava","vision_config":{"model_type":"oracle"}}"#;
    assert!(doubts(tower)[0].contains("'vision_config' has the unknown type 'oracle'"));
    assert_eq!(doubts(LLAMA_3_8B), [""; 0]);
    let strange = LLAMA_3_8B.replace("bfloat16", "bloat16");
    assert_eq!(
        doubts(&strange),
        ["'torch_dtype' is \"bloat16\", which is not an element type; 16 bits are assumed"]
    );
    // A size that only the class states may be that of another model.
    let bare = r#"{"model_type":"qwen2","num_hidden_layers":28}"#;
    assert_eq!(doubts(bare), ["'hidden_size' is missing: the default of its class is used"]);
}

/// In an encoder-decoder model, the decoder keeps keys and values.
#[test]
fn reads_alternative_names_for_heads_and_layers() {
    let whisper = r#"{"model_type":"whisper","d_model":1280,"encoder_layers":32,"decoder_layers":4,
        "encoder_attention_heads":20,"decoder_attention_heads":10,"decoder_ffn_dim":5120,
        "max_target_positions":448,"vocab_size":51866}"#;
    let whisper = parse(whisper).architecture;
    assert_eq!((whisper.heads, whisper.layers.len(), whisper.context), (10, 4, Some(448)));
    assert_eq!(whisper.layers[0], attention(10, 128, None));
    let xglm = r#"{"model_type":"xglm","d_model":2048,"num_layers":24,"attention_heads":16,
        "ffn_dim":8192,"vocab_size":256008}"#;
    assert_eq!(parse(xglm).architecture.layers, [attention(16, 128, None); 24]);
    // The class of the type states the number of heads that the file omits.
    let bare = parse(r#"{"model_type":"xglm","d_model":1024,"num_layers":24}"#).architecture;
    assert_eq!(bare.heads, 16);
    let dbrx = r#"{"model_type":"dbrx","d_model":6144,"n_heads":48,"n_layers":40,
        "vocab_size":100352,"max_seq_len":32768,"tie_word_embeddings":false,
        "attn_config":{"kv_n_heads":8,"rope_theta":500000},
        "ffn_config":{"ffn_hidden_size":10752,"moe_num_experts":16,"moe_top_k":4}}"#;
    assert_eq!(parse(dbrx).architecture.layers, [attention(8, 128, None); 40]);
    assert_eq!(parameters(&parse(dbrx)) / 10_000_000, 13_159);
}

#[test]
fn reads_keys_of_early_files() {
    let parameters = |text: &str| -> u64 {
        let (tensors, doubts) = parse(text).plain().unwrap();
        assert_eq!(doubts, [""; 0], "{text}");
        tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum()
    };
    let bloom = r#"{"model_type":"bloom","n_embed":14336,"n_layer":70,"num_attention_heads":112,
        "vocab_size":250880}"#;
    assert_eq!(parameters(bloom) / 1_000_000_000, 176);
    let glm = r#"{"model_type":"chatglm","hidden_size":4096,"ffn_hidden_size":13696,"num_layers":40,
        "num_attention_heads":32,"multi_query_group_num":2,"kv_channels":128,"add_qkv_bias":true,
        "padded_vocab_size":151552,"seq_length":131072}"#;
    assert_eq!(parameters(glm) / 10_000_000, 939);
    assert_eq!(parse(glm).architecture.layers, [attention(2, 128, None); 40]);
    assert_eq!(parse(glm).architecture.context, Some(131_072));
    let falcon = r#"{"model_type":"falcon","hidden_size":8192,"n_layer":60,"n_head":128,
        "n_head_kv":8,"new_decoder_architecture":true,"multi_query":false,"vocab_size":65024,
        "bias":false,"parallel_attn":true}"#;
    assert_eq!(parameters(falcon) / 100_000_000, 413, "the rule of new decoders alone counts");
}

#[test]
fn counts_and_notes_parts_outside_language_model() {
    let notes = parse(GEMMA_3_4B).notes;
    assert!(notes[0].starts_with("the image and audio parts are included: 800 MiB"), "{notes:?}");
    assert_eq!(parse(LLAMA_3_8B).notes, [""; 0]);
    let mtp = DEEPSEEK_V2_LITE.replacen('{', r#"{"num_nextn_predict_layers":1,"#, 1);
    assert!(parse(&mtp).notes[0].starts_with("the layers for multi-token prediction are omitted"));
}

#[test]
fn missing_keys_use_class_defaults() {
    // The published file does not state a length.
    assert_eq!(parse(GEMMA_3_4B).architecture.context, Some(131_072));
    let flat = r#"{"model_type":"qwen2_vl","hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,
        "num_attention_heads":12,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true}"#;
    assert_eq!(parse(flat).architecture.layers.len(), 28);
}

#[test]
fn rejects_implausible_configurations() {
    let refused = |text: &str| read(text.as_bytes()).expect_err(text);
    assert!(matches!(refused(""), ConfigError::Json(_)));
    assert!(matches!(refused("[]"), ConfigError::Json(_)));
    assert!(matches!(refused("{}"), ConfigError::Nameless));
    let with = |keys: &str| refused(&format!(r#"{{"model_type":"llama",{keys}}}"#));
    for layers in ["0", "4097", "2147483648"] {
        let error = with(&format!(r#""num_hidden_layers":{layers}"#));
        assert!(matches!(error, ConfigError::Layers(_)), "{layers}");
    }
    for value in ["-1", "\"8\"", "1.5", "2147483649", "1e300", "true", "[]"] {
        let error = with(&format!(r#""hidden_size":{value}"#));
        assert!(matches!(error, ConfigError::Value { key: "hidden_size", .. }), "{value}");
    }
    for (keys, expected) in [
        (r#""hidden_size":-1"#, "read 'hidden_size' of the configuration: -1 is not an integer"),
        (
            r#""max_position_embeddings":0"#,
            "read 'max_position_embeddings' of the configuration: 0",
        ),
        (r#""layer_types":[7]"#, "read 'layer_types' of the configuration: 7 is not a string"),
    ] {
        let error = with(keys).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let long = with(&format!(r#""hidden_size":"{}""#, "\\u001b".repeat(999))).to_string();
    assert!(long.len() < 300 && !long.contains('\u{1b}'), "{long}");
    assert!(matches!(with(r#""num_attention_heads":0"#), ConfigError::Missing(_)));
    assert!(matches!(with(r#""layer_types":["full_attention"]"#), ConfigError::Value { .. }));
    let long = " ".repeat(MAX_CONFIG_BYTES as usize + 1);
    assert!(matches!(refused(&long), ConfigError::TooLarge(_)));
    let nested = format!("{{\"a\":{}", "[".repeat(100_000));
    assert!(matches!(refused(&nested), ConfigError::Json(_)));
}

#[test]
fn largest_numbers_overflow_without_panic() {
    let most = 1u64 << 31;
    let types = ["llama", "mamba", "mamba2", "qwen3_next", "jamba", "deepseek_v3", "lfm2", "mpt"];
    let methods = ["none", "gptq", "aqlm", "fp8", "bitsandbytes"];
    let pairs = types.iter().flat_map(|name| methods.map(|method| (name, method)));
    for (model_type, method) in pairs {
        let text = format!(
            r#"{{"model_type":"{model_type}","hidden_size":{most},"d_model":{most},"num_attention_heads":{most},
            "n_heads":{most},"head_dim":{most},"kv_lora_rank":{most},"qk_rope_head_dim":{most},
            "state_size":{most},"linear_num_key_heads":{most},"linear_key_head_dim":{most},
            "intermediate_size":{most},"vocab_size":{most},"num_experts":{most},"block_ff_dim":{most},
            "mamba_d_state":{most},"v_head_dim":{most},"expansion_ratio":{most},"n_groups":{most},
            "quantization_config":{{"quant_method":"{method}","bits":8,"load_in_4bit":true}}}}"#
        );
        let config = parse(&text);
        let error = config.tensors().expect_err(model_type);
        assert!(matches!(error, ConfigError::Overflow(_) | ConfigError::Size(_)), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn mutated_configurations_do_not_panic(at in 0usize..600, byte in proptest::prelude::any::<u8>()) {
        for text in [LLAMA_3_8B, GEMMA_3_4B, DEEPSEEK_V2_LITE, GPT_OSS_20B] {
            let mut text = text.as_bytes().to_vec();
            if let Some(old) = text.get_mut(at) {
                *old = byte;
            }
            if let Ok(config) = read(&text) {
                let _ = config.tensors();
            }
        }
    }
}
