//! `gpuws mem explain --json`.

use super::{Head, Version};
use gpu_core::{Bytes, Snapshot};
use gpu_memory_advice::explain::{Cause, Diagnosis, Remedy};
use gpu_text::oom::{self, Fact, Figure, Framework, Report, Unit};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::BTreeMap;

/// The out-of-memory messages of a log, with their causes and remedies.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explained<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// The messages, in the order of the log.
    pub events: Vec<Event<'a>>,
    /// Whether the log contains more messages, rows or bytes than were read.
    pub is_cut: bool,
    /// The machine that was queried as well. Null if none was.
    pub looked_at: Option<Head>,
}

impl<'a> Explained<'a> {
    /// Returns the object for a log and, if it was queried, the machine.
    pub fn of(report: &'a Report, diagnoses: &'a [Diagnosis], snapshot: Option<&Snapshot>) -> Self {
        let events = report.events.iter().zip(diagnoses);
        Explained {
            schema: Version,
            events: events.map(|(event, diagnosis)| Event::of(event, diagnosis)).collect(),
            is_cut: report.is_cut,
            looked_at: snapshot.map(Head::of),
        }
    }
}

/// Why a request failed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Why<'a> {
    /// The cause.
    pub cause: Cause,
    /// The cause in one line.
    pub verdict: &'a str,
    /// Memory that the allocator of the program held, in bytes. Null if the message does not say.
    pub held_bytes: Option<u64>,
    /// Memory of the program outside its allocator, such as the CUDA context, in bytes. Null if the
    /// message does not say.
    pub context_bytes: Option<u64>,
    /// Memory of the other processes that the message names, in bytes. Null if it names none.
    pub others_bytes: Option<u64>,
    /// Memory in use that the message attributes to no process, in bytes. It includes the CUDA
    /// context if the message does not give the memory of the program. Null if the message does not
    /// say.
    pub unnamed_bytes: Option<u64>,
    /// Memory that was missing for the request, in bytes. Null if the message does not say.
    pub lacking_bytes: Option<u64>,
    /// Memory that would still be missing with an empty cache, in bytes. Null if the message does
    /// not say.
    pub lacking_without_cache_bytes: Option<u64>,
    /// Memory that the program needs for the request, in bytes. Null if the message does not say.
    pub needed_bytes: Option<u64>,
    /// Explanations, one sentence each, most relevant first.
    pub reasons: &'a [String],
    /// Figures that cannot all be true, one sentence each.
    pub contradictions: &'a [String],
    /// The state of the machine now, one sentence each. Empty if no machine was queried.
    pub now: &'a [String],
}

