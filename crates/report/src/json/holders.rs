//! `gpuws holders --json`.

use super::Version;
use super::names::{FileKind, Origin};
use gpu_core::{Absent, DeviceFile, Pid, ProcessInfo, Reading, Unreadable};
use serde::Serialize;
use std::collections::BTreeMap;

/// A holder, and what is known of its process a moment later.
pub struct FoundHolder {
    /// The holder.
    pub holder: gpu_core::Holder,
    /// The process.
    pub info: gpu_core::Result<ProcessInfo>,
}

impl FoundHolder {
    /// Returns a value of the process, or why it is absent.
    ///
    /// # Errors
    /// Why nothing is known of the process.
    pub fn read<'a, T>(&'a self, of: impl FnOnce(&'a ProcessInfo) -> Reading<T>) -> Reading<T> {
        of(self.info.as_ref().map_err(|error| error.kind().absent())?)
    }

    /// Returns its number.
    pub fn pid(&self) -> Pid {
        self.holder.process.pid
    }

    /// Returns the command line; where that is empty or hidden, the short name.
    pub fn command(&self) -> String {
        let command = self.read(|info| info.command_line.as_deref().map_err(|absent| *absent));
        match command {
            Ok(words) if !words.is_empty() => words.join(" "),
            _ => self
                .read(|info| Ok(info.name.clone()))
                .unwrap_or_else(|absent| format!("({absent})")),
        }
    }

    /// Returns its user: name, else number, else why it is not known.
    pub fn user(&self) -> String {
        let number = self.read(|info| info.uid).map(|uid| uid.to_string());
        self.read(|info| info.user.clone())
            .or(number)
            .unwrap_or_else(|absent| format!("({absent})"))
    }
}

/// The processes that have files open or mapped.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holders<'a> {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// Name of the simulated machine. Null for any other origin.
    pub machine: Option<&'a str>,
    /// The files searched for.
    pub files: Vec<File<'a>>,
    /// The processes that have at least one of the files.
    pub holders: Vec<Holder<'a>>,
    /// Number of processes whose open files could not be read.
    pub unreadable_process_count: u32,
    /// Number of processes whose open files could not be read, by reason.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::CountByReason"))]
    pub unreadable_by_reason: BTreeMap<Absent, u32>,
}

/// A file searched for.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct File<'a> {
    /// Path of the file.
    pub path: &'a str,
    /// Kind of the file.
    pub kind: FileKind,
    /// Whether the file could be identified and searched for.
    pub sought: bool,
}

/// A process that has at least one of the files.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder<'a> {
    /// Process ID.
    pub pid: u32,
    /// Start time, in clock ticks since boot (field 22 of /proc/PID/stat). Null if unknown.
    pub start_ticks: Option<u64>,
    /// Name of the effective user. Null if unknown.
    pub user: Option<&'a str>,
    /// Effective user ID. Null if unknown.
    pub uid: Option<u32>,
    /// Short name (comm), at most 15 bytes on Linux. Null if unknown.
    pub name: Option<&'a str>,
    /// Command line, one string per argument, cut after 4 KiB. Null if unknown.
    pub command_line: Option<&'a [String]>,
    /// ID of the live thread through which the files were found. Null unless the main thread is a
    /// zombie.
    pub through_thread_pid: Option<u32>,
    /// The files that the process has.
    pub held: Vec<HeldFile<'a>>,
}

/// A file that a process has.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldFile<'a> {
    /// Path of the file searched for.
    pub path: &'a str,
    /// Kinds of access, in fuser's letters: f open, F open for writing, r root directory, c current
    /// directory, e executable, m mapped; a dot for each that does not apply.
    pub access: String,
    /// The open file descriptors, lowest first, at most 64.
    pub descriptors: &'a [u32],
}

impl<'a> Holders<'a> {
    /// Returns the object for a search.
    pub fn of(
        origin: &'a gpu_core::Origin,
        files: &'a [DeviceFile],
        found: &'a [FoundHolder],
        unreadable: &'a Unreadable,
    ) -> Self {
        let file = |file: &'a DeviceFile| File {
            path: &file.path,
            kind: FileKind::of(file),
            sought: file.id.is_ok(),
        };
        Holders {
            schema: Version,
            origin: Origin::from(origin),
            machine: match origin {
                gpu_core::Origin::Simulated(name) => Some(name),
                _ => None,
            },
            files: files.iter().map(file).collect(),
            holders: found.iter().map(Holder::of).collect(),
            unreadable_process_count: unreadable.total(),
            unreadable_by_reason: (unreadable.0.iter())
                .map(|(reason, count)| (*reason, *count))
                .collect(),
        }
    }
}

impl<'a> Holder<'a> {
    fn of(found: &'a FoundHolder) -> Self {
        let held = |held: &'a gpu_core::HeldFile| HeldFile {
            path: &held.path,
            access: held.access.to_string(),
            descriptors: &held.descriptors,
        };
        Holder {
            pid: found.pid().0,
            start_ticks: found.holder.process.start.map(|start| start.0),
            user: found.read(|info| info.user.as_deref().map_err(|absent| *absent)).ok(),
            uid: found.read(|info| info.uid).ok(),
            name: found.read(|info| Ok(info.name.as_str())).ok(),
            command_line: found
                .read(|info| info.command_line.as_deref().map_err(|absent| *absent))
                .ok(),
            through_thread_pid: found.holder.through_thread.map(|pid| pid.0),
            held: found.holder.held.iter().map(held).collect(),
        }
    }
}
