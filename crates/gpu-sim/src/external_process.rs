//! Real processes that register themselves on a session's devices.
//!
//! A placeholder represents a process that the machine describes. An external process is unknown to
//! the machine: any program of the session can register with a file in the session's directory. The
//! file is valid while its process lives, which the reader must check.

use crate::machine::{Holding, Process};
use crate::process_table::Serial;
use crate::simulation::Simulation;
use crate::state::State;
use crate::trusted;
use gpu_core::{Bytes, Error, ErrorKind, Pid, ProcessInfo, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The maximum size of one file, in bytes.
const MAX_FILE: u64 = 1 << 16;
/// The maximum number of files.
const MAX_FILES: usize = 4096;
/// The lowest PID that no real process has (`PID_MAX_LIMIT` in the kernel's threads.h).
const FIRST_IMPOSSIBLE_PID: Pid = Pid(1 << 22);

/// A real process that uses devices of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalProcess {
    /// Its PID.
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its uses of devices, at most one entry per device.
    pub uses: Vec<Use>,
}

/// The use of one device by an external process: at most the memory that is free when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// The device, by index.
    pub gpu: u32,
    /// The number of its MIG device, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<u32>,
    /// Its memory, in MiB.
    pub mib: u64,
    /// Its utilisation of the device; if missing, the device reports none for this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u8>,
}

impl ExternalProcess {
    /// The subdirectory of the session's directory for their files.
    pub const DIR: &'static str = "walk-ons";

    /// Creates the directory for the external processes of a session.
    ///
    /// # Errors
    /// `Io` if it cannot be created.
    pub fn admit(session: &Path) -> Result<()> {
        let dir = session.join(Self::DIR);
        DirBuilder::new().mode(0o700).create(&dir).map_err(|error| {
            let what = format!("make '{}'", dir.display());
            Error::new(ErrorKind::Io, what).with_source(error)
        })
    }

    /// Returns all processes with a file in the directory of a session, living or not, oldest
    /// first. Malformed and oversized files, links, and files writable by others are skipped.
    ///
    /// # Errors
    /// `Io` if the directory cannot be read, for example because the session permits no external
    /// processes; `Invalid` if any user except root and the user of this program can change it.
    pub fn named(session: &Path) -> Result<Vec<Self>> {
        let dir = trusted::private(&session.join(Self::DIR))?;
        let unread = |error: std::io::Error| {
            let what = format!("list '{}'", dir.display());
            Error::new(ErrorKind::Io, what).with_source(error)
        };
        let entries = std::fs::read_dir(&dir).map_err(unread)?.take(MAX_FILES);
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut found: Vec<ExternalProcess> = paths.filter_map(|path| read(&path)).collect();
        found.sort_by_key(|external| (external.start_ticks, external.pid));
        Ok(found)
    }

    /// Writes its file into the directory of a session, atomically for readers.
    ///
    /// # Errors
    /// `Io` if it cannot be written, for example because the session permits no external processes.
    pub fn enter(&self, session: &Path) -> Result<()> {
        let path = self.path(session);
        let new = path.with_file_name(format!(".{}", self.file_name()));
        let text = serde_json::to_vec(self).map_err(Into::into);
        text.and_then(|text| trusted::write_private(&path, &new, &text)).map_err(|error| {
            let what = format!("write '{}'", path.display());
            Error::new(ErrorKind::Io, what).with_source(error)
        })
    }

    /// Removes its file, if it exists; no other process ever has the same file name.
    ///
    /// # Errors
    /// `Io` on failure.
    pub fn leave(&self, session: &Path) -> Result<()> {
        let path = self.path(session);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let what = format!("remove '{}'", path.display());
                Err(Error::new(ErrorKind::Io, what).with_source(error))
            }
            _ => Ok(()),
        }
    }

    fn path(&self, session: &Path) -> PathBuf {
        session.join(Self::DIR).join(self.file_name())
    }

    /// Returns the name of its file: a PID can be reused, but not with the same start time.
    fn file_name(&self) -> String {
        format!("{}-{}", self.pid, self.start_ticks)
    }

    fn is_valid(&self) -> bool {
        let gpus: BTreeSet<u32> = self.uses.iter().map(|used| used.gpu).collect();
        let is_share = |used: &Use| used.utilization_percent.is_none_or(|share| share <= 100);
        (1..FIRST_IMPOSSIBLE_PID.0).contains(&self.pid)
            && !gpus.is_empty()
            && gpus.len() == self.uses.len()
            && self.uses.iter().all(is_share)
    }
}

/// Parses a file, if it is valid.
fn read(path: &Path) -> Option<ExternalProcess> {
    let bytes = trusted::read_private(path, MAX_FILE).ok()?;
    let external: ExternalProcess = serde_json::from_slice(&bytes).ok()?;
    let own = path.file_name()? == external.file_name().as_str();
    (own && external.is_valid()).then_some(external)
}

impl Simulation {
    /// Adds a real process, with its own PID: a simulated process with that PID gets another one.
    /// Ignores the use of devices that do not exist.
    ///
    /// It ends with an [`Event::Exit`](crate::Event::Exit).
    pub fn external(&self, external: &ExternalProcess) {
        self.lock().external(external);
    }
}

impl State {
    fn external(&mut self, external: &ExternalProcess) {
        let pid = Pid(external.pid);
        self.free_pid_for_real_process(pid);
        // The real /proc has all other data.
        let mut process = Process::new(ProcessInfo::from_name(pid, ""));
        for used in &external.uses {
            let Some(device) = self.device(used.gpu) else { continue };
            let mig = device.mig.iter().find(|mig| Some(mig.index) == used.mig);
            let memory = Bytes::from_mib(used.mib);
            let mut holding = Holding::new(used.gpu, memory);
            if let Some(mig) = mig {
                (holding.gpu_instance, holding.compute_instance) =
                    (mig.gpu_instance, mig.compute_instance);
            }
            if let Some(share) = used.utilization_percent {
                (holding.load, holding.load_untold) = (share, None);
            }
            process.holdings.push(holding);
        }
        self.start(process, Some(pid));
    }

    /// Gives every process with this PID another PID that no real process can have.
    fn free_pid_for_real_process(&mut self, pid: Pid) {
        let there: Vec<Serial> = self.living.numbered(pid).map(|(serial, _)| serial).collect();
        for serial in there {
            let free = self.free_pid(FIRST_IMPOSSIBLE_PID);
            self.living.change(serial, |living| living.process.info.key.pid = free);
            if self.machine.viewer.pid == pid {
                self.machine.viewer.pid = free;
            }
        }
    }
}
