//! What stands for nvidia-smi before a program that claims devices itself, as safe-gpu does.
//!
//! safe-gpu asks nvidia-smi which devices there are and which of them somebody computes on, and
//! takes the first that are free, whatever `CUDA_VISIBLE_DEVICES` says. Within a lease both answers
//! are given for the lease alone, so that it takes what it was given. Any other question goes to
//! the real nvidia-smi.

use crate::args::Cli;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::Source;
use crate::terminal::Screen;
use clap::Parser;
use gpu_core::{DeviceState, Entry, EntryKind, Groups, Locks, observe_users};
use gpu_host::supervise::find_program;
use gpu_steward::{descends, own_lease};
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const NAME: &str = "nvidia-smi";

/// The two questions of safe-gpu, 1.5.1 and 2.0.0.
const FORM: &str = "--format=csv,noheader";
const DEVICES: &str = "--query-gpu=index,gpu_bus_id";
const PROCESSES: &str = "--query-compute-apps=pid,gpu_bus_id";

/// A folder in which this program is called nvidia-smi; gone at the end.
pub(crate) struct Shim(TempDir);

impl Shim {
    /// Makes the folder, closed to others.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn make() -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("gpuws-run-").permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir()?;
        symlink(std::env::current_exe()?, folder.path().join(NAME))?;
        Ok(Shim(folder))
    }

    /// Returns the variable that lets a program find it before the real one.
    pub(crate) fn path(&self) -> (OsString, OsString) {
        let before = std::env::var_os("PATH").unwrap_or_default();
        let mut path = self.0.path().as_os_str().to_owned();
        if !before.is_empty() {
            path.push(":");
            path.push(before);
        }
        (OsString::from("PATH"), path)
    }
}

/// Answers as nvidia-smi where this program was called by that name; `None` where it was not.
pub(crate) fn run_where_called() -> Option<Exit> {
    let mut words = std::env::args_os();
    let name = words.next()?;
    if Path::new(&name).file_name() != Some(OsStr::new(NAME)) {
        return None;
    }
    let words: Vec<OsString> = words.collect();
    Some(match answer(&words) {
        Ok(Some(exit)) => exit,
        // Without a lease, or with one that cannot be found, nothing is to be hidden.
        Ok(None) | Err(_) => real(&words),
    })
}

/// Answers a question of safe-gpu within a lease; `None` for any other.
fn answer(words: &[OsString]) -> Result<Option<Exit>, Failure> {
    let has = |word: &str| words.iter().any(|known| known == word);
    let of_processes = has(PROCESSES);
    if words.len() != 2 || !has(FORM) || !(of_processes || has(DEVICES)) {
        return Ok(None);
    }
    let Ok(usual) = Cli::try_parse_from(["gpuws"]) else { return Ok(None) };
    let source = Source::open(&usual.global)?;
    let leases = source.locks(None)?.entries(EntryKind::Lease)?;
    let Some(lease) = own_lease(&*source.host, &leases)? else { return Ok(None) };
    let look = observe_users(&*source.backend, &*source.host, &*source.clock, Groups::NONE);
    let mut text = String::new();
    for device in look.devices.iter().filter(|device| is_of(&lease, device)) {
        let Ok(bus) = device.id().bus else { continue };
        match of_processes {
            false => text.push_str(&format!("{}, {bus}\n", device.id().index)),
            // Who shares the device with the job does not keep it from the job.
            true => {
                let own = |pid| descends(&look, pid, &lease.root);
                let listed = device.processes.iter().flatten().map(|process| process.pid);
                for pid in listed.filter(|pid| own(*pid)) {
                    text.push_str(&format!("{pid}, {bus}\n"));
                }
            }
        }
    }
    Screen::stdout(usual.global.color.into()).raw(text.as_bytes())?;
    Ok(Some(Exit::Done))
}

fn is_of(lease: &Entry, device: &DeviceState) -> bool {
    device.id().uuid.as_ref().is_ok_and(|uuid| lease.devices.contains(uuid))
}

/// Becomes the real nvidia-smi.
fn real(words: &[OsString]) -> Exit {
    let own = std::env::current_exe().and_then(|own| own.canonicalize()).ok();
    let is_other = |folder: &PathBuf| folder.join(NAME).canonicalize().ok() != own;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(is_other);
    let found = std::env::join_paths(folders)
        .ok()
        .and_then(|path| find_program(OsStr::new(NAME), Some(&path)).ok());
    if let Some(program) = found {
        // It comes back only where it fails.
        let _ = Command::new(program).args(words).exec();
        return Exit::CommandNotRun;
    }
    Exit::CommandNotFound
}
