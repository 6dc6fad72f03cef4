//! A simulated machine that other programs see too: the private directory that they share, its
//! processes, and the real ones that stand for these.
//!
//! Here alone something real is touched: the directory, and the placeholders, which are started and
//! ended with the session.

mod error;
mod host;
mod leftovers;
mod library;
mod members;
mod placeholders;

pub use error::LiveError;
pub use host::{SessionClock, SessionHost};
pub use placeholders::{ACTOR, PlaceholderProcesses};

use crate::{ExternalProcess, Session, trusted};
use error::io;
use gpu_core::{Error, ErrorKind};
use rustix::fd::OwnedFd;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// The simulated NVML, as cargo names it.
pub const LIBRARY: &str = "libnvml_sim.so";

/// The names by which programs load NVML.
const NVML: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Returns the directory of the session that this program was started in, as the environment names
/// it.
pub fn named() -> Option<PathBuf> {
    std::env::var_os(Session::VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// A session's directory, closed to others and gone at the end: the simulated NVML under NVIDIA's
/// names, `session.json`, and stand-ins of the device files where real processes hold them.
#[derive(Debug)]
pub struct Dir {
    dir: PathBuf,
    library: PathBuf,
    /// Says that it is in use, for whoever clears up after those that were killed.
    _alive: OwnedFd,
}

impl Dir {
    /// Makes a directory for the simulated NVML at `library`, or for the one that lies beside this
    /// program.
    ///
    /// # Errors
    /// When there is no such library, it is no simulated NVML, or no directory can be made that
    /// others cannot exchange.
    pub fn make(library: Option<&Path>) -> Result<Self, LiveError> {
        let library = match library {
            Some(path) => simulated(path)?,
            None => beside_this_program(LIBRARY)?,
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(leftovers::PREFIX).permissions(Permissions::from_mode(0o700));
        let place = place()?;
        leftovers::clear(&place);
        let dir =
            builder.tempdir_in(place).map_err(|error| io("create a private directory", error))?;
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

    /// Returns where the stand-in of a device file such as `/dev/nvidia0` lies; `None` for a path
    /// that is not one below `/dev`, as a machine made by somebody else could name it.
    pub fn device_file(&self, path: &str) -> Option<PathBuf> {
        let inside = Path::new(path.strip_prefix("/dev/")?);
        let plain = |part| matches!(part, Component::Normal(_));
        (!path.contains('\n') && inside.components().all(plain))
            .then(|| self.path().join(Session::DEVICE_FILES).join(inside))
    }

    /// Returns the program that stands for a simulated process; it lies beside the library.
    ///
    /// # Errors
    /// When it does not.
    pub fn actor(&self) -> Result<PathBuf, LiveError> {
        let beside = self.library.with_file_name(ACTOR);
        if beside.is_file() { Ok(beside) } else { beside_this_program(ACTOR) }
    }

    /// Lets real processes appear on the session's devices by themselves; the program with which
    /// they do lies in the directory then.
    fn admit_externals(&self, actor: &Path) -> Result<(), LiveError> {
        ExternalProcess::admit(self.path())?;
        symlink(actor, self.path().join(ACTOR)).map_err(|error| io(format!("link {ACTOR}"), error))
    }

    /// Returns the variables that let a program see the session.
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

/// Finds the library that the user names.
///
/// # Errors
/// When it is none, or none that simulates: the command would run on the real machine.
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

/// Finds where the directory may be made: the user's runtime directory, else the one for temporary
/// files. In one that somebody else can write, the session could be exchanged.
///
/// # Errors
/// When somebody else can write into each of them.
pub fn place() -> Result<PathBuf, LiveError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute());
    match runtime.and_then(|runtime| trusted(&runtime).ok()) {
        Some(runtime) => Ok(runtime),
        None => trusted(&std::env::temp_dir()).map_err(LiveError::NoPlace),
    }
}

/// Finds what was built together with this program: beside it, beside the program that a test
/// was built for, or where a package puts libraries.
fn beside_this_program(name: &str) -> Result<PathBuf, LiveError> {
    let own = std::env::current_exe().and_then(|own| own.canonicalize());
    let own = own.map_err(|error| io("find this program", error))?;
    let dir = own.parent().unwrap_or(Path::new("/"));
    // Where cargo builds, what lies in `deps` is never behind.
    let places = [dir.join("deps"), dir.to_owned(), dir.join("../lib/gpuws")];
    let found = places.iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| LiveError::NotBeside { name: name.to_owned(), program: own.clone() })
}
