//! Wording of the output, and wrapped text.

use crate::failure::Failure;
use crate::terminal::{Line, Screen, below, flowed};
pub(crate) use gpu_report::wording::*;

/// Prints the head and the text, wrapped to the width of the screen ([`flowed`]).
pub(crate) fn flow(screen: &mut Screen, head: Line, text: &str) -> Result<(), Failure> {
    let width = screen.width();
    screen.print_all(flowed(head, text, width))
}

/// Prints a head and a command, below the head if they do not fit on one line. The command is never
/// wrapped, so that it can be copied.
pub(crate) fn copyable(screen: &mut Screen, head: &str, command: &str) -> Result<(), Failure> {
    let pieces = [Line::new().plain(head), Line::new().accent(command)];
    let room = screen.room(0);
    screen.print_all(gpu_report::text::packed(Line::new(), pieces, "   ", 4, room))
}

/// Prints a head and a text on one line if they fit, otherwise the text below the head.
pub(crate) fn print_wrapped(screen: &mut Screen, head: Line, text: &str) -> Result<(), Failure> {
    let width = screen.width();
    screen.print_all(below(head, text, width))
}
