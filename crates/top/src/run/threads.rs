//! The background threads. All of them send to the main loop and end when it is gone.

use super::{GRACE, Message, end_by};
use crate::ending::{Aim, Ender, News, Proposal, Shown};
use crate::event::Event;
use crate::frame::Frame;
use crate::replay::{Control, Player, Replayed};
use crate::terminal::{self, Screen};
use gpu_core::Clock;
use gpu_report::wording::reap::{self, Steps};
use ratatui_crossterm::crossterm::event as input;
use signal_hook::consts::SIGCONT;
use signal_hook::iterator::Signals;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The shortest pause between two snapshots, so that a slow machine does more than answer queries.
const PAUSE: Duration = Duration::from_millis(20);

/// An order to the thread that ends processes.
pub(super) enum Order {
    Plan(u64, Aim),
    Execute(u64),
}

pub(super) fn end_processes(
    mut ender: Box<dyn Ender>,
    orders: Receiver<Order>,
    stop: Arc<AtomicBool>,
    sender: Sender<Message>,
) -> impl FnOnce() {
    move || {
        // Without a main loop, the news has no receiver.
        let send = |news| drop(sender.send(Message::Event(Event::Ending(news))));
        let mut planned: Option<(u64, Proposal)> = None;
        while let Ok(order) = orders.recv() {
            // Of the plans requested meanwhile, only the last one is still wanted.
            let order = orders.try_iter().last().unwrap_or(order);
            match order {
                Order::Plan(number, aim) => {
                    let proposal = ender.plan(&aim);
                    let shown = |proposal| Shown::of(&*ender, &aim, proposal);
                    let shown = proposal.as_ref().map(shown);
                    let shown = shown.map_err(Clone::clone);
                    planned = proposal.ok().map(|proposal| (number, proposal));
                    send(News::Planned(number, shown));
                }
                Order::Execute(number) => {
                    let Some((_, proposal)) = planned.take_if(|(known, _)| *known == number) else {
                        continue;
                    };
                    let mut steps = Steps::default();
                    let report = ender.execute(&proposal, &mut |event| {
                        steps.line(&event).into_iter().for_each(|line| send(News::Step(line)));
                        match stop.load(Ordering::SeqCst) {
                            true => ControlFlow::Break(()),
                            false => ControlFlow::Continue(()),
                        }
                    });
                    send(News::Over(report.map(|report| reap::report(&report))));
                }
            }
        }
    }
}

/// The latest snapshot that was not yet shown.
#[derive(Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Box<Frame>>>>);

impl Slot {
    /// Puts a snapshot in; returns whether the slot was empty.
    pub(super) fn put(&self, frame: Box<Frame>) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(frame).is_none()
    }

    pub(super) fn take(&self) -> Option<Box<Frame>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Starts a thread. If it panics, it notifies the main loop.
pub(super) fn spawn(
    name: &str,
    sender: &Sender<Message>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let notice = PanicNotice(sender.clone());
    let thread = thread::Builder::new().name(name.to_owned());
    let run = move || {
        let _notice = notice;
        work();
    };
    thread.spawn(run).map(drop)
}

/// Notifies the main loop that a thread has panicked. The panic hook reports the panic itself.
struct PanicNotice(Sender<Message>);

impl Drop for PanicNotice {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = io::Error::other("a thread of the view panicked");
            let _ = self.0.send(Message::Failed(error));
        }
    }
}

