//! The state of the view, and its changes by events. No I/O.

mod actions;
mod ending;
mod inquiry;
mod order;
mod replay;

use crate::counters::Counters;
use crate::dialog::Dialog;
use crate::ending::Aim;
use crate::event::Event;
use crate::filter::Filter;
use crate::frame::{CpuTimes, Frame};
use crate::history::{History, Past};
use crate::inquiry::{Inquiry, Leases};
use crate::options::{Marker, Options};
use crate::overlay::Overlay;
use crate::replay::{Control, Playback};
use crate::rows::{Column, Row, RowKey, Subject};
use crate::tree::Branch;
use gpu_core::{Environment, ProcessKey};
use inquiry::LeaseQuestion;
use ratatui_core::layout::Rect;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::time::Duration;

/// The size of a terminal that does not report one.
const USUAL: (u16, u16) = (80, 24);
/// The largest size that is drawn: a buffer has one cell for each position.
const LARGEST: (u16, u16) = (1000, 500);

/// What the caller of [`State::update`] has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The display stays the same.
    Nothing,
    /// Draw.
    Draw,
    /// Clear the screen and draw.
    Repaint,
    /// Stop until the shell continues the program, then repaint.
    Suspend,
    /// Draw, and make a plan that ends these processes. It is carried out only after
    /// [`Effect::Execute`] with its number.
    Plan(u64, Aim),
    /// Draw, and execute the plan of this number: the user has confirmed it.
    Execute(u64),
    /// Draw, and stop the execution after the current step.
    Stop,
    /// Draw, and answer this question.
    Ask(Inquiry),
    /// Draw, and send this command to the player of the recording.
    Play(Control),
    /// End the program.
    Quit,
}

/// The state of the view.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) options: Options,
    pub(crate) marker: Marker,
    pub(crate) frame: Option<Box<Frame>>,
    /// The last snapshot while the display is paused.
    pending: Option<Box<Frame>>,
    pub(crate) paused: bool,
    /// The past of all snapshots so far.
    past: Past,
    /// The past at the moment when the display was paused.
    frozen: Option<Box<Past>>,
    /// The CPU times of the last snapshot, and its time.
    cpu_before: CpuTimes,
    /// The counters of the last snapshot.
    counters: Counters,
    /// Devices have a second line, and the host a line.
    pub(crate) more: bool,
    /// The shown rows in their order, each with the tree lines before the command.
    pub(crate) order: Vec<Branch>,
    /// How many rows the filter shows, folded ones included.
    pub(crate) matching: usize,
    /// The rows are shown as a tree.
    pub(crate) tree: bool,
    /// The processes with hidden descendants.
    folded: BTreeSet<ProcessKey>,
    /// The process that the selection stays on, even after it ends.
    pub(crate) followed: Option<ProcessKey>,
    pub(crate) sort: Column,
    pub(crate) reversed: bool,
    pub(crate) filter: Filter,
    pub(crate) editing: bool,
    selected: Option<RowKey>,
    /// The processes that are tagged.
    pub(crate) tagged: BTreeSet<ProcessKey>,
    /// The index of the selected row, kept for when the row disappears.
    selected_index: usize,
    /// The first row on the screen.
    pub(crate) top: usize,
    pub(crate) overlay: Option<Overlay>,
    /// The first line of the overlay on the screen.
    pub(crate) overlay_top: usize,
    /// How many lines of the plan have been on the screen.
    read: usize,
    /// The dialog that ends processes; it continues while it is closed.
    pub(crate) dialog: Option<Dialog>,
    /// The number of the last plan.
    plans: u64,
    /// The process whose environment is shown, and the environment once it is known.
    pub(crate) environment: Option<(ProcessKey, Option<Result<Environment, String>>)>,
    /// Values that may be secrets are shown.
    pub(crate) reveals: bool,
    /// The leases and claims, once known.
    pub(crate) leases: Option<Result<Leases, String>>,
    lease_question: LeaseQuestion,
    /// The state of the playback, once known.
    pub(crate) playback: Option<Playback>,
    /// Why the last command to the player failed; until the next key.
    pub(crate) objection: Option<String>,
    /// The time that the user is typing.
    pub(crate) timecode: Option<String>,
    /// The last typed time, until it is shown or refused.
    sent: Option<String>,
    size: (u16, u16),
    /// What a snapshot waits for, and for how long.
    pub(crate) waiting: Option<(String, Duration)>,
}

impl State {
    /// Returns the state before the first snapshot, on a terminal of this size.
    pub fn new(options: Options, size: (u16, u16)) -> Self {
        State {
            marker: if options.ascii { Marker::Ascii } else { options.marker },
            sort: options.sort.0,
            reversed: options.sort.1,
            more: options.more,
            options,
            size,
            ..State::default()
        }
    }

    /// Returns the identity of the selected row.
    pub fn selected(&self) -> Option<RowKey> {
        self.selected
    }

