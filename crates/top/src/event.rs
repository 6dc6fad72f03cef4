//! What can happen: one enum for all sources.

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
    /// A look at the machine was completed.
    Frame(Box<Frame>),
    /// A look waits for the driver.
    Stalled {
        /// What it waits for, such as a function of the driver, as a phrase.
        what: String,
        /// The time since the last look or since the start.
        since: Duration,
    },
    /// Time has passed without a look; the time since the last look or since the start.
    Tick(Duration),
    /// Something happened to the processes that the user ends.
    Ending(News),
    /// A recording is played.
    Replayed(Replayed),
    /// A question was answered.
    Answer(Box<Answer>),
}

impl Event {
    /// Returns the event that an input of the terminal means; `None` if it means none, as the
    /// release of a key and a move of the mouse.
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
