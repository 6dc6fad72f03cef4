//! What the view shows, and how an event changes it. No I/O.

use crate::event::Event;
use crate::filter::Filter;
use crate::frame::Frame;
use crate::history::History;
use crate::keys::{self, Action};
use crate::rows::{Column, Row, RowKey, Subject};
use crate::view::{Target, details_length, help_length, rows_on_screen, target, usable, view};
use gpu_core::{ProcessKey, Timestamp};
use gpu_report::TimeZone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_crossterm::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseEvent, MouseEventKind,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The characters of the graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marker {
    /// Braille patterns: two samples in a column, four levels in a line.
    #[default]
    Braille,
    /// Blocks: one sample in a column, eight levels in a line.
    Block,
    /// ASCII, for all text: one sample in a column, three levels in a line.
    Ascii,
}

/// What stays the same.
#[derive(Clone, Debug)]
pub struct Options {
    /// The terminal shows only ASCII.
    pub ascii: bool,
    /// Colours are used, and not only bold, dim and reversed text.
    pub colour: bool,
    /// The time zone of the time in the header.
    pub zone: TimeZone,
    /// The option that selects a simulated machine, for suggested commands: empty or `--sim NAME `.
    pub sim: String,
}

/// What the caller of [`State::update`] has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: what is shown stays the same.
    Nothing,
    /// Draw.
    Draw,
    /// Clear the screen and draw.
    Repaint,
    /// Stop until the shell continues the program, then repaint.
    Suspend,
    /// End.
    Quit,
}

/// What covers the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys.
    Help,
    /// The details of the selected row.
    Details,
}

/// The state of the view.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) options: Options,
    pub(crate) marker: Marker,
    pub(crate) frame: Option<Box<Frame>>,
    /// The last look while the display is paused.
    pending: Option<Box<Frame>>,
    pub(crate) paused: bool,
    pub(crate) history: BTreeMap<u32, History>,
    /// How many looks came since the display was paused.
    pub(crate) behind: usize,
    /// The CPU times of the last look, and its time.
    cpu_before: (Timestamp, BTreeMap<ProcessKey, Duration>),
    /// The shown rows in their order, as indexes of the rows of the frame.
    pub(crate) order: Vec<usize>,
    pub(crate) sort: Column,
    pub(crate) reversed: bool,
    pub(crate) filter: Filter,
    pub(crate) editing: bool,
    selected: Option<RowKey>,
    /// The place of the selected row, kept for when the row disappears.
    place: usize,
    /// The first row on the screen.
    pub(crate) top: usize,
    pub(crate) overlay: Option<Overlay>,
    /// The first line of the overlay on the screen.
    pub(crate) overlay_top: usize,
    size: (u16, u16),
    /// What a look waits for, and how long.
    pub(crate) waiting: Option<(String, Duration)>,
}

