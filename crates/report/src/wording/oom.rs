//! Text about an out-of-memory message.

use gpu_core::{Bytes, amount};
use gpu_memory_advice::explain::{Account, Cause, Diagnosis, approximate};
use gpu_text::oom::{Event, Fact, Figure, Framework, Unit, Wording};

/// The size of the largest CUDA context.
const MOST_CONTEXT: Bytes = Bytes(2 << 30);

/// The maximum number of other processes in the text.
const MAX_PROCESSES: usize = 8;

/// Messages with the same cause, each from another GPU: those of the ranks of a job.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    messages: Vec<(&'a Event, &'a Diagnosis)>,
}

/// Groups the messages of the ranks of one job, in the order of the log.
pub fn groups<'a>(events: &'a [Event], diagnoses: &'a [Diagnosis]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for message in events.iter().zip(diagnoses) {
        match groups.iter_mut().find(|group| group.takes(message)) {
            Some(group) => group.messages.push(message),
            None => groups.push(Group { messages: vec![message] }),
        }
    }
    groups
}

impl<'a> Group<'a> {
    fn takes(&self, (event, diagnosis): (&Event, &Diagnosis)) -> bool {
        let (first, known) = self.messages[0];
        let is_alike = |event: &Event| (event.framework, event.wording, event.total.clone());
        let is_rank = |(one, _): &(&Event, &Diagnosis)| one.gpu.is_some() && one.gpu != event.gpu;
        known.cause == diagnosis.cause
            && event.gpu.is_some()
            && is_alike(first) == is_alike(event)
            && (first.engine, first.short) == (event.engine, event.short)
            && self.messages.iter().all(is_rank)
    }

    /// Returns the message with the largest shortage, which represents the group.
    pub fn worst(&self) -> (&'a Event, &'a Diagnosis) {
        let mut worst = self.messages[0];
        for message in &self.messages {
            if lacking(message.1) > lacking(worst.1) {
                worst = *message;
            }
        }
        worst
    }

    /// Formats `PyTorch 2.1, GPU 0 (23.69 GiB)`, or
    /// `PyTorch 2.1, 8 ranks, GPUs 0–7 (79.15 GiB), each short by 236–307 MiB`.
    pub fn source(&self) -> String {
        let (event, _) = self.messages[0];
        let mut gpus: Vec<u32> = self.messages.iter().filter_map(|(event, _)| event.gpu).collect();
        gpus.sort_unstable();
        let gpus = match gpus[..] {
            [] => String::new(),
            [gpu] => format!(", GPU {gpu}"),
            _ => format!(", {} ranks, GPUs {}", gpus.len(), super::ranges(&gpus)),
        };
        let total =
            event.total.as_ref().map_or(String::new(), |total| format!(" ({})", total.text));
        format!("{}{gpus}{total}{}", name(event), self.lacking().unwrap_or_default())
    }

    /// Formats `, each short by 236–307 MiB`.
    fn lacking(&self) -> Option<String> {
        if self.messages.len() == 1 {
            return None;
        }
        let all = || self.messages.iter().filter_map(|(_, diagnosis)| lacking(diagnosis));
        let slack = self.messages.iter().map(|(_, diagnosis)| diagnosis.account.lacking_slack);
        let slack = slack.max()?;
        let [least, most] = [all().min()?, all().max()?].map(|bytes| approximate(bytes, slack));
        let unit = most.rsplit_once(' ').map_or("", |(_, unit)| unit);
        let from = least.strip_suffix(unit).unwrap_or(&least).trim_end();
        Some(if least == most {
            format!(", each short by {most}")
        } else {
            format!(", each short by {from}–{}", most.trim_start_matches("≈ "))
        })
    }

    /// Formats `line 7, printed 3 times`, or `lines 7–40`.
    pub fn position(&self) -> String {
        let lines = || self.messages.iter().map(|(event, _)| event.line);
        match (lines().min(), lines().max(), self.messages[0].0.times) {
            (Some(first), Some(last), _) if first < last => format!("lines {first}–{last}"),
            (first, _, 0 | 1) => format!("line {}", first.unwrap_or_default()),
            (first, _, times) => {
                format!("line {}, printed {times} times", first.unwrap_or_default())
            }
        }
    }

    /// Returns the introduction of the figures of one rank: `GPU 3 lacks the most:`.
    pub fn introduction(&self) -> Option<String> {
        let gpu = self.worst().0.gpu.filter(|_| self.messages.len() > 1)?;
        Some(format!("GPU {gpu} lacks the most:"))
    }
}

/// Returns how much memory was missing.
fn lacking(diagnosis: &Diagnosis) -> Option<Bytes> {
    let account = &diagnosis.account;
    account.lacking_after_cache.filter(|lacking| lacking.0 > 0).or(account.lacking)
}

