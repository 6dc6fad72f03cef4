//! The report of TensorFlow's and XLA's allocator, and the errors that mention it.

use super::event::{Bin, Block, ChunkSum, Event, Framework, Pool, Region, Tensor, Wording};
use super::figure::{Figure, integer};
use super::passage::{Passage, framework_of_path};
use super::reader::Reader;
use super::{MAX_ALL_ROWS, MAX_EVENTS, MAX_ROWS};
use crate::work_meter;
use gpu_core::Bytes;

/// A line of the report, or of the errors after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Request,
    Begin,
    Bin,
    Region,
    InUse,
    Free,
    Sum,
    InAll,
    Pool,
    Statistics,
    Tensor,
}

/// The statistics printed by the allocator.
const STATISTICS: [&str; 8] = [
    "Limit",
    "InUse",
    "MaxInUse",
    "NumAllocs",
    "MaxAllocSize",
    "Reserved",
    "PeakReserved",
    "LargestFreeBlock",
];

/// The maximum number of other words between two statistics: the log prefix of a line.
const MAX_WORDS_BETWEEN: usize = 12;

const RAN_OUT: &str = "an out of memory trying to allocate ";
const DUMP_FOR: &str = "BFCAllocator dump for ";
const TENSOR: &str = "OOM when allocating tensor with shape[";

/// The error of an operation is matched with its allocator's report within this many events.
const MAX_EVENTS_APART: usize = 16;

/// The most dimensions of a tensor.
const MAX_DIMENSIONS: usize = 64;

/// Returns the mark of a word.
pub(super) fn mark(word: &str, rest: &str) -> Option<Mark> {
    let begins = |start: &str| rest.starts_with(start);
    let (mark, is_one) = match word {
        "ran" | "Ran" => (Mark::Request, rest[1..].starts_with(RAN_OUT)),
        "BFCAllocator" => (Mark::Begin, begins(DUMP_FOR)),
        "Bin" => (Mark::Bin, begins("Bin (")),
        "Next" => (Mark::Region, begins("Next region of size ")),
        "InUse" | "Chunk" => (Mark::InUse, begins("InUse at ") || begins("Chunk at ")),
        "Free" => (Mark::Free, begins("Free at ")),
        "Chunks" => (Mark::Sum, begins("Chunks of size ")),
        "Sum" => (Mark::InAll, begins("Sum Total of in-use chunks: ")),
        "Total" => (Mark::Pool, begins("Total bytes in pool: ")),
        "total_region_allocated_bytes_" => (Mark::Pool, true),
        "Limit" => (Mark::Statistics, begins("Limit: ")),
        "OOM" => (Mark::Tensor, begins(TENSOR)),
        _ => return None,
    };
    is_one.then_some(mark)
}

/// Parses the text at a mark; returns whether it belongs to an event.
pub(super) fn read(reader: &mut Reader, mark: Mark, passage: Passage<'_>) -> bool {
    match mark {
        Mark::Request => request(reader, passage),
        Mark::Tensor => tensor(reader, passage),
        Mark::Begin => begin(reader, passage),
        Mark::Bin => bin(reader, passage),
        Mark::Region => region(reader, passage),
        Mark::InUse => block(reader, passage, true),
        Mark::Free => block(reader, passage, false),
        Mark::Sum => sum(reader, passage),
        Mark::InAll => in_all(reader, passage),
        Mark::Pool => pool(reader, passage),
        Mark::Statistics => statistics(reader, passage),
    }
    .is_some()
}

/// `Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.72GiB (rounded to 4000000000)`;
/// older versions repeat it without a name after the dump.
fn request(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (tried, rest) = Figure::at_start(passage.after(RAN_OUT)?)?;
    let allocator = allocator_before(passage.before);
    let closes = allocator.is_none() && rest.trim_start_matches(['.', ' ']).starts_with("See logs");
    let exact = rest.trim_start().strip_prefix("(rounded to ").and_then(integer);
    let tried = match exact {
        Some((bytes, _)) => Figure { bytes: Some(Bytes(bytes)), slack: Bytes(0), ..tried },
        None => tried,
    };
    if closes
        && let Some(open) = reader.open_dump.and_then(|index| reader.events.get_mut(index))
        && open.tried.as_ref().is_none_or(|known| known.text == tried.text)
    {
        open.tried.get_or_insert(tried);
        return Some(());
    }
    let mut event = new_event(passage);
    event.gpu = allocator.as_deref().and_then(device_of);
    event.allocator = allocator;
    event.tried = Some(tried);
    if rest.contains("is not a failure") {
        event.wording = Some(Wording::NoFailure);
    }
    if framework_of_path(passage.before).is_none() && reader.assumed.len() < MAX_EVENTS {
        // Only XLA's allocator has two ends; current versions print no path.
        if rest.contains("from the lower end") || rest.contains("from the upper end") {
            event.framework = Framework::Xla;
        } else {
            reader.assumed.push(passage.line);
        }
    }
    reader.open_dump = Some(reader.add(event));
    Some(())
}

