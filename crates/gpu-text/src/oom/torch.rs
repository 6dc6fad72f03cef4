//! PyTorch's message, in the wordings of all its versions and backends.

use super::event::{Event, Framework, Wording};
use super::figure::{Figure, integer};
use super::passage::Passage;
use super::reader::Reader;

const ON_DEVICE: &str = "Allocation on device ";

/// The distance in lines after a complete message within which a repetition of its start belongs to
/// the same failure.
const MAX_LINES_APART: usize = 100;

/// Returns whether a message about the driver's own pool starts here.
pub(super) fn is_driver_pool(rest: &str) -> bool {
    rest.starts_with(ON_DEVICE) || rest.trim_end() == ON_DEVICE.trim_end()
}

/// Parses a message from its `Tried to allocate`.
pub(super) fn read(reader: &mut Reader, passage: Passage<'_>) -> bool {
    let Some(tried) = passage.after("Tried to allocate ").and_then(tried) else { return false };
    let text = passage.text;
    let mut event = Event::new(Framework::PyTorch, passage.line);
    event.tried = Some(tried);
    event.backend = backend(passage);
    event.gpu = device(text);
    event.total = after(text, "total capacity of ")
        .or_else(|| after(text, "total capacty of "))
        .or_else(|| before(text, " total capacity"));
    event.free = before(text, " is free").or_else(|| before(text, " free"));
    event.allocated =
        before(text, " is allocated by PyTorch").or_else(|| before(text, " already allocated"));
    event.private_pools = before(text, " allocated in private pools");
    event.reserved_unallocated = before(text, " is reserved by PyTorch");
    event.reserved_total = before(text, " reserved in total by PyTorch");
    event.cached = before(text, " cached");
    event.this_process = own(text);
    event.limit = before(text, " allowed");
    event.processes = processes(text);
    event.wording = wording(text, &event);
    if event.backend.as_deref() == Some("mps") {
        // Metal's figures are before the request.
        event.allocated = after(passage.before, "MPS allocated: ").or(event.allocated);
        event.other = after(passage.before, "other allocations: ");
        event.limit = after(passage.before, "max allowed: ").or(event.limit);
        event.wording = None;
    }
    reader.add(event);
    true
}

/// Parses PyTorch's message about the driver's own pool (`backend:cudaMallocAsync`) from its
/// `Allocation on device`; ComfyUI prints only the start of the message.
pub(super) fn read_driver_pool(reader: &mut Reader, passage: Passage<'_>) -> bool {
    let text = passage.text;
    let is_long = text.contains("would exceed allowed memory");
    if !is_long && !passage.before.trim_end().ends_with("OutOfMemoryError:") {
        return false;
    }
    let labelled = |label: &str| {
        let (_, rest) = text.split_once(label)?;
        Figure::at_start(rest.trim_start().strip_prefix(':')?).map(|(figure, _)| figure)
    };
    let mut event = Event::new(Framework::PyTorch, passage.line);
    event.backend = Some("cuda".to_owned());
    event.allocator = Some("cudaMallocAsync".to_owned());
    event.gpu = text
        .strip_prefix(ON_DEVICE)
        .and_then(integer)
        .and_then(|(index, _)| u32::try_from(index).ok());
    if is_long {
        event.allocated = labelled("Currently allocated");
        event.tried = labelled("Requested");
        event.total = labelled("Device limit");
        event.free = labelled("Free (according to CUDA)");
        // A number that does not fit means no limit.
        event.limit = labelled("memory fraction)").filter(|limit| limit.bytes.is_some());
    } else if let Some(known) = reader.events.last_mut()
        && known.allocator == event.allocator
        && passage.line.abs_diff(known.line) <= MAX_LINES_APART
    {
        // An earlier, complete message reported the same failure.
        return true;
    }
    reader.add(event);
    true
}

