//! Messages of libraries that print little: CuPy, RMM, llama.cpp, and the bare errors of the CUDA
//! runtime.

use super::event::{Event, Framework};
use super::figure::{Figure, integer};
use super::passage::Passage;
use super::reader::Reader;
use super::short::Short;
use super::short_messages::{self, on_cuda};

/// The position of a message with figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    CuPy,
    Rmm,
    RmmPool,
    Llama,
}

/// The position of a message without figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bare {
    /// A code that only means out of memory.
    Code(Framework, Option<&'static str>),
    /// `out of memory`, in any context.
    Words,
    /// wgpu's wording, which other programs use for host memory.
    Wgpu,
}

const CUPY_OLD: &str = "ut of memory to allocate ";
/// The distance in bytes after an error within which TensorFlow adds the memory of the device.
const MAX_BETWEEN: usize = 60;

/// How much of the text before a message without figures can identify its program, in bytes.
const MAX_CONTEXT: usize = 160;

const ON_DEVICE: &str = " on device ";

/// Returns the mark of a word.
pub(super) fn mark(word: &str, rest: &str) -> Option<Mark> {
    let begins = |start: &str| rest.starts_with(start);
    let (mark, is_one) = match word {
        "out" | "Out" => (Mark::CuPy, rest[1..].starts_with(CUPY_OLD)),
        "bad_alloc" => (Mark::Rmm, begins("bad_alloc: out_of_memory: ")),
        "Maximum" => (Mark::RmmPool, begins("Maximum pool size exceeded")),
        "allocating" => (Mark::Llama, is_llama(rest)),
        _ => return None,
    };
    is_one.then_some(mark)
}

fn is_llama(rest: &str) -> bool {
    rest.strip_prefix("allocating ")
        .and_then(Figure::at_start)
        .is_some_and(|(_, rest)| rest.starts_with(ON_DEVICE))
}

/// Returns the mark without figures of a word.
pub(super) fn bare_mark(word: &str, rest: &str) -> Option<Bare> {
    const CUDA: Bare = Bare::Code(Framework::Cuda, Some("cuda"));
    const HIP: Bare = Bare::Code(Framework::Cuda, Some("hip"));
    match word {
        "cudaErrorMemoryAllocation"
        | "CUDA_ERROR_OUT_OF_MEMORY"
        | "CUBLAS_STATUS_ALLOC_FAILED"
        | "CUDNN_STATUS_ALLOC_FAILED"
        | "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
        | "CUSOLVER_STATUS_ALLOC_FAILED"
        | "CUSPARSE_STATUS_ALLOC_FAILED"
        | "CUFFT_ALLOC_FAILED" => Some(CUDA),
        "hipErrorOutOfMemory" | "HIPBLAS_STATUS_ALLOC_FAILED" => Some(HIP),
        "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY" => Some(Bare::Code(Framework::Cuda, Some("xpu"))),
        "CL_MEM_OBJECT_ALLOCATION_FAILURE" | "MEM_OBJECT_ALLOCATION_FAILURE" => {
            Some(Bare::Code(Framework::Cuda, Some("opencl")))
        }
        "VK_ERROR_OUT_OF_DEVICE_MEMORY"
        | "ERROR_OUT_OF_DEVICE_MEMORY"
        | "ErrorOutOfDeviceMemory"
        | "OutOfDeviceMemory" => Some(Bare::Code(Framework::Cuda, Some("vulkan"))),
        "NV_ENC_ERR_OUT_OF_MEMORY" => Some(Bare::Code(Framework::Cuda, Some("nvenc"))),
        "OpenEncodeSessionEx" | "InitializeEncoder" | "nvEncOpenEncodeSessionEx"
            if is_encoder(&rest[word.len()..]) =>
        {
            Some(Bare::Code(Framework::Cuda, Some("nvenc")))
        }
        // Blender and hashcat, with any backend.
        "System" if rest.starts_with("System is out of GPU") => {
            Some(Bare::Code(Framework::Cuda, None))
        }
        "Not" if rest.starts_with("Not enough allocatable device memory") => {
            Some(Bare::Code(Framework::Cuda, None))
        }
        "Not" | "not" if rest[1..].starts_with("ot enough memory left") => Some(Bare::Wgpu),
        "Error" if rest.starts_with("Error Code 2: OutOfMemory") => {
            Some(Bare::Code(Framework::TensorRt, Some("cuda")))
        }
        "unable" => short_messages::buffer(rest.strip_prefix("unable to allocate ")?)
            .map(|buffer| Bare::Code(Framework::LlamaCpp, buffer.backend)),
        "failed" if rest.starts_with("failed to allocate memory [Op:") => {
            Some(Bare::Code(Framework::TensorFlow, None))
        }
        "Dst" if rest.starts_with("Dst tensor is not initialized") => {
            Some(Bare::Code(Framework::TensorFlow, None))
        }
        "RESOURCE_EXHAUSTED"
            if rest.starts_with("RESOURCE_EXHAUSTED: failed to allocate memory") =>
        {
            Some(Bare::Code(Framework::TensorFlow, None))
        }
        "out" | "Out" if rest[1..].starts_with("ut of memory") => Some(Bare::Words),
        _ => None,
    }
}

