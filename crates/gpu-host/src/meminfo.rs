//! The memory of the host and of its NUMA nodes (proc_meminfo(5); `drivers/base/node.c` of the
//! kernel).

use crate::fault;
use gpu_core::{Absent, Bytes, Error, ErrorKind, HostMemory, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The maximum number of bytes of a file: about sixty short lines.
const MAX: u64 = 16 << 10;

/// What the kernel uses of a node for itself and for programs; these overlap only in the swap cache.
/// Kernels from 6.1 on also have `SecPageTables`.
const HOST_USE: [&str; 5] = ["FilePages", "AnonPages", "Slab", "KernelStack", "PageTables"];

/// Page cache that the kernel cannot give up at once.
const NOT_CLEAN: [&str; 4] = ["Shmem", "Dirty", "Writeback", "Unevictable"];

/// Returns the memory of the host, or of a node without CPUs.
///
/// # Errors
/// `Invalid` for a node with CPUs, `Field` if a value is missing, `Io` if a file cannot be read.
pub(crate) fn host_memory(proc: &Path, sys: &Path, node: Option<u32>) -> Result<HostMemory> {
    let Some(node) = node else {
        let values = Values::read(&proc.join("meminfo"))?;
        return Ok(HostMemory {
            total: values.of("MemTotal")?,
            free: values.of("MemFree")?,
            available: values.of("MemAvailable")?,
            host_use: Err(Absent::NotSupported),
        });
    };
    let dir = sys.join(format!("devices/system/node/node{node}"));
    if !read(&dir.join("cpulist"))?.trim().is_empty() {
        let what = format!("read the memory of a device on NUMA node {node}: the node has CPUs");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let values = Values::read(&dir.join("meminfo"))?;
    let sum = |names: &[&str]| names.iter().map(|name| values.of(name)).sum::<Result<Bytes>>();
    let free = values.of("MemFree")?;
    // A page of the swap cache may be mapped again, and then counts as anonymous, too.
    let in_swap_cache = values.of("SwapCached")?;
    let clean = values.of("FilePages")?.saturating_sub(sum(&NOT_CLEAN)? + in_swap_cache);
    let host_use = sum(&HOST_USE)? + values.of("SecPageTables").unwrap_or_default();
    let host_use = host_use.saturating_sub(in_swap_cache);
    Ok(HostMemory {
        total: values.of("MemTotal")?,
        free,
        available: free + clean,
        // The size of huge pages is not in the file.
        host_use: match values.0.get("HugePages_Total") {
            None | Some(0) => Ok(host_use),
            Some(_) => Err(Absent::NotSupported),
        },
    })
}

/// The values of a file by name, as printed: most in KiB.
struct Values(BTreeMap<String, u64>);

impl Values {
    fn read(path: &Path) -> Result<Self> {
        let text = read(path)?;
        let value = |line: &str| {
            // A line of a node starts with `Node 1`.
            let (name, value) = line.split_once(':')?;
            let name = name.split_ascii_whitespace().last()?;
            Some((name.to_owned(), value.split_ascii_whitespace().next()?.parse().ok()?))
        };
        Ok(Values(text.lines().filter_map(value).collect()))
    }

    fn of(&self, name: &str) -> Result<Bytes> {
        let value = self.0.get(name);
        let missing =
            || Error::new(Absent::NotFound, format!("read '{name}' of the host's memory"));
        value.map(|kib| Bytes(kib.saturating_mul(1024))).ok_or_else(missing)
    }
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let answer = File::open(path).and_then(|file| file.take(MAX).read_to_string(&mut text));
    answer.map(|_| text).map_err(|error: io::Error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        fault::file(format!("read '{}'", path.display()), errno)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes a node with these lines, and the memory of the host.
    fn roots(cpus: &str, lines: &[(&str, u64)]) -> (tempfile::TempDir, tempfile::TempDir) {
        let (proc, sys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let host = "MemTotal:  127600748 kB\nMemFree: 3000000 kB\nMemAvailable: 118566368 kB\n";
        fs::write(proc.path().join("meminfo"), host).unwrap();
        let dir = sys.path().join("devices/system/node/node1");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cpulist"), format!("{cpus}\n")).unwrap();
        let line = |(name, value): &(&str, u64)| format!("Node 1 {name}:  {value} kB\n");
        fs::write(dir.join("meminfo"), lines.iter().map(line).collect::<String>()).unwrap();
        (proc, sys)
    }

    const NODE: [(&str, u64); 13] = [
        ("MemTotal", 100_000),
        ("MemFree", 20_000),
        ("FilePages", 40_000),
        ("Shmem", 1_000),
        ("Dirty", 300),
        ("Writeback", 200),
        ("Unevictable", 600),
        ("SwapCached", 900),
        ("AnonPages", 6_000),
        ("Slab", 50),
        ("PageTables", 4),
        ("KernelStack", 8),
        ("HugePages_Total", 0),
    ];

    #[test]
    fn node_memory_is_split_by_use() {
        let (proc, sys) = roots("", &NODE);
        let node = host_memory(proc.path(), sys.path(), Some(1)).unwrap();
        let kib = |kib: u64| Bytes(kib * 1024);
        assert_eq!((node.total, node.free), (kib(100_000), kib(20_000)));
        assert_eq!(node.available, kib(20_000 + 40_000 - 2_100 - 900));
        assert_eq!(node.host_use, Ok(kib(40_000 + 6_000 + 62 - 900)));
        let host = host_memory(proc.path(), sys.path(), None).unwrap();
        assert_eq!((host.total, host.available), (kib(127_600_748), kib(118_566_368)));
        assert_eq!(host.host_use, Err(Absent::NotSupported));
    }

    #[test]
    fn incomplete_node_is_unknown() {
        let read = |cpus, lines: &[(&str, u64)]| {
            let (proc, sys) = roots(cpus, lines);
            host_memory(proc.path(), sys.path(), Some(1))
        };
        assert_eq!(read("0-71", &NODE).unwrap_err().kind(), ErrorKind::Invalid);
        let without = |name: &str| NODE.into_iter().filter(|(n, _)| *n != name).collect::<Vec<_>>();
        for (name, _) in NODE.into_iter().filter(|(name, _)| *name != "HugePages_Total") {
            let error = read("", &without(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Field(Absent::NotFound), "{name}");
        }
        let mut huge = without("HugePages_Total");
        huge.push(("HugePages_Total", 12));
        assert_eq!(read("", &huge).unwrap().host_use, Err(Absent::NotSupported));
        let (proc, sys) = roots("", &NODE);
        assert!(host_memory(proc.path(), sys.path(), Some(2)).is_err());
    }
}