/// Returns the source of the message: `PyTorch 2.1`, `llama.cpp on Metal`.
pub fn name(event: &Event) -> String {
    let backend = match event.backend.as_deref() {
        None | Some("cuda") => String::new(),
        Some("mps") => " on Metal".to_owned(),
        Some("vulkan") => " on Vulkan".to_owned(),
        Some("cpu") => ", host memory".to_owned(),
        Some(backend) => format!(" on {}", backend.to_uppercase()),
    };
    let name = match (event.framework, event.wording) {
        (Framework::PyTorch, Some(Wording::Torch13)) => "PyTorch up to 1.3",
        (Framework::PyTorch, Some(Wording::Torch14)) => "PyTorch 1.4–1.9",
        (Framework::PyTorch, Some(Wording::Torch110)) => "PyTorch 1.10–2.0",
        (Framework::PyTorch, Some(Wording::Torch21)) => "PyTorch 2.1",
        (Framework::PyTorch, Some(Wording::Torch22)) => "PyTorch 2.2 or later",
        (Framework::PyTorch, Some(Wording::Torch29)) => "PyTorch 2.9 or later",
        (Framework::PyTorch, _) => "PyTorch",
        (Framework::TensorFlow, _) => "TensorFlow",
        (Framework::Xla, _) => "XLA's allocator",
        (Framework::Jax, Some(Wording::XlaHost)) => "JAX/XLA on the host",
        (Framework::Jax, _) => "JAX/XLA",
        (Framework::CuPy, _) => "CuPy",
        (Framework::Rmm, _) => "RAPIDS Memory Manager",
        (Framework::LlamaCpp, _) => "llama.cpp",
        (Framework::Vllm, _) => "vLLM",
        (Framework::Paddle, _) => "PaddlePaddle",
        (Framework::OnnxRuntime, _) => "ONNX Runtime",
        (Framework::TensorRt, _) => "TensorRT",
        (Framework::CudaJl, _) => "CUDA.jl",
        (Framework::SgLang, _) => "SGLang",
        (Framework::TensorRtLlm, _) => "TensorRT-LLM",
        (Framework::Triton, _) => "Triton Inference Server",
        (Framework::Tgi, _) => "Text Generation Inference",
        (Framework::LmDeploy, _) => "LMDeploy",
        (Framework::Ollama, _) => "ollama",
        (Framework::ExLlama, _) => "ExLlama",
        (Framework::DeepSpeed, _) => "DeepSpeed",
        (Framework::Accelerate, _) => "Accelerate",
        (Framework::BitsAndBytes, _) => "bitsandbytes",
        (Framework::Unsloth, _) => "Unsloth",
        (Framework::ComfyUi, _) => "ComfyUI",
        (Framework::Hami, _) => "HAMi",
        (Framework::Nccl, _) => "NCCL",
        (Framework::Ascend, _) => "Ascend",
        (Framework::Kernel, _) => "the kernel",
        (Framework::SystemdOomd, _) => "systemd-oomd",
        (Framework::Slurm, _) => "Slurm",
        (Framework::Ray, _) => "Ray",
        (Framework::Kubelet, _) => "Kubernetes",
        (Framework::NvidiaDriver, _) => "NVIDIA's kernel module",
        (Framework::Host, _) => "a program on the host",
        (Framework::Cuda, _) => {
            let interface = of_interface(event.backend.as_deref());
            return format!("{interface}{}", inside(event));
        }
    };
    format!("{name}{backend}{}", inside(event))
}

/// Formats ` in vLLM`, for a framework that failed inside an engine.
fn inside(event: &Event) -> String {
    event.engine.map_or(String::new(), |engine| {
        let engine = Event { framework: engine, backend: None, engine: None, ..event.clone() };
        format!(" in {}", name(&engine))
    })
}

/// Returns the name of the API that the program used.
fn of_interface(backend: Option<&str>) -> String {
    match backend {
        Some("cuda") => "CUDA".to_owned(),
        Some("xpu") => "Level Zero".to_owned(),
        Some("vulkan") => "Vulkan".to_owned(),
        Some("opencl") => "OpenCL".to_owned(),
        Some("wgpu") => "wgpu".to_owned(),
        Some("nvenc") => "NVENC".to_owned(),
        Some(backend) => backend.to_uppercase(),
        None => "a program on the GPU".to_owned(),
    }
}

