//! The table of PyTorch's `torch.cuda.memory_summary`.

use super::statistics::{Pools, Stat, Statistics};
use super::{Caching, Events};
use gpu_core::DeviceMemory;
use std::fmt::Write;

/// The width of the table between its outer lines.
const WIDTH: usize = 75;

/// Formats the numbers of a row, in a unit that suits the first one.
type Writer = fn(u64, u64) -> String;

fn size(value: u64, measure: u64) -> String {
    let (value, unit) =
        scaled(value, measure, 1024, 768 * 1024, &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    format!("{value:6} {unit}")
}

fn count(value: u64, measure: u64) -> String {
    let (value, unit) = scaled(value, measure, 1000, 750 * 1000, &[" ", "K", "M"]);
    format!("{value:7} {unit} ")
}

/// Divides a number by `step` while `measure` is at least `from`.
fn scaled(
    mut value: u64,
    measure: u64,
    step: u64,
    from: u64,
    units: &[&'static str],
) -> (u64, &'static str) {
    let mut measure = measure as f64;
    let mut unit = units[0];
    for next in &units[1..] {
        if measure < from as f64 {
            break;
        }
        (unit, value, measure) = (next, value / step, measure / step as f64);
    }
    (value, unit)
}

fn row(name: &str, stat: &Stat, measure: &Stat, write: Writer) -> String {
    format!(
        " {name:<21} | {} | {} | {} | {} ",
        write(stat.current, measure.current),
        write(stat.peak, measure.peak),
        write(stat.allocated, measure.allocated),
        write(stat.freed, measure.freed),
    )
}

fn table(statistics: &Statistics, device: Option<u32>, abbreviated: bool) -> String {
    let of_device = device.map_or(String::new(), |device| format!(", device ID {device}"));
    let title = format!("{:18}PyTorch CUDA memory summary{of_device}", "");
    let Statistics { num_ooms, num_alloc_retries, .. } = statistics;
    let counts = format!(
        "  {:9} CUDA OOMs: {num_ooms:<12} | {:6} cudaMalloc retries: {num_alloc_retries:<8}  ",
        "", ""
    );
    let heads = "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ";
    let (double, single) = ("=".repeat(WIDTH), "-".repeat(WIDTH));
    let mut lines =
        vec![double.clone(), title, single.clone(), counts, double.clone(), heads.to_owned()];

    let s = statistics;
    let by_pool: [(&str, &Pools, Writer); 9] = [
        ("Allocated memory", &s.allocated_bytes, size),
        ("Active memory", &s.active_bytes, size),
        ("Requested memory", &s.requested_bytes, size),
        ("GPU reserved memory", &s.reserved_bytes, size),
        ("Non-releasable memory", &s.inactive_split_bytes, size),
        ("Allocations", &s.allocation, count),
        ("Active allocs", &s.active, count),
        ("GPU reserved segments", &s.segment, count),
        ("Non-releasable allocs", &s.inactive_split, count),
    ];
    for (name, pools, write) in by_pool {
        lines.push(single.clone());
        lines.push(row(name, &pools.all, &pools.all, write));
        if !abbreviated {
            lines.push(row("      from large pool", &pools.large_pool, &pools.all, write));
            lines.push(row("      from small pool", &pools.small_pool, &pools.all, write));
        }
    }
    for (name, stat) in [
        ("Oversize allocations", &s.oversize_allocations),
        ("Oversize GPU segments", &s.oversize_segments),
    ] {
        lines.push(single.clone());
        lines.push(row(name, stat, stat, count));
    }
    lines.push(double);
    lines.iter().fold(String::new(), |mut text, line| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "|{line:WIDTH$}|");
        text
    })
}

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Returns the table of `torch.cuda.memory_summary`; the abbreviated table does not list the
    /// pools separately.
    pub fn memory_summary(&self, device: Option<u32>, abbreviated: bool) -> String {
        table(&self.statistics(), device, abbreviated)
    }
}
