//! The threads and the main loop.
//!
//! One thread reads the terminal, one looks at the machine, one waits for signals; all send to one
//! channel, and the main loop waits on it. A key is therefore answered while a look waits for the
//! driver. Of the looks only the latest is kept. Before each frame the loop applies every event that
//! has arrived, so that a slow terminal never lags behind the keys.

use crate::event::Event;
use crate::frame::Frame;
use crate::state::{Effect, Options, State};
use crate::stops::{self, Stops};
use crate::terminal::{self, Screen};
use gpu_core::Clock;
use ratatui_crossterm::crossterm::event as input;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How the view is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The time from one look to the next.
    pub interval: Duration,
    /// The mouse is used.
    pub mouse: bool,
    /// How it is drawn.
    pub options: Options,
}

/// Why the view has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user has quit.
    Quit,
    /// A signal asks the program to end. The terminal is restored.
    Signal(i32),
}

/// What the threads send to the main loop.
enum Message {
    Event(Event),
    /// A look is in the slot.
    Look,
    /// A look waits for this.
    Stalled(String),
    Signal(i32),
    /// A thread cannot go on.
    Failed(io::Error),
}

/// Sends what a look waits for to the view.
#[derive(Clone, Debug)]
pub struct Waits(Sender<Message>);

impl Waits {
    /// Shows what the current look waits for, such as the driver.
    pub fn stalled(&self, what: &str) {
        let what = gpu_core::clean(what).into_owned();
        // Without a main loop nothing is shown any more.
        let _ = self.0.send(Message::Stalled(what));
    }
}

/// A view that is ready to run.
pub struct Top {
    sender: Sender<Message>,
    receiver: Receiver<Message>,
}

impl Default for Top {
    fn default() -> Self {
        Top::new()
    }
}

/// How long a look may take before the header tells it.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the header then tells it again.
const REMINDER: Duration = Duration::from_secs(1);
/// The shortest pause between two looks, so that a slow machine is not only looked at.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the main loop may take to end after a signal.
const GRACE: Duration = Duration::from_millis(500);

impl Top {
    /// Returns a view.
    pub fn new() -> Self {
        let (sender, receiver) = channel();
        Top { sender, receiver }
    }

    /// Returns what tells the view that a look waits.
    pub fn waits(&self) -> Waits {
        Waits(self.sender.clone())
    }

    /// Shows looks on the terminal until the user quits. `look` takes one; it is called on a thread
    /// of its own, each time `settings.interval` after the last call, and may block.
    ///
    /// # Errors
    /// When the terminal cannot be used any more, or when a thread cannot be started or panics.
    pub fn run(
        self,
        settings: Settings,
        clock: Arc<dyn Clock>,
        look: impl FnMut() -> Frame + Send + 'static,
    ) -> io::Result<Ended> {
        let Top { sender, receiver } = self;
        let signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGCONT])?;
        let stops = Stops::block()?;
        let mut screen = Screen::take(settings.mouse)?;
        let slot = Slot::default();
        spawn("signals", watch_signals(signals, sender.clone(), clock.clone()))?;
        spawn("input", read_input(sender.clone()))?;
        spawn("hangup", stops::watch_hangup)?;
        let to_main = sender.clone();
        spawn("stops", || {
            stops.watch(move || {
                // Without a main loop the program ends.
                let _ = to_main.send(Message::Signal(SIGCONT));
            });
        })?;
        let collector =
            collect(look, settings.interval, slot.clone(), sender.clone(), clock.clone());
        spawn("looks", collector)?;
        let mut state = State::new(settings.options, Screen::size());
        screen.draw(state.drawn())?;
        let patience = settings.interval + PATIENCE;
        let mut last_look = clock.monotonic();
        let mut wait = patience;
        loop {
            let mut effect = Effect::Nothing;
            let mut next = match receiver.recv_timeout(wait) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => {
                    let since = clock.monotonic().saturating_sub(last_look);
                    Some(Message::Event(Event::Tick(since)))
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(Ended::Quit),
            };
            while let Some(message) = next {
                let event = match message {
                    Message::Event(event) => event,
                    Message::Look => match slot.take() {
                        Some(frame) => {
                            last_look = clock.monotonic();
                            Event::Frame(frame)
                        }
                        None => break,
                    },
                    Message::Stalled(what) => {
                        let since = clock.monotonic().saturating_sub(last_look);
                        Event::Stalled { what, since }
                    }
                    Message::Signal(SIGCONT) => {
                        screen.resume()?;
                        let (columns, rows) = Screen::size();
                        Event::Resize(columns, rows)
                    }
                    Message::Signal(signal) => return Ok(Ended::Signal(signal)),
                    Message::Failed(error) => return Err(error),
                };
                let event = match event {
                    // The variables fill in what the terminal does not tell.
                    Event::Resize(..) => {
                        let (columns, rows) = Screen::size();
                        Event::Resize(columns, rows)
                    }
                    other => other,
                };
                match state.update(event) {
                    Effect::Quit => return Ok(Ended::Quit),
                    Effect::Suspend => {
                        stops::stop_group()?;
                        effect = Effect::Repaint;
                    }
                    Effect::Repaint => effect = Effect::Repaint,
                    Effect::Draw if effect == Effect::Nothing => effect = Effect::Draw,
                    Effect::Draw | Effect::Nothing => {}
                }
                next = receiver.try_recv().ok();
            }
            if effect == Effect::Repaint {
                screen.forget();
            }
            if effect != Effect::Nothing {
                screen.draw(state.drawn())?;
            }
            let quiet = clock.monotonic().saturating_sub(last_look);
            wait = patience.checked_sub(quiet).filter(|left| !left.is_zero()).unwrap_or(REMINDER);
        }
    }
}