impl State {
    /// Returns the state before the first look, on a terminal of this size.
    pub fn new(options: Options, size: (u16, u16)) -> Self {
        State {
            marker: if options.ascii { Marker::Ascii } else { Marker::default() },
            options,
            frame: None,
            pending: None,
            paused: false,
            history: BTreeMap::new(),
            behind: 0,
            cpu_before: (Timestamp(0), BTreeMap::new()),
            order: Vec::new(),
            sort: Column::Gpu,
            reversed: false,
            filter: Filter::default(),
            editing: false,
            selected: None,
            place: 0,
            top: 0,
            overlay: None,
            overlay_top: 0,
            size,
            waiting: None,
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

    /// Returns what covers the table.
    pub fn overlay(&self) -> Option<Overlay> {
        self.overlay
    }

    /// Returns whether new looks are not shown.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns the history of the device with this index.
    pub fn history(&self, gpu: u32) -> Option<&History> {
        self.history.get(&gpu)
    }

    /// Returns the area that is drawn on: the terminal, or 80 × 24 if its size is unknown.
    pub fn area(&self) -> Rect {
        usable(self.size)
    }

    /// Draws the state on the whole area.
    pub fn drawn(&self) -> Buffer {
        let mut buffer = Buffer::empty(self.area());
        view(self, self.area(), &mut buffer);
        buffer
    }

    /// Returns the shown rows in their order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &Row> {
        let rows = self.frame.as_deref().map_or(&[][..], |frame| &frame.rows[..]);
        self.order.iter().map(move |index| &rows[*index])
    }

    /// Returns the selected row.
    pub fn selected_row(&self) -> Option<&Row> {
        let key = self.selected?;
        self.rows().find(|row| row.key == key)
    }

    /// Applies an event.
    pub fn update(&mut self, event: Event) -> Effect {
        let effect = match event {
            Event::Key(key) if self.editing => self.edit(key),
            Event::Key(key) => keys::action(key).map_or(Effect::Nothing, |action| self.act(action)),
            Event::Mouse(mouse) => self.click(mouse),
            Event::Paste(text) if self.editing => {
                self.set_filter(&format!("{}{text}", self.filter.text()))
            }
            Event::Paste(_) => Effect::Nothing,
            Event::Resize(columns, rows) => {
                self.size = (columns, rows);
                Effect::Repaint
            }
            Event::Frame(frame) => self.look(frame),
            Event::Stalled { what, since } => {
                self.waiting = Some((what, since));
                Effect::Draw
            }
            Event::Tick(since) => self.tick(since),
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

    fn look(&mut self, mut frame: Box<Frame>) -> Effect {
        self.waiting = None;
        self.add_cpu(&mut frame);
        for device in &frame.devices {
            self.history.entry(device.index).or_default().add(device);
        }
        if self.paused {
            self.behind += 1;
            self.pending = Some(frame);
            return Effect::Nothing;
        }
        self.frame = Some(frame);
        self.sort_rows();
        Effect::Draw
    }

    /// Fills in the CPU share since the previous look.
    fn add_cpu(&mut self, frame: &mut Frame) {
        let now = frame.snapshot.taken_at;
        let (at, before) = &self.cpu_before;
        let elapsed = now.since(*at).as_millis();
        let mut times = BTreeMap::new();
        for row in &mut frame.rows {
            let (Subject::Process(key), Some(time)) = (row.key.subject, row.cpu_time) else {
                continue;
            };
            times.insert(key, time);
            let used = before.get(&key).map(|earlier| time.saturating_sub(*earlier).as_millis());
            let share = used.and_then(|used| (used * 100).checked_div(elapsed));
            row.cpu = share.and_then(|share| u32::try_from(share).ok());
        }
        self.cpu_before = (now, times);
    }

    fn act(&mut self, action: Action) -> Effect {
        match action {
            Action::Quit => return Effect::Quit,
            Action::Suspend => return Effect::Suspend,
            Action::Repaint => return Effect::Repaint,
            Action::Help => self.toggle(Overlay::Help),
            Action::Details => {
                if self.selected_row().is_none() {
                    self.select(0);
                }
                if self.selected.is_none() {
                    return Effect::Nothing;
                }
                self.toggle(Overlay::Details);
            }
            Action::Up => self.step(-1),
            Action::Down => self.step(1),
            Action::PageUp => self.step(-self.page()),
            Action::PageDown => self.step(self.page()),
            Action::First => self.step(isize::MIN),
            Action::Last => self.step(isize::MAX),
            Action::Filter => {
                (self.editing, self.overlay) = (true, None);
            }
            Action::NextColumn => self.sort_by(next(self.sort, 1)),
            Action::PreviousColumn => self.sort_by(next(self.sort, Column::ALL.len() - 1)),
            Action::SortBy(column) => self.sort_by(column),
            Action::Reverse => {
                self.reversed = !self.reversed;
                self.sort_rows();
            }
            Action::Pause => {
                (self.paused, self.behind) = (!self.paused, 0);
                if let Some(frame) = self.pending.take() {
                    self.frame = Some(frame);
                    self.sort_rows();
                }
            }
            Action::Markers => {
                self.marker = match self.marker {
                    _ if self.options.ascii => Marker::Ascii,
                    Marker::Braille => Marker::Block,
                    Marker::Block => Marker::Ascii,

                    Marker::Ascii => Marker::Braille,
                }
            }
            Action::Clear => {
                if self.overlay.take().is_none() {
                    match self.filter.text().is_empty() {
                        true => self.selected = None,
                        false => return self.set_filter(""),
                    }
                }
            }
        }
        Effect::Draw
    }

    fn toggle(&mut self, overlay: Overlay) {
        self.overlay = if self.overlay == Some(overlay) { None } else { Some(overlay) };
        self.overlay_top = 0;
    }

    /// Edits the filter. Text is text here; only ^C still ends the program.
    fn edit(&mut self, key: KeyEvent) -> Effect {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => self.set_filter(""),
            KeyCode::Char(letter) if !control && !key.modifiers.contains(KeyModifiers::ALT) => {
                self.set_filter(&format!("{}{letter}", self.filter.text()))
            }
            KeyCode::Backspace => {
                let mut text = self.filter.text().to_owned();
                text.pop();
                self.set_filter(&text)
            }
            KeyCode::Enter => {
                self.editing = false;
                Effect::Draw
            }
            KeyCode::Esc => {
                self.editing = false;
                self.set_filter("")
            }
            _ => match keys::action(key) {
                Some(
                    action @ (Action::Quit
                    | Action::Suspend
                    | Action::Repaint
                    | Action::Up
                    | Action::Down
                    | Action::PageUp
                    | Action::PageDown),
                ) => self.act(action),
                _ => Effect::Nothing,
            },
        }
    }

    fn set_filter(&mut self, text: &str) -> Effect {
        self.filter = Filter::new(text);
        self.top = 0;
        self.sort_rows();
        Effect::Draw
    }

    fn click(&mut self, mouse: MouseEvent) -> Effect {
        match mouse.kind {
            MouseEventKind::ScrollUp => self.step(-3),
            MouseEventKind::ScrollDown => self.step(3),
            MouseEventKind::Down(_) if self.overlay.is_some() => self.overlay = None,
            MouseEventKind::Down(_) => match target(self, mouse.column, mouse.row) {
                Some(Target::Title(column)) if column == self.sort => {
                    return self.act(Action::Reverse);
                }
                Some(Target::Title(column)) => self.sort_by(column),
                Some(Target::Row(index)) => self.select(index),
                None => return Effect::Nothing,
            },
            _ => return Effect::Nothing,
        }
        Effect::Draw
    }

    fn sort_by(&mut self, column: Column) {
        (self.sort, self.reversed) = (column, false);
        self.sort_rows();
    }

    /// Filters and sorts the rows. The selection stays on its row; if that is gone, it moves to the
    /// row that has taken the place.
    fn sort_rows(&mut self) {
        let rows = self.frame.as_deref().map_or(&[][..], |frame| &frame.rows[..]);
        self.order.clear();
        let shown = rows.iter().enumerate().filter(|(_, row)| self.filter.shows(row));
        self.order.extend(shown.map(|(index, _)| index));
        let (sort, reversed) = (self.sort, self.reversed);
        self.order.sort_by(|a, b| sort.compare(&rows[*a], &rows[*b], reversed));
        let Some(key) = self.selected else { return };
        match self.order.iter().position(|index| rows[*index].key == key) {
            Some(place) => self.place = place,
            // While the filter hides the row, it stays selected.
            None if rows.iter().any(|row| row.key == key) => {}
            None if self.overlay == Some(Overlay::Details) => {}
            None => self.select(self.place),
        }
    }

    /// Selects the row at this place, or the last one.
    fn select(&mut self, place: usize) {
        self.place = place.min(self.order.len().saturating_sub(1));
        let key = self.rows().nth(self.place).map(|row| row.key);
        self.selected = key;
    }

    /// Moves the selection; with an overlay, moves its text.
    fn step(&mut self, by: isize) {
        if self.overlay.is_some() {
            self.overlay_top = self.overlay_top.saturating_add_signed(by);
            return;
        }
        let visible = self.selected_row().is_some();
        match (visible, by) {
            (_, isize::MIN) => self.select(0),
            (false, isize::MAX) | (true, _) => self.select(self.place.saturating_add_signed(by)),
            (false, _) => self.select(self.top),
        }
    }

    fn page(&self) -> isize {
        isize::try_from(rows_on_screen(self)).unwrap_or(isize::MAX).max(1)
    }

    /// Keeps the selected row and the text of the overlay on the screen.
    fn settle(&mut self) {
        let room = rows_on_screen(self).max(1);
        let last = self.order.len().saturating_sub(room);
        if self.selected_row().is_some() {
            self.top = self.top.clamp((self.place + 1).saturating_sub(room), self.place);
        }
        self.top = self.top.min(last);
        let (length, room) = match self.overlay {
            None => (0, 0),
            Some(Overlay::Help) => help_length(self),
            Some(Overlay::Details) => details_length(self),
        };
        self.overlay_top = self.overlay_top.min(length.saturating_sub(room));
    }
}

fn next(column: Column, by: usize) -> Column {
    let at = Column::ALL.iter().position(|other| *other == column).unwrap_or(0);
    Column::ALL[(at + by) % Column::ALL.len()]
}