/// Reads keys, and notices changes of the size, which was `size` when the terminal was taken.
pub(super) fn read_input(sender: Sender<Message>, size: (u16, u16)) -> impl FnOnce() {
    move || {
        // crossterm notices changes only from its first call on. A failure shows in the next one.
        let _ = input::poll(Duration::ZERO);
        let (columns, rows) = Screen::size();
        if (columns, rows) != size {
            let _ = sender.send(Message::Event(Event::Resize(columns, rows)));
        }
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

pub(super) fn play(
    player: impl FnOnce() -> Player,
    controls: Receiver<Control>,
    sender: Sender<Message>,
    clock: Arc<dyn Clock>,
) -> impl FnOnce() {
    move || {
        let send = |replayed| sender.send(Message::Event(Event::Replayed(replayed))).is_ok();
        let mut player = player();
        let (mut jumped, mut sent) = (true, None);
        let mut last = clock.monotonic();
        loop {
            if std::mem::take(&mut jumped) {
                let sought = player.sought();
                if !(sought.into_iter().all(send) && player.past().into_iter().all(send)) {
                    return;
                }
            }
            let playback = player.playback();
            if sent.as_ref() != Some(&playback) {
                sent = Some(playback.clone());
                if !send(Replayed::Playback(playback)) {
                    return;
                }
            }
            let received = match player.wait() {
                Some(wait) => controls.recv_timeout(wait),
                None => controls.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                // Combine all commands that arrived meanwhile into one jump.
                Ok(control) => {
                    last = clock.monotonic();
                    jumped = player.obey(control);
                    for control in controls.try_iter() {
                        jumped |= player.obey(control);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let elapsed = clock.monotonic().saturating_sub(last);
                    last += elapsed;
                    if !player.advance(elapsed).into_iter().all(send) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

pub(super) fn collect(
    mut take_frame: impl FnMut() -> Frame,
    interval: Duration,
    slot: Slot,
    sender: Sender<Message>,
    clock: Arc<dyn Clock>,
) -> impl FnOnce() {
    move || {
        loop {
            let begin = clock.monotonic();
            let frame = Box::new(take_frame());
            if slot.put(frame) && sender.send(Message::Snapshot).is_err() {
                return;
            }
            let spent = clock.monotonic().saturating_sub(begin);
            clock.sleep(interval.saturating_sub(spent).max(PAUSE));
        }
    }
}

/// Forwards signals. If the main loop does not end after one, because the terminal accepts no
/// output, this thread restores as much of the terminal as possible and ends the program.
pub(super) fn watch_signals(
    mut signals: Signals,
    stop: Arc<AtomicBool>,
    sender: Sender<Message>,
    clock: Arc<dyn Clock>,
) -> impl FnOnce() {
    move || {
        for signal in signals.forever() {
            // No process is ended from now on, whatever the main loop waits for.
            stop.fetch_or(signal != SIGCONT, Ordering::SeqCst);
            let sent = sender.send(Message::Signal(signal)).is_ok();
            if signal == SIGCONT {
                continue;
            }
            if sent {
                clock.sleep(GRACE);
            }
            terminal::restore_within(GRACE / 2);
            end_by(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Pid, ProcessKey};
    use std::sync::mpsc::channel;

    /// Refuses to plan, and reports the aims.
    struct Refuser(Sender<Aim>);

    impl Ender for Refuser {
        fn plan(&mut self, aim: &Aim) -> Result<Proposal, String> {
            self.0.send(aim.clone()).unwrap();
            Err("no plan".to_owned())
        }

        fn obstacle(&self) -> Option<String> {
            None
        }

        fn execute(
            &mut self,
            _: &Proposal,
            _: &mut dyn FnMut(gpu_reaper::Event<'_>) -> ControlFlow<()>,
        ) -> Result<gpu_reaper::Report, String> {
            Err("no plan".to_owned())
        }
    }

    #[test]
    fn panic_of_a_thread_reaches_the_main_loop() {
        let (sender, sent) = channel();
        spawn("inquiry", &sender, || panic!("made for this test")).unwrap();
        spawn("quiet", &sender, || {}).unwrap();
        drop(sender);
        let sent: Vec<Message> = sent.iter().collect();
        assert!(matches!(sent[..], [Message::Failed(_)]));
    }

    #[test]
    fn only_the_last_of_several_requested_plans_is_made() {
        let aim = |pid| Aim::Processes(vec![ProcessKey { pid: Pid(pid), start: None }]);
        let (orders, received) = channel();
        for number in 1..=4 {
            orders.send(Order::Plan(number, aim(number as u32))).unwrap();
        }
        drop(orders);
        let (planned, plans) = channel();
        let (sender, sent) = channel();
        end_processes(Box::new(Refuser(planned)), received, Arc::default(), sender)();
        assert_eq!(plans.iter().collect::<Vec<_>>(), [aim(4)]);
        let sent: Vec<Message> = sent.iter().collect();
        let is_last = |message: &Message| {
            matches!(message, Message::Event(Event::Ending(News::Planned(4, Err(_)))))
        };
        assert!(sent.len() == 1 && sent.iter().all(is_last));
    }
}
