//! `gpuws place model --json`.

use super::Version;
use gpu_model::Model;
use gpu_model::need::{Estimate, Layer};
use gpu_model::quantize::Scheme;
use gpu_model::split::vllm::Served;
use gpu_model::split::{Answer, RoomKind, Rooms, Use};
use serde::Serialize;

/// The memory that a model needs, and where its layers go.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlacedModel<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Path of the model.
    pub file: &'a str,
    /// Name of the simulated machine whose GPUs are used. Null if the sizes were given, or are
    /// those of a real machine.
    pub machine: Option<&'a str>,
    /// The model.
    pub model: Described<'a>,
    /// Tokens of context of each sequence.
    pub context_tokens: u64,
    /// Number of sequences at the same time.
    pub sequence_count: u64,
    /// The verdict: an estimate if part of the model is not understood.
    pub verdict: Verdict,
    /// The parts that are not understood and make the verdict an estimate. Empty otherwise.
    pub doubts: &'a [String],
    /// Whether the model fits, by the estimate if the verdict is one.
    pub fits: bool,
    /// Whether no placement of consecutive layers is better for the goal. Null if there is none.
    pub is_optimal: Option<bool>,
    /// The memory that the model needs if one GPU holds all of it.
    pub needs: Needs,
    /// Where layers can go.
    pub rooms: Vec<Room<'a>>,
    /// The layers in order.
    pub layers: Vec<PlacedLayer<'a>>,
    /// Why layers are where they are, and what is missing.
    pub reasons: Vec<String>,
    /// The encodings that were tried, the one in use first.
    pub encodings: Vec<Tried>,
    /// What vLLM fits for each degree of tensor parallelism that it accepts. Empty for other
    /// engines.
    pub tensor_parallel: Vec<TensorParallel>,
    /// Number of GPUs over which vLLM divides each layer; 1 if one GPU holds all. Null if the model
    /// has a placement by layers, or does not fit.
    pub tensor_parallel_count: Option<u64>,
    /// GPUs that are not available, with the reasons.
    pub unavailable: &'a [String],
    /// What was ignored, or is known less exactly.
    pub notes: &'a [String],
}

/// The verdict on a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It fits.
    Fits,
    /// It does not fit.
    DoesNotFit,
    /// Part of it is not understood, so its size is an estimate.
    Estimate,
}

/// What vLLM fits if each layer is divided over several GPUs.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TensorParallel {
    /// Number of GPUs.
    pub gpu_count: u64,
    /// Weights on each GPU, in bytes.
    pub weights_bytes: u64,
    /// Activations of the largest batch on each GPU, in bytes.
    pub activation_bytes: u64,
    /// Memory that is left for context on each GPU, in bytes.
    pub cache_bytes: u64,
    /// Share of a GPU that vLLM takes (`--gpu-memory-utilization`), in percent.
    pub memory_percent: u64,
    /// Tokens of context that fit, of all sequences together. Null if none is kept.
    pub cache_tokens: Option<u64>,
    /// Whether all sequences fit with the context.
    pub fits: bool,
}

/// A model.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Described<'a> {
    /// Name of the model.
    pub name: &'a str,
    /// Its architecture.
    pub architecture: &'a str,
    /// Number of parameters.
    pub parameter_count: u64,
    /// Weights as stored, in bytes.
    pub weights_bytes: u64,
    /// Number of blocks.
    pub layer_count: usize,
    /// Quantization method of the checkpoint, such as awq. Null if it is not, or is a GGUF
    /// file.
    pub quantization: Option<&'a str>,
    /// Tokens of context that the model was trained for. Null if unknown.
    pub trained_context_tokens: Option<u64>,
}

/// The memory that a model needs on one GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Needs {
    /// Weights, in bytes.
    pub weights_bytes: u64,
    /// Keys, values and state of all sequences, in bytes.
    pub context_bytes: u64,
    /// Buffer of computation, in bytes.
    pub buffer_bytes: u64,
    /// Memory of a process other than tensors, in bytes.
    pub overhead_bytes: u64,
    /// All of these, in bytes.
    pub total_bytes: u64,
    /// Weights that the engine keeps in host memory, in bytes.
    pub host_bytes: u64,
}

