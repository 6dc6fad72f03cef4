//! Messages with one or two sizes in a sentence that the table cannot express: TensorFlow on the
//! driver's pool, CUDA.jl, the buffers of llama.cpp, XLA on TPUs.

use super::event::{Event, Framework, Rematerialization};
use super::figure::{Figure, integer};
use super::passage::Passage;
use super::reader::Reader;
use super::short::Short;
use gpu_core::Bytes;

/// The position of one of these messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    DriverPool,
    Julia,
    Buffer,
    Tpu,
}

const DRIVER_POOL: &str = "cuMemAllocAsync failed to allocate ";
const DRIVER_FREE: &str = "Free memory/Total memory: ";
const JULIA: &str = "Out of GPU memory trying to allocate ";
const BUFFER: &str = "failed to allocate ";
const TPU: &str = "Ran out of memory in memory space ";

/// Returns the mark of a word.
pub(super) fn mark(word: &str, rest: &str) -> Option<Mark> {
    let begins = |start: &str| rest.starts_with(start);
    let (mark, is_one) = match word {
        "cuMemAllocAsync" => (Mark::DriverPool, begins(DRIVER_POOL)),
        "Out" => (Mark::Julia, begins(JULIA)),
        "failed" => (Mark::Buffer, sized_buffer(rest).is_some()),
        "Ran" => (Mark::Tpu, begins(TPU)),
        _ => return None,
    };
    is_one.then_some(mark)
}

/// Parses the text at a mark; returns whether it belongs to an event.
pub(super) fn read(reader: &mut Reader, mark: Mark, passage: Passage<'_>) -> bool {
    let event = match mark {
        Mark::DriverPool => return driver_pool(reader, passage).is_some(),
        Mark::Julia => julia(passage),
        Mark::Buffer => return buffer_of_size(reader, passage).is_some(),
        Mark::Tpu => tpu(passage),
    };
    event.map(|event| reader.add(event)).is_some()
}

/// Returns an empty event with the backend `cuda`.
pub(super) fn on_cuda(framework: Framework, passage: Passage<'_>) -> Event {
    Event { backend: Some("cuda".to_owned()), ..Event::new(framework, passage.line) }
}

/// `gpu_async_0 cuMemAllocAsync failed to allocate 7 bytes: … Free memory/Total memory: 7/8`; the
/// statistics may follow.
fn driver_pool(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (tried, _) = Figure::at_start(passage.after(DRIVER_POOL)?)?;
    let mut event = on_cuda(Framework::TensorFlow, passage);
    event.tried = Some(tried);
    if let Some((free, rest)) = passage.after(DRIVER_FREE).and_then(Figure::or_count) {
        event.free = Some(free);
        event.total = rest.strip_prefix('/').and_then(Figure::or_count).map(|(total, _)| total);
    }
    let name = passage.before.trim_end().rsplit(' ').next();
    let index = name.and_then(|name| name.strip_prefix("gpu_async_")).and_then(integer);
    if let (Some(name), Some((index, ""))) = (name, index) {
        event.gpu = u32::try_from(index).ok();
        event.allocator = Some(name.to_owned());
    }
    reader.open_dump = Some(reader.add(event));
    Some(())
}

/// `Out of GPU memory trying to allocate 7.451 GiB Effective GPU memory usage: 98.93%
/// (23.43 GiB/23.68 GiB) Memory pool usage: 22.35 GiB (22.35 GiB reserved)`.
fn julia(passage: Passage<'_>) -> Option<Event> {
    let (tried, _) = Figure::at_start(passage.after(JULIA)?)?;
    let mut event = on_cuda(Framework::CudaJl, passage);
    event.tried = Some(tried);
    let usage = passage.after("Effective GPU memory usage: ").and_then(|rest| {
        let (used, rest) = Figure::at_start(rest.split_once('(')?.1)?;
        Some((used, Figure::at_start(rest.strip_prefix('/')?)?.0))
    });
    if let Some((used, total)) = usage {
        event.free = free(&used, &total);
        event.total = Some(total);
    }
    let pool = passage.after("Memory pool usage: ").and_then(Figure::at_start);
    if let Some((used, rest)) = pool {
        let inside = rest.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let inside = inside.map_or("", |(inside, _)| inside);
        let of =
            |word| inside.split(", ").find_map(|part| Figure::at_end(part.strip_suffix(word)?));
        event.allocated = Some(used);
        event.reserved_total = of(" reserved");
        event.cached = of(" cached");
    }
    Some(event)
}

