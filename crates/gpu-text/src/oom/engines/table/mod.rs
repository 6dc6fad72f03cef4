//! The table of messages: one row per pattern, grouped by the kind of program.
//!
//! If a message matches several rows, the first one counts. Sources: the programs' own source, and
//! public logs of the versions up to 2026. The flattened log has no quotation marks, emphasis and
//! line breaks, so no pattern has a backquote or an asterisk.

mod frameworks;
mod ggml;
mod hosts;
mod libraries;
mod servers;
mod trainers;

use super::super::event::Framework;
use super::{Role, Shape};
use crate::oom::short::Short;

/// Returns all rows.
pub(super) fn all() -> impl Iterator<Item = &'static Shape> {
    [servers::ROWS, trainers::ROWS, ggml::ROWS, frameworks::ROWS, libraries::ROWS, hosts::ROWS]
        .into_iter()
        .flatten()
}

const fn row(program: Framework, role: Role, text: &'static str) -> Shape {
    Shape { program, backend: None, role, text, more: &[] }
}

/// A failure and its cause.
const fn fails(program: Framework, short: Short, text: &'static str) -> Shape {
    row(program, Role::Fails(short), text)
}

/// A failure explained only by its figures.
const fn figures(program: Framework, text: &'static str) -> Shape {
    row(program, Role::Figures, text)
}

/// A shortage that the program survived.
const fn goes_on(program: Framework, short: Short, text: &'static str) -> Shape {
    row(program, Role::GoesOn(short), text)
}

/// Figures for later messages of the program.
const fn before(program: Framework, text: &'static str) -> Shape {
    row(program, Role::Before, text)
}

/// More about the last message of the program.
const fn after(program: Framework, short: Option<Short>, text: &'static str) -> Shape {
    row(program, Role::After(short), text)
}

/// The program tries again after its last message.
const fn retry(program: Framework, short: Short, text: &'static str) -> Shape {
    row(program, Role::Retry(short), text)
}

impl Shape {
    /// Sets the backend.
    const fn on(self, backend: &'static str) -> Self {
        Shape { backend: Some(backend), ..self }
    }

    /// Sets the optional words.
    const fn more(self, more: &'static [&'static str]) -> Self {
        Shape { more, ..self }
    }
}