/// Attributes events that have no sign of TensorFlow to XLA if an error of XLA's runtime is near.
pub(super) fn attribute(events: &mut [Event], assumed: &[usize]) {
    let mut assumed = assumed.to_vec();
    assumed.sort_unstable();
    let errors: Vec<usize> = events
        .iter()
        .filter(|event| event.framework == Framework::Jax)
        .map(|event| event.line)
        .collect();
    for event in events {
        let is_assumed = event.framework == Framework::TensorFlow
            && event.tensor.is_none()
            && assumed.binary_search(&event.line).is_ok();
        let next = errors.partition_point(|line| *line < event.line);
        let around = errors[next.saturating_sub(1)..].iter().take(2);
        if is_assumed && around.into_iter().any(|line| line.abs_diff(event.line) <= MAX_LINES_APART)
        {
            event.framework = Framework::Xla;
        }
    }
}

/// The distance in lines within which an error of XLA's runtime shows that the allocator is XLA's.
const MAX_LINES_APART: usize = 2000;

fn new_event(passage: Passage<'_>) -> Event {
    let framework = framework_of_path(passage.before).unwrap_or(Framework::TensorFlow);
    Event::new(framework, passage.line)
}

/// `Allocator (GPU_0_bfc) `.
fn allocator_before(before: &str) -> Option<String> {
    let (_, name) = before.trim_end().strip_suffix(')')?.rsplit_once("Allocator (")?;
    name_of_allocator(name)
}

fn name_of_allocator(text: &str) -> Option<String> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "_-.:/".contains(c)));
    let name = &text[..end.unwrap_or(text.len())];
    (1..=64).contains(&name.len()).then(|| name.to_owned())
}

/// The index in `GPU_0_bfc`.
fn device_of(allocator: &str) -> Option<u32> {
    let (index, _) = integer(allocator.strip_prefix("GPU_")?)?;
    u32::try_from(index).ok()
}

/// Returns the event that a line of the dump belongs to; `is_new` decides from the event's current
/// content whether the line starts a new one.
fn open<'a>(
    reader: &'a mut Reader,
    passage: Passage<'_>,
    is_new: impl FnOnce(&Event) -> bool,
) -> Option<&'a mut Event> {
    reader.rows += 1;
    if reader.rows > MAX_ALL_ROWS {
        (reader.is_cut, reader.is_full) = (true, true);
        return None;
    }
    let list = reader.events.list();
    let known = reader.open_dump.filter(|index| !list.get(*index).is_none_or(is_new));
    let index = match known {
        Some(index) => index,
        // This bypasses `add`: the event is still empty and repeats no other.
        None if reader.events.has_room() => reader.events.push(new_event(passage)),
        None => {
            (reader.is_cut, reader.is_full) = (true, true);
            return None;
        }
    };
    reader.open_dump = Some(index);
    reader.events.get_mut(index)
}

/// Pushes a row unless there are too many.
fn push<T>(rows: &mut Vec<T>, row: T) -> bool {
    let has_room = rows.len() < MAX_ROWS;
    if has_room {
        rows.push(row);
    }
    !has_room
}

fn begin(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let name = passage.after(DUMP_FOR).and_then(name_of_allocator);
    let event = open(reader, passage, |event| !event.dump.is_empty())?;
    event.gpu = event.gpu.or_else(|| device_of(name.as_deref()?));
    event.allocator = event.allocator.take().or(name);
    Some(())
}

/// `Bin (256): Total Chunks: 0, Chunks in use: 0. 0B allocated for chunks. …`
fn bin(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (size, rest) = integer(passage.after("Bin (")?)?;
    let (blocks, rest) = integer(rest.strip_prefix("):")?.split_once("Total Chunks: ")?.1)?;
    let (in_use, _) = integer(rest.split_once("Chunks in use: ")?.1)?;
    let bin = Bin { size: Bytes(size), blocks, in_use };
    let is_new = |event: &Event| {
        event.dump.bins.last().is_some_and(|last| last.size >= bin.size)
            || !event.dump.stats.is_empty()
    };
    let event = open(reader, passage, is_new)?;
    let full = push(&mut event.dump.bins, bin);
    reader.is_cut |= full;
    Some(())
}

fn region(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (size, _) = integer(passage.after("Next region of size ")?)?;
    let event = open(reader, passage, |event| !event.dump.stats.is_empty())?;
    let first_block = event.dump.blocks.len();
    let full = push(&mut event.dump.regions, Region { size: Bytes(size), first_block });
    reader.is_cut |= full;
    Some(())
}

/// `InUse at 7f628a871e00 of size 158261760 next 7`; the oldest versions print `Chunk at 0x…`.
fn block(reader: &mut Reader, passage: Passage<'_>, in_use: bool) -> Option<()> {
    let rest = passage.after(" at ")?.trim_start();
    let rest = rest.strip_prefix("0x").unwrap_or(rest);
    let (address, rest) = rest.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (size, _) = integer(rest.trim_start().strip_prefix("of size ")?)?;
    let event = open(reader, passage, |event| !event.dump.stats.is_empty())?;
    let full = push(&mut event.dump.blocks, Block { address, size: Bytes(size), in_use });
    reader.is_cut |= full;
    Some(())
}

