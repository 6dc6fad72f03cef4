//! Determines how each layer mixes tokens.

use super::ConfigError;
use super::family::{Family, Family::*};
use super::keys::{Keys, MAX_LAYERS};
use super::layer::Block;
use crate::model::{Experts, Mixer};
use crate::read::name::shown;

/// How a layer mixes tokens, before its dimensions are known.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Full,
    Sliding,
    Chunked,
    /// Recurrent, in the way of the family.
    Linear,
    /// No mixer: the layer is only a feed-forward part.
    Feed,
    /// Uses the keys and values of another layer.
    Shared,
}

/// The dimensions that all layers of a model share.
pub(super) struct Widths {
    pub(super) hidden: u64,
    pub(super) feed_forward: u64,
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    pub(super) head: u64,
}

/// The keys for the number of attention heads. In an encoder-decoder model, the decoder has the
/// cache.
const HEADS: [&str; 7] = [
    "decoder_attention_heads",
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "attention_heads",
    "encoder_attention_heads",
];

/// Reads the layers from keys that include the defaults of the class.
pub(super) struct Reader<'a> {
    pub(super) keys: &'a Keys<'a>,
    pub(super) family: Family,
    /// Whether the keys include the defaults of a class.
    pub(super) is_known: bool,
}

impl Reader<'_> {
    /// Reads the widths.
    pub(super) fn widths(&self) -> Result<Widths, ConfigError> {
        let keys = self.keys;
        let hidden = keys.number(&["hidden_size", "n_embd", "d_model", "model_dim"], 0)?;
        let stateful = matches!(self.family, Mamba | Mamba2);
        let heads = if stateful { 0 } else { keys.number(&HEADS, 0)? };
        let kv_heads = match self.family {
            Falcon if keys.flag("new_decoder_architecture", false)? => {
                keys.number(&["num_kv_heads"], heads)?
            }
            Falcon if keys.flag("multi_query", true)? => 1,
            // Decoders with an encoder do not share keys among heads.
            _ if keys.integer(&["decoder_attention_heads"])?.is_some() => heads,
            _ => {
                let names =
                    ["num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"];
                keys.integer(&names)?.unwrap_or(heads)
            }
        };
        let over = hidden.checked_div(heads).unwrap_or(0);
        let head =
            keys.integer(&["head_dim", "kv_channels", "attention_head_dim"])?.unwrap_or(over);
        if !stateful && (heads == 0 || hidden == 0) {
            let key = if heads == 0 { "num_attention_heads" } else { "hidden_size" };
            return Err(ConfigError::Missing(key));
        }
        let feed_forward = self.feed_forward(hidden)?;
        Ok(Widths { hidden, feed_forward, heads, kv_heads, head })
    }

    /// Reads the width of the feed-forward part; if layers differ, that of the widest.
    fn feed_forward(&self, hidden: u64) -> Result<u64, ConfigError> {
        let names = ["intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner"];
        match self.family {
            Mamba | Mamba2 => Ok(0),
            _ => Ok(self.keys.integer(&names)?.unwrap_or(hidden.saturating_mul(4))),
        }
    }

    /// Reads the number of layers.
    pub(super) fn count(&self) -> Result<u64, ConfigError> {
        // In an encoder-decoder model, the decoder has the cache.
        let names = [
            "decoder_layers",
            "num_hidden_layers",
            "n_layer",
            "n_layers",
            "num_layers",
            "num_decoder_layers",
        ];
        let count = self.keys.number(&names, 0)?;
        match count {
            1..=MAX_LAYERS => Ok(count),
            _ => Err(ConfigError::Layers(count)),
        }
    }

    /// Reads the experts; `None` if no layer has experts.
    pub(super) fn experts(&self, widths: &Widths) -> Result<Option<Experts>, ConfigError> {
        let keys = self.keys;
        let counts = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"];
        let count = keys.integer(&counts)?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let names = [
            "num_experts_per_tok",
            "num_experts_per_token",
            "top_k_experts",
            "moe_topk",
            "moe_top_k",
            "moe_k",
        ];
        let used = keys.integer(&names)?.unwrap_or(1);
        let names = ["moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size"];
        let width = match self.family {
            Llama4 => keys.integer(&["intermediate_size"])?,
            _ => keys.integer(&names)?,
        };
        let names = [
            "n_shared_experts",
            "num_shared_experts",
            "moe_num_shared_experts",
            "num_shared_expert",
        ];
        let shared = match self.family {
            Llama4 => 1,
            _ => keys.integer(&names)?.unwrap_or(0),
        };
        let names = ["first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"];
        let dense_layers = keys.integer(&names)?.unwrap_or(0);
        let feed_forward = width.unwrap_or(widths.feed_forward);
        Ok(Some(Experts { count, used, feed_forward, shared, dense_layers }))
    }

    /// Reads the memory that each layer keeps.
    pub(super) fn layers(&self, widths: &Widths) -> Result<Vec<Mixer>, ConfigError> {
        let kinds = self.kinds(self.count()?)?;
        kinds.into_iter().map(|kind| self.mixer(kind, widths)).collect()
    }

    fn mixer(&self, kind: Kind, widths: &Widths) -> Result<Mixer, ConfigError> {
        let mixer = self.block(kind, widths)?.mixer(widths.hidden);
        if !matches!(self.family, FalconH1) {
            return Ok(mixer);
        }
        Ok(match (mixer, self.linear(widths)?.mixer(widths.hidden)) {
            (
                Mixer::Attention { kv_heads, key, value, .. },
                Mixer::Recurrent { convolution, state },
            ) => Mixer::Parallel { kv_heads, key, value, convolution, state },
            (mixer, _) => mixer,
        })
    }

    /// Determines how each layer mixes tokens. A list in the configuration takes precedence.
    fn kinds(&self, count: u64) -> Result<Vec<Kind>, ConfigError> {
        let mut listed = None;
        for key in ["layer_types", "layers_block_type"] {
            if let Some(list) = self.keys.texts(key)? {
                listed = Some((key, list));
                break;
            }
        }
        let mut kinds = match listed {
            Some((key, list)) => {
                if (list.len() as u64) < count {
                    let found = format!("a list of {}", list.len());
                    return Err(ConfigError::Value {
                        key,
                        found,
                        wanted: "an entry for each layer",
                    });
                }
                let named = list.iter().take(count as usize);
                named.map(|name| kind(name).unwrap_or(Kind::Full)).collect()
            }
            None => self.kinds_of_family(count)?,
        };
        if matches!(self.family, Gemma3n | Gemma4) {
            let shared = self.keys.integer(&["num_kv_shared_layers"])?.unwrap_or(0);
            for kind in kinds.iter_mut().rev().take(shared as usize) {
                *kind = Kind::Shared;
            }
        }
        Ok(kinds)
    }

    /// Determines how each layer mixes tokens without a list of all layers.
    fn kinds_of_family(&self, count: u64) -> Result<Vec<Kind>, ConfigError> {
        let keys = self.keys;
        let full_at = |is_full: &dyn Fn(u64) -> bool| -> Vec<Kind> {
            (0..count).map(|i| if is_full(i) { Kind::Full } else { Kind::Linear }).collect()
        };
        let all = |kind| vec![kind; count as usize];
        Ok(match self.family {
            Jamba => {
                let period = keys.number(&["attn_layer_period"], 8)?.max(1);
                let offset = keys.integer(&["attn_layer_offset"])?.unwrap_or(4);
                full_at(&|i| i % period == offset % period)
            }
            Mamba | Mamba2 | GraniteHybrid => all(Kind::Linear),
            Bamba => {
                let list = keys.integers("attn_layer_indices")?.unwrap_or_default();
                full_at(&|i| list.contains(&i))
            }
            Lfm2 => match keys.integers("full_attn_idxs")? {
                Some(list) => full_at(&|i| list.contains(&i)),
                None => all(Kind::Full),
            },
            Delta => {
                let period = keys.number(&["full_attention_interval"], 4)?.max(1);
                full_at(&|i| (i + 1).is_multiple_of(period))
            }
            RecurrentGemma => {
                let kinds = match keys.texts("block_types")?.or(keys.texts("_block_types")?) {
                    Some(list) => {
                        list.into_iter().map(|name| kind(name).unwrap_or(Kind::Full)).collect()
                    }
                    None => vec![Kind::Linear, Kind::Linear, Kind::Sliding],
                };
                // In this family, `attention` is local.
                let local = |kind| if kind == Kind::Full { Kind::Sliding } else { kind };
                kinds.into_iter().map(local).cycle().take(count as usize).collect()
            }
            // Classes without a list have one window for all layers, or none.
            _ if self.is_known && keys.integer(&["sliding_window"])?.is_some() => {
                if keys.flag("use_sliding_window", true)? {
                    all(Kind::Sliding)
                } else {
                    all(Kind::Full)
                }
            }
            _ => all(Kind::Full),
        })
    }

    fn window(&self, names: &[&'static str], default: u64) -> Result<Option<u64>, ConfigError> {
        let window = self.keys.integer(names)?.unwrap_or(default);
        Ok((window > 0).then_some(window))
    }

    fn block(&self, kind: Kind, widths: &Widths) -> Result<Block, ConfigError> {
        let keys = self.keys;
        let &Widths { kv_heads, head, .. } = widths;
        let value = keys.integer(&["v_head_dim"])?.unwrap_or(head);
        let attention = |window| Block::Attention { kv_heads, key: head, value, window };
        // A rank for keys and values identifies latent attention.
        let rank = keys.integer(&["kv_lora_rank"])?.filter(|rank| *rank > 0);
        Ok(match kind {
            Kind::Feed | Kind::Shared => Block::Nothing,
            Kind::Linear => self.linear(widths)?,
            Kind::Full if rank.is_some() => Block::Latent {
                rank: rank.unwrap_or_default(),
                rope: keys.number(&["qk_rope_head_dim"], 64)?,
            },
            Kind::Full if matches!(self.family, Gemma4) => {
                let head = keys.number(&["global_head_dim"], 512)?;
                let kv_heads = keys.integer(&["num_global_key_value_heads"])?.unwrap_or(kv_heads);
                Block::Attention { kv_heads, key: head, value: head, window: None }
            }
            Kind::Full => attention(None),
            Kind::Sliding => {
                let names = ["sliding_window", "attention_window_size"];
                let window = self.window(&names, 4096)?;
                // Some classes have different heads in layers with a window (MiMo V2).
                Block::Attention {
                    kv_heads: keys.integer(&["swa_num_key_value_heads"])?.unwrap_or(kv_heads),
                    key: keys.integer(&["swa_head_dim"])?.unwrap_or(head),
                    value: keys.integer(&["swa_v_head_dim"])?.unwrap_or(value),
                    window,
                }
            }
            Kind::Chunked => attention(self.window(&["attention_chunk_size"], 8192)?),
        })
    }

    /// Returns doubts about the memory that layers keep: fragments that name the type.
    pub(super) fn doubts(&self, model_type: &str) -> Vec<String> {
        let list = self.keys.texts("layer_types").ok().flatten().unwrap_or_default();
        let unknown = list.iter().find(|name| kind(name).is_none());
        let unknown =
            unknown.map(|name| format!("the layers of type '{}' are unknown", shown(name)));
        let linear = list.iter().any(|name| kind(name) == Some(Kind::Linear));
        let delta = self.keys.given("linear_num_key_heads").is_some();
        let state = matches!(self.family, Usual) && linear && !delta;
        let state = state.then(|| format!("the states of '{model_type}' are unknown"));
        unknown.into_iter().chain(state).collect()
    }

    /// Returns the recurrent block of the family.
    fn linear(&self, widths: &Widths) -> Result<Block, ConfigError> {
        let keys = self.keys;
        let &Widths { hidden, heads, head, .. } = widths;
        let expanded = |name| -> Result<u64, ConfigError> {
            Ok(hidden.saturating_mul(keys.number(&[name], 2)?))
        };
        Ok(match self.family {
            Mamba => Block::Mamba {
                inner: match keys.integer(&["intermediate_size"])? {
                    Some(inner) => inner,
                    None => expanded("expand")?,
                },
                state: keys.number(&["state_size"], 16)?,
                kernel: keys.number(&["conv_kernel"], 4)?,
            },
            Jamba => Block::Mamba {
                inner: expanded("mamba_expand")?,
                state: keys.number(&["mamba_d_state"], 16)?,
                kernel: keys.number(&["mamba_d_conv"], 4)?,
            },
            Mamba2 => Block::Mamba2 {
                inner: expanded("expand")?,
                state: keys.number(&["state_size"], 128)?,
                kernel: keys.number(&["conv_kernel"], 4)?,
                groups: keys.number(&["n_groups"], 8)?,
            },
            NemotronH => {
                let heads = keys.number(&["mamba_num_heads"], 128)?;
                Block::Mamba2 {
                    inner: heads.saturating_mul(keys.number(&["mamba_head_dim"], 64)?),
                    state: keys.number(&["ssm_state_size"], 128)?,
                    kernel: keys.number(&["conv_kernel"], 4)?,
                    groups: keys.number(&["n_groups"], 8)?,
                }
            }
            Bamba | FalconH1 | GraniteHybrid => Block::Mamba2 {
                inner: match keys.integer(&["mamba_d_ssm"])? {
                    Some(inner) => inner,
                    None => expanded("mamba_expand")?,
                },
                state: keys.number(&["mamba_d_state"], 256)?,
                kernel: keys.number(&["mamba_d_conv"], 4)?,
                groups: keys.number(&["mamba_n_groups"], 1)?,
            },
            _ if keys.given("linear_num_key_heads").is_some() => Block::Delta {
                key_heads: keys.number(&["linear_num_key_heads"], 16)?,
                value_heads: keys.number(&["linear_num_value_heads"], 32)?,
                key: keys.number(&["linear_key_head_dim"], 128)?,
                value: keys.number(&["linear_value_head_dim"], 128)?,
                kernel: keys.number(&["linear_conv_kernel_dim"], 4)?,
            },
            Lfm2 => Block::Convolution { kernel: keys.number(&["conv_L_cache"], 3)? },
            RecurrentGemma => Block::Gated {
                width: keys.number(&["lru_width"], hidden)?,
                kernel: keys.number(&["conv1d_width"], 4)?,
            },
            MiniMax => Block::Lightning { heads, head },
            KimiLinear => Block::Kimi {
                heads: keys.number(&["linear_num_heads"], heads)?,
                head: keys.number(&["linear_head_dim"], 128)?,
                kernel: keys.number(&["linear_conv_kernel_dim"], 4)?,
            },
            // A doubt reports this.
            _ => Block::Nothing,
        })
    }
}

/// Returns the kind for a name in a list of layers; `None` if the name is unknown.
fn kind(name: &str) -> Option<Kind> {
    match name {
        // A hybrid layer has a state in addition to attention.
        "full_attention" | "attention" | "global_attention" | "hybrid" => Some(Kind::Full),
        "sliding_attention" | "local_attention" => Some(Kind::Sliding),
        "chunked_attention" => Some(Kind::Chunked),
        "linear_attention" | "conv" | "mamba" | "mamba2" | "recurrent" => Some(Kind::Linear),
        "mlp" | "moe" | "sparse" | "dense" => Some(Kind::Feed),
        // An index selects among all tokens.
        "indexed_attention" => Some(Kind::Full),
        _ => None,
    }
}
