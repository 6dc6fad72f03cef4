//! The tensors of a model whose files are not at hand.

use super::family::{Family, Style};
use super::layer::{Block, Feed, Layer};
use super::{Config, ConfigError};
use crate::tensor::{Encoding, Tensor};
use gpu_core::Bytes;

/// The tensors so far.
struct List {
    tensors: Vec<Tensor>,
    plain: Encoding,
}

impl List {
    fn push(&mut self, name: String, encoding: Encoding, shape: &[u64]) -> Result<(), ConfigError> {
        // A matrix without rows or columns is none.
        if shape.contains(&0) {
            return Ok(());
        }
        let bytes = (shape.iter())
            .try_fold(1u64, |product, dimension| product.checked_mul(*dimension))
            .and_then(|elements| encoding.bytes(elements));
        let Some(bytes) = bytes else { return Err(ConfigError::Overflow(name)) };
        self.tensors.push(Tensor { name, encoding, shape: shape.to_vec(), bytes: Bytes(bytes) });
        Ok(())
    }

    /// Adds a tensor.
    fn plain(&mut self, name: String, shape: &[u64]) -> Result<(), ConfigError> {
        self.push(name, self.plain, shape)
    }

    /// Adds a matrix, or a stack of them, with a bias.
    fn linear(
        &mut self,
        name: &str,
        (count, rows, columns): (u64, u64, u64),
        bias: bool,
    ) -> Result<(), ConfigError> {
        let experts = name.contains(".experts.");
        let stacked =
            |shape: &[u64]| if experts { [&[count], shape].concat() } else { shape.to_vec() };
        self.plain(format!("{name}.weight"), &stacked(&[rows, columns]))?;
        if bias { self.plain(format!("{name}.bias"), &stacked(&[rows])) } else { Ok(()) }
    }

    fn norm(&mut self, name: String, width: u64, bias: bool) -> Result<(), ConfigError> {
        self.plain(format!("{name}.weight"), &[width])?;
        if bias { self.plain(format!("{name}.bias"), &[width]) } else { Ok(()) }
    }
}

/// Derives the tensors of a model.
pub(super) fn derive(config: &Config) -> Result<Vec<Tensor>, ConfigError> {
    let style = config.family.style().filter(|_| !config.narrowed);
    let mut style = style.ok_or_else(|| ConfigError::Underived(config.model_type.clone()))?;
    style.query_bias |= config.bias;
    style.output_bias |= config.bias;
    style.feed_bias |= config.feed_bias;
    let architecture = &config.architecture;
    let (hidden, vocabulary) = (architecture.hidden, architecture.vocabulary);
    // Falcon's newer decoder has a second norm in each layer.
    let newer = config.family == Family::Falcon && config.layers.iter().any(has_groups);
    style.norms += u64::from(newer);
    let plain = architecture.encoding.or_else(|| Encoding::named("F32"));
    let plain = plain.ok_or_else(|| ConfigError::Underived(config.model_type.clone()))?;
    let mut list = List { tensors: Vec::new(), plain };
    list.plain("model.embed_tokens.weight".to_owned(), &[vocabulary, hidden])?;
    if let Some(more) = style.positions {
        let rows = architecture.context.unwrap_or(0).saturating_add(more);
        list.plain("model.embed_positions.weight".to_owned(), &[rows, hidden])?;
    }
    if style.embedding_norm {
        list.norm("model.word_embeddings_layernorm".to_owned(), hidden, style.norm_bias)?;
    }
    for (index, layer) in config.layers.iter().enumerate() {
        let prefix = format!("model.layers.{index}");
        push_layer(&mut list, &prefix, layer, (hidden, config.head), &style)?;
    }
    list.norm("model.norm".to_owned(), hidden, style.norm_bias)?;
    if !architecture.tied {
        list.plain("lm_head.weight".to_owned(), &[vocabulary, hidden])?;
    }
    Ok(list.tensors)
}

/// Returns whether a layer's heads share keys in groups.
fn has_groups(layer: &Layer) -> bool {
    matches!(layer.block, Block::Attention { kv_heads, .. } if kv_heads > 1)
}