/// An out-of-memory message: a request that failed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event<'a> {
    /// Line of the log, from 1.
    pub line: usize,
    /// How often the message was printed.
    pub printed_count: usize,
    /// Source of the message.
    pub framework: Framework,
    /// Backend in lowercase, such as cuda, hip, xpu or mps. Null if the message does not contain
    /// it.
    pub backend: Option<&'a str>,
    /// Index of the GPU, as the program counts. Null if the message does not contain it.
    pub gpu_index: Option<u32>,
    /// Requested size, as printed. Null if the message does not contain it.
    pub tried: Option<&'a str>,
    /// Requested size, in bytes. Null if the message does not contain it.
    pub tried_bytes: Option<u64>,
    /// Total memory of the GPU, as printed. Null if the message does not contain it.
    pub total: Option<&'a str>,
    /// Total memory of the GPU, in bytes. Null if the message does not contain it.
    pub total_bytes: Option<u64>,
    /// Free memory of the GPU, as printed. Null if the message does not contain it.
    pub free: Option<&'a str>,
    /// Free memory of the GPU, in bytes. Null if the message does not contain it.
    pub free_bytes: Option<u64>,
    /// Memory allocated by tensors, as printed. Null if the message does not contain it.
    pub allocated: Option<&'a str>,
    /// Memory allocated by tensors, in bytes. Null if the message does not contain it.
    pub allocated_bytes: Option<u64>,
    /// Allocated memory in private pools, such as those of CUDA graphs, as printed. Null if the
    /// message does not contain it.
    pub private_pools: Option<&'a str>,
    /// Allocated memory in private pools, such as those of CUDA graphs, in bytes. Null if the
    /// message does not contain it.
    pub private_pools_bytes: Option<u64>,
    /// Memory reserved by the framework and not allocated, as printed. Null if the message does not
    /// contain it.
    pub reserved_unallocated: Option<&'a str>,
    /// Memory reserved by the framework and not allocated, in bytes. Null if the message does not
    /// contain it.
    pub reserved_unallocated_bytes: Option<u64>,
    /// Memory reserved by the framework, as printed. Null if the message does not contain it.
    pub reserved_total: Option<&'a str>,
    /// Memory reserved by the framework, in bytes. Null if the message does not contain it.
    pub reserved_total_bytes: Option<u64>,
    /// Memory that PyTorch up to 1.3 calls cached, as printed. Null if the message does not contain
    /// it.
    pub cached: Option<&'a str>,
    /// Memory that PyTorch up to 1.3 calls cached, in bytes. Null if the message does not contain
    /// it.
    pub cached_bytes: Option<u64>,
    /// Memory of the process, as printed. Null if the message does not contain it.
    pub this_process: Option<&'a str>,
    /// Memory of the process, in bytes. Null if the message does not contain it.
    pub this_process_bytes: Option<u64>,
    /// Memory outside this allocator, as printed. Null if the message does not contain it.
    pub other: Option<&'a str>,
    /// Memory outside this allocator, in bytes. Null if the message does not contain it.
    pub other_bytes: Option<u64>,
    /// Limit of the process or allocator, as printed. Null if the message does not contain it.
    pub limit: Option<&'a str>,
    /// Limit of the process or allocator, in bytes. Null if the message does not contain it.
    pub limit_bytes: Option<u64>,
    /// Other processes on the GPU.
    pub processes: Vec<Process<'a>>,
    /// Memory of each of the other processes on the GPU, in bytes. Null if it could not be read.
    pub processes_bytes: Vec<Option<u64>>,
    /// Name of the allocator. Null if the message does not contain it.
    pub allocator: Option<&'a str>,
    /// Dimensions of the tensor to create. Null if the message does not contain it.
    pub tensor_shape: Option<&'a [u64]>,
    /// Element type of the tensor to create. Null if the message does not contain it.
    pub tensor_type: Option<&'a str>,
    /// Size of the tensor to create, in bytes. Null if it cannot be computed.
    pub tensor_bytes: Option<u64>,
    /// Statistics of the allocator, by the printed names. Null if the message does not contain it.
    pub stats: Option<Statistics<'a>>,
    /// Bins of the allocator: least size in bytes, number of blocks, number of blocks in use. Null
    /// if the message does not contain them.
    pub bins: Option<Vec<BinRow>>,
    /// Blocks in use by size: number of blocks, size in bytes, sum as printed. Null if the message
    /// does not contain them.
    pub chunks: Option<Vec<ChunkRow<'a>>>,
    /// Memory in all blocks in use, as printed. Null if the message does not contain it.
    pub sum_in_use: Option<&'a str>,
    /// Memory in all blocks in use, in bytes. Null if the message does not contain it.
    pub sum_in_use_bytes: Option<u64>,
    /// Number of blocks that the message lists by address.
    pub listed_block_count: usize,
    /// Memory pool of the allocator. Null if the message does not contain it.
    pub pool: Option<Pool>,
    /// Sizes that were tried one after the other, as printed. Null if the message does not contain
    /// it.
    pub ladder: Option<Vec<&'a str>>,
    /// Sizes that were tried one after the other, in bytes. Null if the message does not contain
    /// it.
    pub ladder_bytes: Option<Vec<Option<u64>>>,
    /// Rematerialization by the compiler. Null if the message does not contain it.
    pub rematerialization: Option<Rematerialization<'a>>,
    /// Engine in which the framework failed. Null if the text around the message does not show one.
    pub engine: Option<Framework>,
    /// Component, control group or program that the message names. Null if it names none.
    pub part: Option<&'a str>,
    /// Further figures of the message and of lines around it, by their names: in bytes, tokens,
    /// counts, or as fractions of a whole (`…_fraction`, `share_in_use`). Sizes can be negative.
    pub facts: BTreeMap<&'static str, f64>,
    /// Why the request failed.
    pub diagnosis: Why<'a>,
    /// The remedies, best first.
    pub remedies: &'a [Remedy],
}

/// A bin of the allocator: least size in bytes, number of blocks, number of blocks in use.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BinRow(pub u64, pub u64, pub u64);

/// Blocks in use of one size: number of blocks, size in bytes, sum as printed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChunkRow<'a>(pub u64, pub u64, pub &'a str);

impl<'a> ChunkRow<'a> {
    fn of(sum: &'a oom::ChunkSum) -> Self {
        ChunkRow(sum.count, sum.size.0, &sum.total.text)
    }
}

