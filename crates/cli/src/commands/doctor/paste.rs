//! `gpuws doctor --paste`: diagnoses another machine from pasted output.

use super::DoctorArgs;
use crate::args::Global;
use crate::commands::reap::show;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_core::Clock;
use gpu_host::SystemClock;
use gpu_reaper::Past;
use gpu_steward::DeviceLeases;
use gpu_text::ErrorCode;
use std::path::Path;

const BOTH: &str =
    "paste both: (nvidia-smi; sudo fuser -v /dev/nvidia*) 2>&1 | gpuws doctor --paste";

pub(super) fn run(
    args: &DoctorArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let bytes = crate::commands::parse::read(Path::new("-"))?;
    let documents = gpu_text::sections(&bytes);
    // The processes of one machine would be attributed to the other.
    if let Some((index, before, now)) = gpu_text::differing(&documents) {
        return Err(Failure::new(Exit::Usage, "join the pasted texts")
            .with_source(format!("GPU {index} is at {before} in one and at {now} in another"))
            .with_hint("paste one machine at a time"));
    }
    // The text may be days old, so it is judged by its own time.
    let at = gpu_text::moment(&documents, SystemClock::new().wall());
    let snapshot = gpu_text::snapshot(&documents, at);
    let failures = gpu_text::unattributed(&documents);
    let judged = gpu_text::shows_health(&documents, &snapshot);
    let is_vague = failures.iter().all(|failure| failure.code == ErrorCode::Other);
    if !judged && is_vague {
        crate::commands::parse::refuse_out_of_memory("diagnose the pasted text", &bytes)?;
    }
    let placed = wording::paste::placed(&documents, screen.width());
    if !judged && failures.is_empty() && (placed.is_empty() || global.json) {
        return Err(Failure::new(Exit::Usage, "diagnose the pasted text")
            .with_source(gpu_text::lacking(&documents))
            .with_hint(BOTH));
    }
    if !global.json {
        screen.print_all(placed)?;
        show(screen, wording::paste::failures(&snapshot, &failures))?;
        if !is_vague && crate::commands::parse::refuse_out_of_memory("", &bytes).is_err() {
            let text =
                "the text also has an out-of-memory message: gpuws mem explain gives its cause";
            wording::flow(screen, Line::new().dim("note: "), text)?;
        }
        if !judged {
            return Ok(if failures.is_empty() { Exit::Done } else { Exit::Remains });
        }
    }
    let exit = super::report(
        args,
        global,
        (Past::new(), &[snapshot], &DeviceLeases::none()),
        &failures,
        screen,
    )?;
    Ok(if failures.is_empty() { exit } else { Exit::Remains })
}
