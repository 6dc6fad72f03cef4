//! The terminal: taken over, drawn on, and restored on every exit path.
//!
//! One function restores it ([`restore`]), once however often it is called, and without taking the
//! lock of standard output. But the kernel lets one thread at a time write to a terminal: while a
//! write of another thread is blocked there, this one waits, too. So the line discipline is
//! restored first, and a program that must end limits its wait ([`restore_within`]).

use crate::shown::Shown;
use ratatui_core::backend::Backend;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, MoveTo, Show};
use ratatui_crossterm::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui_crossterm::crossterm::style::{Print, ResetColor};
use ratatui_crossterm::crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui_crossterm::crossterm::{execute, queue};
use rustix::termios::tcgetwinsize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

/// The terminal is taken over.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Held while a frame is written, while the terminal is taken over again, and while the program is
/// being stopped.
static WRITING: Mutex<()> = Mutex::new(());

/// Requests clicks and the wheel with coordinates of any size, but not moves (xterm, "Mouse
/// Tracking").
const MOUSE_ON: &str = "\u{1b}[?1000h\u{1b}[?1006h";
/// Reverses [`MOUSE_ON`].
const MOUSE_OFF: &str = "\u{1b}[?1006l\u{1b}[?1000l";

/// The size of the output buffer in bytes: a whole frame is one write.
const BUFFER: usize = 64 << 10;

/// Restores the terminal: the previous line discipline, end of a synchronized update, default
/// colours, no mouse, no bracketed paste, the main screen and a visible cursor. Has no effect if
/// the terminal is not taken over.
pub(crate) fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = disable_raw_mode();
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = queue!(
        bytes,
        EndSynchronizedUpdate,
        ResetColor,
        Print(MOUSE_OFF),
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let stdout = io::stdout();
    let mut left = &bytes[..];
    while !left.is_empty() {
        match rustix::io::write(stdout.as_fd(), left) {
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            // A terminal that is gone has nothing to restore.
            Err(_) => break,
        }
    }
}

/// Restores the terminal for a program that then ends: only its line discipline, if the terminal
/// accepts no output for this long.
pub(crate) fn restore_within(limit: Duration) {
    let (sender, restored) = channel();
    let restore_and_signal = move || {
        restore();
        // The receiver is gone if this took too long.
        let _ = sender.send(());
    };
    match thread::Builder::new().name("restore".to_owned()).spawn(restore_and_signal) {
        Ok(_) => drop(restored.recv_timeout(limit)),
        Err(_) => restore(),
    }
}

/// Restores the terminal once no frame is being written. Until the returned value is dropped, no
/// frame is written and the terminal is not taken over again.
pub(crate) fn restore_between_frames() -> MutexGuard<'static, ()> {
    let writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    restore();
    writing
}

/// How long a panic waits for the frame that is being written, in milliseconds. The thread that
/// panics may be the one that writes it.
const LAST_FRAME: usize = 100;

/// Restores the terminal before a panic is reported, on any thread.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let mut tries = std::iter::repeat_with(|| WRITING.try_lock()).take(LAST_FRAME);
            let writing = tries.find(|writing| {
                let is_writing = matches!(writing, Err(TryLockError::WouldBlock));
                if is_writing {
                    thread::park_timeout(Duration::from_millis(1));
                }
                !is_writing
            });
            restore();
            drop(writing);
            report(panic);
        }));
    });
}

/// A terminal that is taken over. It is restored when this value is dropped.
pub(crate) struct Screen {
    backend: CrosstermBackend<BufWriter<File>>,
    /// The contents of the terminal.
    shown: Shown,
    /// The last frame; its memory is reused for the next one.
    frame: Buffer,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal over: raw mode, alternate screen, bracketed paste, no cursor, and the
    /// mouse if requested.
    ///
    /// # Errors
    /// When standard output is not a terminal, or does not accept the settings.
    pub(crate) fn take(mouse: bool) -> io::Result<Self> {
        restore_on_panic();
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut screen = Screen {
            backend: CrosstermBackend::new(BufWriter::with_capacity(BUFFER, out)),
            shown: Shown::default(),
            frame: Buffer::empty(Rect::ZERO),
            mouse,
        };
        screen.set_up()?;
        Ok(screen)
    }

    fn set_up(&mut self) -> io::Result<()> {
        TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(self.backend, EnterAlternateScreen, EnableBracketedPaste, Hide)?;
        if self.mouse {
            execute!(self.backend, Print(MOUSE_ON))?;
        }
        self.forget();
        Ok(())
    }

    /// Returns the size in columns and rows, 0 where it is unknown. Some environments provide only
    /// `COLUMNS` and `LINES`.
    pub(crate) fn size() -> (u16, u16) {
        let size = tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
        let variable = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let known = |size: u16, name| if size > 0 { size } else { variable(name).unwrap_or(0) };
        (known(size.0, "COLUMNS"), known(size.1, "LINES"))
    }

    /// Forgets the contents of the terminal: the next frame is drawn completely.
    pub(crate) fn forget(&mut self) {
        self.shown = Shown::default();
    }

    /// Draws a frame by `view` on an empty buffer of this area: writes only the differences from
    /// the last frame, and no output while the terminal is restored.
    ///
    /// # Errors
    /// When the terminal does not accept the output.
    pub(crate) fn draw(&mut self, area: Rect, view: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        if !TAKEN.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.frame.resize(area);
        self.frame.reset();
        view(&mut self.frame);
        let whole = self.shown.area() != area;
        if whole {
            self.shown.clear(area);
        }
        let changes = self.shown.update(&self.frame);
        if changes.is_empty() && !whole {
            return Ok(());
        }
        queue!(self.backend, BeginSynchronizedUpdate)?;
        if whole {
            queue!(self.backend, ResetColor, Clear(ClearType::All))?;
        }
        self.backend.draw(changes.into_iter())?;
        // A cursor that is parked does not trail after each change on terminals that animate it.
        queue!(self.backend, MoveTo(0, 0), EndSynchronizedUpdate)?;
        Write::flush(&mut self.backend)
    }

    /// Takes the terminal over again after SIGCONT: the shell may have changed it.
    ///
    /// # Errors
    /// When the terminal does not accept the settings.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = disable_raw_mode();
        self.set_up()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Output that is still buffered belongs before the end of the screen.
        let _ = Write::flush(&mut self.backend);
        restore();
    }
}
