//! Reads `/proc/PID/stat` of a process.

use std::fs::File;
use std::io::Read;

/// The maximum number of bytes read. The kernel returns the file as one record.
const MAX_STAT: usize = 4096;

/// Returns the start time of the process that has this PID now, in clock ticks since boot; `None`
/// if it has ended or cannot be read.
pub fn start_of(pid: u32) -> Option<u64> {
    let mut stat = [0; MAX_STAT];
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    let count = file.read(&mut stat).ok()?;
    alive_since(&stat[..count])
}

/// Returns the start time of the process in a `stat` record; `None` for a zombie without threads.
/// Fields are counted from the end of the name, which may contain any character.
fn alive_since(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    // The first field after the name is the third one.
    let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3);
    let zombie = matches!(field(3)?, "Z" | "X");
    // A zombie with live threads has not ended: it still has its resources.
    let threads: u64 = field(20)?.parse().ok()?;
    if zombie && threads <= 1 { None } else { field(22)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: char, threads: u32) -> Vec<u8> {
        let between = "0 ".repeat(16);
        format!("7 ({name}) {state} {between}{threads} 0 4242 1 1").into_bytes()
    }

    #[test]
    fn zombie_is_dead_after_its_last_thread() {
        assert_eq!(alive_since(&stat("python", 'S', 1)), Some(4242));
        assert_eq!(alive_since(&stat("a) Z 0 0 (b", 'S', 1)), Some(4242));
        assert_eq!(alive_since(&stat("python", 'Z', 2)), Some(4242));
        assert_eq!(alive_since(&stat("python", 'Z', 1)), None);
        assert_eq!(alive_since(b"garbage"), None);
    }
}
