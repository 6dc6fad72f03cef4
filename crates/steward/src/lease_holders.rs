//! The processes that keep a lease alive by having its file open.

use gpu_core::{
    Access, DeviceFile, Holder, Host, LeaseEntry, Pid, ProcessHandle, ProcessInfo, Result,
};
use std::collections::BTreeSet;

/// The processes that keep a lease alive.
pub enum LeaseKeepers {
    /// Processes of gpuws that only keep the lease.
    Holders(Vec<Box<dyn ProcessHandle>>),
    /// The living supervisor of a run, and the processes that it started.
    Run(Pid),
    /// Programs of unknown purpose: processes that a run left behind, another version of gpuws, or
    /// a process that has a file of the lease open for writing.
    Others(Vec<ProcessInfo>),
    /// No process that keeps it is visible.
    Unseen,
}

impl LeaseKeepers {
    /// Finds the processes that keep each of these leases, with the files that keep it alive.
    /// Processes of other users are not visible.
    ///
    /// Only data from the kernel counts: each process belongs to the caller, runs `program`, and
    /// has a file of that lease open. Each is opened before it is inspected, so that a reused PID
    /// cannot be mistaken for it.
    ///
    /// # Errors
    /// If the leases or the processes cannot be listed.
    pub fn of(
        leases: &[(&LeaseEntry, Vec<DeviceFile>)],
        program: Option<&DeviceFile>,
        caller: u32,
        host: &dyn Host,
    ) -> Result<Vec<LeaseKeepers>> {
        let kept = leases.iter().map(|(entry, files)| {
            let files = if entry.owner == caller { files.clone() } else { Vec::new() };
            Kept { entry, files, run: None, holders: Vec::new(), others: Vec::new() }
        });
        let mut kept: Vec<Kept<'_>> = kept.collect();
        // One scan for all files: its cost does not depend on their number.
        let files: Vec<DeviceFile> = kept.iter().flat_map(|kept| kept.files.clone()).collect();
        if !files.is_empty() {
            for holder in host.holders(&files)?.holders {
                note(&holder, host, (caller, program), &mut kept);
            }
        }
        Ok(kept.into_iter().map(LeaseKeepers::from).collect())
    }
}

/// A lease, its files, and the processes found to keep it.
struct Kept<'a> {
    entry: &'a LeaseEntry,
    files: Vec<DeviceFile>,
    run: Option<Pid>,
    holders: Vec<Box<dyn ProcessHandle>>,
    others: Vec<ProcessInfo>,
}

impl From<Kept<'_>> for LeaseKeepers {
    fn from(Kept { run, holders, others, .. }: Kept<'_>) -> Self {
        match (run, others.is_empty(), holders.is_empty()) {
            (Some(supervisor), ..) => LeaseKeepers::Run(supervisor),
            (None, false, _) => LeaseKeepers::Others(others),
            (None, true, false) => LeaseKeepers::Holders(holders),
            (None, true, true) => LeaseKeepers::Unseen,
        }
    }
}

/// Records a process for each lease that it keeps. A process that has ended keeps none.
fn note(
    holder: &Holder,
    host: &dyn Host,
    (caller, program): (u32, Option<&DeviceFile>),
    kept: &mut [Kept<'_>],
) {
    let paths: BTreeSet<&str> = holder.held.iter().map(|held| &*held.path).collect();
    let has = |kept: &&mut Kept<'_>| kept.files.iter().any(|file| paths.contains(&*file.path));
    for kept in kept.iter_mut().filter(has) {
        let Ok(opened) = host.open(holder.process.pid) else { continue };
        let (Ok(info), Ok(held)) = (opened.info(), opened.held(&kept.files)) else { continue };
        // A process that scans the leases has each of them open for a moment, to read.
        if !held.iter().any(|held| held.access.contains(Access::OPEN_FOR_WRITING)) {
            continue;
        }
        if info.uid != Ok(caller) || !runs(program, &*opened) {
            kept.others.push(info);
        } else if info.key.definitely_same(&kept.entry.root) && !is_claim(host, &info) {
            // The root of a run's lease is its supervisor.
            kept.run = Some(info.key.pid);
        } else {
            kept.holders.push(opened);
        }
    }
}

/// Returns whether a process is the supervisor of a run: it is the root of a lease and runs
/// `program`.
pub fn is_supervisor(
    process: &ProcessInfo,
    leases: &[LeaseEntry],
    program: Option<&DeviceFile>,
    host: &dyn Host,
) -> bool {
    let has_lease = leases.iter().any(|lease| lease.root.definitely_same(&process.key));
    has_lease && host.open(process.key.pid).is_ok_and(|opened| runs(program, &*opened))
}

/// Returns whether a process runs a program; false if the program is unknown.
fn runs(program: Option<&DeviceFile>, process: &dyn ProcessHandle) -> bool {
    let Some(program) = program else { return false };
    let held = process.held(std::slice::from_ref(program)).unwrap_or_default();
    held.iter().any(|held| held.access.contains(Access::EXECUTABLE))
}

/// Returns whether a process was started as `gpuws claim`.
fn is_claim(host: &dyn Host, process: &ProcessInfo) -> bool {
    let words = host.process(process.key.pid).ok().and_then(|known| known.command_line.ok());
    let mut words = words.iter().flat_map(|words| words.iter());
    let command = words.find(|word| ["claim", "run"].contains(&word.as_str()));
    command.is_some_and(|word| word == "claim")
}
