//! The text of a `machine.toml`, for error messages with line numbers.

use crate::date::timestamp;
use gpu_core::{ErrorKind, Result, Timestamp};
use toml::value::Datetime;

/// Finds the line of a `machine.toml` for error messages.
#[derive(Clone, Copy)]
pub(crate) struct TomlSource<'a>(pub(crate) &'a str);

impl TomlSource<'_> {
    /// Returns an error for the line at the start of `span`.
    pub(crate) fn error(self, span: Option<std::ops::Range<usize>>, what: &str) -> gpu_core::Error {
        let line = span.map(|span| {
            let before = self.0.as_bytes().get(..span.start).unwrap_or(self.0.as_bytes());
            before.iter().filter(|byte| **byte == b'\n').count() + 1
        });
        let at = line.map_or_else(String::new, |line| format!(" line {line}"));
        gpu_core::Error::new(ErrorKind::Invalid, format!("machine.toml{at}: {what}"))
    }
}

/// Returns the time that a field has.
///
/// # Errors
/// `Invalid`, with the field, if it is not a date-time.
pub(crate) fn date(source: TomlSource<'_>, field: &str, written: &Datetime) -> Result<Timestamp> {
    timestamp(written).ok_or_else(|| {
        let what = format!("{field} '{written}' is not a date-time, e.g. 2026-11-21T09:00:00Z");
        source.error(None, &what)
    })
}
