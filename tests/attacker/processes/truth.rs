//! The truth about a process, read without the product's code.

use super::roles::ActorRole;
use gpu_core::{Clock, FileId};
use gpu_host::SystemClock;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of reads: a process that executes another program shows no arguments until it has
/// done so, which takes long if it does not get the CPU.
const TRIES: usize = 5_000;
/// The number of reads without a pause between them.
const QUICK_TRIES: usize = 100;

/// The truth about the process that currently has a PID.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) start: u64,
    /// Its process group; zero if the group belongs to another PID namespace.
    pub(crate) group: i32,
    pub(crate) is_zombie: bool,
    pub(crate) uid: u32,
    /// Its role; `None` for a process that is not an actor.
    pub(crate) role: Option<ActorRole>,
    /// The file that it is executing.
    pub(crate) program: Option<(FileId, PathBuf)>,
}

impl Truth {
    /// Reads the truth about a process; `None` if the PID is unused.
    pub(crate) fn of(pid: u32) -> Option<Truth> {
        let clock = SystemClock::new();
        for tried in 0..TRIES {
            if tried > QUICK_TRIES {
                clock.sleep(Duration::from_millis(1));
            }
            let Stat { start, group, is_zombie, .. } = stat(pid)?;
            let truth = Truth {
                start,
                group,
                is_zombie,
                uid: uid(pid)?,
                role: role(pid),
                program: program(pid),
            };
            // All values must describe the same process.
            let settled = truth.role.is_some() || is_zombie || !arguments(pid)?.is_empty();
            if settled && stat(pid)?.start == start {
                return Some(truth);
            }
        }
        None
    }

    /// Returns its role as one word.
    pub(crate) fn kind(&self) -> &str {
        self.role.as_ref().map_or("stranger", |role| role.kind.as_str())
    }
}

struct Stat {
    start: u64,
    parent: u32,
    group: i32,
    is_zombie: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name may contain parentheses.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    Some(Stat {
        start: fields.get(19)?.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        is_zombie: *fields.first()? == "Z",
    })
}

fn uid(pid: u32) -> Option<u32> {
    let text = fs::read(format!("/proc/{pid}/status")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn arguments(pid: u32) -> Option<Vec<String>> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = text.strip_suffix(b"\0").unwrap_or(&text).split(|byte| *byte == 0);
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    Some(if text.is_empty() { Vec::new() } else { words.collect() })
}

fn role(pid: u32) -> Option<ActorRole> {
    Some(ActorRole::read(&arguments(pid)?)?.0)
}

fn program(pid: u32) -> Option<(FileId, PathBuf)> {
    let link = format!("/proc/{pid}/exe");
    let file = fs::metadata(&link).ok()?;
    Some((FileId::Inode { dev: file.dev(), ino: file.ino() }, fs::read_link(link).ok()?))
}

/// Returns all PIDs.
pub(crate) fn all_pids() -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the descriptors of a process that refer to a file.
pub(crate) fn descriptors(process: &str, file: &Path) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let leads = |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|to| to == file);
    entries.filter(leads).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns a process and its ancestors.
pub(crate) fn line(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    while let Some(Stat { parent, .. }) = stat(line[line.len() - 1])
        && parent > 0
    {
        line.push(parent);
    }
    line
}
