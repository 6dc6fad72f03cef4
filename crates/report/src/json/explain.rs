//! `gpuws mem explain --json`.

use super::{Head, SCHEMA};
use gpu_core::{Bytes, Snapshot};
use gpu_memory_advice::explain::{Account, Cause, Diagnosis, Remedy};
use gpu_text::oom::{self, Figure, Report};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// What a log says about memory that ran out, and why it did.
#[derive(Serialize)]
pub struct Explained<'a> {
    schema: u32,
    events: Vec<Event<'a>>,
    /// The log has more than was read.
    is_cut: bool,
    /// The machine that was looked at beside the log; null without a look.
    looked_at: Option<Head>,
}

impl<'a> Explained<'a> {
    /// Returns what is told of a log, and of the machine that was looked at beside it.
    pub fn of(report: &'a Report, diagnoses: &'a [Diagnosis], look: Option<&Snapshot>) -> Self {
        let events = report.events.iter().zip(diagnoses);
        Explained {
            schema: SCHEMA,
            events: events.map(|(event, diagnosis)| Event::of(event, diagnosis)).collect(),
            is_cut: report.is_cut,
            looked_at: look.map(Head::of),
        }
    }
}

/// Why a request failed.
#[derive(Serialize)]
struct Why<'a> {
    cause: Cause,
    #[serde(flatten)]
    account: &'a Account,
    reasons: &'a [String],
    contradictions: &'a [String],
    now: &'a [String],
}

/// One failed request. Each figure stands as printed, and beside it in bytes; null where the text
/// does not tell it.
#[derive(Serialize)]
struct Event<'a> {
    line: usize,
    /// How often it was printed.
    printed_count: usize,
    framework: &'static str,
    backend: Option<&'a str>,
    gpu_index: Option<u32>,
    tried: Option<&'a str>,
    tried_bytes: Option<Bytes>,
    total: Option<&'a str>,
    total_bytes: Option<Bytes>,
    free: Option<&'a str>,
    free_bytes: Option<Bytes>,
    allocated: Option<&'a str>,
    allocated_bytes: Option<Bytes>,
    private_pools: Option<&'a str>,
    private_pools_bytes: Option<Bytes>,
    reserved_unallocated: Option<&'a str>,
    reserved_unallocated_bytes: Option<Bytes>,
    reserved_total: Option<&'a str>,
    reserved_total_bytes: Option<Bytes>,
    cached: Option<&'a str>,
    cached_bytes: Option<Bytes>,
    this_process: Option<&'a str>,
    this_process_bytes: Option<Bytes>,
    other: Option<&'a str>,
    other_bytes: Option<Bytes>,
    limit: Option<&'a str>,
    limit_bytes: Option<Bytes>,
    processes: Vec<Process<'a>>,
    processes_bytes: Vec<Option<Bytes>>,
    allocator: Option<&'a str>,
    tensor_shape: Option<Shape<'a>>,
    tensor_type: Option<&'a str>,
    tensor_bytes: Option<Bytes>,
    stats: Option<Statistics<'a>>,
    bins: Option<Vec<BinRow>>,
    chunks: Option<Vec<ChunkRow<'a>>>,
    sum_in_use: Option<&'a str>,
    sum_in_use_bytes: Option<Bytes>,
    /// How many blocks of the allocator the text lists by address.
    listed_block_count: usize,
    pool: Option<Pool>,
    ladder: Option<Vec<&'a str>>,
    ladder_bytes: Option<Vec<Option<Bytes>>>,
    rematerialization: Option<Rematerialization<'a>>,
    diagnosis: Why<'a>,
    remedies: &'a [Remedy],
}

/// The dimensions of a tensor.
#[derive(Serialize)]
struct Shape<'a>(&'a [u64]);

/// A bin: its least size, its blocks, how many of them are in use.
#[derive(Serialize)]
struct BinRow(Bytes, u64, u64);

/// The blocks in use of one size: how many, the size, all together as printed.
#[derive(Serialize)]
struct ChunkRow<'a>(u64, Bytes, &'a str);

impl<'a> ChunkRow<'a> {
    fn of(sum: &'a oom::ChunkSum) -> Self {
        ChunkRow(sum.count, sum.size, &sum.total.text)
    }
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    mem: &'a str,
}

