//! The notes below the devices about missing information.

use crate::args::Global;
use crate::failure::Failure;
use crate::source::sim_option;
use crate::terminal::{Line, Screen, Tone, wrapped};
use crate::wording;
use gpu_core::{Reading, Snapshot};
use gpu_reaper::silence;

/// Prints the first fault for all devices that did not answer, and the devices whose users are
/// unknown.
pub(super) fn unreported(screen: &mut Screen, snapshot: &Snapshot) -> Result<(), Failure> {
    let silent = snapshot.devices.iter().find_map(silence);
    let answering = snapshot.devices.iter().filter(|d| d.sample.is_ok() && silence(d).is_none());
    let mut unknown = wording::unknown_users(answering).peekable();
    if silent.is_some() || unknown.peek().is_some() {
        screen.print(&Line::new())?;
    }
    if let Some(fault) = silent {
        wording::flow(screen, Line::new().accent("no answer: "), &format!("failed to {fault}"))?;
    }
    unknown.try_for_each(|line| wording::flow(screen, Line::new(), &line))
}

/// Prints how many processes could not be inspected, if there are any.
pub(super) fn uninspected(screen: &mut Screen, snapshot: &Snapshot) -> Result<(), Failure> {
    let unread = snapshot.unreadable.total() as usize;
    if unread == 0 {
        return Ok(());
    }
    let unread = wording::count(unread, "process", "processes");
    let text = format!("{unread} could not be inspected{}", unseen_by(snapshot.is_root));
    let room = screen.room(0);
    screen.print_all(wrapped(Line::new(), Tone::Dim, &text, room))
}

/// Returns which user could inspect the processes that were not readable.
fn unseen_by(is_root: Reading<bool>) -> &'static str {
    match is_root {
        // Root lacks a capability here.
        Ok(true) => ", not even by root: is this a container?",
        _ => "; root can inspect all",
    }
}

/// Returns the command that explains the findings about a machine.
pub(super) fn doctor(snapshot: &Snapshot, global: &Global) -> String {
    format!("gpuws {}doctor", sim_option(&snapshot.origin, global))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_gets_no_root_hint() {
        assert!(unseen_by(Ok(true)).starts_with(", not even by root"));
        assert_eq!(unseen_by(Ok(false)), "; root can inspect all");
    }
}
