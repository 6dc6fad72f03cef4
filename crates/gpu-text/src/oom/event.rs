//! The data of an event.

use super::figure::Figure;
use gpu_core::Bytes;

/// All that a log says about memory that ran out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The events, in the order of the log.
    pub events: Vec<Event>,
    /// The log has more than was read: more events, rows or bytes than are kept.
    pub is_cut: bool,
}

/// Whose message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framework {
    /// PyTorch.
    PyTorch,
    /// TensorFlow, or its allocator.
    TensorFlow,
    /// The allocator of XLA outside of TensorFlow.
    Xla,
    /// An error that XLA's runtime returns, as JAX shows it.
    Jax,
    /// CuPy.
    CuPy,
    /// RAPIDS Memory Manager.
    Rmm,
    /// llama.cpp and what is built on ggml.
    LlamaCpp,
    /// vLLM's own check at its start.
    Vllm,
    /// PaddlePaddle.
    Paddle,
    /// ONNX Runtime.
    OnnxRuntime,
    /// TensorRT.
    TensorRt,
    /// CUDA.jl, for Julia.
    CudaJl,
    /// The runtime of the GPU (CUDA, HIP, Level Zero) or one of its libraries; whose program it is,
    /// the text does not say.
    Cuda,
}

impl Framework {
    /// Returns its name, as it stands in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Framework::PyTorch => "pytorch",
            Framework::TensorFlow => "tensorflow",
            Framework::Xla => "xla",
            Framework::Jax => "jax/xla",
            Framework::CuPy => "cupy",
            Framework::Rmm => "rmm",
            Framework::LlamaCpp => "llama.cpp",
            Framework::Vllm => "vllm",
            Framework::Paddle => "paddle",
            Framework::OnnxRuntime => "onnxruntime",
            Framework::TensorRt => "tensorrt",
            Framework::CudaJl => "cuda.jl",
            Framework::Cuda => "cuda",
        }
    }
}

/// What the wording tells of the version that printed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wording {
    /// PyTorch up to 1.3 says `cached`.
    Torch13,
    /// PyTorch 1.4 to about 1.9 says `reserved in total by PyTorch`.
    Torch14,
    /// PyTorch 1.10 to 2.0 says that and recommends `max_split_size_mb`.
    Torch110,
    /// PyTorch 2.1 says `total capacty`.
    Torch21,
    /// PyTorch 2.2 and later say `total capacity`.
    Torch22,
    /// PyTorch 2.9 and later say that and recommend `PYTORCH_ALLOC_CONF`.
    Torch29,
    /// XLA's client for the processor of the host, whose memory it is that ran out.
    XlaHost,
    /// TensorFlow or XLA tried, went on without, and says that it is no failure.
    NoFailure,
}

/// One failed request for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The line that it begins on, from 1.
    pub line: usize,
    /// Whose message it is.
    pub framework: Framework,
    /// What the wording tells of the version.
    pub wording: Option<Wording>,
    /// `cuda`, `hip`, `xpu`, `mps`, …, in small letters.
    pub backend: Option<String>,
    /// Index of the device, as the program counts.
    pub gpu: Option<u32>,
    /// What was asked for.
    pub tried: Option<Figure>,
    /// All memory of the device.
    pub total: Option<Figure>,
    /// Free memory of the device.
    pub free: Option<Figure>,
    /// What the program's tensors hold.
    pub allocated: Option<Figure>,
    /// What of that is in private pools, such as those of CUDA graphs.
    pub private_pools: Option<Figure>,
    /// What the framework holds of the device and nothing uses.
    pub reserved_unallocated: Option<Figure>,
    /// What the framework holds of the device in all.
    pub reserved_total: Option<Figure>,
    /// What PyTorch up to 1.3 called cached: as `reserved_unallocated`.
    pub cached: Option<Figure>,
    /// What the process holds of the device in all.
    pub this_process: Option<Figure>,
    /// What others than this allocator hold, where the text counts them in one figure.
    pub other: Option<Figure>,
    /// The most that the process or its allocator may take.
    pub limit: Option<Figure>,
    /// What all of it would have come to with the request, where the text has one figure for it.
    pub needed: Option<Figure>,
    /// Other processes on the device.
    pub processes: Vec<(u32, Figure)>,
    /// The allocator's name.
    pub allocator: Option<String>,
    /// The tensor that was to be made.
    pub tensor: Option<Tensor>,
    /// The state of the allocator, where it was printed.
    pub dump: Dump,
    /// The sizes that were tried one after the other, each nine tenths of the one before.
    pub ladder: Vec<Figure>,
    /// What the compiler said about the least memory that the program can do with.
    pub rematerialization: Option<Rematerialization>,
    /// How often the message was printed.
    pub times: usize,
}