#[derive(Serialize)]
struct Pool {
    held_bytes: Option<Bytes>,
    limit_bytes: Option<Bytes>,
    available_bytes: Option<Bytes>,
}

#[derive(Serialize)]
struct Rematerialization<'a> {
    limit: &'a str,
    limit_bytes: Option<Bytes>,
    reduced: Option<&'a str>,
    reduced_bytes: Option<Bytes>,
}

/// The allocator's statistics, by the names printed and in their order.
struct Statistics<'a>(&'a [(String, u64)]);

impl Serialize for Statistics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn text(figure: &Option<Figure>) -> Option<&str> {
    figure.as_ref().map(|figure| figure.text.as_str())
}

fn bytes(figure: &Option<Figure>) -> Option<Bytes> {
    figure.as_ref().and_then(|figure| figure.bytes)
}

/// Returns rows, or null where there are none.
fn rows<T, R>(items: &[T], row: impl FnMut(&T) -> R) -> Option<Vec<R>> {
    (!items.is_empty()).then(|| items.iter().map(row).collect())
}

impl<'a> Event<'a> {
    fn of(event: &'a oom::Event, diagnosis: &'a Diagnosis) -> Self {
        let dump = &event.dump;
        Event {
            line: event.line,
            printed_count: event.times,
            framework: event.framework.name(),
            backend: event.backend.as_deref(),
            gpu_index: event.gpu,
            tried: text(&event.tried),
            tried_bytes: bytes(&event.tried),
            total: text(&event.total),
            total_bytes: bytes(&event.total),
            free: text(&event.free),
            free_bytes: bytes(&event.free),
            allocated: text(&event.allocated),
            allocated_bytes: bytes(&event.allocated),
            private_pools: text(&event.private_pools),
            private_pools_bytes: bytes(&event.private_pools),
            reserved_unallocated: text(&event.reserved_unallocated),
            reserved_unallocated_bytes: bytes(&event.reserved_unallocated),
            reserved_total: text(&event.reserved_total),
            reserved_total_bytes: bytes(&event.reserved_total),
            cached: text(&event.cached),
            cached_bytes: bytes(&event.cached),
            this_process: text(&event.this_process),
            this_process_bytes: bytes(&event.this_process),
            other: text(&event.other),
            other_bytes: bytes(&event.other),
            limit: text(&event.limit),
            limit_bytes: bytes(&event.limit),
            processes: event
                .processes
                .iter()
                .map(|(pid, memory)| Process { pid: *pid, mem: &memory.text })
                .collect(),
            processes_bytes: event.processes.iter().map(|(_, memory)| memory.bytes).collect(),
            allocator: event.allocator.as_deref(),
            tensor_shape: event.tensor.as_ref().map(|tensor| Shape(&tensor.shape)),
            tensor_type: event.tensor.as_ref().and_then(|tensor| tensor.kind.as_deref()),
            tensor_bytes: event.tensor.as_ref().and_then(oom::Tensor::bytes),
            stats: (!dump.stats.is_empty()).then_some(Statistics(&dump.stats)),
            bins: rows(&dump.bins, |bin| BinRow(bin.size, bin.blocks, bin.in_use)),
            chunks: (!dump.sums.is_empty()).then(|| dump.sums.iter().map(ChunkRow::of).collect()),
            sum_in_use: text(&dump.sum_in_use),
            sum_in_use_bytes: bytes(&dump.sum_in_use),
            listed_block_count: dump.blocks.len(),
            pool: dump.pool.map(|pool| Pool {
                held_bytes: pool.held,
                limit_bytes: pool.limit,
                available_bytes: pool.available,
            }),
            ladder: (!event.ladder.is_empty())
                .then(|| event.ladder.iter().map(|rung| rung.text.as_str()).collect()),
            ladder_bytes: rows(&event.ladder, |rung| rung.bytes),
            diagnosis: Why {
                cause: diagnosis.cause,
                account: &diagnosis.account,
                reasons: &diagnosis.reasons,
                contradictions: &diagnosis.contradictions,
                now: &diagnosis.now,
            },
            remedies: &diagnosis.remedies,
            rematerialization: event.rematerialization.as_ref().map(|complaint| {
                Rematerialization {
                    limit: &complaint.limit.text,
                    limit_bytes: complaint.limit.bytes,
                    reduced: text(&complaint.reduced),
                    reduced_bytes: bytes(&complaint.reduced),
                }
            }),
        }
    }
}
