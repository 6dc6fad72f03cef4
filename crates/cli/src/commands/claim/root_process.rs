//! The process for which devices are claimed.

use super::ClaimArgs;
use super::lease_keepers::is_supervisor;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::Source;
use gpu_core::{EntryKind, LeaseId, LeaseStore, ProcessInfo};
use gpu_host::FileLeaseStore;
use gpu_report::wording::claims;
use rustix::process::geteuid;
use std::ffi::OsString;

/// Returns the process whose descendants may use the devices by default: the parent of this
/// program. A subshell, such as that of `$(…)` with more than one command, ends at once; the result
/// is then the shell that forked it.
///
/// Every process descends from init and from a user's systemd, and the supervisor of a run has its
/// own lease, which encloses this one. If the parent is one of these, the lease is for this program
/// only.
pub(super) fn default_root(
    source: &Source,
    locks: &FileLeaseStore,
    args: &ClaimArgs,
) -> Result<ProcessInfo, Failure> {
    let line = source.host.own_ancestry()?;
    let gone = || Failure::new(Exit::Own, "find the process that started gpuws");
    let mut line = line.iter();
    let own = source.host.process(line.next().ok_or_else(gone)?.pid)?;
    let first = line.next().ok_or_else(gone)?;
    let mut root = source.host.process(first.pid)?;
    let encloses_all = first.pid.0 == 1 || root.name == "systemd";
    if encloses_all || is_supervisor(&root, &locks.entries(EntryKind::Lease)?) {
        return if args.export {
            Err(Failure::new(Exit::Usage, "claim for the process that started gpuws")
                .with_source(match encloses_all {
                    true => "every process descends from it",
                    false => "that is gpuws itself, waiting for this program",
                })
                .with_hint("name the process: --for PID"))
        } else {
            Ok(own)
        };
    }
    for next in line {
        let next = source.host.process(next.pid)?;
        let is_copy = next.command_line.is_ok()
            && next.command_line == root.command_line
            && next.group.is_ok()
            && next.group == root.group;
        if !is_copy {
            break;
        }
        root = next;
    }
    Ok(root)
}

/// Rejects a process of another user, whose lease would be invalid, and init, because every process
/// descends from it.
pub(super) fn check_root(root: ProcessInfo) -> Result<ProcessInfo, Failure> {
    let why = match root.key.pid.0 {
        0 | 1 => "every process descends from it",
        _ if root.uid != Ok(geteuid().as_raw()) => "it does not belong to you",
        _ => return Ok(root),
    };
    Err(Failure::new(Exit::Usage, format!("claim for process {}", root.key.pid))
        .with_source(why)
        .with_hint("pass --for a process of your own, e.g. $$"))
}

/// Refuses a claim that would wait for the end of a lease that ends with this process.
pub(super) fn waits_for_itself(root: &ProcessInfo, lease: &LeaseId) -> Failure {
    let what = format!("claim for process {}, which would wait for itself", root.key.pid);
    Failure::new(Exit::Usage, what)
        .with_source(format!("it already has lease {lease} on the requested GPUs"))
        .with_hint(format!("release that lease with: gpuws claim --release {lease}"))
}

pub(super) fn described(root: &ProcessInfo) -> String {
    let words: Vec<OsString> = match &root.command_line {
        Ok(words) if !words.is_empty() => words.iter().map(OsString::from).collect(),
        _ => vec![OsString::from(&root.name)],
    };
    claims::command_line(&words)
}
