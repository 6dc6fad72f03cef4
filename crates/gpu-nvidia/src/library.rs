//! Where NVML's library is, and whether it is a simulated one.

use gpu_core::{Error, ErrorKind, MachineFault, Result};
use libloading::Library;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The names under which drivers install it. A machine without the developer package has only the
/// first; under WSL2 it lies in no directory that the loader searches.
const NAMES: [&str; 3] =
    ["libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// No name of a machine is longer, in bytes.
const LONGEST_NAME: usize = 256;

/// No path is longer (`PATH_MAX`), in bytes.
const LONGEST_PATH: usize = 4096;

/// What a simulated NVML says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedNvml {
    /// The machine that it serves; `?` where it does not say.
    pub machine: String,
    /// The directory of its session; empty where it does not say.
    pub session: PathBuf,
}

/// A library that is loaded, and by which name, for nvml-wrapper to load it by.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) library: Library,
    pub(crate) name: OsString,
}

/// Loads the library at `path`, or the first of the known names that loads.
///
/// # Errors
/// `Machine(NoLibrary)` when none loads, `Invalid` when the one at `path` does not; with what the
/// loader says.
pub(crate) fn load(path: Option<&Path>) -> Result<Loaded> {
    if let Some(path) = path {
        // A bare name would be searched for elsewhere, and one with a slash is found here.
        let path = if path.is_absolute() { path.into() } else { Path::new(".").join(path) };
        return open(path.as_os_str()).map_err(|said| {
            let what = format!("load NVML from '{}'", path.display());
            Error::new(ErrorKind::Invalid, what).with_source(said)
        });
    }
    let mut said = Vec::new();
    for name in NAMES {
        match open(OsStr::new(name)) {
            Ok(library) => return Ok(library),
            Err(error) => said.push(error),
        }
    }
    let error = Error::new(MachineFault::NoLibrary, format!("load {}", NAMES[0]));
    // That a name is nowhere to be found is what the kind says.
    said.retain(|error| !error.ends_with("No such file or directory"));
    Err(if said.is_empty() { error } else { error.with_source(said.join("; ")) })
}

fn open(name: &OsStr) -> Result<Loaded, String> {
    // SAFETY: loading runs the library's constructors. It is the driver's own library, from where
    // the system's loader finds it, or one that the caller names to be trusted as such.
    let library = unsafe { Library::new(name) }.map_err(|error| error.to_string())?;
    Ok(Loaded { library, name: name.to_owned() })
}

/// Returns what the library says if it is a simulated one.
pub(crate) fn simulated(library: &Library) -> Option<SimulatedNvml> {
    let machine = say(library, c"gpuwsSimulatedMachine", LONGEST_NAME)?;
    let session = say(library, c"gpuwsSimulatedSession", LONGEST_PATH).unwrap_or_default();
    Some(SimulatedNvml {
        machine: machine.map_or("?".to_owned(), |name| String::from_utf8_lossy(&name).into()),
        session: OsString::from_vec(session.unwrap_or_default()).into(),
    })
}

/// Returns the first `longest` bytes of what a marker says, which may be nothing; `None` when the
/// library does not have it.
fn say(library: &Library, marker: &CStr, longest: usize) -> Option<Option<Vec<u8>>> {
    type Marker = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: only our own simulated library exports the two names, as functions of this type.
    let function = unsafe { library.get::<Marker>(marker.to_bytes_with_nul()) }.ok()?;
    // SAFETY: it takes nothing.
    let text = unsafe { function() };
    if text.is_null() {
        return Some(None);
    }
    // SAFETY: what is not NULL is a C string that is valid for the library's life.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Some(Some(bytes[..bytes.len().min(longest)].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unloadable_named_library_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libnvidia-ml.so.1");
        std::fs::write(&path, "no library").unwrap();
        for path in [path.as_path(), Path::new("/no/such/file"), Path::new("none.so")] {
            let error = load(Some(path)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.fault().text.contains(&*path.to_string_lossy()), "{}", error.fault());
        }
    }
}
