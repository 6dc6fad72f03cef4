//! Text about an out-of-memory message.

use gpu_core::{Bytes, amount};
use gpu_memory_advice::explain::Diagnosis;
use gpu_text::oom::{Event, Figure, Framework, Wording};

/// The maximum number of other processes in the text.
const MAX_PROCESSES: usize = 8;

/// Returns the source of the message: `PyTorch 2.1`, `llama.cpp on Metal`.
pub fn name(event: &Event) -> String {
    let backend = match event.backend.as_deref() {
        None | Some("cuda") => String::new(),
        Some("mps") => " on Metal".to_owned(),
        Some("vulkan") => " on Vulkan".to_owned(),
        Some("cpu") => ", memory of the host".to_owned(),
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
        (Framework::Cuda, _) => return of_interface(event.backend.as_deref()),
    };
    format!("{name}{backend}")
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
    named(&mut request, "free on the device", &event.free);
    named(&mut request, "all memory", &event.needed);
    named(&mut request, "may have", &event.limit);
    let left = event.dump.pool.filter(|pool| pool.held.is_none()).and_then(|pool| pool.available);
    request.extend(left.map(|left| format!("left of its limit {}", amount(left))));
    if let Some(complaint) = &event.rematerialization {
        request.push(format!("limit of the program: {}", complaint.limit.text));
    }
    lines.extend((!request.is_empty()).then(|| request.join(" · ")));
    lines.extend(own(event, account.context));
    lines.extend(pool(event));
    let others = event.processes.iter();
    for (pid, memory) in others.take(MAX_PROCESSES) {
        let word = match account.itself {
            Some(itself) if itself.pid.0 == *pid => "listed as process",
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
        lines.push(format!("not attributed to a named process: {}{context}", amount(unnamed)));
    }
    lines
}

fn named(parts: &mut Vec<String>, what: &str, figure: &Option<Figure>) {
    parts.extend(figure.as_ref().map(|figure| format!("{what} {}", figure.text)));
}

/// Formats `this process 18.17 GiB: 17.88 GiB in use, 0 bytes cached, 296.96 MiB context`.
fn own(event: &Event, context: Option<Bytes>) -> Option<String> {
    let mut parts = Vec::new();
    let of = |figure: &Option<Figure>, what: &str| {
        figure.as_ref().map(|figure| format!("{} {what}", figure.text))
    };
    parts.extend(of(&event.allocated, "in use"));
    parts.extend(of(&event.private_pools, "of that in private pools"));
    parts.extend(of(&event.reserved_unallocated, "cached"));
    parts.extend(of(&event.cached, "cached"));
    parts.extend(of(&event.reserved_total, "reserved in total"));
    parts.extend(
        context
            .filter(|context| *context > Bytes(0))
            .map(|bytes| format!("{} context", amount(bytes))),
    );
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