/// Returns the unused part of a total, with the rounding errors of both figures.
fn free(used: &Figure, total: &Figure) -> Option<Figure> {
    let free = total.bytes?.saturating_sub(used.bytes?);
    let text = format!("{:.2} MiB", free.0 as f64 / f64::from(1 << 20));
    Some(Figure { text, bytes: Some(free), slack: used.slack + total.slack })
}

/// A buffer of ggml on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) backend: Option<&'static str>,
    /// `None` for a backend without numbers.
    gpu: Option<u32>,
}

/// Parses the `CUDA0 buffer` at the start of a text.
pub(super) fn buffer(text: &str) -> Option<Buffer> {
    // The name, the backend, and whether a number follows the name.
    const BACKENDS: [(&str, &str, bool); 9] = [
        ("CUDA", "cuda", true),
        ("ROCm", "hip", true),
        ("MUSA", "musa", true),
        ("SYCL", "xpu", true),
        ("Vulkan", "vulkan", true),
        ("CANN", "npu", true),
        ("MTL", "mps", true),
        ("Metal", "mps", false),
        ("OpenCL", "opencl", false),
    ];
    let (backend, has_number, rest) = BACKENDS.iter().find_map(|(name, backend, has_number)| {
        Some((*backend, *has_number, text.strip_prefix(name)?))
    })?;
    let (gpu, rest) = if has_number {
        integer(rest).map(|(gpu, rest)| (u32::try_from(gpu).ok(), rest))?
    } else {
        (None, rest)
    };
    let kinds = ["_Private", "_Mapped", "_Split", ""];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.starts_with(" buffer").then_some(Buffer { backend: Some(backend), gpu })
}

fn sized_buffer(text: &str) -> Option<(Buffer, u64)> {
    let rest = text.strip_prefix(BUFFER)?;
    let buffer = buffer(rest)?;
    let (size, _) = integer(rest.split_once(" buffer")?.1.strip_prefix(" of size ")?)?;
    Some((buffer, size))
}

/// Returns what the function named before `failed to allocate` allocates.
fn purpose(before: &str) -> Option<Short> {
    let function = before.trim_end().rsplit(' ').next()?.trim_end_matches(':');
    let kinds = [
        ("alloc_tensor_range", Short::Weights),
        ("ggml_gallocr_reserve", Short::Compute),
        ("llama_kv_cache", Short::Cache),
    ];
    kinds.iter().find(|(name, _)| function.starts_with(name)).map(|(_, short)| *short)
}

/// `failed to allocate CUDA0 buffer of size 8589934592`: alone, or after the device's own message
/// with the rounded size. AMD builds print `cudaMalloc` in that message, but their own name in this
/// one.
fn buffer_of_size(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (buffer, size) = sized_buffer(passage.text)?;
    let is_it = |tried: &Figure| {
        tried.bytes.is_some_and(|known| known.0.abs_diff(size) <= tried.slack.0.saturating_add(1))
    };
    let short = purpose(passage.before);
    if let Some(known) = reader.events.last_mut()
        && known.is_of(Framework::LlamaCpp)
        && known.is_near(passage.line)
        && known.wording.is_none()
        && (known.gpu.is_none() || known.gpu == buffer.gpu)
        && known.tried.as_ref().is_none_or(is_it)
    {
        let figure = || Figure::of_bytes(format!("{size} bytes"), size);
        let tried = known.tried.get_or_insert_with(figure);
        (tried.bytes, tried.slack) = (Some(Bytes(size)), Bytes(0));
        known.gpu = buffer.gpu;
        known.backend = buffer.backend.map(str::to_owned);
        known.short = known.short.or(short);
        return Some(());
    }
    let mut event = Event::new(Framework::LlamaCpp, passage.line);
    event.tried = Some(Figure::of_bytes(format!("{size} bytes"), size));
    event.gpu = buffer.gpu;
    event.backend = buffer.backend.map(str::to_owned);
    event.short = short;
    reader.add(event);
    Some(())
}