/// Another process on the GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process<'a> {
    /// Process ID.
    pub pid: u32,
    /// Memory of the process, as printed.
    pub mem: &'a str,
}

/// Memory pool of the allocator.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pool {
    /// Memory that the pool holds, in bytes. Null if the message does not contain it.
    pub held_bytes: Option<u64>,
    /// Limit of the pool, in bytes. Null if the message does not contain it.
    pub limit_bytes: Option<u64>,
    /// Remaining memory of the pool, in bytes. Null if the message does not contain it.
    pub available_bytes: Option<u64>,
}

/// Message of the compiler about the least memory that the program needs.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rematerialization<'a> {
    /// Limit of the compiler, as printed.
    pub limit: &'a str,
    /// Limit of the compiler, in bytes. Null if it could not be read.
    pub limit_bytes: Option<u64>,
    /// Least memory that it reached, as printed. Null if the message does not contain it.
    pub reduced: Option<&'a str>,
    /// Least memory that it reached, in bytes. Null if the message does not contain it.
    pub reduced_bytes: Option<u64>,
}

/// Statistics of the allocator, by the printed names and in their order.
pub struct Statistics<'a>(pub &'a [(String, u64)]);

impl Serialize for Statistics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Returns a value in its plain unit.
fn plain(fact: Fact, value: i64) -> f64 {
    match fact.unit() {
        Unit::Millionths => value as f64 / 1e6,
        Unit::Bytes | Unit::Tokens | Unit::Count => value as f64,
    }
}

fn text(figure: &Option<Figure>) -> Option<&str> {
    figure.as_ref().map(|figure| figure.text.as_str())
}

fn bytes(figure: &Option<Figure>) -> Option<u64> {
    figure.as_ref().and_then(|figure| count(figure.bytes))
}

fn count(bytes: Option<Bytes>) -> Option<u64> {
    bytes.map(|bytes| bytes.0)
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
            framework: event.framework,
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
            processes_bytes: event
                .processes
                .iter()
                .map(|(_, memory)| count(memory.bytes))
                .collect(),
            allocator: event.allocator.as_deref(),
            tensor_shape: event.tensor.as_ref().map(|tensor| &tensor.shape[..]),
            tensor_type: event.tensor.as_ref().and_then(|tensor| tensor.kind.as_deref()),
            tensor_bytes: count(event.tensor.as_ref().and_then(oom::Tensor::bytes)),
            stats: (!dump.stats.is_empty()).then_some(Statistics(&dump.stats)),
            bins: rows(&dump.bins, |bin| BinRow(bin.size.0, bin.blocks, bin.in_use)),
            chunks: (!dump.sums.is_empty()).then(|| dump.sums.iter().map(ChunkRow::of).collect()),
            sum_in_use: text(&dump.sum_in_use),
            sum_in_use_bytes: bytes(&dump.sum_in_use),
            listed_block_count: dump.blocks.len(),
            pool: dump.pool.map(|pool| Pool {
                held_bytes: count(pool.held),
                limit_bytes: count(pool.limit),
                available_bytes: count(pool.available),
            }),
            ladder: (!event.ladder.is_empty())
                .then(|| event.ladder.iter().map(|attempt| attempt.text.as_str()).collect()),
            ladder_bytes: rows(&event.ladder, |attempt| count(attempt.bytes)),
            engine: event.engine,
            part: event.part.as_deref(),
            facts: event
                .facts
                .iter()
                .map(|(fact, value)| (fact.name(), plain(*fact, *value)))
                .collect(),
            diagnosis: Why::of(diagnosis),
            remedies: &diagnosis.remedies,
            rematerialization: event.rematerialization.as_ref().map(|complaint| {
                Rematerialization {
                    limit: &complaint.limit.text,
                    limit_bytes: count(complaint.limit.bytes),
                    reduced: text(&complaint.reduced),
                    reduced_bytes: bytes(&complaint.reduced),
                }
            }),
        }
    }
}

impl<'a> Why<'a> {
    fn of(diagnosis: &'a Diagnosis) -> Self {
        let account = &diagnosis.account;
        Why {
            cause: diagnosis.cause,
            verdict: &diagnosis.verdict,
            held_bytes: count(account.held),
            context_bytes: count(account.context),
            others_bytes: count(account.others),
            unnamed_bytes: count(account.unnamed),
            lacking_bytes: count(account.lacking),
            lacking_without_cache_bytes: count(account.lacking_after_cache),
            needed_bytes: count(account.needed),
            reasons: &diagnosis.reasons,
            contradictions: &diagnosis.contradictions,
            now: &diagnosis.now,
        }
    }
}
