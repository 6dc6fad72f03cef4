//! A shim for nvidia-smi, for commands that claim devices themselves with safe-gpu.
//!
//! safe-gpu asks nvidia-smi for the devices and their compute processes and takes the first free
//! ones, regardless of `CUDA_VISIBLE_DEVICES`. Inside a lease, the shim answers both queries for
//! the leased devices only, so that safe-gpu takes those. It passes any other query to the real
//! nvidia-smi.

use crate::cli::Cli;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::source::no_journal;
use crate::terminal::Screen;
use clap::Parser;
use gpu_core::{DeviceState, EntryKind, LeaseEntry, LeaseStore, ProcessInfo};
use gpu_host::supervise::find_program;
use gpu_host::{PathTrust, TrustedDir};
use gpu_machine::is_placeholder;
use gpu_steward::{Ports, Scene, Wants, own_lease, users_within_lease};
use rustix::fs::{AtFlags, Mode};
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "nvidia-smi";

/// The two queries of safe-gpu 1.5.1 and 2.0.0.
const FORM: &str = "--format=csv,noheader";
const DEVICES: &str = "--query-gpu=index,gpu_bus_id";
const PROCESSES: &str = "--query-compute-apps=pid,gpu_bus_id";

/// The directory of root. `/run/gpuws` is unsuitable, because every user creates files there.
const OF_ROOT: &str = "/run/gpuws-shim";

/// A directory in which this program is named nvidia-smi.
///
/// It is permanent, because a process that outlives its run still has it in `PATH`. Another user
/// who created a directory of that name could make such a process run any program. So it is in a
/// place where only its user and root can create one: other users cannot write to any parent
/// directory, sticky or not.
pub(crate) struct Shim(PathBuf);

impl Shim {
    /// Finds or creates the directory.
    ///
    /// Root's directory does not depend on the environment, which may come from another user.
    ///
    /// # Errors
    /// When every candidate directory is writable by others, or none can be created.
    pub(crate) fn make() -> Result<Self, Failure> {
        let none = || {
            Failure::new(Exit::NotPermitted, "find a private directory")
                .with_source("neither XDG_RUNTIME_DIR nor HOME is set")
        };
        let mut why = None;
        for place in places() {
            match Shim::in_dir(&place) {
                Ok(shim) => return Ok(shim),
                Err(failure) => why = why.or(Some(failure)),
            }
        }
        Err(why.unwrap_or_else(none))
    }

    fn in_dir(place: &Path) -> Result<Self, Failure> {
        let dir = TrustedDir::make(place, PathTrust::Private)?;
        let shown = dir.path().display();
        let failed = |errno: rustix::io::Errno| {
            Failure::io(format!("make a link in '{shown}'"), errno.into())
        };
        if geteuid().is_root() {
            // A command of root may run as another user, who must be able to use the shim, too.
            let mode = Mode::from_raw_mode(0o755);
            rustix::fs::chmodat(&dir, ".", mode, AtFlags::empty()).map_err(failed)?;
        }
        let own = std::env::current_exe();
        let own = own.map_err(|error| Failure::io("find this program", error))?;
        let link = rustix::fs::readlinkat(&dir, NAME, Vec::new());
        if link.is_ok_and(|link| OsString::from_vec(link.into_bytes()) == own) {
            return Ok(Shim(dir.path().to_owned()));
        }
        let new = format!("{NAME}.{}", std::process::id());
        // In another PID namespace, a killed process may have had the same PID.
        let _ = rustix::fs::unlinkat(&dir, &new, AtFlags::empty());
        rustix::fs::symlinkat(&own, &dir, &new).map_err(failed)?;
        rustix::fs::renameat(&dir, &new, &dir, NAME).map_err(failed)?;
        Ok(Shim(dir.path().to_owned()))
    }