    /// Returns the sort column, and whether the order is reversed.
    pub fn sort(&self) -> (Column, bool) {
        (self.sort, self.reversed)
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the box that covers the table.
    pub fn overlay(&self) -> Option<Overlay> {
        self.overlay
    }

    /// Returns whether new snapshots are withheld.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns whether devices have a second line, and the host a line: whether the next snapshots
    /// need the values of [`more`](crate::more).
    pub fn shows_more(&self) -> bool {
        self.more
    }

    /// Returns the history of the device with this index.
    pub fn history(&self, gpu: u32) -> Option<&History> {
        self.past.devices.get(&(gpu, None))
    }

    /// Returns the past that the graphs show.
    pub(crate) fn shown_past(&self) -> &Past {
        self.frozen.as_deref().unwrap_or(&self.past)
    }

    /// Returns the drawing area: the terminal, or 80 × 24 if its size is unknown.
    pub fn area(&self) -> Rect {
        usable(self.size)
    }

    /// Returns the shown rows in their order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        let frame = self.frame.as_deref();
        self.order.iter().filter_map(move |branch| frame?.row(branch.index))
    }

    /// Returns the selected row.
    pub fn selected_row(&self) -> Option<&Row> {
        let key = self.selected?;
        self.rows().find(|row| row.key == key)
    }

    /// Applies an event.
    pub fn update(&mut self, event: Event) -> Effect {
        if matches!(event, Event::Key(_) | Event::Paste(_)) {
            // The user has read it; another action clears it.
            (self.objection, self.sent) = (None, None);
        }
        let effect = match event {
            Event::Key(key) if self.editing => self.edit(key),
            Event::Key(key) if self.timecode.is_some() => self.edit_time(key),
            Event::Key(key) => self.action(key).map_or(Effect::Nothing, |action| self.act(action)),
            Event::Mouse(mouse) => self.click(mouse),
            Event::Paste(text) if self.editing => {
                self.set_filter(&format!("{}{text}", self.filter.text()))
            }
            Event::Paste(text) => self.paste_time(&text),
            Event::Resize(columns, rows) => {
                (self.size, self.read) = ((columns, rows), 0);
                Effect::Repaint
            }
            Event::Frame(frame) => {
                let now = frame.read_at;
                let effect = self.accept(frame);
                self.renew_leases(now).unwrap_or(effect)
            }
            Event::Stalled { what, since } => {
                self.waiting = Some((what, since));
                Effect::Draw
            }
            Event::Tick(_) if self.options.replays => Effect::Nothing,
            Event::Tick(since) => self.tick(since),
            Event::Replayed(replayed) => self.replayed(replayed),
            Event::Ending(news) => self.hear(news),
            Event::Answer(answer) => self.answered(*answer),
        };
        if effect != Effect::Nothing {
            self.settle();
        }
        effect
    }

    fn tick(&mut self, since: Duration) -> Effect {
        match &mut self.waiting {
            Some((_, waited)) if waited.as_secs() == since.as_secs() => return Effect::Nothing,
            Some((_, waited)) => *waited = since,
            None => self.waiting = Some((String::new(), since)),
        }
        Effect::Draw
    }

    fn accept(&mut self, mut frame: Box<Frame>) -> Effect {
        let waited = self.waiting.take().is_some();
        if let Some(earlier) = self.pending.as_deref().or(self.frame.as_deref()) {
            frame.keep(earlier);
        }
        if self.tree {
            frame.add_parents();
        }
        if frame.as_of.is_none() {
            self.add_cpu(&mut frame);
            self.counters.fill(&mut frame);
        }
        if self.is_frozen() && self.frozen.is_none() {
            self.frozen = Some(Box::new(self.past.clone()));
        }
        self.past.add(&frame);
        if self.is_frozen() {
            self.pending = Some(frame);
            return if waited { Effect::Draw } else { Effect::Nothing };
        }
        self.frame = Some(frame);
        self.sort_rows();
        Effect::Draw
    }

    /// Fills in the CPU share since the previous snapshot.
    fn add_cpu(&mut self, frame: &mut Frame) {
        let now = frame.read_at;
        let CpuTimes { read_at, times: before } = &self.cpu_before;
        let elapsed = now.saturating_sub(*read_at).as_millis();
        let mut times = BTreeMap::new();
        for row in frame.rows.iter_mut().chain(&mut frame.parents) {
            let (Subject::Process(key), Some(time)) = (row.key.subject, row.cpu_time) else {
                continue;
            };
            times.insert(key, time);
            let used = before.get(&key).map(|earlier| time.saturating_sub(*earlier).as_millis());
            let share = used.and_then(|used| (used * 100).checked_div(elapsed));
            row.cpu = share.and_then(|share| u32::try_from(share).ok());
        }
        self.cpu_before = CpuTimes { read_at: now, times };
    }
}

/// Returns the area for a size in columns and rows. 0 means unknown.
pub(crate) fn usable((columns, rows): (u16, u16)) -> Rect {
    let known = |size: u16, usual: u16| NonZeroU16::new(size).map_or(usual, NonZeroU16::get);
    let columns = known(columns, USUAL.0).min(LARGEST.0);
    let rows = known(rows, USUAL.1).min(LARGEST.1);
    Rect::new(0, 0, columns, rows)
}
