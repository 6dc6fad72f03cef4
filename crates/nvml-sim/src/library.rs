//! The state of the library in a process: its session, its initialisation count, its call counts.
//!
//! A single lock guards all state and is held only briefly: a caller that the session delays or
//! hangs waits without the lock.

use crate::code::{Answer, Code};
use crate::counts::Counts;
use crate::event_set::EventSets;
use crate::running::{Effects, Running};
use crate::view::View;
use gpu_core::{ErrorKind, MachineFault};
use gpu_sim::Session;
use std::ffi::{CStr, CString, c_int};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

unsafe extern "C" {
    /// Registers a function to run when the process exits or this library is unloaded.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

static LIBRARY: Mutex<Library> = Mutex::new(Library::new());

/// The state of one process.
pub(crate) struct Library {
    /// The session's directory, if a caller set it.
    named: Option<PathBuf>,
    /// Initialisations minus shutdowns.
    initialised: u32,
    running: Option<Running>,
    pub(crate) counts: Counts,
    pub(crate) event_sets: EventSets,
    /// Texts returned to callers, valid for the lifetime of the process.
    texts: Vec<&'static CStr>,
}

/// Locks the library. Do not hold the lock while waiting.
pub(crate) fn lock() -> MutexGuard<'static, Library> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn write_down_counts() {
    let _ = std::panic::catch_unwind(|| lock().counts.write_down());
}

impl Library {
    const fn new() -> Self {
        Library {
            named: None,
            initialised: 0,
            running: None,
            counts: Counts::new(),
            event_sets: EventSets::new(),
            texts: Vec::new(),
        }
    }

    /// Sets or clears the directory of the session for the next initialisation, and resets the
    /// state.
    ///
    /// # Errors
    /// `ALREADY_INITIALIZED` while the current session is in use.
    pub(crate) fn name_session(&mut self, dir: Option<PathBuf>) -> Answer {
        if self.initialised > 0 {
            return Err(Code::ALREADY_INITIALIZED);
        }
        self.named = dir;
        self.running = None;
        self.counts.clear();
        Ok(())
    }

    /// Returns the directory of the session.
    pub(crate) fn dir(&self) -> Option<PathBuf> {
        let variable = || std::env::var_os(Session::VARIABLE).filter(|value| !value.is_empty());
        self.named.clone().or_else(|| variable().map(PathBuf::from))
    }

    /// Reads the session again, and keeps the machine if the session is the same.
    ///
    /// # Errors
    /// The reason why there is no machine to serve.
    fn read_session(&mut self) -> gpu_core::Result<&mut Running> {
        let Some(dir) = self.dir() else {
            self.running = None;
            let what = format!("find a simulated machine: {} is not set", Session::VARIABLE);
            return Err(gpu_core::Error::new(MachineFault::DriverNotLoaded, what));
        };
        let session = match Session::read(&dir) {
            Ok(session) => session,
            Err(error) => {
                self.running = None;
                return Err(error);
            }
        };
        let same = self.running.take().filter(|running| running.serves(&dir, &session));
        if session.counts_calls {
            self.counts.append_to(&dir, || atexit(write_down_counts) == 0);
        }
        Ok(self.running.insert(same.unwrap_or_else(|| Running::new(dir, session))))
    }

    /// Returns the name of the simulated machine; `None` without a session.
    pub(crate) fn machine(&mut self) -> Option<String> {
        if self.initialised == 0 {
            self.read_session().ok()?;
        }
        self.running.as_ref()?.machine_name()
    }

    /// Stores a text for the lifetime of the process.
    pub(crate) fn keep_text(&mut self, text: CString) -> &'static CStr {
        if let Some(known) = self.texts.iter().find(|known| **known == text.as_c_str()) {
            return known;
        }
        let kept: &'static CStr = Box::leak(text.into_boxed_c_str());
        self.texts.push(kept);
        kept
    }

    /// Counts a call and returns the session's faults for it.
    fn enter(&mut self, function: &'static str, gpu: Option<u32>) -> Answer<Effects> {
        self.counts.add(function);
        if self.initialised == 0 {
            return Err(Code::UNINITIALIZED);
        }
        self.running.as_mut().ok_or(Code::UNINITIALIZED)?.enter(function, gpu)
    }

    /// Returns the current machine.
    fn view(&mut self) -> Answer<Arc<View>> {
        if self.initialised == 0 {
            return Err(Code::UNINITIALIZED);
        }
        self.running.as_mut().ok_or(Code::UNINITIALIZED)?.view()
    }

    /// Returns the served machine.
    pub(crate) fn running(&mut self) -> Answer<&mut Running> {
        self.running.as_mut().ok_or(Code::UNINITIALIZED)
    }
}

/// Counts a call, applies the session's faults, and returns the machine.
///
/// # Errors
/// `UNINITIALIZED`, or the code of a fault.
pub(crate) fn enter(function: &'static str, gpu: Option<u32>) -> Answer<Arc<View>> {
    let mut library = lock();
    let effects = library.enter(function, gpu)?;
    library = apply(effects, library)?;
    library.view()
}

/// Applies the session's faults for a call; a delayed caller waits without the lock.
///
/// # Errors
/// The code of a fault.
fn apply(
    effects: Effects,
    mut library: MutexGuard<'static, Library>,
) -> Answer<MutexGuard<'static, Library>> {
    if effects.waits() {
        drop(library);
        effects.wait();
        library = lock();
    }
    effects.code()?;
    Ok(library)
}

/// Initialises the library once more.
///
/// # Errors
/// `DRIVER_NOT_LOADED` without a readable session, with the reason on standard error; the machine's
/// own code if its driver does not answer.
pub(crate) fn initialise(function: &'static str) -> Answer {
    let mut library = lock();
    library.counts.add(function);
    if library.initialised == 0 {
        library.read_session().map_err(|error| complain(&error))?;
    }
    let effects = library.running()?.enter(function, None)?;
    library = apply(effects, library)?;
    let running = library.running()?;
    running.simulation().map_err(|error| complain(&error))?;
    if let Err(fault) = &running.view()?.driver
        && fault.kind != ErrorKind::Machine(MachineFault::NoDevices)
    {
        return Err(fault.into());
    }
    library.initialised = library.initialised.saturating_add(1);
    Ok(())
}

/// Reverts one initialisation.
///
/// # Errors
/// `UNINITIALIZED` without a preceding initialisation.
pub(crate) fn shut_down(function: &'static str) -> Answer {
    let mut library = lock();
    let effects = library.enter(function, None)?;
    library = apply(effects, library)?;
    library.initialised = library.initialised.checked_sub(1).ok_or(Code::UNINITIALIZED)?;
    if library.initialised == 0 {
        library.event_sets.clear();
        library.counts.write_down();
    }
    Ok(())
}

/// Prints on standard error why there is no machine, because NVML has no code for it.
fn complain(error: &gpu_core::Error) -> Code {
    let text: String = error.fault().text.chars().map(clean).collect();
    // A closed standard error is ignored.
    let _ = writeln!(std::io::stderr(), "libnvidia-ml (simulated): failed to {text}");
    Code::DRIVER_NOT_LOADED
}

fn clean(character: char) -> char {
    if character.is_control() { '\u{fffd}' } else { character }
}
