//! The threads and the main loop.
//!
//! One thread reads the terminal, one takes snapshots of the machine or plays a recording, one
//! waits for signals, one for a stop and for the end of the terminal, one ends processes on
//! request, and each question has its own. All send to one channel, on which the main loop waits.
//! So a key is handled while a snapshot waits for the driver, and while a process takes long to
//! end. Only the latest snapshot is kept. Before each frame, the loop applies every event that has
//! arrived, so that a slow terminal never lags behind the keys.

mod threads;

use crate::ending::Ender;
use crate::event::Event;
use crate::frame::Frame;
use crate::inquiry::{Inquiry, Inspector};
use crate::options::Options;
use crate::pages::{Page, Pages};
use crate::replay::{Control, Player, Recording};
use crate::state::{Effect, State};
use crate::stops::{self, Stops};
use crate::terminal::Screen;
use crate::view::{view, view_pages};
use gpu_core::{Clock, Timestamp};
use gpu_report::wording::reap::Paragraph;
use rustix::io::Errno;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use threads::{Order, Slot, collect, end_processes, play, read_input, spawn, watch_signals};

/// The settings of a view.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The time from one snapshot to the next.
    pub interval: Duration,
    /// The mouse is used.
    pub mouse: bool,
    /// The drawing options.
    pub options: Options,
}

/// The source of frames.
pub enum Frames {
    /// Takes a snapshot, with the values of [`more`](crate::more) if its argument is true. It is
    /// called on a separate thread, the interval after each previous call, and may block.
    Live(Box<dyn FnMut(bool) -> Frame + Send>),
    /// A recording, played at this speed from this time, or else from its beginning.
    Recording(Box<dyn Recording>, Option<Timestamp>, f64),
}

/// The machine that is shown.
pub struct Machine {
    /// The source of the frames.
    pub frames: Frames,
    /// Ends processes, on another thread; without it, the keys for that do not exist.
    pub ender: Option<Box<dyn Ender>>,
    /// Answers questions, each on its own thread; without it, the keys for them do not exist.
    pub inspector: Option<Arc<dyn Inspector>>,
}

/// Why the view has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user has quit.
    Quit,
    /// A signal asked the program to end. The terminal is restored.
    Signal(i32),
}

/// The result of a view.
#[derive(Clone, Debug)]
pub struct Left {
    /// Why it has ended.
    pub ended: Ended,
    /// The last plan that ended processes, with its steps and its result, unless the user has
    /// closed the dialog.
    pub record: Vec<Paragraph>,
}

/// A message from a thread to the main loop.
enum Message {
    Event(Event),
    /// A snapshot is in the slot.
    Snapshot,
    /// A snapshot waits for this.
    Stalled(String),
    Signal(i32),
    /// A thread cannot continue.
    Failed(io::Error),
}

/// Reports to the view what a snapshot waits for.
#[derive(Clone, Debug)]
pub struct Waits(Sender<Message>);