/// `Ran out of memory in memory space hbm. Used 20.00G of 15.48G hbm.`: the compiler computes what
/// the program will need.
fn tpu(passage: Passage<'_>) -> Option<Event> {
    let (used, rest) = Figure::at_start(passage.after(" Used ")?)?;
    let (limit, _) = Figure::at_start(rest.strip_prefix(" of ")?)?;
    let mut event = Event::new(Framework::Jax, passage.line);
    event.backend = passage.text.strip_prefix(TPU)?.starts_with("hbm").then(|| "tpu".to_owned());
    event.total = Some(limit.clone());
    event.rematerialization = Some(Rematerialization { limit, reduced: Some(used) });
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn one(text: &str) -> Event {
        let mut events = read(text.as_bytes()).events;
        assert_eq!(events.len(), 1, "{text}\n{events:#?}");
        events.remove(0)
    }

    fn count(figure: &Option<Figure>) -> Option<u64> {
        figure.as_ref()?.bytes.map(|bytes| bytes.0)
    }

    fn available(event: &Event) -> Option<u64> {
        event.dump.pool?.available.map(|bytes| bytes.0)
    }

    #[test]
    fn onnx_runtime_messages_are_parsed() {
        let refused =
            one("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : /x/bfc_arena.cc:342 void* \
             BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested \
             buffer of size 234217728");
        assert_eq!(
            (refused.framework, count(&refused.tried)),
            (Framework::OnnxRuntime, Some(234_217_728))
        );
        let limit = one("[E:onnxruntime:, bfc_arena.cc:368] BFCArena::AllocateRawInternal \
             Available memory of 2048576 is smaller than requested bytes of 234217728");
        assert_eq!(count(&limit.tried), Some(234_217_728));
        assert_eq!(available(&limit), Some(2_048_576));
    }

    #[test]
    fn tensorflow_cuda_malloc_async_message_is_parsed() {
        let event = one(
            "E gpu_cudamallocasync_allocator.cc:288] gpu_async_1 cuMemAllocAsync failed to allocate \
             2073741824 bytes: CUDA error: out of memory (CUDA_ERROR_OUT_OF_MEMORY)\n Reported by \
             CUDA: Free memory/Total memory: 313254144/24430786048\nE x.cc:302] Stats: \
             Limit:   10000000000\nInUse:   6442450944\nMaxInUse:  7516192768\n",
        );
        assert_eq!((event.gpu, count(&event.tried)), (Some(1), Some(2_073_741_824)));
        assert_eq!(
            (count(&event.free), count(&event.total)),
            (Some(313_254_144), Some(24_430_786_048))
        );
        assert_eq!(event.dump.stat("InUse"), Some(Bytes(6_442_450_944)));
    }

    #[test]
    fn vllm_kv_cache_message_is_parsed() {
        let event = one(
            "ValueError: To serve at least one request with the model's max seq len (30000), (3.50 \
             GiB KV cache is needed, which is larger than the available KV cache memory (1.25 GiB).",
        );
        assert_eq!((event.framework, count(&event.tried)), (Framework::Vllm, Some(7 << 29)));
        assert_eq!(available(&event), Some(5 << 28));
    }

    #[test]
    fn both_tensorrt_messages_are_parsed() {
        let sized = one(
            "[E] [defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)\n\
             [W] Requested amount of GPU memory (7589934592 bytes) could not be allocated. There \
             may not be enough free memory for allocation to succeed.",
        );
        assert_eq!(
            (sized.framework, count(&sized.tried)),
            (Framework::TensorRt, Some(7_589_934_592))
        );
        let bare = one("[TRT] [E] 2: [x.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no \
             further information)");
        assert_eq!((bare.framework, bare.tried), (Framework::TensorRt, None));
    }

    #[test]
    fn julia_message_is_parsed() {
        let event = one(
            "ERROR: Out of GPU memory trying to allocate 6.500 GiB\nEffective GPU memory usage: \
             93.75% (22.50 GiB/24.00 GiB)\nMemory pool usage: 20.25 GiB (21.00 GiB reserved)\n",
        );
        assert_eq!((event.framework, count(&event.tried)), (Framework::CudaJl, Some(13 << 29)));
        assert_eq!((count(&event.free), count(&event.total)), (Some(3 << 29), Some(24 << 30)));
        assert_eq!(count(&event.allocated), Some(81 << 28));
        assert_eq!(count(&event.reserved_total), Some(21 << 30));
    }

    #[test]
    fn llama_cpp_buffer_messages_are_parsed() {
        let alone =
            one("ggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 7589934592");
        assert_eq!((alone.gpu, count(&alone.tried)), (Some(1), Some(7_589_934_592)));
        let unsized_one =
            one("llama_model_load: error loading model: unable to allocate ROCm0 buffer");
        assert_eq!(
            (unsized_one.framework, unsized_one.backend.as_deref()),
            (Framework::LlamaCpp, Some("hip"))
        );
        let both =
            one("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 590.50 MiB on device 1: \
             cudaMalloc failed: out of memory\nfailed to allocate CUDA1 buffer of size 619184129\n\
             error loading model: unable to allocate CUDA1 buffer\n");
        assert_eq!(count(&both.tried), Some(619_184_129));
    }

    #[test]
    fn tpu_container_and_other_codes_are_parsed() {
        let tpu = one(
            "XlaRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used \
             18.50G of 15.50G hbm. Exceeded hbm capacity by 3.00G.",
        );
        assert_eq!((tpu.backend.as_deref(), count(&tpu.total)), (Some("tpu"), Some(31 << 29)));
        assert_eq!(count(&tpu.rematerialization.unwrap().reduced), Some(37 << 29));
        let hami =
            one("[HAMI-core ERROR (pid:7 thread=1 x.c:52)]: Device 2 OOM 9643411968 / 8589934592");
        assert_eq!(
            (hami.gpu, count(&hami.needed), count(&hami.limit)),
            (Some(2), Some(9_643_411_968), Some(8_589_934_592))
        );
        let xpu =
            one("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)");
        assert_eq!(xpu.backend.as_deref(), Some("xpu"));
        let sample = one("Failed to allocate device vector B (error code out of memory)!");
        assert_eq!(sample.backend.as_deref(), Some("cuda"));
        let operation =
            one("ResourceExhaustedError: {{function_node __wrapped__MatMul}} failed to \
             allocate memory [Op:MatMul]");
        assert_eq!(operation.framework, Framework::TensorFlow);
        let hpu =
            one("RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for \
             size::368435456 (351)MB");
        assert_eq!((hpu.backend.as_deref(), count(&hpu.tried)), (Some("hpu"), Some(368_435_456)));
        let constant =
            one("XlaRuntimeError: INTERNAL: Failed to allocate 2073741824 bytes for new \
             constant");
        assert_eq!(
            (constant.framework, count(&constant.tried)),
            (Framework::Jax, Some(2_073_741_824))
        );
        for prose in [
            "Failed to allocate 12 bytes for a name",
            "Device 7 OOM",
            "Available memory of 7 is fine",
            "Requested amount of GPU memory (much)",
        ] {
            assert_eq!(read(prose.as_bytes()).events, [], "{prose}");
        }
    }
}
