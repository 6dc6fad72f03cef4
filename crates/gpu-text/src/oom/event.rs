//! The data of an out-of-memory event.

use super::engines::Fact;
use super::figure::Figure;
use super::short::Short;
use gpu_core::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// All out-of-memory messages of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The events, in the order of the log.
    pub events: Vec<Event>,
    /// The log has more events, rows or bytes than the report keeps.
    pub is_cut: bool,
}

/// Source of an out-of-memory message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "MessageSource"))]
#[serde(rename_all = "kebab-case")]
pub enum Framework {
    /// PyTorch.
    #[serde(rename = "pytorch")]
    PyTorch,
    /// TensorFlow or its allocator.
    #[serde(rename = "tensorflow")]
    TensorFlow,
    /// The allocator of XLA outside TensorFlow.
    Xla,
    /// The runtime of XLA, as JAX shows it.
    #[serde(rename = "jax/xla")]
    Jax,
    /// CuPy.
    #[serde(rename = "cupy")]
    CuPy,
    /// RAPIDS Memory Manager.
    Rmm,
    /// llama.cpp and programs based on ggml.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// vLLM.
    Vllm,
    /// PaddlePaddle.
    Paddle,
    /// ONNX Runtime.
    #[serde(rename = "onnxruntime")]
    OnnxRuntime,
    /// TensorRT.
    #[serde(rename = "tensorrt")]
    TensorRt,
    /// CUDA.jl.
    #[serde(rename = "cuda.jl")]
    CudaJl,
    /// SGLang.
    #[serde(rename = "sglang")]
    SgLang,
    /// TensorRT-LLM.
    #[serde(rename = "tensorrt-llm")]
    TensorRtLlm,
    /// Triton Inference Server.
    Triton,
    /// Text Generation Inference.
    Tgi,
    /// LMDeploy and its TurboMind.
    #[serde(rename = "lmdeploy")]
    LmDeploy,
    /// ollama.
    Ollama,
    /// ExLlama.
    #[serde(rename = "exllama")]
    ExLlama,
    /// DeepSpeed.
    #[serde(rename = "deepspeed")]
    DeepSpeed,
    /// Hugging Face Accelerate.
    Accelerate,
    /// bitsandbytes.
    #[serde(rename = "bitsandbytes")]
    BitsAndBytes,
    /// Unsloth.
    Unsloth,
    /// ComfyUI.
    #[serde(rename = "comfyui")]
    ComfyUi,
    /// HAMi, which limits the memory of containers.
    Hami,
    /// NCCL.
    Nccl,
    /// The runtime of Ascend's NPUs.
    Ascend,
    /// The kernel's out-of-memory killer.
    Kernel,
    /// systemd-oomd.
    SystemdOomd,
    /// Slurm.
    Slurm,
    /// Ray's memory monitor.
    Ray,
    /// The kubelet or a container runtime.
    Kubelet,
    /// NVIDIA's kernel module.
    NvidiaDriver,
    /// The runtime of the GPU or one of its libraries; the program is unknown.
    #[default]
    Cuda,
    /// A program that requested host memory: NumPy, or an unknown one.
    Host,
}

/// What the wording reveals about the version of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wording {
    /// PyTorch up to 1.3 prints `cached`.
    Torch13,
    /// PyTorch 1.4 to about 1.9 prints `reserved in total by PyTorch`.
    Torch14,
    /// PyTorch 1.10 to 2.0 prints that and recommends `max_split_size_mb`.
    Torch110,
    /// PyTorch 2.1 prints `total capacty`.
    Torch21,
    /// PyTorch 2.2 and later print `total capacity`.
    Torch22,
    /// PyTorch 2.9 and later print that and recommend `PYTORCH_ALLOC_CONF`.
    Torch29,
    /// XLA's host client: host memory ran out, not device memory.
    XlaHost,
    /// The program failed to get memory and reported that it continued without it.
    NoFailure,
}