    /// Returns the `PATH` variable that makes a program find the shim first.
    pub(crate) fn path(&self) -> (OsString, OsString) {
        let usual = || OsString::from("/bin:/usr/bin");
        let before = std::env::var_os("PATH").filter(|path| !path.is_empty()).unwrap_or_else(usual);
        let mut path = self.0.as_os_str().to_owned();
        path.push(":");
        path.push(before);
        (OsString::from("PATH"), path)
    }
}

/// Returns the candidate directories, best first.
fn places() -> Vec<PathBuf> {
    if geteuid().is_root() {
        return vec![PathBuf::from(OF_ROOT)];
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let places = [absolute("XDG_RUNTIME_DIR"), cache];
    // A colon separates the directories in `PATH`.
    let fits = |place: &PathBuf| !place.as_os_str().as_encoded_bytes().contains(&b':');
    places.into_iter().flatten().filter(fits).map(|place| place.join("gpuws/bin")).collect()
}

/// Acts as nvidia-smi if this program was called by that name; otherwise returns `None`.
pub(crate) fn run_if_called_as_nvidia_smi() -> Option<Exit> {
    let mut words = std::env::args_os();
    let name = words.next()?;
    if Path::new(&name).file_name() != Some(OsStr::new(NAME)) {
        return None;
    }
    let words: Vec<OsString> = words.collect();
    Some(match answer(&words) {
        Ok(Some(exit)) => exit,
        // Without a lease, or if it cannot be found, there are no devices to hide.
        Ok(None) | Err(_) => real(&words),
    })
}

/// Answers a query of safe-gpu inside a lease; `None` for any other query.
fn answer(words: &[OsString]) -> Result<Option<Exit>, Failure> {
    let has = |word: &str| words.iter().any(|known| known == word);
    let of_processes = has(PROCESSES);
    if words.len() != 2 || !has(FORM) || !(of_processes || has(DEVICES)) {
        return Ok(None);
    }
    let Ok(usual) = Cli::try_parse_from(["gpuws"]) else { return Ok(None) };
    let source = source::open(&usual.global)?;
    let locks = source.lease_store(None)?;
    let leases = locks.entries(EntryKind::Lease)?;
    let Some(lease) = own_lease(&*source.host, &leases, None)? else { return Ok(None) };
    let ports = Ports {
        backend: &*source.backend,
        host: &*source.host,
        clock: &*source.clock,
        journal: &no_journal(),
        locks: &locks,
    };
    let scene = Scene::look(&ports, Wants::default());
    let stands_for_it = |process: &ProcessInfo| is_placeholder(process, lease.root.pid);
    let mut text = String::new();
    for device in scene.snapshot.devices.iter().filter(|device| is_of(&lease, device)) {
        let Ok(bus) = device.id().bus else { continue };
        if !of_processes {
            text.push_str(&format!("{}, {bus}\n", device.id().index));
            continue;
        }
        for pid in users_within_lease(&scene, device, &lease, &leases, stands_for_it) {
            text.push_str(&format!("{pid}, {bus}\n"));
        }
    }
    Screen::stdout(usual.global.color.into()).raw(text.as_bytes())?;
    Ok(Some(Exit::Done))
}

fn is_of(lease: &LeaseEntry, device: &DeviceState) -> bool {
    device.id().uuid.as_ref().is_ok_and(|uuid| lease.devices.contains(uuid))
}

/// Executes the real nvidia-smi.
fn real(words: &[OsString]) -> Exit {
    let own = std::env::current_exe().and_then(|own| own.canonicalize()).ok();
    let is_other = |dir: &PathBuf| dir.join(NAME).canonicalize().ok() != own;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).filter(is_other);
    let found = std::env::join_paths(dirs)
        .ok()
        .and_then(|path| find_program(OsStr::new(NAME), Some(&path)).ok());
    if let Some(program) = found {
        // `exec` returns only if it fails.
        let _ = Command::new(program).args(words).exec();
        return Exit::CommandNotRun;
    }
    Exit::CommandNotFound
}
