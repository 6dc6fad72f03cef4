//! The directory with the shim.

use super::NAME;
use crate::exit::Exit;
use crate::failure::Failure;
use gpu_host::{PathTrust, TrustedDir};
use rustix::fs::{AtFlags, Mode};
use rustix::process::geteuid;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

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
        for dir in candidates() {
            match Shim::in_dir(&dir) {
                Ok(shim) => return Ok(shim),
                Err(failure) => why = why.or(Some(failure)),
            }
        }
        Err(why.unwrap_or_else(none))
    }

    fn in_dir(dir: &Path) -> Result<Self, Failure> {
        let dir = TrustedDir::make(dir, PathTrust::Private)?;
        let shown = dir.path().display();
        let failed = |errno: rustix::io::Errno| {
            Failure::io(format!("create a link in '{shown}'"), errno.into())
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
fn candidates() -> Vec<PathBuf> {
    if geteuid().is_root() {
        return vec![PathBuf::from(OF_ROOT)];
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let candidates = [absolute("XDG_RUNTIME_DIR"), cache];
    // A colon separates the directories in `PATH`.
    let fits = |dir: &PathBuf| !dir.as_os_str().as_encoded_bytes().contains(&b':');
    candidates.into_iter().flatten().filter(fits).map(|dir| dir.join("gpuws/bin")).collect()
}