/// A place for layers.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Room<'a> {
    /// Name of the place: the GPU by its index, or cpu.
    pub name: &'a str,
    /// Kind of the place.
    pub kind: RoomName,
    /// Memory that may be used, in bytes.
    pub free_bytes: u64,
    /// Weights there, in bytes.
    pub weights_bytes: u64,
    /// Keys, values and state there, in bytes.
    pub context_bytes: u64,
    /// Buffer of computation there, in bytes.
    pub buffer_bytes: u64,
    /// Memory of the process there other than tensors, in bytes.
    pub overhead_bytes: u64,
    /// All of these, in bytes.
    pub used_bytes: u64,
    /// What it would need beyond its memory, in bytes. Zero if it suffices.
    pub lacking_bytes: u64,
    /// Number of layers there, including the embedding and the output. A layer that is divided over
    /// GPUs counts on each.
    pub layer_count: usize,
}

/// The kind of a place.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RoomName {
    /// Memory of a GPU.
    Gpu,
    /// Memory of the host.
    Cpu,
    /// A disk.
    Disk,
}

/// A layer.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlacedLayer<'a> {
    /// Name of the layer.
    pub name: &'a str,
    /// Name of its place. Null if it has none, or is divided over several GPUs.
    pub room: Option<&'a str>,
    /// Weights, in bytes.
    pub weights_bytes: u64,
    /// Keys, values and state, in bytes.
    pub context_bytes: u64,
}

/// The result for an encoding of the weights.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tried {
    /// Name of the encoding. Null for the weights as stored.
    pub encoding: Option<&'static str>,
    /// Memory that the model needs on one GPU, in bytes.
    pub total_bytes: u64,
    /// Whether it fits.
    pub fits: bool,
    /// Number of places that hold layers. Null if it does not fit.
    pub room_count: Option<usize>,
    /// Largest context that fits, in tokens, up to that of the model: on the GPUs, or with host
    /// memory if the placement needs it. Null if none fits.
    pub largest_context_tokens: Option<u64>,
}

/// How a model is to run, and where.
pub struct Question<'a> {
    /// Path of the model.
    pub file: &'a str,
    /// The simulated machine.
    pub machine: Option<&'a str>,
    /// The model.
    pub model: &'a Model,
    /// Tokens of context of each sequence.
    pub context: u64,
    /// Sequences at the same time.
    pub sequences: u64,
    /// The rooms.
    pub rooms: &'a Rooms,
    /// Whether the rooms have all GPUs of the machine.
    pub is_whole: bool,
    /// What vLLM fits for each degree of tensor parallelism.
    pub tensor_parallel: &'a [Served],
    /// What is not understood of the model.
    pub doubts: &'a [String],
    /// GPUs that are not available, with the reasons.
    pub unavailable: &'a [String],
    /// What was ignored, or is known less exactly.
    pub notes: &'a [String],
    /// The format of the tensors.
    pub format: gpu_model::read::Format,
}

impl Question<'_> {
    /// Returns what can be said.
    pub fn verdict(&self, first: &Answer) -> Verdict {
        match (self.doubts.is_empty(), first.fits()) {
            (false, _) => Verdict::Estimate,
            (true, true) => Verdict::Fits,
            (true, false) => Verdict::DoesNotFit,
        }
    }

    /// Returns the tokens that the command asks for: vLLM refuses more than the model was trained
    /// for, and what others then generate is noise.
    pub(crate) fn served_context(&self) -> u64 {
        let trained = self.model.shape.as_ref().and_then(|shape| shape.context);
        trained.map_or(self.context, |trained| self.context.min(trained))
    }
}

