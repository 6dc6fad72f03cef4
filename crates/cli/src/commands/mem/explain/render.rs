//! Output of an out-of-memory event.

use crate::args::Global;
use crate::failure::Failure;
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_memory_advice::explain::Diagnosis;
use gpu_report::wording::oom::{figures, name};
use gpu_text::oom::Event;

/// Prints an event: its figures, causes and remedies.
pub(super) fn show(
    screen: &mut Screen,
    global: &Global,
    event: &Event,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    screen.print(&head(event))?;
    for line in figures(event, diagnosis) {
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

/// Formats `PyTorch 2.1, GPU 0 (23.69 GiB)   line 7, printed 3 times`.
fn head(event: &Event) -> Line {
    let mut line = Line::new().accent(name(event));
    if let Some(gpu) = event.gpu {
        line = line.plain(format!(", GPU {gpu}"));
    }
    if let Some(total) = &event.total {
        line = line.plain(format!(" ({})", total.text));
    }
    let times = match event.times {
        0 | 1 => String::new(),
        times => format!(", printed {times} times"),
    };
    line.dim(format!("   line {}{times}", event.line))
}