/// Returns whether a call of NVENC failed with its out-of-memory code: `failed: out of memory (10)`
/// in FFmpeg, `: 10 (NVENC indicates …` elsewhere.
fn is_encoder(after: &str) -> bool {
    after.starts_with(" failed: out of memory (10)") || after.starts_with(": 10 (")
}

/// Parses the text at a mark; returns whether it belongs to an event.
pub(super) fn read(reader: &mut Reader, mark: Mark, passage: Passage<'_>) -> bool {
    let event = match mark {
        Mark::CuPy => cupy(passage, CUPY_OLD),
        Mark::Rmm => Some(rmm(passage)),
        Mark::RmmPool => return rmm_pool(reader, passage).is_some(),
        Mark::Llama => llama(passage),
    };
    event.map(|event| reader.add(event)).is_some()
}

fn figure_after(text: &str, phrase: &str) -> Option<Figure> {
    Figure::at_start(text.split_once(phrase)?.1).map(|(figure, _)| figure)
}

/// `Out of memory allocating 25,600,000 bytes (allocated so far: 7 bytes, limit set to: 7 bytes)`;
/// before version 7 `out of memory to allocate 7 bytes (total 7 bytes, limit set to 7 bytes)`.
pub(super) fn cupy(passage: Passage<'_>, phrase: &str) -> Option<Event> {
    let (tried, rest) = Figure::at_start(passage.after(phrase)?)?;
    let mut event = on_cuda(Framework::CuPy, passage);
    event.tried = Some(tried);
    let Some(inside) = rest.trim_start().strip_prefix('(') else {
        // The driver's pool without statistics prints no figures; prose does not mention CuPy.
        let is_cupy = ["cupy", "OutOfMemoryError"].iter().any(|word| passage.before.contains(word));
        return is_cupy.then_some(event);
    };
    let inside = inside.split_once(')')?.0;
    let held = figure_after(inside, "allocated so far: ");
    if held.is_some() {
        event.allocated = held;
    } else {
        // Older versions include the request in the total.
        event.allocated = Some(figure_after(inside, "total ")?).map(|all| less(all, &event));
    }
    event.limit =
        figure_after(inside, "limit set to: ").or_else(|| figure_after(inside, "limit set to "));
    Some(event)
}

/// Returns the memory held before the request, from a total that includes it.
fn less(total: Figure, event: &Event) -> Figure {
    let tried = event.tried.as_ref().and_then(|tried| tried.bytes);
    match (total.bytes, tried) {
        (Some(all), Some(tried)) => {
            let held = all.saturating_sub(tried).0;
            Figure::of_bytes(format!("{held} bytes"), held)
        }
        _ => total,
    }
}

/// `std::bad_alloc: out_of_memory: CUDA error (failed to allocate 7 bytes) at: …`; before 24.12
/// without the size.
fn rmm(passage: Passage<'_>) -> Event {
    let tried = figure_after(passage.text, "(failed to allocate ");
    Event { tried, ..on_cuda(Framework::Rmm, passage) }
}

/// `RMM failure at: …: Maximum pool size exceeded (failed to allocate 1.5 GiB)`.
fn rmm_pool(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    if !passage.before.contains("RMM") && !passage.before.contains("rmm") {
        return None;
    }
    let tried = figure_after(passage.text, "(failed to allocate ");
    if passage.before.starts_with("bad_alloc: out_of_memory: ")
        && let Some(event) = reader.events.last_mut()
    {
        // This is the end of the message whose start was just parsed.
        event.allocator = Some("pool".to_owned());
        event.short = Some(Short::Pool);
        event.tried = event.tried.take().or(tried);
        return Some(());
    }
    let allocator = Some("pool".to_owned());
    let short = Some(Short::Pool);
    reader.add(Event { tried, allocator, short, ..on_cuda(Framework::Rmm, passage) });
    Some(())
}