impl<'a> PlacedModel<'a> {
    /// Returns a placement as JSON: the first answer, and the others as alternatives.
    pub fn of(question: &Question<'a>, first: &'a Answer, others: &[Answer]) -> Self {
        let Question { model, rooms, .. } = *question;
        let split = &first.split;
        let room = |at: usize| rooms.rooms.get(at).map(|room| &*room.name);
        let device = |at: Option<usize>| match &first.served {
            Some(served) => served.rooms.first().filter(|_| served.size.ranks < 2).copied(),
            None => at,
        };
        let layers = first.chain.layers.iter().zip(&split.rooms);
        PlacedModel {
            schema: Version,
            file: question.file,
            machine: question.machine,
            model: Described {
                name: &model.name,
                architecture: &model.architecture,
                parameter_count: parameters(model),
                weights_bytes: model.bytes().0,
                layer_count: first.chain.blocks(),
                quantization: model.method.as_deref(),
                trained_context_tokens: model.shape.as_ref().and_then(|shape| shape.context),
            },
            context_tokens: question.context,
            sequence_count: question.sequences,
            verdict: question.verdict(first),
            doubts: question.doubts,
            fits: first.fits(),
            is_optimal: (split.fits() && first.served.is_none()).then_some(split.is_optimal),
            needs: Needs::of(&first.estimate),
            rooms: Room::each(first, rooms),
            layers: layers
                .map(|(layer, at)| PlacedLayer::of(layer, device(*at).and_then(room)))
                .collect(),
            reasons: match &first.served {
                Some(_) => Vec::new(),
                None => split.reasons(&first.chain, rooms),
            },
            encodings: std::iter::once(first).chain(others).map(Tried::of).collect(),
            tensor_parallel: question.tensor_parallel.iter().map(TensorParallel::of).collect(),
            tensor_parallel_count: first.served.as_ref().map(|served| served.size.ranks),
            unavailable: question.unavailable,
            notes: question.notes,
        }
    }
}

/// Returns what each room holds: of the layers that are there, or that are divided over it.
pub fn held(answer: &Answer, rooms: &Rooms) -> Vec<Use> {
    let Some(served) = &answer.served else { return answer.split.used.clone() };
    let size = &served.size;
    let rank = Use {
        weights: size.weights,
        context: size.context,
        buffer: size.activations,
        overhead: answer.chain.overhead,
    };
    let of = |at: usize| if served.rooms.contains(&at) { rank } else { Use::default() };
    (0..rooms.rooms.len()).map(of).collect()
}

/// Returns the number of parameters of a model: the elements of its tensors.
pub(crate) fn parameters(model: &Model) -> u64 {
    model.tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.elements()))
}

impl TensorParallel {
    fn of(served: &Served) -> Self {
        let size = &served.size;
        TensorParallel {
            gpu_count: size.ranks,
            weights_bytes: size.weights.0,
            activation_bytes: size.activations.0,
            cache_bytes: size.cache.0,
            memory_percent: (served.share * 100.0).round() as u64,
            cache_tokens: size.tokens,
            fits: size.fits,
        }
    }
}

impl Needs {
    fn of(estimate: &Estimate) -> Self {
        Needs {
            weights_bytes: estimate.weights.0,
            context_bytes: estimate.context.0,
            buffer_bytes: estimate.buffer.0,
            overhead_bytes: estimate.overhead.0,
            total_bytes: estimate.total().0,
            host_bytes: estimate.pinned.0,
        }
    }
}

impl<'a> Room<'a> {
    fn each(answer: &Answer, rooms: &'a Rooms) -> Vec<Self> {
        let split = &answer.split;
        let used = held(answer, rooms);
        let layers = |at: usize| match &answer.served {
            Some(served) if served.rooms.contains(&at) => split.rooms.len(),
            Some(_) => 0,
            None => split.rooms.iter().filter(|of| **of == Some(at)).count(),
        };
        let each = rooms.rooms.iter().zip(used).enumerate();
        each.map(|(at, (room, used))| Room {
            name: &room.name,
            kind: match room.kind {
                RoomKind::Gpu => RoomName::Gpu,
                RoomKind::Cpu => RoomName::Cpu,
                RoomKind::Disk => RoomName::Disk,
            },
            free_bytes: room.capacity.0,
            weights_bytes: used.weights.0,
            context_bytes: used.context.0,
            buffer_bytes: used.buffer.0,
            overhead_bytes: used.overhead.0,
            used_bytes: used.total().0,
            lacking_bytes: used.total().saturating_sub(room.capacity).0,
            layer_count: layers(at),
        })
        .collect()
    }
}

impl<'a> PlacedLayer<'a> {
    fn of(layer: &'a Layer, room: Option<&'a str>) -> Self {
        PlacedLayer {
            name: &layer.name,
            room,
            weights_bytes: layer.weights.0,
            context_bytes: layer.context.0,
        }
    }
}

impl Tried {
    fn of(answer: &Answer) -> Self {
        let fits = answer.fits();
        let served = answer.served.as_ref().map(|served| served.rooms.len());
        Tried {
            encoding: answer.scheme.map(Scheme::name),
            total_bytes: answer.estimate.total().0,
            fits,
            room_count: fits.then_some(served.unwrap_or(answer.split.count)),
            largest_context_tokens: answer.largest_context,
        }
    }
}
