//! The maximum context of a model, from its length and its scaling of positions.

use super::brief;
use super::keys::Keys;
use super::{ConfigError, shown};
use serde_json::{Map, Value};

/// The keys for the maximum context.
const CONTEXTS: [&str; 6] = [
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
];
/// These methods multiply the length by their factor. For other methods, the length is already the
/// extended one.
const MULTIPLIED: [&str; 3] = ["yarn", "linear", "dynamic"];

/// Returns the maximum context that the model supports, in tokens.
///
/// YaRN extends the original length (`original_max_position_embeddings`, or else the stated
/// length); linear and dynamic scaling extend the stated length. Gemma 3, Llama 3.1 and LongRoPE
/// state the extended length. Sources: `modeling_rope_utils.py` of transformers, and how vLLM
/// derives `max_model_len`.
pub(super) fn context(keys: &Keys<'_>, model_type: &str) -> Result<Option<u64>, ConfigError> {
    let stated = keys.integer(&CONTEXTS)?;
    if stated == Some(0) {
        let (key, found) = ("max_position_embeddings", "0".to_owned());
        return Err(ConfigError::Value { key, found, wanted: "a number of tokens" });
    }
    let Some(scaling) = scaling(keys) else { return Ok(stated) };
    let number = |key: &str| scaling.get(key).and_then(Value::as_u64).filter(|n| *n > 0);
    let original = number("original_max_position_embeddings")
        .or(keys.integer(&["original_max_position_embeddings"])?);
    let name = method(scaling);
    let base = match name {
        "yarn" => original.or(stated),
        _ => stated.or(original),
    };
    let is_multiplied = MULTIPLIED.contains(&name) && !model_type.starts_with("gemma3");
    match (base, factor(scaling)) {
        (Some(base), Some(factor)) if is_multiplied || stated.is_none() => {
            Ok(Some((base as f64 * factor) as u64))
        }
        _ => Ok(stated),
    }
}

/// Returns a doubt about a scaling with a missing or invalid factor.
pub(super) fn doubt(keys: &Keys<'_>) -> Option<String> {
    let scaling = scaling(keys)?;
    let name = method(scaling);
    (MULTIPLIED.contains(&name) && factor(scaling).is_none()).then(|| {
        let found = scaling.get("factor").map_or("missing".to_owned(), brief);
        format!("the 'factor' of '{}' is {found}: the maximum context is unknown", shown(name))
    })
}

/// Returns the scaling of positions; if layers differ, that of the layers with full attention.
fn scaling<'a>(keys: &Keys<'a>) -> Option<&'a Map<String, Value>> {
    let given = |key| keys.given(key)?.as_object();
    let scaling = given("rope_scaling").or_else(|| given("rope_parameters"))?;
    let full = scaling.get("full_attention").and_then(Value::as_object);
    Some(full.unwrap_or(scaling))
}

fn method(scaling: &Map<String, Value>) -> &str {
    let name = |key: &str| scaling.get(key).and_then(Value::as_str);
    name("rope_type").or_else(|| name("type")).unwrap_or_default()
}

fn factor(scaling: &Map<String, Value>) -> Option<f64> {
    let factor = scaling.get("factor")?.as_f64()?;
    (1.0..=65_536.0).contains(&factor).then_some(factor)
}

#[cfg(test)]
mod tests {
    use super::super::read;

    /// Returns the context of a model with this type, length, scaling and further keys.
    fn context(kind: &str, length: u64, scaling: &str) -> Option<u64> {
        let text = format!(
            r#"{{"model_type":"{kind}","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":4,
            "intermediate_size":64,"vocab_size":32,"max_position_embeddings":{length},
            "rope_scaling":{scaling}}}"#
        );
        read(text.as_bytes()).expect(&text).architecture.context
    }

    #[test]
    fn scaled_positions_extend_the_context() {
        for (kind, length, scaling, expected) in [
            ("llama", 4096, "null", 4096),
            ("llama", 4096, r#"{"rope_type":"linear","factor":2.0}"#, 8192),
            ("llama", 4096, r#"{"type":"dynamic","factor":4}"#, 16_384),
            ("qwen2", 32_768, r#"{"type":"yarn","factor":4.0}"#, 131_072),
            (
                "qwen3",
                40_960,
                r#"{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}"#,
                131_072,
            ),
            (
                "deepseek_v3",
                163_840,
                r#"{"type":"yarn","factor":40,"original_max_position_embeddings":4096}"#,
                163_840,
            ),
            (
                "llama",
                131_072,
                r#"{"rope_type":"llama3","factor":8.0,"original_max_position_embeddings":8192}"#,
                131_072,
            ),
            (
                "phi3",
                131_072,
                r#"{"type":"longrope","original_max_position_embeddings":4096}"#,
                131_072,
            ),
            ("gemma3_text", 131_072, r#"{"rope_type":"linear","factor":8.0}"#, 131_072),
            ("qwen2", 32_768, r#"{"type":"mrope","mrope_section":[16,24,24]}"#, 32_768),
        ] {
            assert_eq!(context(kind, length, scaling), Some(expected), "{kind} {scaling}");
        }
    }

    #[test]
    fn invalid_scaling_factor_is_a_doubt() {
        for factor in ["0", "-2", "\"4\"", "1e300"] {
            let text = format!(
                r#"{{"model_type":"qwen2","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":4,
                "num_key_value_heads":4,"intermediate_size":64,"vocab_size":32,
                "max_position_embeddings":1024,"rope_scaling":{{"type":"yarn","factor":{factor}}}}}"#
            );
            let config = read(text.as_bytes()).unwrap();
            assert_eq!(config.architecture.context, Some(1024), "{factor}");
            let doubts: Vec<&str> = config.doubts.iter().map(|doubt| &*doubt.text).collect();
            assert!(doubts[0].starts_with("the 'factor' of 'yarn' is "), "{doubts:?}");
        }
    }
}