fn push_layer(
    list: &mut List,
    prefix: &str,
    layer: &Layer,
    (hidden, head): (u64, u64),
    style: &Style,
) -> Result<(), ConfigError> {
    const NORMS: [&str; 4] = [
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ];
    for name in NORMS.iter().take(style.norms as usize) {
        list.norm(format!("{prefix}.{name}"), hidden, style.norm_bias)?;
    }
    push_block(list, prefix, &layer.block, (hidden, head), style)?;
    if let Some(beside) = &layer.beside {
        push_block(list, prefix, beside, (hidden, head), style)?;
    }
    let matrices: &[(&str, bool)] = match style.gated {
        true => &[("gate_proj", false), ("up_proj", false), ("down_proj", true)],
        false => &[("up_proj", false), ("down_proj", true)],
    };
    let mut part = |name: &str, count: u64, width: u64, bias: bool| {
        for (matrix, down) in matrices {
            let (rows, columns) = if *down { (hidden, width) } else { (width, hidden) };
            list.linear(&format!("{prefix}.mlp{name}.{matrix}"), (count, rows, columns), bias)?;
        }
        Ok::<(), ConfigError>(())
    };
    match layer.feed {
        Feed::Nothing => Ok(()),
        Feed::Dense { width } => part("", 1, width, style.feed_bias),
        Feed::Experts { count, width, shared } => {
            part(".experts", count, width, style.feed_bias)?;
            part(".shared_expert", 1, shared, false)?;
            list.plain(format!("{prefix}.mlp.gate.weight"), &[count, hidden])?;
            if style.router_bias {
                list.plain(format!("{prefix}.mlp.gate.bias"), &[count])?;
            }
            if style.shared_gate && shared > 0 {
                list.plain(format!("{prefix}.mlp.shared_expert_gate.weight"), &[1, hidden])?;
            }
            Ok(())
        }
    }
}

