//! A preview of a claim.

use super::ClaimArgs;
use super::refused::failure;
use super::request::{PreparedClaim, barred, reasons};
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::within;
use crate::terminal::{Line, Screen};
use crate::users::{owner, user};
use crate::wording;
use gpu_core::visible::Visibility;
use gpu_core::{DeviceState, LeaseEntry, Origin};
use gpu_memory_advice::CONTEXT;
use gpu_placement::Refusal;
use gpu_report::json;
use gpu_report::wording::claims::{asked, chosen, ordinal};
use gpu_steward::{NotGranted, Ports, Preview, Refused, preview};

/// Shows the devices that a claim would get now, without claiming them; 75 if it may not wait.
///
/// # Errors
/// When `gpuws run` would fail because the claim can never be granted.
pub(super) fn show(
    args: &ClaimArgs,
    global: &Global,
    screen: &mut Screen,
    prepared: &PreparedClaim,
    ports: &Ports<'_>,
) -> Result<Exit, Failure> {
    let seen = preview(&prepared.request, ports).map_err(|why| failure(prepared, why))?;
    if global.json {
        screen.json(&json::Wanted::of(&seen, &user))?
    } else {
        print(args, global, screen, prepared, &seen)?
    }
    match seen.decision {
        Err(refused) if !is_for_now(&refused) => {
            Err(failure(prepared, NotGranted::Never(Some(refused))))
        }
        Err(_) if args.request.no_wait || args.request.timeout.is_some() => Ok(Exit::TryLater),
        _ => Ok(Exit::Done),
    }
}

/// Returns whether waiting may help.
fn is_for_now(refused: &Refused) -> bool {
    matches!(refused.refusal, Refusal::NotNow { .. })
}

fn print(
    args: &ClaimArgs,
    global: &Global,
    screen: &mut Screen,
    prepared: &PreparedClaim,
    seen: &Preview,
) -> Result<(), Failure> {
    // A claim that can never be granted is reported as an error by the caller.
    if matches!(&seen.decision, Err(refused) if !is_for_now(refused)) {
        return Ok(());
    }
    let origin = &seen.context.snapshot.origin;
    if *origin != Origin::Live {
        screen.print(&Line::new().accent(origin))?;
    }
    match &seen.decision {
        Ok(decision) => {
            let product = wording::product_of(&seen.context.snapshot, &decision.devices());
            let text = chosen(decision, product.as_deref());
            wording::flow(screen, Line::new().plain("would claim "), &text)?;
            for (device, bar) in &seen.accepted {
                let text = format!("GPU {}: {}", device.index, barred(bar));
                wording::flow(screen, Line::new().accent("  warning: "), &text)?;
            }
            for reason in reasons(decision.passed(), prepared.limited_by) {
                wording::flow(screen, Line::new().dim("  "), &reason)?;
            }
        }
        Err(refused) => {
            let asked = asked(&prepared.request.claim);
            screen.print(&Line::new().accent(format_args!("{asked} not available now")))?;
            for reason in reasons(refused.passed(), prepared.limited_by) {
                wording::flow(screen, Line::new().plain("  "), &reason)?;
            }
        }
    }
    if let Some(first) = seen.ahead.first() {
        let position = ordinal(seen.ahead.len() + 1);
        let text = format!("would be {position} in the queue; first: {}", described(first));
        wording::flow(screen, Line::new(), &text)?;
    }
    if global.quiet {
        return Ok(());
    }
    let is_foreign = |device: &DeviceState| device.info.visibility != Visibility::default();
    let devices = &seen.context.snapshot.devices;
    if global.sim.is_some() && !devices.is_empty() && devices.iter().all(is_foreign) {
        let text = "nothing was claimed: simulated GPUs of AMD and Intel run no jobs";
        return wording::flow(screen, Line::new(), text);
    }
    let within = within(global);
    let (options, keep) = (args.request.again(), args.keep.again(Some(CONTEXT)));
    let keep_env = if args.keep_env { " --keep-env" } else { "" };
    let run = format!("{within}gpuws run{options}{keep}{keep_env} -- COMMAND");
    wording::copyable(screen, "nothing was claimed.", &run)
}

/// Returns the owner and the command of an entry: `alice: python train.py`.
fn described(entry: &LeaseEntry) -> String {
    if entry.command.is_empty() {
        owner(entry)
    } else {
        format!("{}: {}", owner(entry), entry.command)
    }
}
