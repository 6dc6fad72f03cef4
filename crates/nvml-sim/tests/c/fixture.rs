//! A session, and the library that serves it.

use gpu_sim::{CallEffect, CallFault, Session};
use libloading::Library;
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tempfile::TempDir;

/// Serialises the tests, because the library serves one session at a time.
static TURN: Mutex<()> = Mutex::new(());

/// A test's session: a machine at its start with stopped time.
pub(crate) struct Stage {
    pub(crate) nvml: &'static NvmlLib,
    pub(crate) dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// Returns the path of the library, next to the test.
pub(crate) fn library_path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libnvml_sim.so")
}

/// Returns the library, loaded once.
pub(crate) fn library() -> &'static Library {
    static LOADED: OnceLock<Library> = OnceLock::new();
    // SAFETY: loading it runs only Rust's own library initialisation.
    LOADED.get_or_init(|| unsafe { Library::new(library_path()) }.unwrap())
}

fn nvml() -> &'static NvmlLib {
    static LOADED: OnceLock<NvmlLib> = OnceLock::new();
    // SAFETY: as above; bindgen's types for the functions are those of the public header.
    LOADED.get_or_init(|| unsafe { NvmlLib::new(library_path()) }.unwrap())
}

/// Returns a session of a machine at its start.
pub(crate) fn session(machine: &str) -> Session {
    Session { machine: machine.into(), frozen_at_ms: Some(0), ..Session::default() }
}

/// Returns a fault for every call of a function.
pub(crate) fn fault(function: &str, effect: CallEffect) -> CallFault {
    CallFault { function: function.to_owned(), gpu: None, from: 1, times: None, effect }
}

impl Stage {
    /// Serves a machine at its start.
    pub(crate) fn of(machine: &str) -> Self {
        Self::with(session(machine))
    }

    /// Serves a session.
    pub(crate) fn with(session: Session) -> Self {
        let dir = tempfile::tempdir().unwrap();
        session.write(dir.path()).unwrap();
        Self::at(dir)
    }

    /// Serves the unchecked content of a directory.
    pub(crate) fn at(dir: TempDir) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let nvml = nvml();
        // A failed test may leave the library initialised. SAFETY: these functions take no
        // arguments.
        while unsafe { nvml.nvmlShutdown() } == 0 {}
        let stage = Stage { nvml, dir, _turn: turn };
        assert_eq!(open(Some(stage.dir.path())), 0);
        stage
    }

    /// Serves a session and initialises the library.
    pub(crate) fn begun(session: Session) -> Self {
        let stage = Self::with(session);
        assert_eq!(stage.init(), 0);
        stage
    }

    pub(crate) fn init(&self) -> u32 {
        // SAFETY: it takes no arguments.
        unsafe { self.nvml.nvmlInit_v2() }
    }

    pub(crate) fn shut_down(&self) -> u32 {
        // SAFETY: it takes no arguments.
        unsafe { self.nvml.nvmlShutdown() }
    }

    /// Returns the handle of a device.
    pub(crate) fn device(&self, index: u32) -> nvmlDevice_t {
        let mut device = std::ptr::null_mut();
        // SAFETY: the handle outlives the call.
        let code = unsafe { self.nvml.nvmlDeviceGetHandleByIndex_v2(index, &mut device) };
        assert_eq!(code, 0, "GPU {index}");
        device
    }

    /// Queries the temperature of a device.
    pub(crate) fn temperature(&self, device: nvmlDevice_t) -> (u32, u32) {
        let mut degrees = 0;
        // SAFETY: the value outlives the call.
        let code = unsafe { self.nvml.nvmlDeviceGetTemperature(device, 0, &mut degrees) };
        (code, degrees)
    }
}

/// Sets the directory of the session.
pub(crate) fn open(dir: Option<&Path>) -> u32 {
    let dir = dir.map(|dir| CString::new(dir.as_os_str().as_bytes()).unwrap());
    // SAFETY: this matches the library's declaration.
    let function = unsafe {
        library().get::<extern "C" fn(*const c_char) -> u32>(b"gpuwsSimulatedOpen\0").unwrap()
    };
    function(dir.as_ref().map_or(null(), |dir| dir.as_ptr()))
}

/// Returns how often a function was called.
pub(crate) fn calls(function: Option<&CStr>) -> u64 {
    // SAFETY: this matches the library's declaration.
    let count = unsafe {
        library().get::<extern "C" fn(*const c_char) -> u64>(b"gpuwsSimulatedCalls\0").unwrap()
    };
    count(function.map_or(null(), CStr::as_ptr))
}

/// Returns the text of a marker function.
pub(crate) fn marker(name: &CStr) -> Option<String> {
    // SAFETY: both marker functions have this declaration.
    let marker = unsafe {
        library().get::<extern "C" fn() -> *const c_char>(name.to_bytes_with_nul()).unwrap()
    };
    let text = marker();
    // SAFETY: a marker's text is valid for the lifetime of the process.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned())
}

/// Calls a function that writes a text.
pub(crate) fn text(of: impl FnOnce(*mut c_char, u32) -> u32) -> Result<String, u32> {
    let mut buffer = [0x7f as c_char; 96];
    match of(buffer.as_mut_ptr(), buffer.len() as u32) {
        // SAFETY: the buffer lives here, and a successful call has NUL-terminated it.
        0 => Ok(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str().unwrap().to_owned()),
        code => Err(code),
    }
}
