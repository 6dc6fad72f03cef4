//! The events of all sources, in one enum.

use crate::ending::News;
use crate::frame::Frame;
use crate::inquiry::Answer;
use crate::replay::Replayed;
use ratatui_crossterm::crossterm::event::{Event as Input, KeyEvent, KeyEventKind, MouseEvent};
use std::time::Duration;

/// An event, in the order in which the main loop receives it.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed or repeats.
    Key(KeyEvent),
    /// The mouse was clicked or its wheel was turned.
    Mouse(MouseEvent),
    /// The terminal has this size now, in columns and rows; 0 means unknown.
    Resize(u16, u16),
    /// Text was pasted.
    Paste(String),
    /// A snapshot of the machine was completed.
    Frame(Box<Frame>),
    /// A snapshot is waiting for the driver.
    Stalled {
        /// What it waits for, such as a function of the driver, as a phrase.
        what: String,
        /// The time since the last snapshot or since the start.
        since: Duration,
    },
    /// Time has passed without a snapshot; the time since the last one or since the start.
    Tick(Duration),
    /// The ending of processes has progressed.
    Ending(News),
    /// A recording is being played.
    Replayed(Replayed),
    /// A question was answered.
    Answer(Box<Answer>),
}

impl Event {
    /// Returns the event for an input of the terminal; `None` if it has none, such as the release
    /// of a key or a move of the mouse.
    pub fn of_input(input: Input) -> Option<Self> {
        use ratatui_crossterm::crossterm::event::MouseEventKind::{Down, ScrollDown, ScrollUp};
        match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => Some(Event::Key(key)),
            Input::Mouse(mouse) if matches!(mouse.kind, Down(_) | ScrollDown | ScrollUp) => {
                Some(Event::Mouse(mouse))
            }
            Input::Resize(columns, rows) => Some(Event::Resize(columns, rows)),
            Input::Paste(text) => Some(Event::Paste(text)),
            _ => None,
        }
    }
}
