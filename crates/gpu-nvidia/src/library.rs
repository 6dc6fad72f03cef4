//! Loads the NVML library, and detects the simulated one.

use gpu_core::{Error, ErrorKind, MachineFault, Result};
use libloading::Library;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The names of the installed library. A machine without the developer package has only the first;
/// WSL2 installs the library outside the loader's search path.
const NAMES: [&str; 3] =
    ["libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// The maximum length of a machine name in bytes.
const LONGEST_NAME: usize = 256;

/// The maximum length of a path in bytes (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;

/// The simulation behind a simulated NVML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedNvml {
    /// The simulated machine; `?` if unknown.
    pub machine: String,
    /// The directory of its session; empty if unknown.
    pub session: PathBuf,
}

/// A loaded library, and the name from which nvml-wrapper can load it again.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) library: Library,
    pub(crate) name: OsString,
}

/// Loads the library at `path`, or the first of the known names that loads.
///
/// # Errors
/// `Machine(NoLibrary)` if none loads, `Invalid` if the library at `path` does not; with the
/// messages of the loader.
pub(crate) fn load(path: Option<&Path>) -> Result<Loaded> {
    if let Some(path) = path {
        // The loader would look up a name without a slash in its search path.
        let path = if path.is_absolute() { path.into() } else { Path::new(".").join(path) };
        return open(path.as_os_str()).map_err(|errors| {
            let what = format!("load NVML from '{}'", path.display());
            Error::new(ErrorKind::Invalid, what).with_source(errors)
        });
    }
    let mut errors = Vec::new();
    for name in NAMES {
        match open(OsStr::new(name)) {
            Ok(library) => return Ok(library),
            Err(error) => errors.push(error),
        }
    }
    let error = Error::new(MachineFault::NoLibrary, format!("load {}", NAMES[0]));
    // The error kind already implies a missing file.
    errors.retain(|error| !error.ends_with("No such file or directory"));
    Err(if errors.is_empty() { error } else { error.with_source(errors.join("; ")) })
}

fn open(name: &OsStr) -> Result<Loaded, String> {
    // SAFETY: loading runs the library's constructors. The library is the driver's, found by the
    // system's loader, or one that the caller trusts.
    let library = unsafe { Library::new(name) }.map_err(|error| error.to_string())?;
    Ok(Loaded { library, name: name.to_owned() })
}

/// Returns the simulation of the library; `None` for a real library.
pub(crate) fn simulated(library: &Library) -> Option<SimulatedNvml> {
    let machine = marker_text(library, c"gpuwsSimulatedMachine", LONGEST_NAME)?;
    let session = marker_text(library, c"gpuwsSimulatedSession", LONGEST_PATH).unwrap_or_default();
    Some(SimulatedNvml {
        machine: machine.map_or("?".to_owned(), |name| String::from_utf8_lossy(&name).into()),
        session: OsString::from_vec(session.unwrap_or_default()).into(),
    })
}

/// Returns at most `longest` bytes of the text of a marker function, which may be NULL; `None` if
/// the library lacks the function.
fn marker_text(library: &Library, marker: &CStr, longest: usize) -> Option<Option<Vec<u8>>> {
    type Marker = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: only gpuws's simulated library exports the two names, as functions of this type.
    let function = unsafe { library.get::<Marker>(marker.to_bytes_with_nul()) }.ok()?;
    // SAFETY: it has no arguments.
    let text = unsafe { function() };
    if text.is_null() {
        return Some(None);
    }
    // SAFETY: a non-NULL result is a C string that is valid as long as the library is loaded.
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
