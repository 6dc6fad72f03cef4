//! The layers of a model in order, with the resources that each needs.

use super::buffers::{Batch, Buffers};
use super::weights::{Part, Sum, Weights, weights};
use super::{Engine, Run, context, overhead, product};
use crate::model::{Architecture, Mixer, Model};
use gpu_core::Bytes;

/// The reason why a model cannot be divided into layers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The files lack the dimensions of the architecture.
    #[error("size the model '{0}': its files lack layer, head and width counts")]
    Shape(String),
}

/// The position of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The input embedding.
    Input,
    /// A block.
    Block(usize),
    /// The final norm and the output matrix.
    Output,
}

/// A layer, and the resources that it needs on its device.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// A name for display.
    pub name: String,
    /// Its position.
    pub position: Position,
    /// The bytes of its weights.
    pub weights: Bytes,
    /// The bytes that it keeps for tokens: keys and values, or state.
    pub context: Bytes,
    /// Its weights by purpose; empty except for blocks.
    pub parts: Vec<Part>,
    /// The bytes that are read per token.
    pub reads: Bytes,
    /// The operations per token.
    pub operations: u64,
    /// The bytes per token that pass on to the next layer.
    pub crossing: Bytes,
    /// Its compute buffer.
    pub buffer: Bytes,
    /// The compute buffer if devices form a pipeline.
    pub pipelined: Bytes,
    /// The compute buffer if its experts are on another device.
    pub buffer_without_experts: Bytes,
    /// The incoming data that a device of a pipeline holds if it starts with this layer.
    pub entry: Bytes,
    /// Whether it must be on the same device as the previous layer.
    pub joined: bool,
    /// Whether the engine keeps it in CPU memory.
    pub pinned: bool,
}

impl Layer {
    /// Returns the bytes that the layer holds permanently.
    pub fn bytes(&self) -> Bytes {
        self.weights + self.context
    }
}

/// The layers of a model, and the further memory that devices hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// The layers in order: input, blocks, output.
    pub layers: Vec<Layer>,
    /// The bytes that input and output share if they are on the same device.
    pub tied: Bytes,
    /// The memory that each device holds in addition to layers and buffers.
    pub overhead: Bytes,
    /// The additional memory of the first GPU if it computes batches for layers on the CPU
    /// ([`Run::op_offload`]).
    pub offload: Bytes,
    /// The compute buffer of a CPU that holds only pinned layers.
    pub pinned_buffer: Bytes,
    /// Whether layers that do not fit on any GPU are the first ones, computed on the CPU, as in
    /// llama.cpp; otherwise they are the last ones.
    pub cpu_first: bool,
}

impl Chain {
    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.layers.iter().filter(|layer| matches!(layer.position, Position::Block(_))).count()
    }
}

/// Returns the layers of a model as a run uses them.
///
/// # Errors
/// [`Unknown`] if the files lack the dimensions of the architecture.
pub fn chain(model: &Model, run: &Run) -> Result<Chain, Unknown> {
    let shape = model.shape.as_ref().ok_or_else(|| Unknown::Shape(model.name.clone()))?;
    let mut weights = weights(model, shape, run.weights);
    let tied = tie(&mut weights, shape, run);
    let architecture = model.architecture.as_str();
    let builder = Builder { shape, architecture, run, batch: Batch::new(shape, run) };
    let mut layers = Vec::with_capacity(weights.blocks.len().saturating_add(2));
    layers.push(builder.input(&weights));
    for (number, parts) in weights.blocks.iter().enumerate() {
        layers.push(builder.block(number, parts));
    }
    layers.push(builder.output(&weights));
    let offload = if run.op_offload { offload(&layers) } else { Bytes(0) };
    Ok(Chain {
        layers,
        offload,
        tied,
        overhead: overhead(run),
        pinned_buffer: builder.batch.input(),
        cpu_first: run.engine == Engine::LlamaCpp,
    })
}

/// Returns the maximum memory that a GPU needs to compute a batch for a block in CPU memory: the
/// block's largest matrix, and its keys and values including the fragmentation that their copy
/// causes. One and a half times this sum covered 64 of 64 measured llama.cpp buffers, with a median
/// excess of 101 MiB.
fn offload(layers: &[Layer]) -> Bytes {
    let of = |layer: &Layer| {
        let largest = layer.parts.iter().map(|part| part.bytes).max().unwrap_or_default();
        largest + layer.context + Bytes(layer.context.0 / 2)
    };
    layers.iter().map(of).max().unwrap_or_default()
}

/// Adds the input matrix to the output if the output has no matrix of its own, and returns its
/// bytes. llama.cpp does this regardless of the configuration.
fn tie(weights: &mut Weights, shape: &Architecture, run: &Run) -> Bytes {
    let is_tied = shape.tied || run.engine == Engine::LlamaCpp;
    if weights.has_output_matrix || !is_tied {
        return Bytes(0);
    }
    weights.output.add(weights.embedding);
    weights.embedding.bytes
}

