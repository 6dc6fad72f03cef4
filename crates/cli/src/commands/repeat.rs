//! A view that is shown once or repeatedly.

use crate::args::Repeat;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::Source;
use crate::terminal::Screen;
use gpu_core::{Clock, Origin};
use gpu_host::SystemClock;
use std::time::Duration;

/// Shows a view as often as requested, until Ctrl-C or until the reader closes the pipe.
pub(super) fn show(
    repeat: &Repeat,
    source: &Source,
    screen: &mut Screen,
    view: impl FnMut(&mut Screen) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    times(repeat.pause(), None, source, screen, view)
}

/// Shows a view once without `pause`, or else again after each pause, at most `count` times.
pub(super) fn times(
    pause: Option<Duration>,
    count: Option<u32>,
    source: &Source,
    screen: &mut Screen,
    mut view: impl FnMut(&mut Screen) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let exit = view(screen)?;
    let Some(pause) = pause else { return Ok(exit) };
    // The user waits in real time; a simulated machine also has its own clock.
    let real = SystemClock::new();
    let mut left = count.map(|count| count - 1);
    while !screen.is_closed() && left != Some(0) {
        left = left.map(|left| left - 1);
        real.sleep(pause);
        if source.is_simulated() {
            source.clock.sleep(pause);
        }
        view(screen)?;
    }
    Ok(exit)
}

/// Prints the name of a simulated machine on standard error, because standard output has the format
/// of another tool.
pub(super) fn name_origin(source: &Source) {
    let origin = source.backend.origin();
    if origin != Origin::Live {
        let origin = origin.to_string();
        let origin = crate::terminal::clean(&origin);
        crate::terminal::report(format_args!("gpuws: {origin}"));
    }
}
