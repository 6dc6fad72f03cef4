//! The job's part, if the job is an entry point of the calling program.

use gpu_core::Result;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};

/// The argument that makes a program run one of its entry points.
pub(super) const ENTRY: &str = "gpuws-entry";

/// The first byte of an entry point's result.
pub(super) const VALUE: u8 = 0;
pub(super) const FAILURE: u8 = 1;
pub(super) const PANIC: u8 = 2;

/// An entry point: returns its result for an input, or why there is none.
pub type EntryPoint = fn(&mut dyn Read) -> Result<Vec<u8>, String>;

/// Runs the entry point that this process was started for, and returns the exit code; `None` if the
/// process was not started for an entry point and should continue.
///
/// Call this first in `main`, with the program's arguments without its name, the value of
/// [`RESULT`](crate::RESULT) in its environment, and its standard input.
pub fn serve_entry(
    arguments: impl IntoIterator<Item = OsString>,
    result: Option<OsString>,
    input: &mut dyn Read,
    entries: &[(&str, EntryPoint)],
) -> Option<i32> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != ENTRY {
        return None;
    }
    let name = arguments.next()?;
    let entry = entries.iter().find(|(known, _)| name == *known).map(|(_, entry)| entry);
    let run = || entry.map(|entry| entry(input));
    let (kind, said) = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Some(Ok(value))) => (VALUE, value),
        Ok(Some(Err(why))) => (FAILURE, why.into_bytes()),
        Ok(None) => (FAILURE, b"no such entry point".to_vec()),
        Err(panic) => (PANIC, words_of(&*panic)),
    };
    let send = || -> std::io::Result<()> {
        let mut file = File::options().write(true).open(result.unwrap_or_default())?;
        file.write_all(&[kind])?;
        file.write_all(&said)
    };
    Some(match (send(), kind) {
        (Ok(()), VALUE) => 0,
        _ => 1,
    })
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> Vec<u8> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no reason given").as_bytes().to_vec()
}
