//! `gpuws holders --json`.

use super::SCHEMA;
use gpu_core::{
    DeviceFile, DeviceFileKind, HeldFile, Holder, Origin, Pid, ProcessInfo, Reading, StartTime,
    Unreadable,
};
use serde::Serialize;

/// A holder, and what is known of its process a moment later.
pub struct FoundHolder {
    /// The holder.
    pub holder: Holder,
    /// The process.
    pub info: gpu_core::Result<ProcessInfo>,
}

impl FoundHolder {
    /// Returns a value of the process, or why it is absent.
    ///
    /// # Errors
    /// Why nothing is known of the process.
    pub fn tell<'a, T>(&'a self, of: impl FnOnce(&'a ProcessInfo) -> Reading<T>) -> Reading<T> {
        of(self.info.as_ref().map_err(|error| error.kind().absent())?)
    }

    /// Returns its number.
    pub fn pid(&self) -> Pid {
        self.holder.process.pid
    }

    /// Returns the command line; where that is empty or hidden, the short name.
    pub fn command(&self) -> String {
        let command = self.tell(|info| info.command_line.as_deref().map_err(|absent| *absent));
        match command {
            Ok(words) if !words.is_empty() => words.join(" "),
            _ => self
                .tell(|info| Ok(info.name.clone()))
                .unwrap_or_else(|absent| format!("({absent})")),
        }
    }

    /// Returns its user: name, else number, else why it is not known.
    pub fn user(&self) -> String {
        let number = self.tell(|info| info.uid).map(|uid| uid.to_string());
        self.tell(|info| info.user.clone())
            .or(number)
            .unwrap_or_else(|absent| format!("({absent})"))
    }
}

/// Who has files open.
#[derive(Serialize)]
pub struct Holders<'a> {
    schema: u32,
    /// `live` or `simulated`.
    origin: &'static str,
    /// Name of the simulated machine.
    machine: Option<&'a str>,
    files: Vec<FileView<'a>>,
    holders: Vec<HolderView<'a>>,
    unreadable_process_count: u32,
    /// How many of them for which reason.
    unreadable_by_reason: &'a Unreadable,
}

#[derive(Serialize)]
struct FileView<'a> {
    path: &'a str,
    kind: DeviceFileKind,
    /// The file could be told from others, and so be looked for.
    sought: bool,
}

#[derive(Serialize)]
struct HolderView<'a> {
    pid: Pid,
    start_ticks: Option<StartTime>,
    user: Option<&'a str>,
    uid: Option<u32>,
    name: Option<&'a str>,
    command_line: Option<&'a [String]>,
    /// The live thread through which the files were found when the first one is a zombie.
    through_thread_pid: Option<Pid>,
    held: Vec<HeldView<'a>>,
}

#[derive(Serialize)]
struct HeldView<'a> {
    path: &'a str,
    /// fuser's letters.
    access: String,
    descriptors: &'a [u32],
}

impl<'a> Holders<'a> {
    /// Returns what is told of a search.
    pub fn of(
        origin: &'a Origin,
        files: &'a [DeviceFile],
        found: &'a [FoundHolder],
        unreadable: &'a Unreadable,
    ) -> Self {
        let file = |file: &'a DeviceFile| FileView {
            path: &file.path,
            kind: file.kind,
            sought: file.id.is_ok(),
        };
        Holders {
            schema: SCHEMA,
            origin: if *origin == Origin::Live { "live" } else { "simulated" },
            machine: match origin {
                Origin::Simulated(name) => Some(name),
                Origin::Live | Origin::Pasted => None,
            },
            files: files.iter().map(file).collect(),
            holders: found.iter().map(HolderView::new).collect(),
            unreadable_process_count: unreadable.total(),
            unreadable_by_reason: unreadable,
        }
    }
}

impl<'a> HolderView<'a> {
    fn new(found: &'a FoundHolder) -> Self {
        let held = |held: &'a HeldFile| HeldView {
            path: &held.path,
            access: held.access.to_string(),
            descriptors: &held.descriptors,
        };
        HolderView {
            pid: found.pid(),
            start_ticks: found.holder.process.start,
            user: found.tell(|info| info.user.as_deref().map_err(|absent| *absent)).ok(),
            uid: found.tell(|info| info.uid).ok(),
            name: found.tell(|info| Ok(info.name.as_str())).ok(),
            command_line: found
                .tell(|info| info.command_line.as_deref().map_err(|absent| *absent))
                .ok(),
            through_thread_pid: found.holder.through_thread,
            held: found.holder.held.iter().map(held).collect(),
        }
    }
}
