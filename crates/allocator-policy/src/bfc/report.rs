//! TensorFlow's memory report.

use super::bins::{bin_of, size_of};
use super::{Bfc, round};
use crate::blocks::{BlockId, NONE};
use crate::policy::BlockState;
use gpu_core::{Bytes, DeviceMemory};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// TensorFlow's name for the allocator of the first device.
const NAME: &str = "GPU_0_bfc";
/// The width of the memory map in characters.
const MAP: u64 = 100;

impl<M: DeviceMemory> Bfc<M> {
    /// Returns the memory report that TensorFlow logs on an out-of-memory error: the bins, the free
    /// chunks of the bin for a request of `asked`, every chunk, the sums, and a map (`*` in use,
    /// `x` allocated beyond the request, `_` free).
    ///
    /// A free chunk has no requested size here; TensorFlow prints that of its last owner.
    pub fn report(&self, asked: Option<Bytes>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_report(&mut text, asked);
        text
    }

    fn write_report(&self, text: &mut String, asked: Option<Bytes>) -> fmt::Result {
        writeln!(text, "BFCAllocator dump for {NAME}")?;
        for bin in self.bins() {
            writeln!(
                text,
                "Bin ({}): \tTotal Chunks: {}, Chunks in use: {}. {} allocated for chunks. {} in \
                 use in bin. {} client-requested in use in bin.",
                bin.size.0,
                bin.chunks,
                bin.chunks_in_use,
                Human(bin.total),
                Human(bin.in_use),
                Human(bin.requested),
            )?;
        }
        if let Some(asked) = asked {
            self.write_bin_of(text, round(asked.0.max(1)).unwrap_or(asked.0))?;
        }
        let mut by_size = BTreeMap::<u64, u64>::new();
        for held in self.regions.iter() {
            writeln!(text, "Next region of size {}", held.region.size.0)?;
            for id in self.chunks(held.first) {
                let chunk = self.blocks[id];
                let in_use = chunk.state == BlockState::Active;
                if in_use {
                    *by_size.entry(chunk.size).or_default() += 1;
                }
                let state = if in_use { "InUse" } else { "Free " };
                // TensorFlow counts chunks from 0 and represents "none" by the largest number.
                let next = u64::from(chunk.next).wrapping_sub(1);
                let (address, size) = (chunk.address, chunk.size);
                writeln!(text, "{state} at {address:x} of size {size} next {next}")?;
            }
        }
        writeln!(text, "     Summary of in-use Chunks by size: ")?;
        for (size, count) in by_size {
            let total = Human(Bytes(size.saturating_mul(count)));
            writeln!(text, "{count} Chunks of size {size} totalling {total}")?;
        }
        self.write_sums(text)?;
        writeln!(text, "{}", self.map())
    }

    fn write_bin_of(&self, text: &mut String, rounded: u64) -> fmt::Result {
        let bin = bin_of(rounded);
        let (asked, from) = (Human(Bytes(rounded)), Human(Bytes(size_of(bin))));
        writeln!(text, "Bin for {asked} was {from}, Chunk State: ")?;
        let free = self
            .free
            .in_order(&self.blocks)
            .into_iter()
            .chain(self.waiting.in_size_order(&self.blocks));
        for id in free.filter(|id| bin_of(self.blocks[*id].size) == bin) {
            let block = self.blocks[id];
            self.write_chunk(text, id)?;
            for (name, neighbour) in [("prev", block.previous), ("next", block.next)] {
                if neighbour != NONE {
                    write!(text, ", {name}: ")?;
                    self.write_chunk(text, neighbour)?;
                }
            }
            writeln!(text)?;
        }
        Ok(())
    }

    fn write_chunk(&self, text: &mut String, id: BlockId) -> fmt::Result {
        let chunk = self.blocks[id];
        let in_use = chunk.state == BlockState::Active;
        let bin = if in_use { -1 } else { bin_of(chunk.size) as i64 };
        write!(
            text,
            "  Size: {} | Requested Size: {} | in_use: {} | bin_num: {bin}",
            Human(Bytes(chunk.size)),
            Human(Bytes(chunk.requested)),
            u8::from(in_use),
        )
    }

    fn write_sums(&self, text: &mut String) -> fmt::Result {
        let statistics = self.statistics();
        let (pool, limit) = (statistics.pool_bytes, statistics.bytes_limit);
        let left = limit.saturating_sub(pool);
        let next = self.next_region;
        writeln!(text, "Sum Total of in-use chunks: {}", Human(statistics.bytes_in_use))?;
        writeln!(
            text,
            "Total bytes in pool: {} memory_limit_: {} available bytes: {} \
             curr_region_allocation_bytes_: {next}",
            pool.0, limit.0, left.0
        )?;
        writeln!(text, "Stats: ")?;
        for (name, value) in [
            ("Limit:", limit.0),
            ("InUse:", statistics.bytes_in_use.0),
            ("MaxInUse:", statistics.peak_bytes_in_use.0),
            ("NumAllocs:", statistics.num_allocs),
            ("MaxAllocSize:", statistics.largest_alloc_size.0),
            ("Reserved:", statistics.bytes_reserved.0),
            ("PeakReserved:", statistics.bytes_reserved.0),
            ("LargestFreeBlock:", statistics.largest_free_block_bytes.0),
        ] {
            writeln!(text, "{name:<18}{value:>20}")?;
        }
        writeln!(text)
    }

    /// Draws the pool; each character is a hundredth of it.
    fn map(&self) -> String {
        let pool: u64 = self.regions.iter().map(|held| held.region.size.0).sum();
        if pool == 0 {
            return "<allocator contains no memory>".to_owned();
        }
        let mut map = vec!['_'; MAP as usize];
        let column =
            |offset: u64| (u128::from(offset) * u128::from(MAP) / u128::from(pool)) as usize;
        let mut draw = |from: u64, to: u64, letter| {
            if from < to {
                map[column(from)..=column(to - 1)].fill(letter);
            }
        };
        let mut below = 0;
        for held in self.regions.iter() {
            for chunk in self.chunks(held.first).map(|id| self.blocks[id]) {
                if chunk.state == BlockState::Active {
                    let start = below + (chunk.address - held.region.address);
                    draw(start + chunk.requested, start + chunk.size, 'x');
                    draw(start, start + chunk.requested, '*');
                }
            }
            below += held.region.size.0;
        }
        map.into_iter().collect()
    }
}

/// Bytes in TensorFlow's notation: `12B`, `1.5KiB`, `2.79GiB`.
struct Human(Bytes);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.0.0;
        if bytes < 1024 {
            return write!(f, "{bytes}B");
        }
        let mut units = "KMGTPE".chars();
        let mut unit = units.next();
        while bytes >= 1 << 20 {
            bytes /= 1024;
            unit = units.next();
        }
        let digits = if unit == Some('K') { 1 } else { 2 };
        write!(f, "{:.digits$}{}iB", bytes as f64 / 1024.0, unit.unwrap_or('E'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_are_formatted_like_tensorflow() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0KiB"),
            (1280, "1.2KiB"),
            (21_760, "21.2KiB"),
            (2_995_773_440, "2.79GiB"),
            (4_000_000_000, "3.72GiB"),
            (16_000_000_000, "14.90GiB"),
            (268_435_456, "256.00MiB"),
            (u64::MAX, "16.00EiB"),
        ] {
            assert_eq!(Human(Bytes(bytes)).to_string(), text);
        }
    }
}