impl Waits {
    /// Shows what the current snapshot waits for, such as the driver.
    pub fn stalled(&self, what: &str) {
        let what = gpu_core::clean(what).into_owned();
        // Without a main loop, the message has no receiver.
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

/// How long the screen may stay empty before the first snapshot: on a machine that answers at once,
/// a frame without one would be superfluous.
const BLANK: Duration = Duration::from_millis(12);
/// How long a snapshot may take before the header shows the delay.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the header then updates the delay.
const REMINDER: Duration = Duration::from_secs(1);
/// How long the program waits for an execution that the user has stopped.
const STOP: Duration = Duration::from_secs(5);
/// How long the main loop may take to end after a signal.
const GRACE: Duration = Duration::from_millis(500);

impl Top {
    /// Returns a view.
    pub fn new() -> Self {
        let (sender, receiver) = channel();
        Top { sender, receiver }
    }

    /// Returns the reporter of snapshots that wait.
    pub fn waits(&self) -> Waits {
        Waits(self.sender.clone())
    }

    /// Shows snapshots of a machine on the terminal until the user quits.
    ///
    /// # Errors
    /// When the terminal can no longer be used, or when a thread cannot be started or panics.
    pub fn run(
        self,
        mut settings: Settings,
        clock: Arc<dyn Clock>,
        machine: Machine,
    ) -> io::Result<Left> {
        let Machine { frames, ender, inspector } = machine;
        settings.options.replays = matches!(frames, Frames::Recording(..));
        settings.options.can_end = ender.is_some();
        settings.options.can_ask = inspector.is_some();
        let (slot, stop) = (Slot::default(), Arc::<AtomicBool>::default());
        let more = Arc::new(AtomicBool::new(settings.options.more));
        let (screen, size) = self.take_terminal(settings.mouse, &stop, &clock)?;
        let Top { sender, receiver } = self;
        let (player, controls) = channel();
        match frames {
            Frames::Live(mut take_frame) => {
                settings.options.interval = settings.interval;
                let (slot, to_main, clock) = (slot.clone(), sender.clone(), clock.clone());
                let more = more.clone();
                let take_frame = move || take_frame(more.load(Ordering::Relaxed));
                let collector = collect(take_frame, settings.interval, slot, to_main, clock);
                spawn("looks", &sender, collector)?;
            }
            Frames::Recording(recording, at, speed) => {
                let player = move || Player::new(recording, at, speed);
                let played = play(player, controls, sender.clone(), clock.clone());
                spawn("player", &sender, played)?;
            }
        }
        let endings = Endings { ender, orders: None, stop };
        let state = State::new(settings.options, size);
        let patience = settings.interval + PATIENCE;
        let mut main = Main {
            sender,
            receiver,
            screen,
            slot,
            clock,
            endings,
            inspector,
            player,
            more,
            state,
            patience,
        };
        let ended = unless_lost(main.run());
        let limit = match ended {
            Ok(Ended::Signal(_)) => GRACE / 2,
            _ => STOP,
        };
        main.stop_ending(limit);
        let record = main.state.record().unwrap_or_default().to_vec();
        ended.map(|ended| Left { ended, record })
    }

    /// Shows a text on the terminal until the user quits. `text` returns it for a width in columns;
    /// it is called once a second and after each key, and must not block. A signal that ends the
    /// view ends the program as well, after `text` was dropped.
    ///
    /// # Errors
    /// As for [`run`](Top::run).
    pub fn run_text(
        self,
        options: Options,
        clock: Arc<dyn Clock>,
        text: impl FnMut(usize) -> Page,
    ) -> io::Result<()> {
        let (screen, size) = self.take_terminal(false, &Arc::default(), &clock)?;
        match unless_lost(self.turn_pages(Pages::new(options, size), screen, text))? {
            Ended::Quit => {}
            Ended::Signal(signal) => end_by(signal),
        }
        Ok(())
    }

    /// Takes the terminal over, and starts the threads for the keys and signals. `stop` is set when
    /// a signal has asked the program to end.
    fn take_terminal(
        &self,
        mouse: bool,
        stop: &Arc<AtomicBool>,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<(Screen, (u16, u16))> {
        let sender = &self.sender;
        let signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGCONT])?;
        let stops = Stops::block()?;
        let screen = Screen::take(mouse)?;
        let size = Screen::size();
        let signals = watch_signals(signals, stop.clone(), sender.clone(), clock.clone());
        spawn("signals", sender, signals)?;
        spawn("input", sender, read_input(sender.clone(), size))?;
        let to_main = sender.clone();
        spawn("stops", sender, || {
            stops.watch(move || {
                // Without a main loop the program ends.
                let _ = to_main.send(Message::Signal(SIGCONT));
            });
        })?;
        Ok((screen, size))
    }

    fn turn_pages(
        &self,
        mut pages: Pages,
        mut screen: Screen,
        mut text: impl FnMut(usize) -> Page,
    ) -> io::Result<Ended> {
        loop {
            pages.refresh(&mut text);
            screen.draw(pages.area(), |buffer| view_pages(&pages, pages.area(), buffer))?;
            let mut next = match self.receiver.recv_timeout(REMINDER) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(Ended::Quit),
            };
            while let Some(message) = next {
                let effect = match message {
                    Message::Event(Event::Key(key)) => pages.press(key),
                    Message::Event(Event::Resize(..)) => Effect::Repaint,
                    Message::Signal(SIGCONT) => {
                        screen.resume()?;
                        Effect::Repaint
                    }
                    Message::Signal(signal) => return Ok(Ended::Signal(signal)),
                    Message::Failed(error) => return Err(error),
                    Message::Event(_) | Message::Snapshot | Message::Stalled(_) => Effect::Nothing,
                };
                match effect {
                    Effect::Quit => return Ok(Ended::Quit),
                    Effect::Suspend => stops::stop_group()?,
                    _ => {}
                }
                if matches!(effect, Effect::Repaint | Effect::Suspend) {
                    pages.resize(Screen::size());
                    screen.forget();
                }
                next = self.receiver.try_recv().ok();
            }
        }
    }
}

