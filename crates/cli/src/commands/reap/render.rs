//! Output of a plan and its result.

use crate::failure::Failure;
use crate::terminal::Screen;
use crate::wording;
use gpu_core::Snapshot;
use gpu_reaper::{Diagnosis, Plan, Report};
use gpu_report::wording::reap::{self, Paragraph};

pub(crate) fn show_plan(
    screen: &mut Screen,
    now: &Snapshot,
    diagnosis: &Diagnosis,
    plan: &Plan,
    yes: bool,
) -> Result<(), Failure> {
    show(screen, reap::plan(now, diagnosis, plan, yes))
}

/// Prints the result: the memory that was freed, and the memory that was expected.
pub(crate) fn show_report(screen: &mut Screen, report: &Report) -> Result<(), Failure> {
    show(screen, reap::report(report))
}

/// Prints paragraphs, wrapped to the width of the screen.
pub(crate) fn show(screen: &mut Screen, paragraphs: Vec<Paragraph>) -> Result<(), Failure> {
    paragraphs.into_iter().try_for_each(|Paragraph { head, text }| {
        if text.is_empty() { screen.print(&head) } else { wording::flow(screen, head, &text) }
    })
}
