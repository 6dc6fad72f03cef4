//! Standard output: lines of styled text, fitted to the terminal, and JSON.
//!
//! Text reaches the terminal only through [`Line`] and [`Screen::json`]. Both escape control
//! characters, so that a process cannot move the cursor by its name.

mod progress;

pub(crate) use gpu_core::clean;
pub(crate) use gpu_report::text::{Align, Line, Table, Tone, below, flowed, packed, wrapped};
pub(crate) use gpu_report::write::one_line;
pub(crate) use progress::Progress;

use crate::exit::Exit;
use crate::failure::Failure;
use anstream::{AutoStream, ColorChoice};
use gpu_core::Origin;
use gpu_report::ascii;
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;

/// The size of the output buffer in bytes: the capacity of a pipe on Linux.
const PIECE: usize = 64 << 10;

/// The width without a terminal.
const USUAL_WIDTH: usize = 80;

/// Prints a progress message if standard error is a terminal, and a warning anyway.
pub(crate) fn progress(text: &str) {
    if io::stderr().is_terminal() || text.starts_with("warning: ") {
        warn(text);
    }
}

/// Prints a line to standard error in one write, so that concurrent commands keep their lines
/// apart.
pub(crate) fn report(line: impl Display) {
    // If standard error is closed, the command goes on; its exit code reports failures.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Returns a message of one or several lines, without control characters in it.
fn said(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(clean).collect();
    format!("gpuws: {}", lines.join("\n"))
}

/// Returns whether the locale shows only ASCII.
pub(crate) fn is_ascii() -> bool {
    static ASCII: OnceLock<bool> = OnceLock::new();
    *ASCII.get_or_init(|| {
        let values = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).ok());
        ascii::is_needed(values.each_ref().map(Option::as_deref))
    })
}

/// Returns text in a form that the locale can show.
pub(crate) fn localized(text: String) -> String {
    if is_ascii() { ascii::ascii(&text) } else { text }
}

/// Prints a note or a warning to standard error.
pub(crate) fn warn(text: &str) {
    report(localized(said(text)));
}

/// Standard output, or a substitute in tests.
pub(crate) struct Screen {
    /// Buffers until it is flushed.
    out: Box<dyn Write>,
    /// The name of a file; none for standard output.
    file: Option<String>,
    colour: bool,
    /// The width of a terminal, or the value of `COLUMNS`; `None` for any other pipe.
    width: Option<usize>,
    is_terminal: bool,
    closed: bool,
    /// Output is buffered until [`together`](Screen::together) ends.
    held: bool,
}

/// Returns the width of a terminal; `None` for anything else.
pub(crate) fn terminal_columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(size.ws_col.into()).filter(|columns| *columns > 0)
}

impl Screen {
    /// Returns standard output. With [`ColorChoice::Auto`] it has colours on a terminal, unless
    /// `NO_COLOR`, `CLICOLOR=0` or `TERM=dumb` disable them, or if `CLICOLOR_FORCE` enables them. Its
    /// width is `COLUMNS`, otherwise that of the terminal.
    pub(crate) fn stdout(choice: ColorChoice) -> Self {
        let stdout = io::stdout();
        let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let own = || terminal_columns(&stdout);
        let colour = match choice {
            ColorChoice::Auto => AutoStream::choice(&stdout) != ColorChoice::Never,
            choice => choice != ColorChoice::Never,
        };
        Screen {
            width: named.filter(|columns| *columns > 0).or_else(own),
            is_terminal: stdout.is_terminal(),
            out: Box::new(BufWriter::with_capacity(PIECE, stdout)),
            file: None,
            colour,
            closed: false,
            held: false,
        }
    }

    /// Returns a file with this name, with the width of a pipe.
    pub(crate) fn file(file: File, path: &Path) -> Self {
        let name = Some(path.display().to_string());
        Screen { file: name, ..Screen::without_terminal(BufWriter::new(file)) }
    }

    fn without_terminal(out: impl Write + 'static) -> Self {
        Screen {
            out: Box::new(out),
            file: None,
            colour: false,
            width: None,
            is_terminal: false,
            closed: false,
            held: false,
        }
    }

    /// Returns whether the reader closed the pipe.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether the output has colours.
    pub(crate) fn is_coloured(&self) -> bool {
        self.colour
    }