/// The latest look that was not shown yet.
#[derive(Clone, Default)]
struct Slot(Arc<Mutex<Option<Box<Frame>>>>);

impl Slot {
    /// Puts a look in; returns whether the slot was empty.
    fn put(&self, frame: Box<Frame>) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(frame).is_none()
    }

    fn take(&self) -> Option<Box<Frame>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Tells the main loop that a thread has panicked. The panic itself is reported by its hook.
struct PanicNotice(Sender<Message>);

impl Drop for PanicNotice {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = io::Error::other("a thread of the view panicked");
            let _ = self.0.send(Message::Failed(error));
        }
    }
}

fn read_input(sender: Sender<Message>) -> impl FnOnce() {
    move || {
        let _notice = PanicNotice(sender.clone());
        loop {
            let message = match input::read() {
                Ok(read) => match Event::of_input(read) {
                    Some(event) => Message::Event(event),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Message::Failed(error),
            };
            let ends = matches!(message, Message::Failed(_));
            if sender.send(message).is_err() || ends {
                return;
            }
        }
    }
}

fn collect(
    mut look: impl FnMut() -> Frame,
    interval: Duration,
    slot: Slot,
    sender: Sender<Message>,
    clock: Arc<dyn Clock>,
) -> impl FnOnce() {
    move || {
        let _notice = PanicNotice(sender.clone());
        loop {
            let begin = clock.monotonic();
            let frame = Box::new(look());
            if slot.put(frame) && sender.send(Message::Look).is_err() {
                return;
            }
            let spent = clock.monotonic().saturating_sub(begin);
            clock.sleep(interval.saturating_sub(spent).max(PAUSE));
        }
    }
}

/// Passes signals on. If the main loop does not end after one, because the terminal takes no
/// output, this thread restores the terminal and ends the program.
fn watch_signals(
    mut signals: Signals,
    sender: Sender<Message>,
    clock: Arc<dyn Clock>,
) -> impl FnOnce() {
    move || {
        for signal in signals.forever() {
            let sent = sender.send(Message::Signal(signal)).is_ok();
            if signal == SIGCONT {
                continue;
            }
            if sent {
                clock.sleep(GRACE);
            }
            terminal::restore();
            end_by(signal);
        }
    }
}

/// Ends this program by a signal, as if it had not been caught, so that the caller sees why.
pub fn end_by(signal: i32) {
    // It returns only for a signal that does not exist.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}
