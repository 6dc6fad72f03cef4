//! `gpuws mem explain`: explains out-of-memory messages, with their causes and remedies.

mod log;
pub(super) mod machine;
mod render;

use super::ExplainArgs;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::sim_option;
use crate::source::within;
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_memory_advice::explain::{Diagnosis, explain};
use gpu_memory_advice::text;
use gpu_report::json;
use gpu_report::wording::oom::groups;
use gpu_text::oom;

/// The maximum number of events shown; JSON contains all.
const MAX_SHOWN: usize = 20;

pub(crate) fn run(
    args: &ExplainArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let log = log::read(&args.file)?;
    let report = &log.report;
    let none = report.events.is_empty();
    let snapshot = if none || args.no_live { None } else { machine::query(global)? };
    let now = snapshot.as_ref().map(machine::now);
    let diagnose = |event| explain(&text::shown(event), now.as_ref());
    let mut diagnoses: Vec<Diagnosis> = report.events.iter().map(diagnose).collect();
    if let Some(snapshot) = &snapshot {
        let (sim, live) = (sim_option(&snapshot.origin, global), within(global));
        diagnoses.iter_mut().for_each(|diagnosis| diagnosis.on_machine(&sim, &live));
    }
    if global.json {
        screen.json(&json::Explained::of(report, &diagnoses, snapshot.as_ref()))?;
    } else if none {
        let what = "no out-of-memory message found";
        screen.print(&Line::new().plain(what))?;
        if is_recording(&log.head) && !global.quiet {
            let next = format!("gpuws mem replay {}", wording::path_word(&args.file));
            screen.print(&Line::new().dim("this is a memory recording; use: ").plain(next))?;
        }
    } else {
        screen.together(|screen| {
            if let Some(snapshot) = &snapshot
                && let Some(origin) = crate::commands::doctor::origin(snapshot)
            {
                screen.print(&origin)?;
                screen.print(&Line::new())?;
            }
            show(screen, global, report, &diagnoses)
        })?;
    }
    Ok(if none { Exit::Remains } else { Exit::Done })
}

/// Returns whether a file is a memory recording instead of a log: a PyTorch snapshot or JSON Lines.
fn is_recording(head: &[u8]) -> bool {
    const KIND: &[u8] = b"memory-trace";
    head.starts_with(&[0x80])
        || (head.starts_with(b"{") && head.windows(KIND.len()).any(|part| part == KIND))
}

fn show(
    screen: &mut Screen,
    global: &Global,
    report: &oom::Report,
    diagnoses: &[Diagnosis],
) -> Result<(), Failure> {
    let groups = groups(&report.events, diagnoses);
    for (index, group) in groups.iter().take(MAX_SHOWN).enumerate() {
        if index > 0 {
            screen.print(&Line::new())?;
        }
        render::show(screen, global, group)?;
    }
    let more = groups.len().saturating_sub(MAX_SHOWN);
    if more > 0 {
        screen.print(&Line::new())?;
        let more = wording::count(more, "more message", "more messages");
        screen.print(&Line::new().dim(format!("{more}; --json has all")))?;
    }
    if report.is_cut {
        screen.print(
            &Line::new().dim("some messages or rows of the log were omitted: it has too many"),
        )?;
    }
    Ok(())
}