/// One failed request for memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its first line, from 1.
    pub line: usize,
    /// Its source.
    pub framework: Framework,
    /// What the wording reveals about the version of the program.
    pub wording: Option<Wording>,
    /// `cuda`, `hip`, `xpu`, `mps`, …, in lowercase.
    pub backend: Option<String>,
    /// Index of the device, in the program's numbering.
    pub gpu: Option<u32>,
    /// The requested size.
    pub tried: Option<Figure>,
    /// Total memory of the device.
    pub total: Option<Figure>,
    /// Free memory of the device.
    pub free: Option<Figure>,
    /// Memory allocated by the program's tensors.
    pub allocated: Option<Figure>,
    /// The part of `allocated` in private pools, such as those of CUDA graphs.
    pub private_pools: Option<Figure>,
    /// Memory that the framework has reserved but does not use.
    pub reserved_unallocated: Option<Figure>,
    /// All memory that the framework has reserved.
    pub reserved_total: Option<Figure>,
    /// What PyTorch up to 1.3 calls cached; the same as `reserved_unallocated`.
    pub cached: Option<Figure>,
    /// All device memory of the process.
    pub this_process: Option<Figure>,
    /// Memory outside this allocator, if the text has a single figure for it.
    pub other: Option<Figure>,
    /// The limit of the process or its allocator.
    pub limit: Option<Figure>,
    /// The total including the request, if the text has a single figure for it.
    pub needed: Option<Figure>,
    /// Other processes on the device.
    pub processes: Vec<(u32, Figure)>,
    /// The allocator's name.
    pub allocator: Option<String>,
    /// The tensor that the program tried to create.
    pub tensor: Option<Tensor>,
    /// The state of the allocator, if it was printed.
    pub dump: Dump,
    /// The sizes of successive retries, each nine tenths of the previous one.
    pub ladder: Vec<Figure>,
    /// The compiler's message about the minimum memory of the program.
    pub rematerialization: Option<Rematerialization>,
    /// The engine that contains the framework, if the text around the message names it.
    pub engine: Option<Framework>,
    /// What ran short, according to the program or the text around the message.
    pub short: Option<Short>,
    /// What else the text names: a component, a control group, a program.
    pub part: Option<String>,
    /// Further figures of the message and the lines around it.
    pub facts: BTreeMap<Fact, i64>,
    /// How many times the message was printed.
    pub times: usize,
}

impl Event {
    /// Returns an event without any data.
    pub(super) fn new(framework: Framework, line: usize) -> Self {
        Event { line, framework, times: 1, ..Event::default() }
    }

    /// Returns whether two events are the same message.
    pub(super) fn repeats(&self, earlier: &Event) -> bool {
        // Nothing is copied, because a dump may be long.
        let Event { line: _, times: _, framework, wording, backend, gpu, tried, .. } = self;
        let Event { total, free, allocated, private_pools, reserved_unallocated, .. } = self;
        let Event { reserved_total, cached, this_process, other, limit, needed, .. } = self;
        let Event { processes, .. } = self;
        let Event { allocator, tensor, dump, ladder, rematerialization, .. } = self;
        let Event { engine, short, part, facts, .. } = self;
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
            && (engine, short) == (&earlier.engine, &earlier.short)
            && (part, facts) == (&earlier.part, &earlier.facts)
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
    /// Returns the size of its elements in bytes, if the type is known and the number fits.
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

/// The state that an allocator printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dump {
    /// Its bins.
    pub bins: Vec<Bin>,
    /// The number and total of its blocks in use, by size.
    pub sums: Vec<ChunkSum>,
    /// The total of all blocks in use.
    pub sum_in_use: Option<Figure>,
    /// Its statistics by their printed names.
    pub stats: Vec<(String, u64)>,
    /// Its regions.
    pub regions: Vec<Region>,
    /// Its blocks, by region and address.
    pub blocks: Vec<Block>,
    /// The line about its pool.
    pub pool: Option<Pool>,
}

impl Dump {
    /// Returns whether the allocator printed no dump.
    pub fn is_empty(&self) -> bool {
        *self == Dump::default()
    }

    /// Returns a statistic by its printed name.
    pub fn stat(&self, name: &str) -> Option<Bytes> {
        self.stats.iter().find(|(known, _)| known == name).map(|(_, value)| Bytes(*value))
    }
}

/// A bin: blocks of at least a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bin {
    /// The minimum size.
    pub size: Bytes,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of them in use.
    pub in_use: u64,
}

/// The blocks in use of one size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkSum {
    /// The number.
    pub count: u64,
    /// Their size.
    pub size: Bytes,
    /// The total.
    pub total: Figure,
}

/// A region of the device that an allocator reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its size.
    pub size: Bytes,
    /// The index in [`Dump::blocks`] of the first block in it.
    pub first_block: usize,
}

/// A block of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub size: Bytes,
    /// Whether it is in use.
    pub in_use: bool,
}

/// The size of a pool and its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Its size.
    pub held: Option<Bytes>,
    /// Its limit.
    pub limit: Option<Bytes>,
    /// The remainder.
    pub available: Option<Bytes>,
}

/// The minimum that a compiler reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rematerialization {
    /// The limit.
    pub limit: Figure,
    /// The size that it reached.
    pub reduced: Option<Figure>,
}
