//! `gpuws doctor --paste`: diagnoses another machine from pasted output.

use crate::args::{DoctorArgs, Global};
use crate::exit::Exit;
use crate::failure::{Failure, brief, remedy};
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_core::{Clock, DeviceState};
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
    let bytes = super::parse::read(Path::new("-"))?;
    let documents = gpu_text::sections(&bytes);
    if documents.is_empty() {
        return Err(Failure::new(Exit::Usage, "read the pasted text")
            .with_source("it contains no output of nvidia-smi, fuser or lsof, and no Xid")
            .with_hint(BOTH));
    }
    // The processes of one machine would be attributed to the other.
    if let Some((index, before, now)) = gpu_text::differing(&documents) {
        return Err(Failure::new(Exit::Usage, "join the pasted texts")
            .with_source(format!("GPU {index} is at {before} in one and at {now} in another"))
            .with_hint("paste one machine at a time"));
    }
    let snapshot = gpu_text::snapshot(&documents, SystemClock::new().wall());
    let failures = gpu_text::unattributed(&documents);
    let attributed = documents.iter().any(|document| !document.device_failures.is_empty());
    let logged = snapshot.driver_messages.iter().any(|messages| !messages.is_empty());
    let judged = logged || attributed || snapshot.devices.iter().any(shows_health);
    if !judged && failures.iter().all(|code| *code == ErrorCode::Other) {
        super::parse::refuse_out_of_memory("diagnose the pasted text", &bytes)?;
    }
    if !judged && failures.is_empty() {
        return Err(Failure::new(Exit::Usage, "diagnose the pasted text")
            .with_source("it has no GPU memory figures and no Xid")
            .with_hint(BOTH));
    }
    if !global.json {
        for code in &failures {
            explain(screen, *code)?;
        }
    }
    if !judged && !global.json {
        if let (Err(fault), true) = (&snapshot.driver, snapshot.devices.is_empty()) {
            report_driver(screen, fault)?;
        }
        return Ok(Exit::Remains);
    }
    let exit = super::doctor::report(
        args,
        global,
        (Past::new(), &[snapshot], &DeviceLeases::none()),
        &failures,
        screen,
    )?;
    Ok(if failures.is_empty() { exit } else { Exit::Remains })
}

/// Returns whether a device can be judged.
fn shows_health(device: &DeviceState) -> bool {
    device.memory_used().is_ok() || device.details.as_ref().is_ok_and(|known| !known.is_empty())
}

fn report_driver(screen: &mut Screen, fault: &gpu_core::Fault) -> Result<(), Failure> {
    if !matches!(fault.kind, gpu_core::ErrorKind::Machine(_)) {
        return Ok(());
    }
    wording::flow(screen, Line::new().accent("no GPU could be queried there: "), &brief(fault))?;
    match remedy(fault.kind) {
        Some(remedy) => screen.print(&Line::new().dim("  there    ").plain(remedy)),
        None => Ok(()),
    }
}

/// Prints the meaning of an error text and the command to run on that machine.
fn explain(screen: &mut Screen, code: ErrorCode) -> Result<(), Failure> {
    // Without a meaning of its own, it is reported with the driver.
    let Some((meaning, command)) = wording::pasted_failure(code) else { return Ok(()) };
    wording::flow(screen, Line::new().accent("FAILURE  "), meaning)?;
    screen.print(&Line::new().dim("  there    ").accent(command))
}
