//! The load of the machine (proc(5): `loadavg`, `stat`).

use crate::boot::STAT_LIMIT;
use crate::fault;
use crate::proc_dir::ProcRoot;
use gpu_core::{Absent, Bytes, CpuTime, HostLoad, Reading};

/// `/proc/loadavg` is one line.
const LIMIT: usize = 4 << 10;

/// Reads the load; `memory` is the unavailable and all memory.
pub(crate) fn read(root: &ProcRoot, memory: Reading<(Bytes, Bytes)>) -> HostLoad {
    let text = |path: &str, limit| -> Reading<String> {
        let text = root.read(path, limit).map_err(fault::absent)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    HostLoad {
        averages: text("loadavg", LIMIT).and_then(|text| averages(&text).ok_or(Absent::NotFound)),
        cpu: text("stat", STAT_LIMIT).and_then(|text| cpu(&text).ok_or(Absent::NotFound)),
        memory,
    }
}

/// Parses `0.20 0.18 0.12 1/80 11206`.
fn averages(text: &str) -> Option<[u32; 3]> {
    let mut words = text.split_ascii_whitespace();
    let mut next = || {
        let (whole, hundredths) = words.next()?.split_once('.')?;
        let fraction: u32 = hundredths.parse().ok().filter(|_| hundredths.len() == 2)?;
        whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(fraction)
    };
    Some([next()?, next()?, next()?])
}

/// Adds up the first line: user, nice, system, idle, iowait, irq, softirq, steal. The times of
/// guests, which follow, are part of user and nice.
fn cpu(text: &str) -> Option<CpuTime> {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times = all.split_ascii_whitespace().take(8).map(str::parse);
    let times: Vec<u64> = times.collect::<Result<_, _>>().ok()?;
    let total = times.iter().copied().fold(0, u64::saturating_add);
    let idle = times.get(3)?.saturating_add(times.get(4).copied().unwrap_or(0));
    let is_one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let count = u32::try_from(text.lines().filter(is_one).count()).ok()?;
    Some(CpuTime { busy: total.saturating_sub(idle), total, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_read_from_the_files_of_proc() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let root = || ProcRoot::open(dir.path()).unwrap();
        let absent = Err(Absent::NotFound);
        assert_eq!(read(&root(), absent), HostLoad::absent(Absent::NotFound));
        write("loadavg", "12.05 3.40 0.99 3/2048 41000\n");
        write(
            "stat",
            "cpu  100 20 30 800 50 1 2 7 60 5\ncpu0 50 10 15 400 25 0 1 3 30 2\n\
               cpu1 50 10 15 400 25 1 1 4 30 3\nintr 5 0\nctxt 9\nbtime 1\n",
        );
        let memory = Ok((Bytes(750 << 10), Bytes(1000 << 10)));
        let load = HostLoad {
            averages: Ok([1205, 340, 99]),
            cpu: Ok(CpuTime { busy: 160, total: 1010, count: 2 }),
            memory,
        };
        assert_eq!(read(&root(), memory), load);
    }

    #[test]
    fn text_of_another_form_is_absent() {
        for text in ["", "1 2 3", "1.5 2.5 3.5", "a.b 1.0 1.0", "99999999999.0 1.0 1.0"] {
            assert_eq!(averages(text), None, "{text}");
        }
        for text in ["", "cpu 1 2 3\n", "cpu0 1 2 3 4\n", "cpu  1 2 x 4\n"] {
            assert_eq!(cpu(text), None, "{text}");
        }
    }
}