    /// Returns the width for text that is wrapped: that of the terminal or of `COLUMNS`, otherwise 80.
    pub(crate) fn width(&self) -> usize {
        self.width.unwrap_or(USUAL_WIDTH)
    }

    /// Returns how many columns remain on a line after `used`. Without a terminal and without
    /// `COLUMNS` there is no limit, and no text is cut.
    pub(crate) fn room(&self, used: usize) -> usize {
        self.width.map_or(usize::MAX, |width| width.saturating_sub(used))
    }

    /// Prints the origin of the output, such as a simulated machine, unless it is this machine;
    /// with `--quiet` to standard error, because the option drops headings but not this label.
    pub(crate) fn origin(
        &mut self,
        origin: &Origin,
        line: Line,
        quiet: bool,
    ) -> Result<(), Failure> {
        match (origin, quiet) {
            (Origin::Live, _) => Ok(()),
            (_, true) => {
                warn(&origin.to_string());
                Ok(())
            }
            (_, false) => self.print(&line),
        }
    }

    /// Prints several lines with as few writes as possible.
    pub(crate) fn together(
        &mut self,
        print: impl FnOnce(&mut Screen) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let before = std::mem::replace(&mut self.held, true);
        let printed = print(self);
        self.held = before;
        printed.and(self.write(|_| Ok(())))
    }

    /// Prints a line. A closed pipe is not an error: later output is discarded.
    pub(crate) fn print(&mut self, line: &Line) -> Result<(), Failure> {
        if self.colour {
            self.write(|out| writeln!(out, "{}", localized(line.to_string())))
        } else {
            self.write(|out| writeln!(out, "{}", localized(line.text().to_owned())))
        }
    }

    pub(crate) fn print_all(
        &mut self,
        lines: impl IntoIterator<Item = Line>,
    ) -> Result<(), Failure> {
        lines.into_iter().try_for_each(|line| self.print(&line))
    }

    /// Prints an object as JSON, followed by a newline.
    pub(crate) fn json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        self.write(|out| gpu_report::write::write(out, object))
    }

    pub(crate) fn json_line(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        self.write(|out| writeln!(out, "{}", gpu_report::write::one_line(object)?))
    }

    /// Clears a terminal, so that the next view replaces the last one.
    pub(crate) fn clear(&mut self) -> Result<(), Failure> {
        if self.is_terminal { self.raw(b"\x1b[H\x1b[J") } else { Ok(()) }
    }

    /// Prints an object in the format of Python's `json.dump` with `indent=4`.
    pub(crate) fn json_as_python(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        self.write(|out| gpu_report::write::write_as_python(out, object))
    }

    /// Prints bytes that gpuws generated, such as a completion script or a manual page, unescaped.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.write(|out| out.write_all(bytes))
    }

    fn write(&mut self, put: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        let flush = |out: &mut dyn Write| if self.held { Ok(()) } else { out.flush() };
        match put(&mut self.out).and_then(|()| flush(&mut self.out)) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            result => result.map_err(|error| match &self.file {
                Some(file) => Failure::io(format!("write to '{file}'"), error),
                None => Failure::io("write to standard output", error).ending(Exit::NotWritten),
            }),
        }
    }
}

#[cfg(test)]
impl Screen {
    /// Returns the output as through a pipe: without colours, 80 columns wide.
    pub(crate) fn captured(run: impl FnOnce(&mut Screen)) -> String {
        use std::cell::RefCell;
        use std::rc::Rc;

        #[derive(Clone, Default)]
        struct Captured(Rc<RefCell<Vec<u8>>>);

        impl Write for Captured {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.borrow_mut().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let captured = Captured::default();
        run(&mut Screen::without_terminal(captured.clone()));
        String::from_utf8(captured.0.take()).expect("output is UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn closed_pipe_is_not_an_error_but_full_disk_is() {
        let mut gone = Screen::without_terminal(Closed);
        assert!(gone.print(&Line::new().plain("a")).is_ok());
        assert!(gone.json(&[1, 2]).is_ok());
        assert!(gone.closed);
        assert!(Screen::without_terminal(Full).print(&Line::new().plain("a")).is_err());
        assert!(Screen::without_terminal(Full).json(&[1, 2]).is_err());
    }
}
