//! Who keeps a lease alive: the processes that have its file open.

use crate::failure::Failure;
use crate::source::roots;
use gpu_core::{Access, Entry, Host, Pid, ProcessHandle, ProcessInfo};
use gpu_host::{FileLocks, LinuxHost, resolve};
use rustix::process::geteuid;

/// Those who keep a lease alive.
pub(crate) enum Keepers {
    /// Programs of gpuws that are there for nothing else.
    Holders(Vec<Box<dyn ProcessHandle>>),
    /// The supervisor of a run, which lives, and those that it started.
    Run(Pid),
    /// Programs of which it is not known what they are there for: what is left of a run, another
    /// gpuws, or whoever has a file of the lease open for writing.
    Others(Vec<ProcessInfo>),
    /// They cannot be seen.
    Unseen,
}

impl Keepers {
    /// Finds those of a lease of the caller.
    ///
    /// They are believed by what the kernel says of them: each is the caller's, runs this very
    /// program, and has a file of the lease's own open. It was opened before it was asked, so that
    /// nobody else with its number is meant.
    ///
    /// # Errors
    /// When the list of processes cannot be read.
    pub(crate) fn of(entry: &Entry, locks: &FileLocks) -> Result<Keepers, Failure> {
        let caller = geteuid().as_raw();
        // To find the files costs as much as there are leases.
        let paths = match entry.owner == caller {
            true => locks.files(entry)?,
            false => Vec::new(),
        };
        if paths.is_empty() {
            return Ok(Keepers::Unseen);
        }
        let host = LinuxHost::new(roots());
        let files = paths.iter().map(resolve).collect::<gpu_core::Result<Vec<_>>>()?;
        let (mut holders, mut others) = (Vec::new(), Vec::new());
        for holder in host.holders(&files)?.holders {
            // Whoever has ended meanwhile keeps nothing.
            let Ok(opened) = host.open(holder.process.pid) else { continue };
            let (Ok(info), Ok(held)) = (opened.look(), opened.held(&files)) else {
                continue;
            };
            // Whoever looks for leases has each of them open for a moment, to read.
            if !held.iter().any(|held| held.access.contains(Access::OPEN_FOR_WRITING)) {
                continue;
            }
            if info.uid != Ok(caller) || !is_gpuws(&*opened) {
                others.push(info);
            } else if info.key.surely_same(&entry.root) && !is_claim(&host, &info) {
                // The root of a run's lease keeps that itself.
                return Ok(Keepers::Run(info.key.pid));
            } else {
                holders.push(opened);
            }
        }
        Ok(match (others.is_empty(), holders.is_empty()) {
            (false, _) => Keepers::Others(others),
            (true, false) => Keepers::Holders(holders),
            (true, true) => Keepers::Unseen,
        })
    }
}

/// Tells whether a process is the supervisor of a run: the program that a lease is for is gpuws.
pub(crate) fn is_supervisor(process: &ProcessInfo, leases: &[Entry]) -> bool {
    let has_lease = leases.iter().any(|lease| lease.root.surely_same(&process.key));
    let opened = || LinuxHost::new(roots()).open(process.key.pid);
    has_lease && opened().is_ok_and(|opened| is_gpuws(&*opened))
}

/// Tells whether a process runs this very program.
fn is_gpuws(process: &dyn ProcessHandle) -> bool {
    // A link of /proc, followed: the file itself, also where its name is another's by now.
    let Ok(program) = resolve("/proc/self/exe") else { return false };
    let held = process.held(std::slice::from_ref(&program)).unwrap_or_default();
    held.iter().any(|held| held.access.contains(Access::EXECUTABLE))
}

/// Tells whether a process was started as `gpuws claim`.
fn is_claim(host: &LinuxHost, process: &ProcessInfo) -> bool {
    let words = host.process(process.key.pid).ok().and_then(|known| known.command_line.ok());
    let command = words.iter().flatten().find(|word| ["claim", "run"].contains(&word.as_str()));
    command.is_some_and(|word| word == "claim")
}
