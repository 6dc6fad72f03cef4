//! For whom devices are claimed.

use crate::args::ClaimArgs;
use crate::claim_request;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lease_keepers::is_supervisor;
use crate::source::Source;
use gpu_core::{EntryKind, LeaseStore, ProcessInfo};
use gpu_host::FileLeaseStore;
use rustix::process::geteuid;
use std::ffi::OsString;

/// Finds for whom the devices are: the process that started this one. A shell that was copied only
/// to run a part of a line, as for `$(…)` with more than one command, ends at once: there it is
/// the shell itself.
///
/// Where that is the first process of the machine, or of a user's session, everybody descends from
/// it; and the supervisor of a run has a lease of its own, which this one is within. What is held is
/// then for this program alone.
pub(super) fn asker(
    source: &Source,
    locks: &FileLeaseStore,
    args: &ClaimArgs,
) -> Result<ProcessInfo, Failure> {
    let line = source.host.own_ancestry()?;
    let gone = || Failure::new(Exit::Own, "find the process that started gpuws");
    let mut line = line.iter();
    let own = source.host.process(line.next().ok_or_else(gone)?.pid)?;
    let first = line.next().ok_or_else(gone)?;
    let mut asker = source.host.process(first.pid)?;
    let is_everybodys = first.pid.0 == 1 || asker.name == "systemd";
    if is_everybodys || is_supervisor(&asker, &locks.entries(EntryKind::Lease)?) {
        return match args.export {
            false => Ok(own),
            true => Err(Failure::new(Exit::Usage, "claim for the process that started gpuws")
                .with_source(match is_everybodys {
                    true => "every process descends from it",
                    false => "that is gpuws itself, waiting for this program",
                })
                .with_hint("name the process: --for PID")),
        };
    }
    for next in line {
        let next = source.host.process(next.pid)?;
        let is_copy = next.command_line.is_ok()
            && next.command_line == asker.command_line
            && next.group.is_ok()
            && next.group == asker.group;
        if !is_copy {
            break;
        }
        asker = next;
    }
    Ok(asker)
}

/// Refuses a process whose descendants are not the caller's to claim for: nobody would believe such
/// a lease, or, for the ancestor of everybody, everybody would be within it.
pub(super) fn owned(root: ProcessInfo) -> Result<ProcessInfo, Failure> {
    let own = root.uid == Ok(geteuid().as_raw());
    match own && root.key.pid.0 > 1 {
        true => Ok(root),
        false => Err(Failure::new(Exit::Usage, format!("claim for process {}", root.key.pid))
            .with_source("it does not belong to you")
            .with_hint("pass --for a process of your own, e.g. $$")),
    }
}

pub(super) fn described(root: &ProcessInfo) -> String {
    let words: Vec<OsString> = match &root.command_line {
        Ok(words) if !words.is_empty() => words.iter().map(OsString::from).collect(),
        _ => vec![OsString::from(&root.name)],
    };
    claim_request::described(&words)
}
