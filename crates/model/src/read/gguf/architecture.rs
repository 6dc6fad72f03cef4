//! The architecture described by the pairs of a header.
//!
//! Source of the rules: `src/llama-model.cpp` and `src/llama-hparams.cpp` of llama.cpp.

use super::value::MAX_KEPT;
use super::{GgufError, Values, shown};
use crate::model::{Architecture, Experts, Mixer};
use crate::tensor::Tensor;

/// The largest valid number in an architecture.
const MAX: u64 = 1 << 31;

/// Returns the architecture; `None` if the file is not a language model with layers.
///
/// # Errors
/// If a number is missing or implausible.
pub fn architecture(
    values: &Values,
    tensors: &[Tensor],
) -> Result<Option<Architecture>, GgufError> {
    let Some(name) = values.text("general.architecture") else { return Ok(None) };
    let keys = Keys { values, name };
    let Some(count) = keys.integer("block_count")? else { return Ok(None) };
    if count == 0 || count > MAX_KEPT {
        let wanted = "a number of layers from 1 to 4096";
        return Err(GgufError::Value { key: keys.key("block_count"), wanted });
    }
    let Some(hidden) = keys.integer("embedding_length")? else { return Ok(None) };
    let count = count as usize;
    let layers = Layers::read(&keys, count, hidden)?;
    let most = |list: Option<Vec<u64>>| list.and_then(|list| list.into_iter().max()).unwrap_or(0);
    let tokens = values.length("tokenizer.ggml.tokens");
    let has = |wanted: &str| tensors.iter().any(|tensor| tensor.name == wanted);
    Ok(Some(Architecture {
        hidden,
        feed_forward: most(keys.per_layer("feed_forward_length", count)?),
        heads: layers.heads.iter().copied().max().unwrap_or(0),
        vocabulary: keys.integer("vocab_size")?.or(tokens).unwrap_or(0),
        context: keys.integer("context_length")?,
        tied: has("token_embd.weight") && !has("output.weight"),
        experts: experts(&keys)?,
        encoding: None,
        layers: (0..count).map(|index| layers.mixer(index)).collect(),
    }))
}

fn experts(keys: &Keys<'_>) -> Result<Option<Experts>, GgufError> {
    let count = keys.integer("expert_count")?.unwrap_or(0);
    if count == 0 {
        return Ok(None);
    }
    let or_zero = |name| keys.integer(name).map(|number| number.unwrap_or(0));
    let feed_forward = match keys.integer("expert_feed_forward_length")? {
        Some(width) => width,
        None => (keys.per_layer("feed_forward_length", 1)?)
            .and_then(|widths| widths.first().copied())
            .unwrap_or(0),
    };
    Ok(Some(Experts {
        count,
        used: or_zero("expert_used_count")?,
        feed_forward,
        shared: or_zero("expert_shared_count")?,
        dense_layers: or_zero("leading_dense_block_count")?,
    }))
}