/// It is a matter of chance whether a read, a write or the signal reports first that the terminal is
/// gone.
fn unless_lost(ended: io::Result<Ended>) -> io::Result<Ended> {
    match ended {
        Err(error) if is_lost(&error) => Ok(Ended::Signal(SIGHUP)),
        ended => ended,
    }
}

/// The main loop.
struct Main {
    /// For the threads that are started on demand.
    sender: Sender<Message>,
    receiver: Receiver<Message>,
    screen: Screen,
    slot: Slot,
    clock: Arc<dyn Clock>,
    endings: Endings,
    inspector: Option<Arc<dyn Inspector>>,
    player: Sender<Control>,
    /// Whether the next snapshots need the values of the second lines.
    more: Arc<AtomicBool>,
    state: State,
    /// How long a snapshot may take before its delay is shown.
    patience: Duration,
}

impl Main {
    fn run(&mut self) -> io::Result<Ended> {
        let mut last_snapshot = self.clock.monotonic();
        let mut is_blank = true;
        let mut wait = BLANK;
        loop {
            let mut next = match self.receiver.recv_timeout(wait) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) if is_blank => None,
                Err(RecvTimeoutError::Timeout) => {
                    let since = self.clock.monotonic().saturating_sub(last_snapshot);
                    Some(Message::Event(Event::Tick(since)))
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(Ended::Quit),
            };
            let (mut draws, mut repaints) = (std::mem::take(&mut is_blank), false);
            while let Some(message) = next {
                let Some(event) = self.event(message, &mut last_snapshot)? else { break };
                let event = match event {
                    Occurrence::Event(event) => event,
                    Occurrence::Signal(signal) => return Ok(Ended::Signal(signal)),
                };
                let effect = self.state.update(event);
                self.more.store(self.state.shows_more(), Ordering::Relaxed);
                draws |= effect != Effect::Nothing;
                match effect {
                    Effect::Nothing | Effect::Draw => {}
                    Effect::Repaint => repaints = true,
                    Effect::Suspend => {
                        stops::stop_group()?;
                        repaints = true;
                    }
                    Effect::Quit => return Ok(Ended::Quit),
                    Effect::Plan(number, aim) => self.order(Order::Plan(number, aim))?,
                    Effect::Execute(number) => self.order(Order::Execute(number))?,
                    Effect::Stop => self.stop(),
                    Effect::Ask(inquiry) => self.ask(inquiry)?,
                    // This fails only after a panic of its thread, which is reported.
                    Effect::Play(control) => drop(self.player.send(control)),
                }
                // Draw whatever a key can confirm before that key is read.
                next = if self.state.is_proposing() { None } else { self.receiver.try_recv().ok() };
            }
            if repaints {
                self.screen.forget();
            }
            if draws {
                self.draw()?;
            }
            let quiet = self.clock.monotonic().saturating_sub(last_snapshot);
            let left = self.patience.checked_sub(quiet).filter(|left| !left.is_zero());
            wait = left.unwrap_or(REMINDER);
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let (state, area) = (&self.state, self.state.area());
        self.screen.draw(area, |buffer| view(state, area, buffer))
    }

