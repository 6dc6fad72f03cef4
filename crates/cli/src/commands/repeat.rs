//! A view shown once, or again and again.

use crate::args::Repeat;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::Source;
use crate::terminal::Screen;
use gpu_core::{Clock, Origin};
use gpu_host::SystemClock;
use std::io::Write;

/// Shows a view as often as the command line says, until Ctrl-C or until the reader goes away.
///
/// # Errors
/// The view's own.
pub(super) fn show(
    repeat: &Repeat,
    source: &Source,
    screen: &mut Screen,
    mut view: impl FnMut(&mut Screen) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let exit = view(screen)?;
    let Some(pause) = repeat.pause() else { return Ok(exit) };
    // Who sits before it waits by the real clock; a simulated machine has its own time besides.
    let real = SystemClock::new();
    while !screen.is_closed() {
        real.sleep(pause);
        if source.is_simulated() {
            source.clock.sleep(pause);
        }
        view(screen)?;
    }
    Ok(exit)
}

/// Names a simulated machine on standard error, where standard output has the form of another
/// tool.
pub(super) fn name_origin(source: &Source) {
    let origin = source.backend.origin();
    if origin != Origin::Live {
        let origin = origin.to_string();
        let origin = crate::terminal::clean(&origin);
        // Where standard error is closed, nobody is left to be misled.
        let _ = writeln!(std::io::stderr(), "gpuws: {origin}");
    }
}