/// Returns the figures of the message, and those derived from them.
pub fn figures(event: &Event, diagnosis: &Diagnosis) -> Vec<String> {
    let account = &diagnosis.account;
    let mut lines = Vec::new();
    let mut request = Vec::new();
    named(&mut request, "asked", &event.tried);
    if let Some(tensor) = &event.tensor {
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        let kind = tensor.kind.as_deref().map_or(String::new(), |kind| format!(" of {kind}"));
        let bytes = tensor.bytes().map_or(String::new(), |bytes| format!(", {}", amount(bytes)));
        request.push(format!("for a tensor [{}]{kind}{bytes}", shape.join(",")));
    }
    let free = match diagnosis.cause {
        Cause::HostMemory => "free on the host",
        _ => "free on the device",
    };
    named(&mut request, free, &event.free);
    named(&mut request, "all memory", &event.needed);
    named(&mut request, "may have", &event.limit);
    let left = event.dump.pool.filter(|pool| pool.held.is_none()).and_then(|pool| pool.available);
    request.extend(left.map(|left| format!("left of its limit {}", amount(left))));
    if let Some(complaint) = &event.rematerialization {
        request.push(format!("limit of the program: {}", complaint.limit.text));
    }
    lines.extend((!request.is_empty()).then(|| request.join(" · ")));
    let facts: Vec<String> =
        event.facts.iter().map(|(fact, value)| named_fact(*fact, *value)).collect();
    lines.extend((!facts.is_empty()).then(|| facts.join(" · ")));
    lines.extend(own(event, account));
    lines.extend(pool(event));
    let others = event.processes.iter();
    for (pid, memory) in others.take(MAX_PROCESSES) {
        let word = match account.itself {
            Some(itself) if itself.pid.0 == *pid => "listed as process",
            None if account.itself_among.iter().any(|it| it.pid.0 == *pid) => {
                "this or another process,"
            }
            _ => "another process,",
        };
        lines.push(format!("{word} {pid}: {}", memory.text));
    }
    let more = event.processes.len().saturating_sub(MAX_PROCESSES);
    if more > 0 {
        lines.push(format!("and {}", super::count(more, "other process", "other processes")));
    }
    if let Some(other) = &event.other {
        lines.push(format!("others: {}", other.text));
    }
    if let Some(unnamed) = account.unnamed.filter(|unnamed| *unnamed >= Bytes::from_mib(64)) {
        let context = if account.context.is_some() { "" } else { ", with the context" };
        let unnamed = approximate(unnamed, account.slack);
        lines.push(format!("not attributed to a named process: {unnamed}{context}"));
    }
    lines
}

/// Formats `context length 32768 tokens`.
fn named_fact(fact: Fact, value: i64) -> String {
    let name = fact.name().replace('_', " ");
    match fact.unit() {
        Unit::Bytes if value < 0 => format!("{name} −{}", amount(Bytes(value.unsigned_abs()))),
        Unit::Bytes => format!("{name} {}", amount(Bytes(value.unsigned_abs()))),
        Unit::Tokens => format!("{name} {value} tokens"),
        Unit::Millionths => format!("{name} {}", value as f64 / 1e6),
        Unit::Count => format!("{name} {value}"),
    }
}

fn named(parts: &mut Vec<String>, what: &str, figure: &Option<Figure>) {
    parts.extend(figure.as_ref().map(|figure| format!("{what} {}", figure.text)));
}

/// Formats `this process 18.17 GiB: 17.88 GiB in use, 0 bytes cached, ≈ 300 MiB context`.
fn own(event: &Event, account: &Account) -> Option<String> {
    let mut parts = Vec::new();
    let of = |figure: &Option<Figure>, what: &str| {
        figure.as_ref().map(|figure| format!("{} {what}", figure.text))
    };
    parts.extend(of(&event.allocated, "in use"));
    parts.extend(of(&event.private_pools, "of that in private pools"));
    parts.extend(of(&event.reserved_unallocated, "cached"));
    parts.extend(of(&event.cached, "cached"));
    parts.extend(of(&event.reserved_total, "reserved in total"));
    parts.extend(account.context.filter(|context| *context > Bytes(0)).map(|bytes| {
        let what = if bytes <= MOST_CONTEXT { "context" } else { "outside its allocator" };
        format!("{} {what}", approximate(bytes, account.slack))
    }));
    let process =
        event.this_process.as_ref().map_or(String::new(), |process| format!(" {}", process.text));
    match parts.is_empty() {
        true if process.is_empty() => None,
        true => Some(format!("this process{process}")),
        false => Some(format!("this process{process}: {}", parts.join(", "))),
    }
}

/// Formats `its allocator GPU_0_bfc: 14.9 GiB in use of 17.69 GiB, 5 blocks listed`.
fn pool(event: &Event) -> Option<String> {
    let dump = &event.dump;
    let mut parts = Vec::new();
    let stat = |name| dump.stat(name).map(amount);
    match (stat("InUse"), stat("Limit")) {
        (Some(in_use), Some(limit)) => parts.push(format!("{in_use} in use of {limit}")),
        _ => parts.extend(dump.sum_in_use.as_ref().map(|sum| format!("{} in use", sum.text))),
    }
    parts.extend(stat("MaxInUse").map(|peak| format!("{peak} at the peak")));
    if !dump.blocks.is_empty() {
        let free = dump.blocks.iter().filter(|block| !block.in_use);
        let largest = free.clone().map(|block| block.size).max();
        let largest =
            largest.map_or(String::new(), |size| format!(", the largest {}", amount(size)));
        let count = super::count(dump.blocks.len(), "block", "blocks");
        parts.push(format!("{count} listed, {} of them free{largest}", free.count()));
    }
    let name = event.allocator.as_deref();
    match (parts.is_empty(), name) {
        (true, None) => None,
        (true, Some(name)) => Some(format!("its allocator {name}")),
        (false, name) => {
            let name = name.map_or(String::new(), |name| format!(" {name}"));
            Some(format!("its allocator{name}: {}", parts.join(", ")))
        }
    }
}
