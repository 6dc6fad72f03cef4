//! Functions that reveal the simulation to a caller. None of them needs an initialised library, and
//! none is counted.

use crate::entry::guard;
use crate::library;
use crate::pointer::In;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::ptr::null;

/// The maximum length of a path.
const MAX_PATH: usize = 4096;

/// Returns the name of the simulated machine, or null if no session can be read. The presence of
/// this function shows that the library is simulated.
#[unsafe(no_mangle)]
extern "C" fn gpuwsSimulatedMachine() -> *const c_char {
    text(|library| library.machine().and_then(|name| CString::new(name).ok()))
}

/// Returns the directory of the session, or null if none is set.
#[unsafe(no_mangle)]
extern "C" fn gpuwsSimulatedSession() -> *const c_char {
    text(|library| CString::new(library.dir()?.as_os_str().as_bytes()).ok())
}

/// Sets the directory of the session for the next initialisation, instead of the environment
/// variable; null restores the variable. Resets the call counts.
#[unsafe(no_mangle)]
extern "C" fn gpuwsSimulatedOpen(dir: In<c_char>) -> u32 {
    guard(|| {
        let dir = if dir.is_null() {
            None
        } else {
            Some(PathBuf::from(std::ffi::OsString::from_vec(dir.bytes(MAX_PATH)?)))
        };
        library::lock().name_session(dir)
    })
}

/// Returns how often this process called a function; null counts all functions.
#[unsafe(no_mangle)]
extern "C" fn gpuwsSimulatedCalls(function: In<c_char>) -> u64 {
    let count = || {
        let function = (!function.is_null()).then(|| function.text()).transpose().ok()?;
        Some(library::lock().counts.get(function.as_deref()))
    };
    catch_unwind(std::panic::AssertUnwindSafe(count)).ok().flatten().unwrap_or(0)
}

fn text(of: impl Fn(&mut library::Library) -> Option<CString>) -> *const c_char {
    let kept = || {
        let mut library = library::lock();
        let text = of(&mut library)?;
        Some(library.keep_text(text).as_ptr())
    };
    catch_unwind(std::panic::AssertUnwindSafe(kept)).ok().flatten().unwrap_or(null())
}