    /// Returns the event of a message; `None` for a snapshot that was taken already.
    fn event(
        &mut self,
        message: Message,
        last_snapshot: &mut Duration,
    ) -> io::Result<Option<Occurrence>> {
        let event = match message {
            Message::Event(Event::Resize(..)) => resized(),
            Message::Event(event) => event,
            Message::Snapshot => {
                let Some(frame) = self.slot.take() else { return Ok(None) };
                *last_snapshot = self.clock.monotonic();
                Event::Frame(frame)
            }
            Message::Stalled(what) => {
                let since = self.clock.monotonic().saturating_sub(*last_snapshot);
                Event::Stalled { what, since }
            }
            Message::Signal(SIGCONT) => {
                self.screen.resume()?;
                resized()
            }
            Message::Signal(signal) => return Ok(Some(Occurrence::Signal(signal))),
            Message::Failed(error) => return Err(error),
        };
        Ok(Some(Occurrence::Event(event)))
    }

    fn ask(&self, inquiry: Inquiry) -> io::Result<()> {
        let Some(inspector) = self.inspector.clone() else { return Ok(()) };
        let sender = self.sender.clone();
        spawn("inquiry", &self.sender, move || {
            let answer = Box::new(inspector.answer(inquiry));
            // Without a main loop, the question is obsolete.
            let _ = sender.send(Message::Event(Event::Answer(answer)));
        })
    }

    /// Sends an order to the thread that ends processes, and starts that thread before the first
    /// one.
    fn order(&mut self, order: Order) -> io::Result<()> {
        let Endings { ender, orders, stop } = &mut self.endings;
        if let Some(ender) = ender.take() {
            let (to_thread, received) = channel();
            let sender = self.sender.clone();
            let endings = end_processes(ender, received, stop.clone(), sender);
            spawn("endings", &self.sender, endings)?;
            *orders = Some(to_thread);
        }
        if let Order::Execute(_) = order {
            stop.store(false, Ordering::SeqCst);
        }
        // This fails only after a panic of its thread, which is reported.
        if let Some(orders) = orders {
            let _ = orders.send(order);
        }
        Ok(())
    }

    fn stop(&self) {
        self.endings.stop.store(true, Ordering::SeqCst);
    }

    /// Stops a running execution, and waits for its end.
    fn stop_ending(&mut self, limit: Duration) {
        self.stop();
        let begin = self.clock.monotonic();
        while self.state.is_ending() {
            let waited = self.clock.monotonic().saturating_sub(begin);
            let Some(left) = limit.checked_sub(waited) else { return };
            match self.receiver.recv_timeout(left) {
                Ok(Message::Event(event @ Event::Ending(_))) => {
                    self.state.update(event);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

/// An occurrence that the main loop reacts to.
enum Occurrence {
    Event(Event),
    /// A signal that ends the program.
    Signal(i32),
}

/// Returns whether an error means that the terminal is gone. Some errors of crossterm have no
/// number.
fn is_lost(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error()) || stops::has_hung_up()
}

/// Returns the size of the terminal; variables supply what it does not report.
fn resized() -> Event {
    let (columns, rows) = Screen::size();
    Event::Resize(columns, rows)
}

/// The state of ending processes.
struct Endings {
    /// Ends the processes, until its thread is started.
    ender: Option<Box<dyn Ender>>,
    /// The channel to its thread.
    orders: Option<Sender<Order>>,
    /// Set when no further signal may be sent.
    stop: Arc<AtomicBool>,
}

/// Ends this program by a signal, as if the signal had not been caught, so that the caller sees the
/// cause.
pub fn end_by(signal: i32) {
    // It returns only for an unknown signal.
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}
