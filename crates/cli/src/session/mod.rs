//! A simulated machine that other programs see too: the private folder that they share.

mod devices;
mod host;
mod leftovers;
mod library;
mod members;
mod placeholders;

pub(crate) use devices::SessionDevices;
pub(crate) use host::SessionHost;
pub(crate) use placeholders::{ACTOR, PlaceholderProcesses};

use crate::exit::Exit;
use crate::failure::Failure;
use gpu_sim::{ExternalProcess, Session, trusted};
use rustix::fd::OwnedFd;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// The simulated NVML, as cargo names it.
const LIBRARY: &str = "libnvml_sim.so";

/// The names by which programs load NVML.
const NVML: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Returns the folder of the session that this program was started in, as the environment names
/// it.
pub(crate) fn named() -> Option<PathBuf> {
    std::env::var_os(Session::VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// A session's folder, closed to others and gone at the end: the simulated NVML under NVIDIA's
/// names, `session.json`, and stand-ins of the device files where real processes hold them.
pub(crate) struct Folder {
    folder: PathBuf,
    library: PathBuf,
    /// Says that it is in use, for whoever clears up after those that were killed.
    _alive: OwnedFd,
}

impl Folder {
    /// Makes a folder for the simulated NVML at `library`, or for the one that lies beside this
    /// program.
    ///
    /// # Errors
    /// When there is no such library, it is no simulated NVML, or no folder can be made that
    /// others cannot exchange.
    pub(crate) fn make(library: Option<&Path>) -> Result<Self, Failure> {
        let library = match library {
            Some(path) => simulated(path)?,
            None => beside_this_program(LIBRARY)?,
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(leftovers::PREFIX).permissions(Permissions::from_mode(0o700));
        let place = place()?;
        leftovers::clear(&place);
        let folder = builder
            .tempdir_in(place)
            .map_err(|error| Failure::io("create a private directory", error))?;
        let alive = leftovers::begin(folder.path())?;
        let made = Folder { folder: folder.keep(), library, _alive: alive };
        for name in NVML {
            symlink(&made.library, made.path().join(name))
                .map_err(|error| Failure::io("link the simulated NVML", error))?;
        }
        Ok(made)
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// Returns where the stand-in of a device file such as `/dev/nvidia0` lies; `None` for a path
    /// that is not one below `/dev`, as a machine made by somebody else could name it.
    pub(crate) fn device_file(&self, path: &str) -> Option<PathBuf> {
        let inside = Path::new(path.strip_prefix("/dev/")?);
        let plain = |part| matches!(part, Component::Normal(_));
        (!path.contains('\n') && inside.components().all(plain))
            .then(|| self.path().join(Session::DEVICE_FILES).join(inside))
    }

    /// Returns the program that stands for a simulated process; it lies beside the library.
    pub(crate) fn actor(&self) -> Result<PathBuf, Failure> {
        let beside = self.library.with_file_name(ACTOR);
        if beside.is_file() { Ok(beside) } else { beside_this_program(ACTOR) }
    }

    /// Lets real processes appear on the session's devices by themselves; the program with which
    /// they do lies in the folder then.
    fn admit_walk_ons(&self, actor: &Path) -> Result<(), Failure> {
        ExternalProcess::admit(self.path())?;
        symlink(actor, self.path().join(ACTOR))
            .map_err(|error| Failure::io(format!("link {ACTOR}"), error))
    }

    /// Returns the variables that let a program see the session.
    pub(crate) fn environment(&self) -> [(&'static str, OsString); 2] {
        let mut path = self.path().as_os_str().to_owned();
        if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty()) {
            path.push(":");
            path.push(before);
        }
        [("LD_LIBRARY_PATH", path), (Session::VARIABLE, self.path().as_os_str().to_owned())]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        leftovers::remove(&self.folder);
    }
}

/// Finds the library that the user names.
///
/// # Errors
/// When it is none, or none that simulates: the command would run on the real machine.
fn simulated(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |what: &str, error| {
        Failure::io(format!("{what} '{}'", path.display()), error).ending(Exit::Usage)
    };
    let found = path.canonicalize().map_err(|error| failed("find", error))?;
    match library::is_simulated(&found).map_err(|error| failed("read", error))? {
        true => Ok(found),
        false => Err(Failure::new(Exit::Usage, format!("simulate with '{}'", path.display()))
            .with_source("it is not a simulated NVML")
            .with_hint(format!("use the {LIBRARY} built with gpuws"))),
    }
}

/// Finds where the folder may be made: the user's runtime folder, else the one for temporary
/// files. In one that somebody else can write, the session could be exchanged.
pub(crate) fn place() -> Result<PathBuf, Failure> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute());
    match runtime.and_then(|runtime| trusted(&runtime).ok()) {
        Some(runtime) => Ok(runtime),
        None => trusted(&std::env::temp_dir()).map_err(|error| {
            Failure::from(error).with_hint("set TMPDIR to a directory that you own")
        }),
    }
}

/// Finds what was built together with this program: beside it, beside the program that a test
/// was built for, or where a package puts libraries.
fn beside_this_program(name: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().and_then(|own| own.canonicalize());
    let own = own.map_err(|error| Failure::io("find this program", error))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    // Where cargo builds, what lies in `deps` is never behind.
    let places = [folder.join("deps"), folder.to_owned(), folder.join("../lib/gpuws")];
    let found = places.iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::new(Exit::Own, format!("find {name} beside {}", own.display())).with_hint(format!(
            "build it with the same profile (cargo build -p gpu-nvml-sim), or name the library: \
             --library {LIBRARY}"
        ))
    })
}
