//! Wording of the output, and wrapped text.

use crate::failure::Failure;
use crate::terminal::{Line, Screen};
pub(crate) use gpu_report::wording::*;
use unicode_width::UnicodeWidthStr;

/// The indentation of text after a long head.
const UNDER: usize = 11;

/// Prints the head and the text, wrapped to the width of the screen. Continuation lines are aligned
/// with the start of the text after a short head, and indented by [`UNDER`] after a long one.
pub(crate) fn flow(screen: &mut Screen, head: Line, text: &str) -> Result<(), Failure> {
    let indent = if head.width() <= UNDER { head.width() } else { UNDER };
    let width = screen.width().max(indent + 24);
    let mut line = head;
    let mut is_empty = true;
    for word in text.split(' ') {
        if line.width() + usize::from(!is_empty) + word.width() > width && line.width() > indent {
            screen.print(&line)?;
            line = Line::new().padded_to(indent);
            is_empty = true;
        }
        line = if is_empty { line.plain(word) } else { line.plain(format!(" {word}")) };
        is_empty = false;
    }
    screen.print(&line)
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
    if head.width() + text.width() <= screen.width() {
        return screen.print(&head.plain(text));
    }
    screen.print(&head)?;
    flow(screen, Line::new().padded_to(UNDER), text)
}
