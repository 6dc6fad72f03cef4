//! A text that changes over time, on the whole screen: the state, without I/O.

use crate::keys::{Action, Scope};
use crate::options::Options;
use crate::overlay::Overlay;
use crate::state::{Effect, usable};
use gpu_report::text::Line;
use ratatui_core::layout::Rect;
use ratatui_crossterm::crossterm::event::KeyEvent;

/// The line above a text, and the lines of the text.
pub type Page = (Line, Vec<Line>);

/// A text, and the part of it that is on the screen.
#[derive(Clone, Debug)]
pub struct Pages {
    pub(crate) options: Options,
    pub(crate) page: Page,
    /// The first line on the screen.
    pub(crate) top: usize,
    pub(crate) paused: bool,
    size: (u16, u16),
}

impl Pages {
    /// Returns an empty text on a terminal of this size.
    pub fn new(options: Options, size: (u16, u16)) -> Self {
        Pages { options, page: (Line::new(), Vec::new()), top: 0, paused: false, size }
    }

    /// Returns the drawing area: the terminal, or 80 × 24 if its size is unknown.
    pub fn area(&self) -> Rect {
        usable(self.size)
    }

    /// Sets the size of the terminal, in columns and rows; 0 means unknown.
    pub fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        self.scroll(0);
    }

    /// Replaces the text, unless it is paused; `text` is called with the width in columns.
    pub fn refresh(&mut self, text: impl FnOnce(usize) -> Page) {
        if !self.paused {
            self.page = text(self.area().width.into());
        }
        self.scroll(0);
    }

    /// Returns how many lines of the text fit.
    pub(crate) fn room(&self) -> usize {
        usize::from(self.area().height).saturating_sub(2)
    }

    /// Returns whether an action applies: those of an overlay, except the ones that close it.
    pub(crate) fn offers(action: Action) -> bool {
        use Action::{Down, First, Last, PageDown, PageUp, Pause, Quit, Repaint, Suspend, Up};
        matches!(
            action,
            Down | First | Last | PageDown | PageUp | Pause | Quit | Repaint | Suspend | Up
        )
    }

    pub(crate) fn scope() -> Scope {
        Scope { overlay: Some(Overlay::Help), replays: false }
    }

    /// Applies a key.
    pub fn press(&mut self, key: KeyEvent) -> Effect {
        let action = Pages::scope().action(key).filter(|action| Pages::offers(*action));
        let page = isize::try_from(self.room()).unwrap_or(isize::MAX);
        match action {
            Some(Action::Quit) => return Effect::Quit,
            Some(Action::Suspend) => return Effect::Suspend,
            Some(Action::Repaint) => return Effect::Repaint,
            Some(Action::Pause) => self.paused = !self.paused,
            Some(Action::Up) => self.scroll(-1),
            Some(Action::Down) => self.scroll(1),
            Some(Action::PageUp) => self.scroll(-page),
            Some(Action::PageDown) => self.scroll(page),
            Some(Action::First) => self.scroll(isize::MIN),
            Some(Action::Last) => self.scroll(isize::MAX),
            _ => return Effect::Nothing,
        }
        Effect::Draw
    }

    fn scroll(&mut self, lines: isize) {
        let last = self.page.1.len().saturating_sub(self.room());
        self.top = self.top.saturating_add_signed(lines).min(last);
    }
}