/// `85 Chunks of size 256 totalling 21.2KiB`.
fn sum(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let count = passage.before.trim_end().rsplit(' ').next()?.parse().ok()?;
    let (size, rest) = integer(passage.after("Chunks of size ")?)?;
    let (total, _) = Figure::at_start(rest.trim_start().strip_prefix("totalling ")?)?;
    let event = open(reader, passage, |event| !event.dump.stats.is_empty())?;
    let full = push(&mut event.dump.sums, ChunkSum { count, size: Bytes(size), total });
    reader.is_cut |= full;
    Some(())
}

fn in_all(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (figure, _) = Figure::at_start(passage.after("in-use chunks: ")?)?;
    let event = open(reader, passage, |event| event.dump.sum_in_use.is_some())?;
    event.dump.sum_in_use = Some(figure);
    Some(())
}

/// `Total bytes in pool: 7 memory_limit_: 7 available bytes: 0`; older versions start with another
/// word.
fn pool(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let number = |phrase: &str| Some(Bytes(integer(passage.after(phrase)?)?.0));
    let held = number("bytes in pool: ").or_else(|| number("total_region_allocated_bytes_: "));
    let pool =
        Pool { held, limit: number("memory_limit_: "), available: number("available bytes: ") };
    let event = open(reader, passage, |event| event.dump.pool.is_some())?;
    event.dump.pool = Some(pool);
    Some(())
}

/// `Limit: 7 InUse: 7 MaxInUse: 7 …`, one line each.
fn statistics(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let mut stats: Vec<(String, u64)> = Vec::new();
    let mut words = passage.text.split(' ');
    let mut between = 0;
    while let Some(word) = words.next() {
        let name = word.strip_suffix(':').filter(|name| STATISTICS.contains(name));
        let Some(name) = name.filter(|name| stats.iter().all(|(known, _)| known != name)) else {
            between += 1;
            if between > MAX_WORDS_BETWEEN {
                break;
            }
            continue;
        };
        let Some((value, _)) = words.next().and_then(integer) else { break };
        stats.push((name.to_owned(), value));
        between = 0;
    }
    // Many texts contain `Limit:` alone.
    if stats.len() < 2 {
        return None;
    }
    let event = open(reader, passage, |event| !event.dump.stats.is_empty())?;
    event.dump.stats = stats;
    Some(())
}

/// `OOM when allocating tensor with shape[32,64,250,250] and type float on …/device:GPU:0 by
/// allocator GPU_0_bfc`: the error of the requesting operation, printed after the dump and again
/// with the exception.
fn tensor(reader: &mut Reader, passage: Passage<'_>) -> Option<()> {
    let (shape, rest) = passage.after(TENSOR)?.split_once(']')?;
    let dimension = |text: &str| text.trim().parse::<u64>().ok();
    let shape: Vec<u64> =
        shape.split(',').take(MAX_DIMENSIONS).map(dimension).collect::<Option<_>>()?;
    let word_after = |phrase: &str| {
        let (_, rest) = rest.get(..rest.len().min(400)).unwrap_or(rest).split_once(phrase)?;
        name_of_allocator(rest)
    };
    let kind = rest.starts_with(" and type ").then(|| word_after(" and type ")).flatten();
    let tensor = Tensor { shape, kind };
    let allocator = word_after(" by allocator ");
    let gpu = word_after("/device:GPU:").and_then(|index| index.parse().ok());
    let of_allocator = |event: &Event| {
        matches!(event.framework, Framework::TensorFlow | Framework::Xla)
            && event.wording != Some(Wording::NoFailure)
    };
    let fits = |event: &Event| match &event.tensor {
        Some(known) => known.shape == tensor.shape,
        None => event.ladder.is_empty() && event.dump_or_request(),
    };
    let list = reader.events.list();
    let latest = list.iter().enumerate().rev().take(MAX_EVENTS_APART);
    let known = latest
        .inspect(|_| work_meter::add(1))
        .find(|(_, event)| of_allocator(event) && fits(event))
        .map(|(index, _)| index);
    let index =
        known.unwrap_or_else(|| reader.add(Event::new(Framework::TensorFlow, passage.line)));
    let event = reader.events.get_mut(index)?;
    // Only TensorFlow uses this wording, whichever project built its allocator.
    event.framework = Framework::TensorFlow;
    let kind = tensor.kind;
    let known = event.tensor.get_or_insert(Tensor { shape: tensor.shape, kind: None });
    known.kind = known.kind.take().or(kind);
    event.gpu = event.gpu.or(gpu).or_else(|| device_of(allocator.as_deref()?));
    event.allocator = event.allocator.take().or(allocator);
    Some(())
}

impl Event {
    /// Returns whether the allocator reported this event.
    fn dump_or_request(&self) -> bool {
        self.tried.is_some() || !self.dump.is_empty()
    }
}
