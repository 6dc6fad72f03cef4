//! What tells a caller that this is a simulation. None of these needs an initialised library, and
//! none is counted.

use crate::entry::guard;
use crate::library;
use crate::pointer::In;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::ptr::null;

/// The longest path that is taken.
const MAX_PATH: usize = 4096;

/// Returns the name of the simulated machine, null where no session can be read. That this
/// function is there says that whatever this library tells is simulated.
#[unsafe(no_mangle)]
extern "C" fn gpuwsSimulatedMachine() -> *const c_char {
    text(|library| library.machine().and_then(|name| CString::new(name).ok()))
}

/// Returns the folder of the session, null where none is named.
#[unsafe(no_mangle)]
extern "C" fn gpuwsSimulatedSession() -> *const c_char {
    text(|library| CString::new(library.folder()?.as_os_str().as_bytes()).ok())
}

/// Names the folder of the session for the next initialisation, in place of the variable of the
/// environment; null for the variable again. Counts of calls begin anew.
#[unsafe(no_mangle)]
extern "C" fn gpuwsSimulatedOpen(folder: In<c_char>) -> u32 {
    guard(|| {
        let folder = match folder.is_null() {
            true => None,
            false => Some(PathBuf::from(std::ffi::OsString::from_vec(folder.bytes(MAX_PATH)?))),
        };
        library::lock().name_session(folder)
    })
}

/// Returns how often a function was called by this process; all of them where null is given.
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
