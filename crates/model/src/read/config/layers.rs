//! Which layer mixes how, and what follows it.

use super::ConfigError;
use super::family::{Defaults, Family, Family::*};
use super::keys::{Keys, MAX_LAYERS};
use super::layer::{Block, Layer};

/// How a layer mixes, before the numbers.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Full,
    Sliding,
    Chunked,
    /// Recurrent, as the family is.
    Linear,
    /// No mixer: the layer is a feed-forward part alone.
    Feed,
    /// No mixer: the layer is a part of experts alone.
    Experts,
    /// Keys and values of another layer are used.
    Shared,
}

/// The numbers that all layers of a model have.
pub(super) struct Widths {
    pub(super) hidden: u64,
    pub(super) feed_forward: u64,
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    pub(super) head: u64,
}

/// Reads the layers, from keys and defaults.
pub(super) struct Reader<'a> {
    pub(super) keys: &'a Keys<'a>,
    pub(super) family: Family,
    pub(super) defaults: Defaults,
}

impl Reader<'_> {
    /// Reads the widths.
    pub(super) fn widths(&self) -> Result<Widths, ConfigError> {
        let (keys, defaults) = (self.keys, &self.defaults);
        let hidden = keys.number(&["hidden_size", "n_embd", "d_model"], defaults.hidden)?;
        let stateful = matches!(self.family, Mamba | Mamba2);
        let heads = match stateful {
            true => 0,
            false => keys.number(&["num_attention_heads", "n_head", "n_heads"], defaults.heads)?,
        };
        let feed_forward = self.feed_forward(hidden)?;
        let kv_heads = match self.family {
            Falcon if keys.flag("new_decoder_architecture", false)? => {
                keys.number(&["num_kv_heads"], heads)?
            }
            Falcon if keys.flag("multi_query", true)? => 1,
            Falcon => heads,
            _ => {
                let class = defaults.kv_heads;
                let default = if class > 0 { class.min(heads) } else { heads };
                keys.integer(&["num_key_value_heads"])?.unwrap_or(default)
            }
        };
        let over = hidden.checked_div(heads).unwrap_or(0);
        let default = if defaults.head > 0 { defaults.head } else { over };
        let head = keys.integer(&["head_dim", "kv_channels"])?.unwrap_or(default);
        if !stateful && (heads == 0 || hidden == 0) {
            return Err(ConfigError::Missing("num_attention_heads"));
        }
        Ok(Widths { hidden, feed_forward, heads, kv_heads, head })
    }

    /// Reads the number of layers.
    pub(super) fn count(&self) -> Result<u64, ConfigError> {
        let names = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
        let count = self.keys.number(&names, self.defaults.layers)?;
        match count {
            1..=MAX_LAYERS => Ok(count),
            _ => Err(ConfigError::Layers(count)),
        }
    }

    /// Reads all layers.
    pub(super) fn layers(&self, widths: &Widths) -> Result<Vec<Layer>, ConfigError> {
        let count = self.count()?;
        let kinds = self.kinds(count)?;
        let experts = self.experts(widths)?;
        let feeds = self.feeds(count, widths, experts, &kinds)?;
        (kinds.into_iter().zip(feeds))
            .map(|(kind, feed)| {
                let block = self.block(kind, widths)?;
                let beside = match self.family {
                    FalconH1 => Some(self.linear(widths)?),
                    _ => None,
                };
                Ok(Layer { block, beside, feed })
            })
            .collect()
    }

    /// Decides how each layer mixes. A list in the configuration wins.
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
                    return Err(ConfigError::Value { key, wanted: "a list of all layers" });
                }
                let named = list.iter().take(count as usize).map(|name| kind(name));
                named.collect::<Result<Vec<Kind>, ConfigError>>()?
            }
            None => self.kinds_of_family(count)?,
        };
        if matches!(self.family, Gemma3n | Gemma4) {
            let default = if matches!(self.family, Gemma3n) { 15 } else { 0 };
            let shared = self.keys.integer(&["num_kv_shared_layers"])?.unwrap_or(default);
            for kind in kinds.iter_mut().rev().take(shared as usize) {
                *kind = Kind::Shared;
            }
        }
        Ok(kinds)
    }

    fn kinds_of_family(&self, count: u64) -> Result<Vec<Kind>, ConfigError> {
        let keys = self.keys;
        let every = |period: u64, rare: Kind, other: Kind| -> Vec<Kind> {
            let rare_at = |i: u64| (i + 1).is_multiple_of(period.max(1));
            (0..count).map(|i| if rare_at(i) { rare } else { other }).collect()
        };
        let listed = |list: &[u64], rare: Kind, other: Kind| -> Vec<Kind> {
            (0..count).map(|i| if list.contains(&i) { rare } else { other }).collect()
        };
        let period =
            |default| keys.number(&["sliding_window_pattern", "_sliding_window_pattern"], default);
        let all = |kind| vec![kind; count as usize];
        Ok(match self.family {
            Mistral => match keys.given("sliding_window").is_some_and(serde_json::Value::is_null) {
                true => all(Kind::Full),
                false => all(Kind::Sliding),
            },
            Mixtral => match keys.integer(&["sliding_window"])? {
                Some(_) => all(Kind::Sliding),
                None => all(Kind::Full),
            },
            Qwen2 | Qwen3 | Qwen3Moe if keys.flag("use_sliding_window", false)? => {
                let from = keys.integer(&["max_window_layers"])?.unwrap_or(28);
                let kind = |i| if i >= from { Kind::Sliding } else { Kind::Full };
                (0..count).map(kind).collect()
            }
            Gemma2 | GptOss => every(2, Kind::Full, Kind::Sliding),
            Gemma3n => every(5, Kind::Full, Kind::Sliding),
            Gemma3 | Gemma4 => every(period(6)?, Kind::Full, Kind::Sliding),
            Cohere2 => every(period(4)?, Kind::Full, Kind::Sliding),
            Llama4 => match keys.integers("no_rope_layers")?.filter(|list| !list.is_empty()) {
                Some(list) => (0..count as usize)
                    .map(|i| if list.get(i) == Some(&0) { Kind::Full } else { Kind::Chunked })
                    .collect(),
                None => {
                    every(keys.number(&["no_rope_layer_interval"], 4)?, Kind::Full, Kind::Chunked)
                }
            },
            Qwen3Next | Qwen35 => {
                every(keys.number(&["full_attention_interval"], 4)?, Kind::Full, Kind::Linear)
            }
            Jamba => {
                let period = keys.number(&["attn_layer_period"], 8)?.max(1);
                let offset = keys.integer(&["attn_layer_offset"])?.unwrap_or(4);
                let full = |i: u64| i % period == offset % period;
                (0..count).map(|i| if full(i) { Kind::Full } else { Kind::Linear }).collect()
            }
            Mamba | Mamba2 => all(Kind::Linear),
            Bamba => {
                let list = keys.integers("attn_layer_indices")?.unwrap_or_default();
                listed(&list, Kind::Full, Kind::Linear)
            }
            GraniteHybrid => all(Kind::Linear),
            Lfm2 => match keys.integers("full_attn_idxs")? {
                Some(list) => listed(&list, Kind::Full, Kind::Linear),
                None => all(Kind::Full),
            },
            MiniMax => match keys.integers("attn_type_list")? {
                Some(list) => (0..count as usize)
                    .map(|i| if list.get(i) == Some(&0) { Kind::Linear } else { Kind::Full })
                    .collect(),
                None => every(2, Kind::Full, Kind::Linear),
            },
            KimiLinear => {
                let linear = keys.within("linear_attn_config");
                let linear = linear.ok_or(ConfigError::Missing("linear_attn_config"))?;
                // Counted from 1.
                let list = linear.integers("full_attn_layers")?.unwrap_or_default();
                let full = |i: u64| list.contains(&(i + 1));
                (0..count).map(|i| if full(i) { Kind::Full } else { Kind::Linear }).collect()
            }
            RecurrentGemma => {
                let kinds = match keys.texts("block_types")?.or(keys.texts("_block_types")?) {
                    Some(list) => list.into_iter().map(kind).collect::<Result<Vec<_>, _>>()?,
                    None => vec![Kind::Linear, Kind::Linear, Kind::Sliding],
                };
                // `attention` is local in this family.
                let local = |kind| if kind == Kind::Full { Kind::Sliding } else { kind };
                kinds.into_iter().map(local).cycle().take(count as usize).collect()
            }
            NemotronH => {
                let pattern = keys.text("hybrid_override_pattern");
                let pattern = pattern.ok_or(ConfigError::Missing("hybrid_override_pattern"))?;
                let kinds: Option<Vec<Kind>> = (pattern.chars().take(count as usize))
                    .map(|letter| match letter {
                        'M' => Some(Kind::Linear),
                        '*' => Some(Kind::Full),
                        '-' => Some(Kind::Feed),
                        'E' => Some(Kind::Experts),
                        _ => None,
                    })
                    .collect();
                kinds.filter(|kinds| kinds.len() as u64 == count).ok_or(ConfigError::Value {
                    key: "hybrid_override_pattern",
                    wanted: "one of M, *, - or E for each layer",
                })?
            }
            _ => all(Kind::Full),
        })
    }

    /// Returns whether attention is latent, as its rank tells in an unknown family.
    fn is_latent(&self) -> Result<bool, ConfigError> {
        Ok(match self.family {
            Deepseek2 | Deepseek3 | KimiLinear => true,
            Generic => self.keys.integer(&["kv_lora_rank"])?.is_some(),
            _ => false,
        })
    }

    fn window(&self, names: &[&'static str], default: u64) -> Result<Option<u64>, ConfigError> {
        let window = self.keys.integer(names)?.unwrap_or(default);
        Ok((window > 0).then_some(window))
    }

    fn block(&self, kind: Kind, widths: &Widths) -> Result<Block, ConfigError> {
        let keys = self.keys;
        let &Widths { heads, kv_heads, head, .. } = widths;
        let attention = |window| Block::Attention {
            heads,
            kv_heads,
            key: head,
            value: head,
            window,
            gate: matches!(self.family, Qwen3Next | Qwen35),
        };
        Ok(match kind {
            Kind::Feed | Kind::Experts | Kind::Shared => Block::Nothing,
            Kind::Linear => self.linear(widths)?,
            Kind::Full if self.is_latent()? => {
                // Absent: the default of the class. Null: no compression of queries.
                let absent = keys.given("q_lora_rank").is_none();
                let absent = absent && !matches!(self.family, KimiLinear);
                Block::Latent {
                    heads,
                    query_rank: keys.integer(&["q_lora_rank"])?.or(absent.then_some(1536)),
                    rank: keys.number(&["kv_lora_rank"], 512)?,
                    rope: keys.number(&["qk_rope_head_dim"], 64)?,
                    nope: keys.number(&["qk_nope_head_dim"], 128)?,
                    value: keys.number(&["v_head_dim"], 128)?,
                }
            }
            Kind::Full if matches!(self.family, Gemma4) => {
                let head = keys.number(&["global_head_dim"], 512)?;
                let kv_heads = keys.integer(&["num_global_key_value_heads"])?.unwrap_or(kv_heads);
                Block::Attention {
                    heads,
                    kv_heads,
                    key: head,
                    value: head,
                    window: None,
                    gate: false,
                }
            }
            Kind::Full => attention(None),
            Kind::Sliding => attention(match self.family {
                GptOss => self.window(&["sliding_window"], 128)?,
                Gemma3n | Gemma4 => self.window(&["sliding_window"], 512)?,
                RecurrentGemma => self.window(&["attention_window_size"], 2048)?,
                _ => self.window(&["sliding_window"], 4096)?,
            }),
            Kind::Chunked => attention(self.window(&["attention_chunk_size"], 8192)?),
        })
    }

    /// Returns the recurrent block of the family.
    fn linear(&self, widths: &Widths) -> Result<Block, ConfigError> {
        let keys = self.keys;
        let &Widths { hidden, heads, head, .. } = widths;
        let expanded = |name| -> Result<u64, ConfigError> {
            Ok(hidden.saturating_mul(keys.number(&[name], 2)?))
        };
        let rank = |name| -> Result<u64, ConfigError> {
            match keys.given(name).is_some_and(serde_json::Value::is_string) {
                true => Ok(hidden.div_ceil(16)),
                false => Ok(keys.integer(&[name])?.unwrap_or(hidden.div_ceil(16))),
            }
        };
        Ok(match self.family {
            Mamba => Block::Mamba {
                inner: match keys.integer(&["intermediate_size"])? {
                    Some(inner) => inner,
                    None => expanded("expand")?,
                },
                state: keys.number(&["state_size"], 16)?,
                kernel: keys.number(&["conv_kernel"], 4)?,
                rank: rank("time_step_rank")?,
                normed: false,
            },
            Jamba => Block::Mamba {
                inner: expanded("mamba_expand")?,
                state: keys.number(&["mamba_d_state"], 16)?,
                kernel: keys.number(&["mamba_d_conv"], 4)?,
                rank: rank("mamba_dt_rank")?,
                normed: true,
            },
            Mamba2 => Block::Mamba2 {
                inner: expanded("expand")?,
                state: keys.number(&["state_size"], 128)?,
                kernel: keys.number(&["conv_kernel"], 4)?,
                groups: keys.number(&["n_groups"], 8)?,
                heads: keys.number(&["num_heads"], 128)?,
                normed: true,
            },
            NemotronH => {
                let heads = keys.number(&["mamba_num_heads"], 128)?;
                Block::Mamba2 {
                    inner: heads.saturating_mul(keys.number(&["mamba_head_dim"], 64)?),
                    state: keys.number(&["ssm_state_size"], 128)?,
                    kernel: keys.number(&["conv_kernel"], 4)?,
                    groups: keys.number(&["n_groups"], 8)?,
                    heads,
                    normed: true,
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
                heads: keys.number(&["mamba_n_heads"], 128)?,
                normed: keys.flag("mamba_rms_norm", !matches!(self.family, FalconH1))?,
            },
            Qwen3Next | Qwen35 => Block::Delta {
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
                heads,
            },
            MiniMax => Block::Lightning { heads, head },
            KimiLinear => {
                let linear = keys.within("linear_attn_config");
                let linear = linear.ok_or(ConfigError::Missing("linear_attn_config"))?;
                Block::Kimi {
                    heads: linear.number(&["num_heads"], heads)?,
                    head: linear.number(&["head_dim"], 128)?,
                    kernel: linear.number(&["short_conv_kernel_size"], 4)?,
                }
            }
            _ => {
                let wanted = "a list of layers of attention";
                return Err(ConfigError::Value { key: "layer_types", wanted });
            }
        })
    }
}

/// Returns the kind of a name in a list of layers.
fn kind(name: &str) -> Result<Kind, ConfigError> {
    match name {
        // A hybrid layer has its state beside attention.
        "full_attention" | "attention" | "global_attention" | "hybrid" => Ok(Kind::Full),
        "sliding_attention" | "local_attention" => Ok(Kind::Sliding),
        "chunked_attention" => Ok(Kind::Chunked),
        "linear_attention" | "conv" | "mamba" | "mamba2" | "recurrent" => Ok(Kind::Linear),
        "mlp" => Ok(Kind::Feed),
        "moe" => Ok(Kind::Experts),
        _ => Err(ConfigError::LayerType(crate::read::name::shown(name))),
    }
}
