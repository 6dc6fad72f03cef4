//! The options that stay the same while the view runs.

use crate::rows::Column;
use gpu_report::TimeZone;
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

/// The colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background: no yellow and no cyan.
    Light,
    /// No colours: only bold, dim and reversed text.
    Mono,
}

/// The thresholds above which a device needs attention; `None` for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attention {
    /// Its temperature in degrees Celsius.
    pub temperature: Option<u8>,
    /// Its used memory in percent.
    pub memory: Option<u8>,
    /// Its power in percent of the limit.
    pub power: Option<u8>,
}

/// The options that stay the same while the view runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The terminal shows only ASCII.
    pub ascii: bool,
    /// The colours.
    pub theme: Theme,
    /// The thresholds for attention.
    pub attention: Attention,
    /// The columns of the table, if there is room for them.
    pub columns: Vec<Column>,
    /// The sort column at the start, and whether the order is reversed.
    pub sort: (Column, bool),
    /// The characters of the graphs at the start.
    pub marker: Marker,
    /// Whether devices have a second line at the start.
    pub more: bool,
    /// The time from one snapshot to the next; zero if it varies, as in a recording.
    pub interval: Duration,
    /// The time zone of the time in the header.
    pub zone: TimeZone,
    /// The option that selects a simulated machine, for suggested commands: empty or `--sim NAME `.
    pub sim: String,
    /// Whether processes can be ended; otherwise no key does.
    pub can_end: bool,
    /// Whether questions are answered; otherwise the keys for them do not exist.
    pub can_ask: bool,
    /// Whether a recording is shown rather than the present.
    pub replays: bool,
}

impl Default for Options {
    /// Returns the options of a read-only view with colours, in UTC.
    fn default() -> Self {
        Options {
            ascii: false,
            theme: Theme::Dark,
            attention: Attention::default(),
            columns: Column::ALL.map(|(column, ..)| column).to_vec(),
            sort: (Column::Gpu, false),
            marker: Marker::default(),
            more: false,
            interval: Duration::ZERO,
            zone: TimeZone::UTC,
            sim: String::new(),
            can_end: false,
            can_ask: false,
            replays: false,
        }
    }
}
