//! Real processes that appear on a session's devices by themselves.
//!
//! A placeholder stands for a process that the machine describes. Of a walk-on the machine knows
//! nothing: any program of the session can be one, and says so by a file in the session's folder.
//! What the file says is believed while its process lives, which is for the reader to find out.

use crate::machine::{Holding, Process};
use crate::simulation::Simulation;
use crate::state::{Serial, State};
use crate::trusted;
use gpu_core::{Bytes, Error, ErrorKind, Pid, ProcessInfo, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most that is read of one file, in bytes.
const MAX_FILE: u64 = 1 << 16;
/// The most files that are looked at.
const MAX_FILES: usize = 4096;
/// No real process has this number or a higher one (`PID_MAX_LIMIT` of the kernel's threads.h).
const FIRST_IMPOSSIBLE_PID: Pid = Pid(1 << 22);

/// A real process that uses devices of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalProcess {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// What it uses, each device once.
    pub uses: Vec<Use>,
}

/// What a walk-on uses of one device: never more memory than is free when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// The device, by index.
    pub gpu: u32,
    /// Which of its MIG devices, by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<u32>,
    /// How much of its memory, in MiB.
    pub mib: u64,
    /// The share of the device's time that its kernels take; not told by process where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u8>,
}

impl ExternalProcess {
    /// The folder in the session's folder that they are named in.
    pub const FOLDER: &'static str = "walk-ons";

    /// Makes the folder that walk-ons of a session are named in.
    ///
    /// # Errors
    /// `Io` when it cannot be made.
    pub fn admit(session: &Path) -> Result<()> {
        let folder = session.join(Self::FOLDER);
        DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
            let what = format!("make '{}'", folder.display());
            Error::new(ErrorKind::Io, what).with_source(error)
        })
    }

    /// Returns all that are named in the folder of a session, whether or not they still live, the
    /// eldest first. What is malformed, too large, a link, or writable by others is none.
    ///
    /// # Errors
    /// `Io` when the folder cannot be read, as where the session admits none; `Invalid` when
    /// anybody but root and the user who runs this program can change it.
    pub fn named(session: &Path) -> Result<Vec<Self>> {
        let folder = trusted::private(&session.join(Self::FOLDER))?;
        let unread = |error: std::io::Error| {
            let what = format!("list '{}'", folder.display());
            Error::new(ErrorKind::Io, what).with_source(error)
        };
        let entries = std::fs::read_dir(&folder).map_err(unread)?.take(MAX_FILES);
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut found: Vec<ExternalProcess> = paths.filter_map(|path| read(&path)).collect();
        found.sort_by_key(|walk_on| (walk_on.start_ticks, walk_on.pid));
        Ok(found)
    }

    /// Names this one in the folder of a session: who looks meanwhile finds it whole or not at all.
    ///
    /// # Errors
    /// `Io` when it cannot be written, as where the session admits none.
    pub fn enter(&self, session: &Path) -> Result<()> {
        let path = self.path(session);
        let new = path.with_file_name(format!(".{}", self.file_name()));
        let write = || -> std::io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            std::fs::rename(&new, &path)
        };
        write().map_err(|error| {
            let what = format!("write '{}'", path.display());
            Error::new(ErrorKind::Io, what).with_source(error)
        })
    }

    /// Removes what names this one, if it is there: no other process ever has its name.
    ///
    /// # Errors
    /// `Io` when that fails.
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
        session.join(Self::FOLDER).join(self.file_name())
    }

    /// Returns the name of its file: a number can be given again, with its start it cannot.
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

/// Reads one that a file names, if it does.
fn read(path: &Path) -> Option<ExternalProcess> {
    let named = path.symlink_metadata().ok()?;
    if !named.is_file() || named.len() > MAX_FILE {
        return None;
    }
    let file = File::open(path).ok()?;
    let opened = file.metadata().ok()?;
    if (named.dev(), named.ino()) != (opened.dev(), opened.ino()) {
        return None;
    }
    trusted::private_file(path, &opened).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    let walk_on: ExternalProcess = serde_json::from_slice(&bytes).ok()?;
    let own = path.file_name()? == walk_on.file_name().as_str();
    (own && walk_on.is_valid()).then_some(walk_on)
}

impl Simulation {
    /// Lets a real process appear, with its own number: whoever has that on the machine gets
    /// another. What it says to use of devices that are not there, it does not use.
    ///
    /// It ends by an [`Event::Exit`](crate::Event::Exit).
    pub fn walk_on(&self, walk_on: &ExternalProcess) {
        self.lock().walk_on(walk_on);
    }
}

impl State {
    fn walk_on(&mut self, walk_on: &ExternalProcess) {
        let pid = Pid(walk_on.pid);
        self.free_pid_for_real_process(pid);
        // What else there is to know of it, the real /proc tells.
        let mut process = Process::new(ProcessInfo::from_name(pid, ""));
        for used in &walk_on.uses {
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

    /// Gives everybody who has this number another one, which no real process can have.
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
