//! The feed-forward part of each layer, dense or of experts.

use super::ConfigError;
use super::family::Family::*;
use super::layer::Feed;
use super::layers::{Kind, Reader, Widths};
use crate::model::Experts;
use serde_json::Value;

impl Reader<'_> {
    /// Reads the width of the feed-forward part.
    pub(super) fn feed_forward(&self, hidden: u64) -> Result<u64, ConfigError> {
        let keys = self.keys;
        let four = hidden.saturating_mul(4);
        match self.family {
            Mamba | Mamba2 => Ok(0),
            Gpt2 => Ok(keys.integer(&["n_inner"])?.unwrap_or(four)),
            Bloom => Ok(four),
            Falcon => Ok(keys.integer(&["ffn_hidden_size"])?.unwrap_or(four)),
            Mpt => Ok(hidden.saturating_mul(keys.number(&["expansion_ratio"], 4)?)),
            Llama4 => keys.number(&["intermediate_size_mlp"], 16_384),
            RecurrentGemma => Ok(keys.number(&["intermediate_size"], 7680)? / 2),
            Lfm2 => {
                let width = keys
                    .number(&["block_ff_dim", "intermediate_size"], self.defaults.feed_forward)?;
                if !keys.flag("block_auto_adjust_ff_dim", true)? {
                    return Ok(width);
                }
                let multiple = keys.number(&["block_multiple_of"], 256)?;
                // Products of numbers of 31 bits do not overflow.
                Ok((2 * width / 3).next_multiple_of(multiple.max(1)))
            }
            // One width for each layer: the widest stands for all.
            Gemma3n if keys.given("intermediate_size").is_some_and(Value::is_array) => {
                let widths = keys.integers("intermediate_size")?.unwrap_or_default();
                Ok(widths.into_iter().max().unwrap_or(0))
            }
            _ => keys
                .number(&["intermediate_size", "ffn_dim", "n_inner"], self.defaults.feed_forward),
        }
    }

    /// Reads the experts; `None` if no layer has any.
    pub(super) fn experts(&self, widths: &Widths) -> Result<Option<Experts>, ConfigError> {
        let keys = self.keys;
        let counts = ["num_experts", "num_local_experts", "n_routed_experts"];
        let (count, used, width) = match self.family {
            Mixtral => (8, 2, 0),
            Qwen3Moe => (128, 8, 768),
            Qwen3Next => (512, 10, 512),
            GptOss => (128, 4, 0),
            Llama4 => (16, 1, 0),
            Deepseek2 => (64, 6, 1407),
            Deepseek3 => (256, 8, 2048),
            Jamba => (16, 2, 0),
            _ => (0, 0, 0),
        };
        let null = counts.iter().any(|key| keys.given(key).is_some_and(Value::is_null));
        let count = keys.integer(&counts)?.unwrap_or(if null { 0 } else { count });
        if count == 0 || (count == 1 && matches!(self.family, Jamba)) {
            return Ok(None);
        }
        let names = ["num_experts_per_tok", "num_experts_per_token", "top_k_experts"];
        let used = keys.integer(&names)?.unwrap_or(used);
        let width = if width > 0 { width } else { widths.feed_forward };
        let feed_forward = match self.family {
            Llama4 => keys.number(&["intermediate_size"], 8192)?,
            _ => keys.integer(&["moe_intermediate_size"])?.unwrap_or(width),
        };
        let shared = match self.family {
            Llama4 => 1,
            Qwen3Next => {
                let shared = keys.number(&["shared_expert_intermediate_size"], 512)?;
                shared.checked_div(feed_forward).unwrap_or(0)
            }
            _ => {
                let default = if matches!(self.family, Deepseek3) { 1 } else { 0 };
                keys.integer(&["n_shared_experts", "num_shared_experts"])?.unwrap_or(default)
            }
        };
        let default = if matches!(self.family, Deepseek3) { 3 } else { 0 };
        let dense_layers = keys.integer(&["first_k_dense_replace"])?.unwrap_or(default);
        Ok(Some(Experts { count, used, feed_forward, shared, dense_layers }))
    }

    /// Decides what follows the mixer of each layer.
    pub(super) fn feeds(
        &self,
        count: u64,
        widths: &Widths,
        experts: Option<Experts>,
        kinds: &[Kind],
    ) -> Result<Vec<Feed>, ConfigError> {
        let keys = self.keys;
        let dense = match widths.feed_forward {
            0 => Feed::Nothing,
            width => Feed::Dense { width },
        };
        let (step, offset) = match self.family {
            Jamba => (
                keys.number(&["expert_layer_period"], 2)?,
                keys.integer(&["expert_layer_offset"])?.unwrap_or(1),
            ),
            Llama4 => {
                let step = keys.number(&["interleave_moe_layer_step"], 1)?;
                (step, step.saturating_sub(1))
            }
            _ => {
                let step = keys.number(&["decoder_sparse_step", "moe_layer_freq"], 1)?;
                (step, step.saturating_sub(1))
            }
        };
        let step = step.max(1);
        let without = keys.integers("mlp_only_layers")?.unwrap_or_default();
        let listed = keys.integers("moe_layers")?;
        let shared = |experts: &Experts| -> Result<u64, ConfigError> {
            match self.family {
                Qwen3Next => keys.number(&["shared_expert_intermediate_size"], 512),
                NemotronH => {
                    Ok(keys.integer(&["moe_shared_expert_intermediate_size"])?.unwrap_or(0))
                }
                GraniteHybrid => Ok(keys.integer(&["shared_intermediate_size"])?.unwrap_or(0)),
                _ => Ok(experts.shared.saturating_mul(experts.feed_forward)),
            }
        };
        let sparse = match &experts {
            Some(experts) => Some(Feed::Experts {
                count: experts.count,
                width: experts.feed_forward,
                shared: shared(experts)?,
            }),
            None => None,
        };
        // Without experts, Granite's shared part is its feed-forward part.
        let dense = match (self.family, keys.integer(&["shared_intermediate_size"])?) {
            (GraniteHybrid, Some(width)) => Feed::Dense { width },
            _ => dense,
        };
        let first_dense = experts.map_or(0, |experts| experts.dense_layers);
        let is_sparse = |i: u64| match &listed {
            Some(list) => list.contains(&i),
            None => i >= first_dense && i % step == offset % step && !without.contains(&i),
        };
        Ok((0..count)
            .zip(kinds)
            .map(|(i, kind)| match (self.family, kind) {
                (_, Kind::Experts) => sparse.unwrap_or(dense),
                (_, Kind::Feed) => dense,
                // The layers of Nemotron have a mixer or a feed-forward part.
                (NemotronH, _) => Feed::Nothing,
                _ => sparse.filter(|_| is_sparse(i)).unwrap_or(dense),
            })
            .collect())
    }
}
