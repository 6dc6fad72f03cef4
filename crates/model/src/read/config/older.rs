//! Converts keys of older configurations, and of code published with weights, to the current form
//! of transformers.

use serde_json::{Map, Value, json};

/// The keys for the configuration of the language model.
const NESTED: [&str; 4] = ["text_config", "llm_config", "language_config", "thinker_config"];

/// Keys in early files of a model type, and their current names in transformers.
const RENAMED: [(&str, &str, &str); 12] = [
    ("bloom", "n_embed", "hidden_size"),
    ("chatglm", "add_qkv_bias", "attention_bias"),
    ("chatglm", "ffn_hidden_size", "intermediate_size"),
    ("chatglm", "kv_channels", "head_dim"),
    ("chatglm", "multi_query_group_num", "num_key_value_heads"),
    ("chatglm", "num_layers", "num_hidden_layers"),
    ("chatglm", "padded_vocab_size", "vocab_size"),
    ("chatglm", "seq_length", "max_position_embeddings"),
    ("dbrx", "attn_config.kv_n_heads", "num_key_value_heads"),
    ("falcon", "n_layer", "num_hidden_layers"),
    ("falcon", "n_head", "num_attention_heads"),
    ("falcon", "n_head_kv", "num_kv_heads"),
];

/// Returns a configuration with layer lists added for older keys, at the top level and for its
/// language model. Existing lists are kept.
pub(super) fn modern(object: &Map<String, Value>) -> Map<String, Value> {
    let mut new = object.clone();
    for key in NESTED {
        if let Some(Value::Object(inner)) = object.get(key) {
            new.insert(key.to_owned(), Value::Object(modern(inner)));
        }
    }
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value
            && object.get(key).is_none_or(Value::is_null)
        {
            new.insert(key.to_owned(), value);
        }
    };
    let model_type = object.get("model_type").and_then(Value::as_str).unwrap_or_default();
    for (_, old, key) in RENAMED.iter().filter(|(name, ..)| *name == model_type) {
        let value = match old.split_once('.') {
            Some((outer, inner)) => object.get(outer).and_then(|value| value.get(inner)),
            None => object.get(*old),
        };
        add(key, value.cloned());
    }
    let types = attention_list(object).or_else(|| numbered(object)).or_else(|| chunked(object));
    add("layer_types", types);
    add("layers_block_type", pattern(object));
    if let Some(Value::Object(linear)) = object.get("linear_attn_config") {
        for (old, key) in [
            ("num_heads", "linear_num_heads"),
            ("head_dim", "linear_head_dim"),
            ("short_conv_kernel_size", "linear_conv_kernel_dim"),
        ] {
            add(key, linear.get(old).cloned());
        }
    }
    new
}

fn name(is_full: bool) -> &'static str {
    if is_full { "full_attention" } else { "linear_attention" }
}

/// Returns the layers of MiniMax's `attn_type_list`, in which 1 means full attention.
fn attention_list(object: &Map<String, Value>) -> Option<Value> {
    let list = object.get("attn_type_list")?.as_array()?;
    Some(list.iter().map(|kind| json!(name(kind.as_u64() != Some(0)))).collect())
}

/// Returns the layers of Kimi's `linear_attn_config`, which counts them from 1.
fn numbered(object: &Map<String, Value>) -> Option<Value> {
    let full = object.get("linear_attn_config")?.get("full_attn_layers")?.as_array()?;
    let count = object.get("num_hidden_layers")?.as_u64()?.min(super::keys::MAX_LAYERS);
    let is_full = |i: u64| full.iter().any(|number| number.as_u64() == Some(i));
    Some((1..=count).map(|i| json!(name(is_full(i)))).collect())
}

/// Returns the layers of Llama 4's `no_rope_layers`, in which 0 means full attention and other
/// values mean chunks.
fn chunked(object: &Map<String, Value>) -> Option<Value> {
    let is_llama4 = object.get("model_type")?.as_str()?.starts_with("llama4");
    let list = object.get("no_rope_layers")?.as_array()?;
    let name = |kind: &Value| if kind == 0 { "full_attention" } else { "chunked_attention" };
    let names = || list.iter().map(|kind| json!(name(kind))).collect();
    (is_llama4 && !list.is_empty()).then(names)
}

/// Returns the layers of Nemotron's pattern.
fn pattern(object: &Map<String, Value>) -> Option<Value> {
    let letters = object.get("hybrid_override_pattern")?.as_str()?;
    let kind = |letter| match letter {
        'M' => Some("linear_attention"),
        '*' => Some("full_attention"),
        '-' => Some("mlp"),
        'E' => Some("moe"),
        _ => None,
    };
    letters.chars().map(|letter| kind(letter).map(|name| json!(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(text: &str, key: &str) -> Value {
        let object = serde_json::from_str(text).unwrap();
        modern(&object).remove(key).unwrap_or(Value::Null)
    }

    #[test]
    fn converts_older_keys_to_layer_lists() {
        let (full, linear) = ("full_attention", "linear_attention");
        let found = layers(r#"{"attn_type_list":[0,1]}"#, "layer_types");
        assert_eq!(found, json!([linear, full]));
        let kimi = r#"{"num_hidden_layers":3,"linear_attn_config":{"full_attn_layers":[2],"num_heads":8}}"#;
        assert_eq!(layers(kimi, "layer_types"), json!([linear, full, linear]));
        assert_eq!(layers(kimi, "linear_num_heads"), json!(8));
        let found = layers(r#"{"hybrid_override_pattern":"M-*E"}"#, "layers_block_type");
        assert_eq!(found, json!([linear, "mlp", full, "moe"]));
        assert_eq!(layers(r#"{"hybrid_override_pattern":"MX"}"#, "layers_block_type"), Value::Null);
        let llama = r#"{"model_type":"llama4_text","no_rope_layers":[0,1]}"#;
        assert_eq!(layers(llama, "layer_types"), json!([full, "chunked_attention"]));
        assert_eq!(layers(&llama.replace("llama4", "smollm3"), "layer_types"), Value::Null);
        // A list in the current form takes precedence.
        let both = r#"{"attn_type_list":[0],"layer_types":["full_attention"]}"#;
        assert_eq!(layers(both, "layer_types"), json!([full]));
        let nested = layers(r#"{"text_config":{"attn_type_list":[1]}}"#, "text_config");
        assert_eq!(nested["layer_types"], json!([full]));
    }
}
