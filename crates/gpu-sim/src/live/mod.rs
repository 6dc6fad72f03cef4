//! A simulated machine that other programs can see: the private directory that they share, its
//! processes, and the real processes that stand for them.
//!
//! Only this module touches anything real: the directory, and the placeholders, which start and end
//! with the session.

mod error;
mod host;
mod leftovers;
mod library;
mod members;
mod placeholders;

pub use error::LiveError;
pub use host::{SessionClock, SessionHost};
pub use placeholders::{ACTOR, PlaceholderProcesses};

use crate::trusted::private;
use crate::{CallFault, ExternalProcess, Session, trusted};
use error::io;
use gpu_core::{Error, ErrorKind};
use rustix::fd::OwnedFd;
use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind::AlreadyExists;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// The file name of the simulated NVML, as cargo builds it.
pub const LIBRARY: &str = "libnvml_sim.so";

/// The names by which programs load NVML.
const NVML: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Returns the directory of the session in which this program was started, from the environment.
pub fn named() -> Option<PathBuf> {
    std::env::var_os(Session::VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// The directory of a session, private to its user and removed at the end. It contains the
/// simulated NVML under NVIDIA's names, `session.json`, and stand-ins for the device files if real
/// processes hold them.
#[derive(Debug)]
pub struct Dir {
    dir: PathBuf,
    library: PathBuf,
    /// Marks the directory as in use, so that no other program removes it as a leftover.
    _alive: OwnedFd,
}

impl Dir {
    /// Creates a directory for the simulated NVML at `library`, or for the one built with this
    /// program.
    ///
    /// # Errors
    /// If the library does not exist or is not a simulated NVML, or if no directory can be created
    /// that other users cannot replace.
    pub fn make(library: Option<&Path>) -> Result<Self, LiveError> {
        let library = match library {
            Some(path) => simulated(path)?,
            None => find_near_program(LIBRARY)?,
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(leftovers::PREFIX).permissions(Permissions::from_mode(0o700));
        let parent = session_parent()?;
        leftovers::clear(&parent);
        let dir =
            builder.tempdir_in(parent).map_err(|error| io("create a private directory", error))?;
        let alive = leftovers::begin(dir.path())?;
        let made = Dir { dir: dir.keep(), library, _alive: alive };
        for name in NVML {
            symlink(&made.library, made.path().join(name))
                .map_err(|error| io("link the simulated NVML", error))?;
        }
        Ok(made)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Checks that the simulated NVML has the functions of these faults, which would have no effect
    /// otherwise.
    ///
    /// # Errors
    /// If one does not exist, or if the library cannot be read.
    pub fn check_faults(&self, faults: &[CallFault]) -> Result<(), LiveError> {
        for CallFault { function, .. } in faults.iter().filter(|fault| fault.function != "*") {
            let what = || format!("inject a fault into '{function}'");
            if !library::has(&self.library, function).map_err(|error| io(what(), error))? {
                let error = Error::new(ErrorKind::Invalid, what());
                return Err(error.with_source("the simulated NVML lacks this function").into());
            }
        }
        Ok(())
    }

    /// Returns the path of the stand-in for a device file such as `/dev/nvidia0`. `None` if the
    /// path is not below `/dev`; a machine file can contain any path.
    pub fn device_file(&self, path: &str) -> Option<PathBuf> {
        let inside = Path::new(path.strip_prefix("/dev/")?);
        let plain = |part| matches!(part, Component::Normal(_));
        (!path.contains('\n') && inside.components().all(plain))
            .then(|| self.path().join(Session::DEVICE_FILES).join(inside))
    }

    /// Returns the path of the placeholder program, which lies in the directory of the library or
    /// is built with this program.
    ///
    /// # Errors
    /// `NotInstalled` if it does not exist.
    pub fn actor(&self) -> Result<PathBuf, LiveError> {
        let neighbor = self.library.with_file_name(ACTOR);
        if neighbor.is_file() { Ok(neighbor) } else { find_near_program(ACTOR) }
    }

    /// Lets real processes register themselves on the session's devices, and links the program with
    /// which they do so into the directory.
    fn admit_externals(&self, actor: &Path) -> Result<(), LiveError> {
        ExternalProcess::admit(self.path())?;
        symlink(actor, self.path().join(ACTOR)).map_err(|error| io(format!("link {ACTOR}"), error))
    }

    /// Returns the environment variables that let a program see the session.
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        let mut path = self.path().as_os_str().to_owned();
        if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty()) {
            path.push(":");
            path.push(before);
        }
        [("LD_LIBRARY_PATH", path), (Session::VARIABLE, self.path().as_os_str().to_owned())]
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        leftovers::remove(&self.dir);
    }
}

/// Returns the canonical path of the library that the user names.
///
/// # Errors
/// If it does not exist, or is not a simulated NVML: the command would run on the real machine.
fn simulated(path: &Path) -> Result<PathBuf, LiveError> {
    let failed = |what: &str, error: std::io::Error| {
        Error::new(ErrorKind::Invalid, format!("{what} '{}'", path.display())).with_source(error)
    };
    let found = path.canonicalize().map_err(|error| failed("find", error))?;
    match library::is_simulated(&found).map_err(|error| failed("read", error))? {
        true => Ok(found),
        false => Err(LiveError::NotSimulated(path.to_owned())),
    }
}

/// Returns the parent for session directories, in which only the user can create files: the user's
/// runtime directory, else a directory in that for temporary files.
///
/// # Errors
/// `NoPrivateDir` if other users can write to each of them.
pub fn session_parent() -> Result<PathBuf, LiveError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute());
    match runtime.and_then(|runtime| private(&runtime).ok()) {
        Some(runtime) => Ok(runtime),
        None => own_dir(&std::env::temp_dir()).map_err(LiveError::NoPrivateDir),
    }
}