/// Parses the message of PyTorch's allocator for host memory.
pub(super) fn read_host(reader: &mut Reader, passage: Passage<'_>) -> bool {
    let Some(tried) = after(passage.text, "tried to allocate ") else { return false };
    let mut event = Event::new(Framework::PyTorch, passage.line);
    event.tried = Some(tried);
    event.backend = Some("cpu".to_owned());
    reader.add(event);
    true
}

/// Parses the requested size; beyond an exabyte PyTorch does not print it.
fn tried(rest: &str) -> Option<Figure> {
    match rest.strip_prefix("more than ") {
        Some(rest) => Figure::at_start(rest).map(|(figure, _)| Figure {
            text: format!("more than {}", figure.text),
            bytes: figure.bytes,
            slack: figure.slack,
        }),
        None => Figure::at_start(rest).map(|(figure, _)| figure),
    }
}

/// Returns the amount after a phrase.
fn after(text: &str, phrase: &str) -> Option<Figure> {
    text.match_indices(phrase)
        .find_map(|(at, _)| Figure::at_start(&text[at + phrase.len()..]))
        .map(|(figure, _)| figure)
}

/// Returns the amount before a phrase.
fn before(text: &str, phrase: &str) -> Option<Figure> {
    text.match_indices(phrase).find_map(|(at, _)| Figure::at_end(&text[..at]))
}

/// `Including non-PyTorch memory, this process has 76.17 GiB memory in use.`
fn own(text: &str) -> Option<Figure> {
    after(text, "his process has ")
}

/// `Process 2006998 has 256.00 MiB memory in use.`
fn processes(text: &str) -> Vec<(u32, Figure)> {
    const PHRASE: &str = "Process ";
    text.match_indices(PHRASE)
        .filter_map(|(at, _)| {
            let (pid, rest) = integer(&text[at + PHRASE.len()..])?;
            let (figure, rest) = Figure::at_start(rest.strip_prefix(" has ")?)?;
            rest.trim_start().starts_with("memory in use").then_some(())?;
            Some((u32::try_from(pid).ok()?, figure))
        })
        .collect()
}

/// Returns the index of `GPU 0 has a total …` or `(GPU 0; …`; other backends write `NPU`, `XPU`.
fn device(text: &str) -> Option<u32> {
    const PHRASE: &str = "PU ";
    text.match_indices(PHRASE).find_map(|(at, _)| {
        let (index, rest) = integer(&text[at + PHRASE.len()..])?;
        let is_device = rest.starts_with(';') || rest.starts_with(" has ");
        u32::try_from(index).ok().filter(|_| is_device)
    })
}

/// Returns the word before `out of memory`, or the backend of the recommended variable.
fn backend(passage: Passage<'_>) -> Option<String> {
    let named = passage.before.rfind("out of memory").and_then(|at| {
        let words = passage.before[..at].trim_end();
        let words = words.strip_suffix(" backend").unwrap_or(words);
        let word = words.rsplit(|c: char| !c.is_ascii_alphanumeric()).next()?;
        let is_name = (2..=8).contains(&word.len()) && word.chars().all(|c| c.is_ascii_uppercase());
        is_name.then(|| word.to_ascii_lowercase())
    });
    let variable = || {
        [("PYTORCH_HIP_ALLOC_CONF", "hip"), ("PYTORCH_CUDA_ALLOC_CONF", "cuda")]
            .into_iter()
            .find(|(variable, _)| passage.text.contains(variable))
            .map(|(_, backend)| backend.to_owned())
    };
    named.or_else(variable)
}

fn wording(text: &str, event: &Event) -> Option<Wording> {
    if text.contains("total capacty of") {
        Some(Wording::Torch21)
    } else if text.contains("total capacity of") {
        let is_new = text.contains(" PYTORCH_ALLOC_CONF");
        Some(if is_new { Wording::Torch29 } else { Wording::Torch22 })
    } else if event.cached.is_some() {
        Some(Wording::Torch13)
    } else if event.reserved_total.is_some() {
        Some(if text.contains("max_split_size_mb") { Wording::Torch110 } else { Wording::Torch14 })
    } else {
        None
    }
}
