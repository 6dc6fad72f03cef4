//! Output of out-of-memory events.

use crate::args::Global;
use crate::failure::Failure;
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_report::wording::oom::{Group, figures};

/// Prints an event, or those of the ranks of a job: the verdict, figures, causes and remedies.
pub(super) fn show(screen: &mut Screen, global: &Global, group: &Group<'_>) -> Result<(), Failure> {
    let (event, diagnosis) = group.worst();
    wording::flow(screen, Line::new(), &diagnosis.verdict)?;
    let position = format!("   {}", group.position());
    screen.print(&Line::new().plain("  ").accent(group.source()).dim(position))?;
    for line in group.introduction().into_iter().chain(figures(event, diagnosis)) {
        wording::flow(screen, Line::new().plain("  "), &line)?;
    }
    wording::flow(screen, Line::new(), &diagnosis.reasons.join(" "))?;
    for contradiction in &diagnosis.contradictions {
        wording::flow(screen, Line::new().dim("but "), contradiction)?;
    }
    for fact in &diagnosis.now {
        wording::flow(screen, Line::new().dim("now "), fact)?;
    }
    if global.quiet {
        return Ok(());
    }
    for (index, remedy) in diagnosis.remedies.iter().enumerate() {
        let head = Line::new().plain(if index == 0 { "Try: " } else { "     " });
        match &remedy.set {
            Some(set) => {
                wording::print_wrapped(screen, head.accent(set).plain("  "), &remedy.why)?;
            }
            None => wording::flow(screen, head, &remedy.why)?,
        }
    }
    Ok(())
}
