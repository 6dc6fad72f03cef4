//! Who keeps a lease alive: the processes that have its file open.

use crate::commands::front::SUPERVISOR;
use crate::failure::Failure;
use crate::source::roots;
use gpu_core::{Access, Entry, Host, ProcessHandle, ProcessInfo};
use gpu_host::{FileLocks, LinuxHost, resolve};
use rustix::process::geteuid;
use std::path::Path;

/// Those who keep a lease alive.
pub(crate) enum Keepers {
    /// Programs of gpuws that are there for nothing else.
    Holders(Vec<Box<dyn ProcessHandle>>),
    /// A run, or what is left of one.
    Run,
    /// They cannot be seen.
    Unseen,
}

impl Keepers {
    /// Finds those of a lease of the caller.
    ///
    /// They are believed by what the kernel says of them: each is the caller's, runs this very
    /// program, and has the lease's own file open. It was opened before it was asked, so that
    /// nobody else with its number is meant.
    ///
    /// # Errors
    /// When the list of processes cannot be read.
    pub(crate) fn of(entry: &Entry, locks: &FileLocks) -> Result<Keepers, Failure> {
        let caller = geteuid().as_raw();
        let Some(path) = locks.file(entry)?.filter(|_| entry.owner == caller) else {
            return Ok(Keepers::Unseen);
        };
        let host = LinuxHost::new(roots());
        let file = resolve(path)?;
        // A link of /proc, followed: the file itself, also where its name is another's by now.
        let program = resolve(Path::new("/proc/self/exe"))?;
        let mut holders = Vec::new();
        for holder in host.holders(std::slice::from_ref(&file))?.holders {
            // Whoever has ended meanwhile keeps nothing.
            let Ok(opened) = host.open(holder.process.pid) else { continue };
            let (Ok(info), Ok(held)) =
                (opened.look(), opened.held(&[file.clone(), program.clone()]))
            else {
                continue;
            };
            let has = |path: &str, how: Access| {
                held.iter().any(|held| &*held.path == path && held.access.contains(how))
            };
            // Whoever looks for leases has each of them open for a moment, to read.
            if !has(&file.path, Access::OPEN_FOR_WRITING) {
                continue;
            }
            let holds = host.process(info.key.pid).is_ok_and(|known| !is_supervisor(&known));
            let is_gpuws = has(&program.path, Access::EXECUTABLE);
            if !is_gpuws || !holds || info.uid != Ok(caller) {
                return Ok(Keepers::Run);
            }
            holders.push(opened);
        }
        match holders.is_empty() {
            true => Ok(Keepers::Unseen),
            false => Ok(Keepers::Holders(holders)),
        }
    }
}

/// Tells whether a process says that it is the supervisor of a run, or does not say what it is.
pub(crate) fn is_supervisor(process: &ProcessInfo) -> bool {
    let words = process.command_line.as_ref();
    words.is_ok_and(|words| words.first().is_some_and(|word| word == SUPERVISOR))
}