/// `allocating 590.07 MiB on device 0: cudaMalloc failed: out of memory`; the buffer's exact size
/// follows in a message of its own.
fn llama(passage: Passage<'_>) -> Option<Event> {
    let (tried, rest) = Figure::at_start(passage.after("allocating ")?)?;
    let (gpu, rest) = integer(rest.strip_prefix(ON_DEVICE)?)?;
    if !rest.contains("failed: out of memory") {
        return None;
    }
    let mut event = Event::new(Framework::LlamaCpp, passage.line);
    event.tried = Some(tried);
    event.gpu = u32::try_from(gpu).ok();
    event.backend = Some(if rest.contains("ROCm") { "hip" } else { "cuda" }.to_owned());
    Some(event)
}

/// Parses a message without figures; `None` for prose that only mentions memory.
pub(super) fn bare(what: Bare, passage: Passage<'_>) -> Option<Event> {
    let from = passage.before.len().saturating_sub(MAX_CONTEXT);
    let near = &passage.before[passage.before.ceil_char_boundary(from)..];
    let (framework, backend) = match what {
        Bare::Code(framework, backend) => (framework, backend),
        Bare::Words => {
            let backend = backend_of_call(passage.text).or_else(|| backend_of_failure(near));
            (Framework::Cuda, Some(backend?))
        }
        Bare::Wgpu if near.contains("Device::create_") => (Framework::Cuda, Some("wgpu")),
        Bare::Wgpu => return None,
    };
    let framework = if framework == Framework::Cuda { owner(near) } else { framework };
    let mut event = Event::new(framework, passage.line);
    event.backend = backend.map(str::to_owned);
    // llama.cpp names a buffer without its size only where it loads weights.
    event.short = matches!(what, Bare::Code(Framework::LlamaCpp, _)).then_some(Short::Weights);
    if let Some((between, rest)) = passage.text.split_once("; total memory reported: ")
        && between.len() <= MAX_BETWEEN
    {
        event.total = Figure::or_count(rest).map(|(total, _)| total);
    }
    Some(event)
}

/// Returns whether the context on the line shows that the words are a source line, as in a
/// traceback, or a hint to documentation.
pub(super) fn is_source(before: &str, after: &str) -> bool {
    const STATEMENTS: [&str; 6] = ["raise ", "if ", "elif ", "assert ", "return ", "throw "];
    let is_tested = ["out of memory\" in ", "out of memory' in "];
    STATEMENTS.iter().any(|statement| before.trim_start().starts_with(statement))
        || is_tested.iter().any(|test| after.starts_with(test))
        || before.trim_end_matches(['\'', '"']).ends_with("Search for ")
}

/// Returns the backend of `out of memory in cuMemAlloc_v2(…`, in which Cycles names the call or the
/// queue.
fn backend_of_call(text: &str) -> Option<&'static str> {
    let call = text.get(1..)?.strip_prefix("ut of memory in ")?;
    let is_call = |prefix| {
        call.strip_prefix(prefix).is_some_and(|name: &str| name.starts_with(char::is_uppercase))
    };
    match () {
        () if is_call("cu") || call.starts_with("CUDA queue ") => Some("cuda"),
        () if is_call("hip") || call.starts_with("HIP queue ") => Some("hip"),
        () => None,
    }
}

/// Returns the backend if the words before `out of memory` report its failure.
fn backend_of_failure(before: &str) -> Option<&'static str> {
    if before.ends_with("(error code ") {
        // NVIDIA's samples end their messages this way.
        return Some("cuda");
    }
    let fails = ["rror", "fail", "assert", "xception", "ERROR", "FATAL", "Fatal"];
    let fails = before.ends_with("(): ") || fails.iter().any(|word| before.contains(word));
    let backend = [("HIP", "hip"), ("hip", "hip"), ("XPU", "xpu"), ("MPS", "mps")]
        .into_iter()
        .chain(
            [
                "CUDA",
                "cuda",
                "Cuda",
                "GPUassert",
                "Gpu API call",
                "cuMem",
                "cublas",
                "cudnn",
                "nccl",
                "NCCL",
            ]
            .map(|word| (word, "cuda")),
        )
        .find(|(word, _)| before.contains(word))
        .map(|(_, backend)| backend)?;
    fails.then_some(backend)
}

/// Returns the program that the preceding words name.
fn owner(before: &str) -> Framework {
    let names = [
        ("torch.", Framework::PyTorch),
        ("RuntimeError: CUDA", Framework::PyTorch),
        ("RuntimeError: HIP", Framework::PyTorch),
        ("cupy", Framework::CuPy),
        ("tensorflow", Framework::TensorFlow),
        ("cuDevicePrimaryCtxRetain", Framework::TensorFlow),
        ("rmm", Framework::Rmm),
        ("ggml", Framework::LlamaCpp),
    ];
    names.iter().find(|(name, _)| before.contains(name)).map_or(Framework::Cuda, |(_, f)| *f)
}