struct Builder<'a> {
    shape: &'a Architecture,
    /// Its name.
    architecture: &'a str,
    run: &'a Run,
    batch: Batch<'a>,
}

impl Builder<'_> {
    fn layer(&self, name: String, position: Position, size: Sum, buffers: Buffers) -> Layer {
        Layer {
            name,
            position,
            weights: size.bytes,
            context: Bytes(0),
            parts: Vec::new(),
            reads: size.bytes,
            operations: size.elements.saturating_mul(2),
            crossing: self.batch.crossing(),
            buffer: buffers.alone,
            pipelined: buffers.pipelined,
            buffer_without_experts: buffers.alone,
            entry: buffers.entry,
            joined: false,
            pinned: false,
        }
    }

    fn input(&self, weights: &Weights) -> Layer {
        let mut layer =
            self.layer("input".to_owned(), Position::Input, weights.input, Buffers::default());
        // One row of the table.
        layer.reads = self.batch.crossing();
        layer.operations = 0;
        layer.pinned = self.run.engine == Engine::LlamaCpp;
        layer
    }

    fn output(&self, weights: &Weights) -> Layer {
        self.layer("output".to_owned(), Position::Output, weights.output, self.batch.output())
    }

    fn block(&self, number: usize, parts: &[Part]) -> Layer {
        let mut size = Sum::default();
        let (count, used) =
            self.shape.experts.map_or((1, 1), |experts| (experts.count, experts.used));
        let mut parts = parts.to_vec();
        for part in &mut parts {
            size.add(Sum { bytes: part.bytes, elements: part.elements });
            let share = |whole: u64| {
                if part.kind.is_routed() {
                    product(&[whole / count.max(1), used.min(count)])
                } else {
                    whole
                }
            };
            part.reads = Bytes(share(part.bytes.0));
            part.operations = share(part.elements).saturating_mul(2);
        }
        let position = Position::Block(number);
        let buffers = self.batch.block(number, true);
        let mut layer = self.layer(format!("block {number}"), position, size, buffers);
        layer.buffer_without_experts = self.batch.block(number, false).alone;
        layer.operations =
            parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.operations));
        layer.reads = parts.iter().map(|part| part.reads).sum();
        layer.parts = parts;
        if let Some(mixer) = self.shape.layers.get(number) {
            layer.context = context(*mixer, self.run, 1);
            // A token reads the whole context of its own sequence.
            layer.reads += Bytes(layer.context.0 / self.run.sequences.max(1));
        }
        layer.joined = self.is_joined(number);
        layer
    }

    /// Returns whether llama.cpp runs the attention of the previous block on the device of this
    /// block. Between CPU and GPU, this would copy the cache for each batch.
    fn is_joined(&self, number: usize) -> bool {
        let before = number.checked_sub(1).and_then(|before| self.shape.layers.get(before));
        self.run.engine == Engine::LlamaCpp
            && self.architecture.starts_with("lfm2")
            && matches!(before, Some(Mixer::Attention { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, estimate};
    use super::*;
    use crate::model::Experts;
    use crate::quantize::Scheme;
    use crate::tensor::{Encoding, Tensor};

    fn shape(tied: bool) -> Architecture {
        let mixer = Mixer::Attention { kv_heads: 2, key: 64, value: 64, window: None };
        Architecture {
            hidden: 512,
            feed_forward: 1024,
            heads: 8,
            vocabulary: 1000,
            tied,
            layers: vec![mixer; 2],
            ..Architecture::default()
        }
    }

    fn model(shape: Architecture) -> Model {
        Model { shape: Some(shape), ..Model::default() }
    }

    #[test]
    fn tied_output_is_counted_where_it_is_stored() {
        let embedding = 512 * 1000 * 2;
        let of =
            |tied, engine| estimate(&chain(&model(shape(tied)), &Run::new(engine, 256)).unwrap());
        let (tied, own) = (of(true, Engine::LlamaCpp), of(false, Engine::LlamaCpp));
        assert_eq!((tied.weights, tied.pinned), (own.weights, own.pinned));
        assert_eq!(tied.pinned, Bytes(embedding));
        let (tied, own) = (of(true, Engine::Transformers), of(false, Engine::Transformers));
        assert_eq!(tied.weights + Bytes(embedding), own.weights);
        assert_eq!(tied.pinned, Bytes(0));
    }

    #[test]
    fn output_without_a_matrix_uses_that_of_the_input_if_tied_or_in_llama_cpp() {
        let vector = Tensor {
            name: "output_norm.weight".to_owned(),
            encoding: Encoding::F32,
            shape: vec![10],
            bytes: Bytes(40),
        };
        let matrix = |name: &str| Tensor {
            name: name.to_owned(),
            encoding: Encoding::F16,
            shape: vec![10, 10],
            bytes: Bytes(200),
        };
        let tied = |tied, engine, output: bool| {
            let mut model = model(shape(tied));
            model.tensors = vec![matrix("token_embd.weight"), vector.clone()];
            model.tensors.extend(output.then(|| matrix("output.weight")));
            chain(&model, &Run::new(engine, 256)).unwrap().tied
        };
        for engine in [Engine::LlamaCpp, Engine::Vllm, Engine::Transformers] {
            let is_always = engine == Engine::LlamaCpp;
            assert_eq!(tied(true, engine, false), Bytes(200));
            assert_eq!(tied(false, engine, false), Bytes(if is_always { 200 } else { 0 }));
            assert_eq!(tied(true, engine, true), Bytes(0));
        }
    }

    #[test]
    fn conversion_keeps_vectors_and_widens_output() {
        let run = Run { weights: Scheme::named("Q4_K"), ..Run::new(Engine::LlamaCpp, 256) };
        let chain = chain(&model(shape(false)), &run).unwrap();
        // 512 and 1000 columns: the rows of the output are whole blocks.
        let output = &chain.layers[3];
        assert_eq!(output.weights, Bytes(512 * 1000 / 256 * 210 + 512 * 4));
        let up = chain.layers[1].parts.iter().find(|part| part.kind == Kind::Up).unwrap();
        assert_eq!(up.bytes, Bytes(512 * 1024 / 256 * 144));
    }

    #[test]
    fn lfm2_is_not_split_after_attention() {
        let attention = Mixer::Attention { kv_heads: 2, key: 64, value: 64, window: None };
        let layers = vec![Mixer::Nothing, attention, Mixer::Nothing];
        let mut model = model(Architecture { layers, ..shape(true) });
        let joined = |model: &Model, engine| -> Vec<bool> {
            let chain = chain(model, &Run::new(engine, 256)).unwrap();
            chain.layers.iter().map(|layer| layer.joined).collect()
        };
        assert_eq!(joined(&model, Engine::LlamaCpp), [false; 5]);
        model.architecture = "lfm2".to_owned();
        assert_eq!(joined(&model, Engine::LlamaCpp), [false, false, false, true, false]);
        assert_eq!(joined(&model, Engine::Transformers), [false; 5]);
    }

    #[test]
    fn token_reads_only_its_experts() {
        let experts = Experts { count: 8, used: 2, feed_forward: 256, shared: 0, dense_layers: 1 };
        let shape = Architecture { experts: Some(experts), ..shape(false) };
        let chain = chain(&model(shape), &Run::new(Engine::LlamaCpp, 256)).unwrap();
        let routed = 8 * 3 * 256 * 512 * 2;
        let block = &chain.layers[2];
        assert_eq!(block.reads.0, block.weights.0 - routed / 4 * 3 + block.context.0);
        assert!(chain.layers[1].parts.iter().all(|part| !part.kind.is_routed()));
    }

    #[test]
    fn numbered_blocks_beyond_architecture_belong_to_output() {
        let named = |name: &str| Tensor {
            name: name.to_owned(),
            encoding: Encoding::F16,
            shape: vec![10, 10],
            bytes: Bytes(200),
        };
        let mut model = model(shape(false));
        model.tensors = [
            "blk.0.attn_q.weight",
            "blk.2.attn_q.weight",
            "blk.18446744073709551615.x",
            "output.weight",
        ]
        .map(named)
        .into();
        let chain = chain(&model, &Run::new(Engine::LlamaCpp, 256)).unwrap();
        let weights: Vec<u64> = chain.layers.iter().map(|layer| layer.weights.0).collect();
        assert_eq!(weights, [0, 200, 0, 600]);
    }

    #[test]
    fn absurd_numbers_saturate() {
        let most = u64::MAX;
        let mixers = [
            Mixer::Attention { kv_heads: most, key: most, value: most, window: Some(most) },
            Mixer::Latent { rank: most, rope: most },
            Mixer::Recurrent { convolution: most, state: most },
            Mixer::Nothing,
        ];
        let experts =
            Experts { count: most, used: most, feed_forward: most, shared: most, dense_layers: 0 };
        let shape = Architecture {
            hidden: most,
            feed_forward: most,
            heads: most,
            vocabulary: most,
            experts: Some(experts),
            layers: mixers.to_vec(),
            ..Architecture::default()
        };
        for engine in [Engine::LlamaCpp, Engine::Vllm, Engine::Transformers] {
            let run = Run { sequences: most, ubatch: Some(most), ..Run::new(engine, most) };
            let chain = chain(&model(shape.clone()), &run).unwrap();
            assert_eq!(estimate(&chain).total(), Bytes(most));
        }
    }
}