/// Returns the user's own directory in `parent`, and creates it if others can create files there.
///
/// It is never removed. A program that outlives its session still has the name of the session, for
/// example in `LD_LIBRARY_PATH`, and another user must not get that name.
fn own_dir(parent: &Path) -> Result<PathBuf, Error> {
    let parent = trusted(parent)?;
    if let Ok(parent) = private(&parent) {
        return Ok(parent);
    }
    let uid = rustix::process::geteuid().as_raw();
    let dir = parent.join(format!("gpuws-sim-of-{uid}"));
    let invalid = || Error::new(ErrorKind::Invalid, format!("create '{}'", dir.display()));
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != AlreadyExists => Err(invalid().with_source(error)),
        _ if dir.symlink_metadata().is_ok_and(|found| found.is_dir()) => private(&dir),
        _ => Err(invalid().with_source("it exists and is not a directory")),
    }
}

/// Returns the path of a file that was built together with this program: in the program's
/// directory, in `deps` for a test, or in a package's library directory.
fn find_near_program(name: &str) -> Result<PathBuf, LiveError> {
    let own = std::env::current_exe().and_then(|own| own.canonicalize());
    let own = own.map_err(|error| io("find this program", error))?;
    let dir = own.parent().unwrap_or(Path::new("/"));
    // In a target directory of cargo, the files in `deps` are always up to date.
    let candidates = [dir.join("deps"), dir.to_owned(), dir.join("../lib/gpuws")];
    let found = candidates.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    let found = found.or_else(|| in_python_package(dir, name));
    found.ok_or_else(|| LiveError::NotInstalled { name: name.to_owned(), program: own.clone() })
}

/// Returns the path of a file in the Python package that was installed with the program, where
/// programs are in `bin` and packages in `lib/python3.N/site-packages`.
fn in_python_package(programs: &Path, name: &str) -> Option<PathBuf> {
    let name = if name == LIBRARY { NVML[0] } else { name };
    let pythons = std::fs::read_dir(programs.join("../lib")).ok()?.flatten().map(|dir| dir.path());
    let sites =
        pythons.flat_map(|dir| ["site-packages", "dist-packages"].map(|site| dir.join(site)));
    sites.map(|site| site.join("gpuws/_sim").join(name)).find(|path| path.is_file())
}
