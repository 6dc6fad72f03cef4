//! The layers of a model in order, with what each takes.

use super::buffers::{Batch, Buffers};
use super::weights::{Part, Sum, Weights, weights};
use super::{Engine, Run, context, overhead, product};
use crate::model::{Architecture, Model};
use gpu_core::Bytes;

/// A model cannot be divided into layers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The files do not have the numbers of the architecture.
    #[error("size the model '{0}': its files do not tell its layers, heads and widths")]
    Shape(String),
}

/// The position of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The embedding of the input.
    Input,
    /// A block.
    Block(usize),
    /// The last norm and the matrix of the output.
    Output,
}

/// A layer: what it brings to the device that holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// A name for people.
    pub name: String,
    /// Its position.
    pub position: Position,
    /// The bytes of its weights.
    pub weights: Bytes,
    /// The bytes that it keeps of tokens: keys and values, or state.
    pub context: Bytes,
    /// The bytes that training adds: gradients, optimizer and activations.
    pub training: Bytes,
    /// Its weights by purpose; empty but for blocks.
    pub parts: Vec<Part>,
    /// The bytes that are read for a token.
    pub reads: Bytes,
    /// The operations of a token.
    pub operations: u64,
    /// The bytes of a token that pass on to the next layer.
    pub crossing: Bytes,
    /// The buffer in which it computes.
    pub buffer: Bytes,
    /// The same, if devices work as a pipeline.
    pub pipelined: Bytes,
    /// The same as `buffer`, if its experts are elsewhere.
    pub buffer_without_experts: Bytes,
    /// What a device of a pipeline holds of incoming data if it begins with this layer.
    pub entry: Bytes,
    /// Whether it must be on the device of the layer before.
    pub joined: bool,
    /// Whether the engine keeps it in the memory of the CPU.
    pub pinned: bool,
}

impl Layer {
    /// Returns the bytes that the layer holds all the time.
    pub fn bytes(&self) -> Bytes {
        self.weights + self.context + self.training
    }
}

/// The layers of a model, and what a device holds beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// The layers in order: input, blocks, output.
    pub layers: Vec<Layer>,
    /// The bytes that input and output share if they are on one device.
    pub tied: Bytes,
    /// What each device holds beside layers and buffers.
    pub overhead: Bytes,
    /// What the CPU computes in if it holds nothing but pinned layers.
    pub pinned_buffer: Bytes,
    /// Whether layers that no GPU has room for are the first ones, computed on the CPU, as for
    /// llama.cpp; else they are the last ones.
    pub cpu_first: bool,
}

impl Chain {
    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.layers.iter().filter(|layer| matches!(layer.position, Position::Block(_))).count()
    }
}

/// Returns the layers of a model as a run takes them.
///
/// # Errors
/// [`Unknown`] if the files do not have the numbers of the architecture.
pub fn chain(model: &Model, run: &Run) -> Result<Chain, Unknown> {
    let shape = model.shape.as_ref().ok_or_else(|| Unknown::Shape(model.name.clone()))?;
    let mut weights = weights(model, shape, run.weights);
    let tied = tie(&mut weights, shape, run);
    let builder = Builder { shape, run, batch: Batch { shape, run } };
    let mut layers = Vec::with_capacity(weights.blocks.len().saturating_add(2));
    layers.push(builder.input(&weights));
    for (number, parts) in weights.blocks.iter().enumerate() {
        layers.push(builder.block(number, parts));
    }
    layers.push(builder.output(&weights));
    Ok(Chain {
        layers,
        tied,
        overhead: overhead(run),
        pinned_buffer: builder.batch.input(),
        cpu_first: run.engine == Engine::LlamaCpp,
    })
}

/// Adds the matrix of the input to the output if the output has none of its own, and returns its
/// bytes. llama.cpp does so whatever the configuration says.
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
    run: &'a Run,
    batch: Batch<'a>,
}

impl Builder<'_> {
    fn layer(&self, name: String, position: Position, size: Sum, buffers: Buffers) -> Layer {
        Layer {
            name,
            position,
            weights: self.weight_bytes(size),
            context: Bytes(0),
            training: self.state_bytes(size),
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
        let mut active = Sum::default();
        let (count, used) =
            self.shape.experts.map_or((1, 1), |experts| (experts.count, experts.used));
        for part in parts {
            size.add(Sum { bytes: part.bytes, elements: part.elements });
            let share = |whole: u64| match part.kind.is_routed() {
                true => product(&[whole / count.max(1), used.min(count)]),
                false => whole,
            };
            active.add(Sum { bytes: Bytes(share(part.bytes.0)), elements: share(part.elements) });
        }
        let position = Position::Block(number);
        let buffers = self.batch.block(number, true);
        let mut layer = self.layer(format!("block {number}"), position, size, buffers);
        layer.buffer_without_experts = self.batch.block(number, false).alone;
        layer.parts = parts.to_vec();
        layer.operations = active.elements.saturating_mul(2);
        layer.reads = active.bytes;
        if self.run.training.is_none()
            && let Some(mixer) = self.shape.layers.get(number)
        {
            layer.context = context(*mixer, self.run, 1);
            // A token reads the whole context of its own sequence.
            layer.reads += Bytes(layer.context.0 / self.run.sequences.max(1));
        }
        if let Some(training) = self.run.training {
            layer.training += training.activation_bytes(self.shape.hidden, self.shape.heads);
        }
        layer
    }

    fn weight_bytes(&self, size: Sum) -> Bytes {
        match self.run.training {
            Some(training) => Bytes(product(&[size.elements, training.weight_bytes()])),
            None => size.bytes,
        }
    }

    fn state_bytes(&self, size: Sum) -> Bytes {
        let state = |training: super::Training| product(&[size.elements, training.state_bytes()]);
        Bytes(self.run.training.map_or(0, state))
    }
}