/// The pairs of one architecture.
struct Keys<'a> {
    values: &'a Values,
    name: &'a str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    fn plausible(&self, name: &str, number: u64) -> Result<u64, GgufError> {
        if number > MAX {
            Err(GgufError::Value { key: shown(&self.key(name)), wanted: "at most 2^31" })
        } else {
            Ok(number)
        }
    }

    fn integer(&self, name: &str) -> Result<Option<u64>, GgufError> {
        let number = self.values.integer(&self.key(name))?;
        number.map(|number| self.plausible(name, number)).transpose()
    }

    fn per_layer(&self, name: &str, layers: usize) -> Result<Option<Vec<u64>>, GgufError> {
        let Some(numbers) = self.values.per_layer(&self.key(name), layers)? else {
            return Ok(None);
        };
        numbers
            .into_iter()
            .map(|number| self.plausible(name, number))
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// The numbers that determine the mixer of each layer.
struct Layers {
    heads: Vec<u64>,
    kv_heads: Vec<u64>,
    feed_forward: Vec<u64>,
    /// The number of elements of keys and values, in layers without and with a window.
    full: (Option<u64>, Option<u64>),
    windowed: (Option<u64>, Option<u64>),
    hidden: u64,
    /// The window, and the layers that have it.
    window: Option<u64>,
    has_window: Vec<bool>,
    latent: Option<(u64, u64)>,
    state: Option<Mixer>,
    states: States,
    /// The layers with a state, if they are listed.
    recurrent: Vec<u64>,
    /// The number of layers at the end that keep no state.
    without: usize,
}

/// The layers that have a state.
#[derive(Clone, Copy, PartialEq)]
enum States {
    All,
    /// Every layer, in addition to attention.
    WithAttention,
    /// The layers without heads for keys and values.
    WithoutHeads,
    /// The same, except that a layer with a feed-forward part has no mixer.
    WithoutHeadsAndFeed,
    /// All layers except every n-th.
    Except(u64),
    /// The layers in a list.
    Listed,
}

impl Layers {
    fn read(keys: &Keys<'_>, count: usize, hidden: u64) -> Result<Self, GgufError> {
        let zeros = || vec![0; count];
        let heads = keys.per_layer("attention.head_count", count)?.unwrap_or_else(zeros);
        let kv_heads = keys.per_layer("attention.head_count_kv", count)?;
        let kv_heads = kv_heads.unwrap_or_else(|| heads.clone());
        let feed_forward = keys.per_layer("feed_forward_length", count)?.unwrap_or_else(zeros);
        let pair = |key: &str, value: &str| -> Result<(Option<u64>, Option<u64>), GgufError> {
            Ok((keys.integer(key)?, keys.integer(value)?))
        };
        let full = pair("attention.key_length", "attention.value_length")?;
        let windowed = pair("attention.key_length_swa", "attention.value_length_swa")?;
        let windowed = (windowed.0.or(full.0), windowed.1.or(full.1));
        let (window, has_window) = windows(keys, count)?;
        // Files from before the compressed cache have the rank, but keep the keys of all heads.
        let compressed = keys.integer("attention.key_length_mla")?.is_some();
        let latent = match (compressed, keys.integer("attention.kv_lora_rank")?) {
            (true, Some(rank)) => Some((rank, keys.integer("rope.dimension_count")?.unwrap_or(64))),
            _ => None,
        };
        let recurrent = keys.per_layer("attention.recurrent_layers", count)?;
        let states = match keys.name {
            _ if recurrent.is_some() => States::Listed,
            "mamba" | "mamba2" | "rwkv6" | "rwkv7" | "rwkv6qwen2" | "arwkv7" => States::All,
            "falcon-h1" => States::WithAttention,
            "nemotron_h" | "nemotron_h_moe" => States::WithoutHeadsAndFeed,
            "qwen3next" | "qwen35" | "qwen35moe" => {
                States::Except(keys.integer("full_attention_interval")?.unwrap_or(4).max(1))
            }
            _ => States::WithoutHeads,
        };
        let shared = keys.integer("attention.shared_kv_layers")?.unwrap_or(0);
        let predicted = keys.integer("nextn_predict_layers")?.unwrap_or(0);
        Ok(Layers {
            state: state(keys, &heads, hidden)?,
            heads,
            kv_heads,
            feed_forward,
            full,
            windowed,
            hidden,
            window,
            has_window,
            latent,
            states,
            recurrent: recurrent.unwrap_or_default(),
            without: shared.saturating_add(predicted) as usize,
        })
    }

    fn mixer(&self, index: usize) -> Mixer {
        let at = |list: &[u64]| list.get(index).copied().unwrap_or(0);
        let (heads, kv_heads) = (at(&self.heads), at(&self.kv_heads));
        let window =
            self.has_window.get(index).is_some_and(|has| *has).then_some(self.window).flatten();
        let over = self.hidden.checked_div(heads).unwrap_or(0);
        let (key, value) = if window.is_some() { self.windowed } else { self.full };
        let (key, value) = (key.unwrap_or(over), value.unwrap_or(over));
        let has_state = match self.states {
            States::All => true,
            States::WithAttention => false,
            States::WithoutHeads => kv_heads == 0,
            States::WithoutHeadsAndFeed => kv_heads == 0 && at(&self.feed_forward) == 0,
            States::Listed => at(&self.recurrent) != 0,
            States::Except(period) => !(index as u64 + 1).is_multiple_of(period),
        };
        if index >= self.heads.len().saturating_sub(self.without) {
            return Mixer::Nothing;
        }
        match (has_state, self.state) {
            (true, Some(state)) => state,
            (false, Some(Mixer::Recurrent { convolution, state }))
                if self.states == States::WithAttention =>
            {
                Mixer::Parallel { kv_heads, key, value, convolution, state }
            }
            _ if kv_heads == 0 => Mixer::Nothing,
            _ => match self.latent {
                Some((rank, rope)) => Mixer::Latent { rank, rope },
                None => Mixer::Attention { kv_heads, key, value, window },
            },
        }
    }
}

/// Returns the state of a layer with one (`n_embd_r` and `n_embd_s`).
fn state(keys: &Keys<'_>, heads: &[u64], hidden: u64) -> Result<Option<Mixer>, GgufError> {
    let product = |factors: &[u64]| factors.iter().fold(1u64, |all, one| all.saturating_mul(*one));
    let kernel = keys.integer("ssm.conv_kernel")?;
    if let Some(cache) = keys.integer("shortconv.l_cache")? {
        let convolution = product(&[hidden, cache.saturating_sub(1)]);
        return Ok(Some(Mixer::Recurrent { convolution, state: 0 }));
    }
    if let Some(head) = keys.integer("wkv.head_size")? {
        let shifts = keys.integer("token_shift_count")?.unwrap_or(2);
        let (convolution, state) = (product(&[shifts, hidden]), product(&[hidden, head]));
        return Ok(Some(Mixer::Recurrent { convolution, state }));
    }
    let Some(kernel) = kernel else { return Ok(None) };
    if let Some(head) = keys.integer("kda.head_dim")? {
        let heads = heads.iter().copied().max().unwrap_or(0);
        let convolution = product(&[3, kernel.saturating_sub(1), heads, head]);
        return Ok(Some(Mixer::Recurrent { convolution, state: product(&[heads, head, head]) }));
    }
    let inner = keys.integer("ssm.inner_size")?.unwrap_or(0);
    let size = keys.integer("ssm.state_size")?.unwrap_or(0);
    let groups = keys.integer("ssm.group_count")?.unwrap_or(0);
    let channels = inner.saturating_add(product(&[2, groups, size]));
    let convolution = product(&[kernel.saturating_sub(1), channels]);
    Ok(Some(Mixer::Recurrent { convolution, state: product(&[size, inner]) }))
}

/// Returns the window, and the layers that have it: all except every n-th, by the architecture or a
/// key.
fn windows(keys: &Keys<'_>, count: usize) -> Result<(Option<u64>, Vec<bool>), GgufError> {
    let pattern = "attention.sliding_window_pattern";
    let period = match keys.name {
        "gemma2" | "gpt-oss" => Some(2),
        "cohere2" | "llama4" | "exaone4" | "olmo2" => Some(4),
        "gemma3n" => Some(5),
        "gemma3" | "gemma4" => Some(6),
        _ => None,
    };
    let window = keys.integer("attention.sliding_window")?;
    let window = match keys.name {
        // Chunks, with a size that no key states.
        "llama4" => window.or(Some(8192)),
        "gemma2" => window.or(Some(4096)),
        _ => window,
    };
    let window = window.filter(|window| *window > 0);
    let each = |period: u64| -> Vec<bool> {
        (1..=count as u64).map(|number| period > 0 && !number.is_multiple_of(period)).collect()
    };
    let has_window = match keys.values.get(&keys.key(pattern)) {
        Some(super::Value::Integers(_)) => {
            let list = keys.per_layer(pattern, count)?.unwrap_or_default();
            list.into_iter().map(|flag| flag != 0).collect()
        }
        Some(_) => each(keys.integer(pattern)?.unwrap_or(0)),
        None => each(period.unwrap_or(0)),
    };
    Ok((window, has_window))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Writer;
    use super::*;

    fn read(writer: Writer) -> Result<Option<Architecture>, GgufError> {
        let file = writer.file();
        let header = super::super::read(file.as_slice(), Some(file.len() as u64))?;
        architecture(&header.values, &header.tensors)
    }

    fn base(name: &str, layers: u32) -> Writer {
        let key = |key: &str| format!("{name}.{key}");
        (Writer::default().text("general.architecture", name))
            .integer(&key("block_count"), layers)
            .integer(&key("context_length"), 4096)
            .integer(&key("embedding_length"), 256)
            .integer(&key("feed_forward_length"), 512)
            .integer(&key("attention.head_count"), 8)
    }

    fn layers(writer: Writer) -> Vec<Mixer> {
        read(writer).unwrap().unwrap().layers
    }

    fn attention(kv_heads: u64, head: u64, window: Option<u64>) -> Mixer {
        Mixer::Attention { kv_heads, key: head, value: head, window }
    }

    #[test]
    fn reads_heads_for_all_layers_or_each() {
        let one = base("llama", 2).integer("llama.attention.head_count_kv", 2);
        assert_eq!(layers(one), [attention(2, 32, None); 2]);
        assert_eq!(layers(base("llama", 1)), [attention(8, 32, None)]);
        let each = base("deci", 3).integers("deci.attention.head_count_kv", &[4, 0, 2]);
        assert_eq!(layers(each), [attention(4, 32, None), Mixer::Nothing, attention(2, 32, None)]);
        let few = base("deci", 3).integers("deci.attention.head_count_kv", &[4, 0]);
        assert!(matches!(read(few), Err(GgufError::Value { .. })));
        let negative = base("deci", 1).integers("deci.attention.head_count_kv", &[-1]);
        assert!(matches!(read(negative), Err(GgufError::Value { .. })));
    }

    #[test]
    fn windows_follow_the_architecture_or_a_key() {
        let window = |name: &str, layers| {
            base(name, layers).integer(&format!("{name}.attention.sliding_window"), 128)
        };
        let has = |writer| -> Vec<bool> {
            let windowed =
                |mixer: &Mixer| matches!(mixer, Mixer::Attention { window: Some(128), .. });
            layers(writer).iter().map(windowed).collect()
        };
        assert_eq!(has(window("gemma3", 7)), [true, true, true, true, true, false, true]);
        assert_eq!(has(window("gpt-oss", 3)), [true, false, true]);
        assert_eq!(has(window("llama", 3)), [false; 3]);
        let listed = [&7u32.to_le_bytes()[..], &3u64.to_le_bytes(), &[0, 1, 1]].concat();
        let listed = window("gemma4", 3).raw("gemma4.attention.sliding_window_pattern", 9, &listed);
        assert_eq!(has(listed.clone()), [false, true, true]);
        let narrow = (listed.integer("gemma4.attention.key_length", 64))
            .integer("gemma4.attention.value_length", 64)
            .integer("gemma4.attention.key_length_swa", 16)
            .integer("gemma4.attention.value_length_swa", 16)
            .integer("gemma4.attention.shared_kv_layers", 1);
        let wanted = [attention(8, 64, None), attention(8, 16, Some(128)), Mixer::Nothing];
        assert_eq!(layers(narrow), wanted);
    }

    #[test]
    fn compressed_keys_are_one_vector() {
        let old = (base("deepseek2", 1))
            .integer("deepseek2.attention.kv_lora_rank", 512)
            .integer("deepseek2.attention.key_length", 192)
            .integer("deepseek2.attention.value_length", 128);
        let all = Mixer::Attention { kv_heads: 8, key: 192, value: 128, window: None };
        assert_eq!(layers(old.clone()), [all]);
        let new = (old.integer("deepseek2.attention.key_length_mla", 192))
            .integer("deepseek2.rope.dimension_count", 64)
            .integer("deepseek2.expert_count", 64)
            .integer("deepseek2.expert_used_count", 6)
            .integer("deepseek2.expert_feed_forward_length", 1408)
            .integer("deepseek2.expert_shared_count", 2)
            .integer("deepseek2.leading_dense_block_count", 1);
        let architecture = read(new).unwrap().unwrap();
        assert_eq!(architecture.layers, [Mixer::Latent { rank: 512, rope: 64 }]);
        let wanted = Experts { count: 64, used: 6, feed_forward: 1408, shared: 2, dense_layers: 1 };
        assert_eq!(architecture.experts, Some(wanted));
    }

    fn with_state(name: &str, count: u32) -> Writer {
        let key = |key: &str| format!("{name}.ssm.{key}");
        (base(name, count).integer(&key("conv_kernel"), 4))
            .integer(&key("inner_size"), 4096)
            .integer(&key("state_size"), 128)
            .integer(&key("group_count"), 16)
    }

    #[test]
    fn states_match_llama_cpp() {
        let state = Mixer::Recurrent { convolution: 3 * 8192, state: 128 * 4096 };
        let full = attention(8, 32, None);
        assert_eq!(layers(with_state("qwen3next", 4)), [state, state, state, full]);
        assert_eq!(layers(with_state("mamba2", 1)), [state]);
        let listed =
            with_state("qwen35", 3).integers("qwen35.attention.recurrent_layers", &[1, 0, 1]);
        assert_eq!(layers(listed), [state, full, state]);
        let jamba = with_state("jamba", 2).integers("jamba.attention.head_count_kv", &[0, 8]);
        assert_eq!(layers(jamba), [state, full]);
        let Mixer::Recurrent { convolution, state: size } = state else { unreachable!() };
        let both = Mixer::Parallel { kv_heads: 8, key: 32, value: 32, convolution, state: size };
        assert_eq!(layers(with_state("falcon-h1", 1)), [both]);
        let short = (base("lfm2", 2).integer("lfm2.shortconv.l_cache", 3))
            .integers("lfm2.attention.head_count_kv", &[0, 8]);
        assert_eq!(layers(short), [Mixer::Recurrent { convolution: 512, state: 0 }, full]);
        let kimi = (with_state("kimi-linear", 1).integer("kimi-linear.kda.head_dim", 16))
            .integers("kimi-linear.attention.head_count_kv", &[0]);
        let delta = Mixer::Recurrent { convolution: 3 * 3 * 8 * 16, state: 8 * 16 * 16 };
        assert_eq!(layers(kimi), [delta]);
    }

    #[test]
    fn output_without_a_matrix_is_tied() {
        let tied = base("llama", 1).tensor("token_embd.weight", &[32, 10], 0);
        assert!(read(tied.clone()).unwrap().unwrap().tied);
        let own = tied.tensor("output.weight", &[32, 10], 0);
        assert!(!read(own).unwrap().unwrap().tied);
    }

    #[test]
    fn layers_and_numbers_are_bounded() {
        for layers in [0, 4097, u32::MAX] {
            assert!(matches!(read(base("llama", layers)), Err(GgufError::Value { .. })));
        }
        let wide = base("llama", 1).integer("llama.attention.key_length", u32::MAX);
        assert!(matches!(read(wide), Err(GgufError::Value { wanted: "at most 2^31", .. })));
        // A projector or adapter file has no layers.
        assert_eq!(read(Writer::default().text("general.architecture", "clip")).unwrap(), None);
        assert_eq!(read(Writer::default()).unwrap(), None);
    }
}