impl Event {
    /// Returns an event of which nothing is known yet.
    pub(super) fn new(framework: Framework, line: usize) -> Self {
        Event {
            line,
            framework,
            wording: None,
            backend: None,
            gpu: None,
            tried: None,
            total: None,
            free: None,
            allocated: None,
            private_pools: None,
            reserved_unallocated: None,
            reserved_total: None,
            cached: None,
            this_process: None,
            other: None,
            limit: None,
            needed: None,
            processes: Vec::new(),
            allocator: None,
            tensor: None,
            dump: Dump::default(),
            ladder: Vec::new(),
            rematerialization: None,
            times: 1,
        }
    }

    /// Returns whether two events are the same message.
    pub(super) fn repeats(&self, earlier: &Event) -> bool {
        // Nothing is copied for it: a dump may be long.
        let Event { line: _, times: _, framework, wording, backend, gpu, tried, .. } = self;
        let Event { total, free, allocated, private_pools, reserved_unallocated, .. } = self;
        let Event { reserved_total, cached, this_process, other, limit, needed, .. } = self;
        let Event { processes, .. } = self;
        let Event { allocator, tensor, dump, ladder, rematerialization, .. } = self;
        (framework, wording, backend, gpu)
            == (&earlier.framework, &earlier.wording, &earlier.backend, &earlier.gpu)
            && (tried, total, free) == (&earlier.tried, &earlier.total, &earlier.free)
            && (allocated, private_pools) == (&earlier.allocated, &earlier.private_pools)
            && (reserved_unallocated, reserved_total)
                == (&earlier.reserved_unallocated, &earlier.reserved_total)
            && (cached, this_process, other)
                == (&earlier.cached, &earlier.this_process, &earlier.other)
            && (limit, needed) == (&earlier.limit, &earlier.needed)
            && (processes, allocator) == (&earlier.processes, &earlier.allocator)
            && (tensor, ladder, rematerialization)
                == (&earlier.tensor, &earlier.ladder, &earlier.rematerialization)
            && dump == &earlier.dump
    }
}

/// A tensor by its shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// The type of its elements, as printed.
    pub kind: Option<String>,
}

impl Tensor {
    /// Returns the bytes of its elements, where the type is known and they can be counted.
    pub fn bytes(&self) -> Option<Bytes> {
        let element = match self.kind.as_deref()? {
            "bool" | "int8" | "uint8" | "qint8" | "quint8" => 1,
            "half" | "bfloat16" | "int16" | "uint16" | "float16" => 2,
            "float" | "float32" | "int32" | "uint32" => 4,
            "double" | "float64" | "int64" | "uint64" | "complex64" => 8,
            "complex128" => 16,
            _ => return None,
        };
        self.shape.iter().try_fold(element, |product: u64, n| product.checked_mul(*n)).map(Bytes)
    }
}

/// What an allocator printed of its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dump {
    /// Its bins.
    pub bins: Vec<Bin>,
    /// Its blocks in use, by size.
    pub sums: Vec<ChunkSum>,
    /// All blocks in use together.
    pub sum_in_use: Option<Figure>,
    /// Its statistics by the names printed.
    pub stats: Vec<(String, u64)>,
    /// Its regions: each is followed by the blocks in it.
    pub regions: Vec<Region>,
    /// Its blocks, by region and address.
    pub blocks: Vec<Block>,
    /// The line about its pool.
    pub pool: Option<Pool>,
}

impl Dump {
    /// Returns whether nothing was printed.
    pub fn is_empty(&self) -> bool {
        *self == Dump::default()
    }

    /// Returns a figure of the statistics.
    pub fn stat(&self, name: &str) -> Option<Bytes> {
        self.stats.iter().find(|(known, _)| known == name).map(|(_, value)| Bytes(*value))
    }
}

/// A bin: blocks of at least a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bin {
    /// The least size.
    pub size: Bytes,
    /// How many blocks.
    pub blocks: u64,
    /// How many of them are in use.
    pub in_use: u64,
}

/// The blocks of one size that are in use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkSum {
    /// How many.
    pub count: u64,
    /// Their size.
    pub size: Bytes,
    /// All together.
    pub total: Figure,
}

/// A region of the device that an allocator took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its size.
    pub size: Bytes,
    /// The position in [`Dump::blocks`] of the first block in it.
    pub first_block: usize,
}

/// A block of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub size: Bytes,
    /// It is in use.
    pub in_use: bool,
}

/// What a pool holds of the device and may still take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pool {
    /// What it holds.
    pub held: Option<Bytes>,
    /// The most that it may hold.
    pub limit: Option<Bytes>,
    /// What it may still take.
    pub available: Option<Bytes>,
}

/// What a compiler could not do without.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rematerialization {
    /// What it was to stay within.
    pub limit: Figure,
    /// What it came down to.
    pub reduced: Option<Figure>,
}