fn push_block(
    list: &mut List,
    prefix: &str,
    block: &Block,
    (hidden, head): (u64, u64),
    style: &Style,
) -> Result<(), ConfigError> {
    let attention = format!("{prefix}.self_attn");
    let mamba = format!("{prefix}.mamba");
    let times = u64::saturating_mul;
    match *block {
        Block::Nothing => Ok(()),
        Block::Attention { heads, kv_heads, key, value, gate, .. } => {
            let query = times(times(heads, key), if gate { 2 } else { 1 });
            let bias = style.query_bias;
            list.linear(&format!("{attention}.q_proj"), (1, query, hidden), bias)?;
            list.linear(&format!("{attention}.k_proj"), (1, times(kv_heads, key), hidden), bias)?;
            list.linear(&format!("{attention}.v_proj"), (1, times(kv_heads, value), hidden), bias)?;
            let output = (1, hidden, times(heads, value));
            list.linear(&format!("{attention}.o_proj"), output, style.output_bias)?;
            if style.head_norm {
                list.norm(format!("{attention}.q_norm"), head, false)?;
                list.norm(format!("{attention}.k_norm"), head, false)?;
            }
            if style.sinks {
                list.plain(format!("{attention}.sinks"), &[heads])?;
            }
            Ok(())
        }
        Block::Latent { heads, query_rank, rank, rope, nope, value } => {
            let query = times(heads, rope + nope);
            match query_rank {
                None => list.linear(&format!("{attention}.q_proj"), (1, query, hidden), false)?,
                Some(rank) => {
                    list.linear(&format!("{attention}.q_a_proj"), (1, rank, hidden), false)?;
                    list.norm(format!("{attention}.q_a_layernorm"), rank, false)?;
                    list.linear(&format!("{attention}.q_b_proj"), (1, query, rank), false)?;
                }
            }
            let down = (1, rank + rope, hidden);
            list.linear(&format!("{attention}.kv_a_proj_with_mqa"), down, false)?;
            list.norm(format!("{attention}.kv_a_layernorm"), rank, false)?;
            let up = (1, times(heads, nope + value), rank);
            list.linear(&format!("{attention}.kv_b_proj"), up, false)?;
            let output = (1, hidden, times(heads, value));
            list.linear(&format!("{attention}.o_proj"), output, false)
        }
        Block::Mamba { inner, state, kernel, rank, normed } => {
            list.linear(&format!("{mamba}.in_proj"), (1, times(2, inner), hidden), false)?;
            list.plain(format!("{mamba}.conv1d.weight"), &[inner, 1, kernel])?;
            list.plain(format!("{mamba}.conv1d.bias"), &[inner])?;
            list.linear(&format!("{mamba}.x_proj"), (1, rank + 2 * state, inner), false)?;
            list.linear(&format!("{mamba}.dt_proj"), (1, inner, rank), true)?;
            list.plain(format!("{mamba}.A_log"), &[inner, state])?;
            list.plain(format!("{mamba}.D"), &[inner])?;
            list.linear(&format!("{mamba}.out_proj"), (1, hidden, inner), false)?;
            if normed {
                list.norm(format!("{mamba}.dt_layernorm"), rank, false)?;
                list.norm(format!("{mamba}.b_layernorm"), state, false)?;
                list.norm(format!("{mamba}.c_layernorm"), state, false)?;
            }
            Ok(())
        }
        Block::Mamba2 { inner, state, kernel, groups, heads, normed } => {
            let channels = inner.saturating_add(times(2, times(groups, state)));
            let rows = inner.saturating_add(channels).saturating_add(heads);
            list.linear(&format!("{mamba}.in_proj"), (1, rows, hidden), false)?;
            list.plain(format!("{mamba}.conv1d.weight"), &[channels, 1, kernel])?;
            list.plain(format!("{mamba}.conv1d.bias"), &[channels])?;
            for name in ["dt_bias", "A_log", "D"] {
                list.plain(format!("{mamba}.{name}"), &[heads])?;
            }
            if normed {
                list.norm(format!("{mamba}.norm"), inner, false)?;
            }
            list.linear(&format!("{mamba}.out_proj"), (1, hidden, inner), false)
        }
        Block::Delta { key_heads, value_heads, key, value, kernel } => {
            let name = format!("{prefix}.linear_attn");
            let (keys, values) = (times(key_heads, key), times(value_heads, value));
            let channels = times(2, keys).saturating_add(values);
            let rows = channels.saturating_add(values);
            list.linear(&format!("{name}.in_proj_qkvz"), (1, rows, hidden), false)?;
            list.linear(&format!("{name}.in_proj_ba"), (1, times(2, value_heads), hidden), false)?;
            list.plain(format!("{name}.conv1d.weight"), &[channels, 1, kernel])?;
            list.plain(format!("{name}.dt_bias"), &[value_heads])?;
            list.plain(format!("{name}.A_log"), &[value_heads])?;
            list.norm(format!("{name}.norm"), value, false)?;
            list.linear(&format!("{name}.out_proj"), (1, hidden, values), false)
        }
        Block::Kimi { heads, head, kernel } => {
            let inner = times(heads, head);
            for name in ["q", "k", "v"] {
                list.linear(&format!("{attention}.{name}_proj"), (1, inner, hidden), false)?;
                list.plain(format!("{attention}.{name}_conv1d.weight"), &[inner, 1, kernel])?;
            }
            for name in ["f", "g"] {
                list.linear(&format!("{attention}.{name}_a_proj"), (1, head, hidden), false)?;
                list.linear(&format!("{attention}.{name}_b_proj"), (1, inner, head), false)?;
            }
            list.linear(&format!("{attention}.b_proj"), (1, heads, hidden), false)?;
            list.plain(format!("{attention}.A_log"), &[heads])?;
            list.plain(format!("{attention}.dt_bias"), &[inner])?;
            list.norm(format!("{attention}.o_norm"), head, false)?;
            list.linear(&format!("{attention}.o_proj"), (1, hidden, inner), false)
        }
        Block::Convolution { kernel } => {
            let name = format!("{prefix}.conv");
            list.linear(&format!("{name}.in_proj"), (1, times(3, hidden), hidden), false)?;
            list.plain(format!("{name}.conv.weight"), &[hidden, 1, kernel])?;
            list.linear(&format!("{name}.out_proj"), (1, hidden, hidden), false)
        }
        Block::Gated { width, kernel, heads } => {
            let name = format!("{prefix}.temporal_block");
            list.linear(&format!("{name}.linear_x"), (1, width, hidden), true)?;
            list.linear(&format!("{name}.linear_y"), (1, width, hidden), true)?;
            list.plain(format!("{name}.conv_1d.weight"), &[width, 1, kernel])?;
            list.plain(format!("{name}.conv_1d.bias"), &[width])?;
            let side = width.checked_div(heads).unwrap_or(0);
            for gate in ["input_gate", "recurrent_gate"] {
                list.plain(format!("{name}.rg_lru.{gate}_weight"), &[heads, side, side])?;
                list.plain(format!("{name}.rg_lru.{gate}_bias"), &[heads, side])?;
            }
            list.plain(format!("{name}.rg_lru.recurrent_param"), &[width])?;
            list.linear(&format!("{name}.linear_out"), (1, hidden, width), true)
        }
        Block::Lightning { heads, head } => {
            let inner = times(heads, head);
            list.linear(&format!("{attention}.qkv_proj"), (1, times(3, inner), hidden), false)?;
            list.linear(&format!("{attention}.output_gate"), (1, inner, hidden), false)?;
            list.norm(format!("{attention}.norm"), inner, false)?;
            list.linear(&format!("{attention}.out_proj"), (1, hidden, inner), false)
        }
    }
}
