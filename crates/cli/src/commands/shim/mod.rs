//! This program under the name nvidia-smi.
//!
//! In a lease, it is a shim for commands that claim devices themselves with safe-gpu. safe-gpu asks nvidia-smi for the devices and their compute processes and takes the first free
//! ones, regardless of `CUDA_VISIBLE_DEVICES`. Inside a lease, the shim answers both queries for
//! the leased devices only, so that safe-gpu takes those. It passes any other query to the real
//! nvidia-smi.
//!
//! In a session with a simulated machine, where there is no real one, it answers in its place.

mod dir;

pub(crate) use dir::Shim;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::Screen;
use clap::Parser;
use gpu_core::{DeviceState, EntryKind, LeaseEntry, LeaseStore, ProcessInfo};
use gpu_host::supervise::find_program;
use gpu_machine::is_placeholder;
use gpu_report::smi::as_gpuws;
use gpu_sim::Session;
use gpu_steward::{ClaimContext, Wants, own_lease, users_within_lease};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "nvidia-smi";

/// The two queries of safe-gpu 1.5.1 and 2.0.0.
const FORM: &str = "--format=csv,noheader";
const DEVICES: &str = "--query-gpu=index,gpu_bus_id";
const PROCESSES: &str = "--query-compute-apps=pid,gpu_bus_id";

/// Creates links to this program in a session, as gpuws and as nvidia-smi. Programs find them after
/// installed ones.
pub(crate) fn in_session(session: &Path) -> Result<(OsString, OsString), Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::io("find this program", error))?;
    for name in ["gpuws", NAME] {
        std::os::unix::fs::symlink(&own, session.join(name))
            .map_err(|error| Failure::io(format!("create '{name}' in the session"), error))?;
    }
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(session);
    Ok((OsString::from("PATH"), path))
}

/// Returns the words of this program's command line. If it was called as nvidia-smi, either answers
/// and returns how, or returns the words with which this program answers in a session.
pub(crate) fn words() -> Result<Vec<OsString>, Exit> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let is_named = |name: &OsString| Path::new(name).file_name() == Some(OsStr::new(NAME));
    let Some((_, rest)) = words.split_first().filter(|(name, _)| is_named(name)) else {
        return Ok(words);
    };
    match answer(rest) {
        Ok(Some(exit)) => Err(exit),
        // Without a lease, or if it cannot be found, there are no devices to hide.
        Ok(None) | Err(_) => match real(rest) {
            Exit::CommandNotFound if std::env::var_os(Session::VARIABLE).is_some() => {
                Ok(as_gpuws(rest))
            }
            exit => Err(exit),
        },
    }
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
    let ports = source.claim_ports(&locks);
    let context = ClaimContext::observe(&ports, Wants::default());
    let stands_for_it = |process: &ProcessInfo| is_placeholder(process, lease.root.pid);
    let mut text = String::new();
    for device in context.snapshot.devices.iter().filter(|device| is_of(&lease, device)) {
        let Ok(bus) = device.id().bus else { continue };
        if !of_processes {
            text.push_str(&format!("{}, {bus}\n", device.id().index));
            continue;
        }
        for pid in users_within_lease(&context, device, &lease, &leases, stands_for_it) {
            text.push_str(&format!("{pid}, {bus}\n"));
        }
    }
    Screen::stdout(usual.global.color).raw(text.as_bytes())?;
    Ok(Some(Exit::Done))
}

fn is_of(lease: &LeaseEntry, device: &DeviceState) -> bool {
    device.id().uuid.as_ref().is_ok_and(|uuid| lease.devices.contains(uuid))
}

/// Executes the real nvidia-smi.
fn real(words: &[OsString]) -> Exit {
    let own = std::env::current_exe().and_then(|own| own.canonicalize()).ok();
    // Another gpuws may have made the session: the two would execute each other forever.
    let session = std::env::var_os(Session::VARIABLE).map(PathBuf::from);
    let is_other =
        |dir: &PathBuf| Some(dir) != session.as_ref() && dir.join(NAME).canonicalize().ok() != own;
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
