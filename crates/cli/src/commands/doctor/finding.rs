//! Output of a finding: its evidence, its suspects and the advice.

use crate::args::Global;
use crate::failure::Failure;
use crate::source::sim_option;
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_core::{Origin, Pid, Snapshot};
use gpu_reaper::{Cleared, Diagnosis, Evidence, Finding, Suspect};

pub(super) fn show_finding(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    finding: &Finding,
    advised: &mut Vec<String>,
) -> Result<(), Failure> {
    let head = Line::new().accent(wording::kind(finding.kind).to_uppercase()).plain("  ");
    let head = head.plain(wording::doctor::subject(snapshot, finding));
    let confidence = format!("confidence: {}", wording::confidence(finding.confidence));
    let column = screen.width().min(100).saturating_sub(confidence.len());
    screen.print(&head.plain("  ").padded_to(column).plain(confidence))?;
    for evidence in &finding.evidence {
        wording::flow(screen, Line::new().plain("  "), &evidence.text)?;
    }
    for suspect in &finding.suspects {
        show_suspect(screen, snapshot, suspect)?;
    }
    for cleared in diagnosis.cleared.iter().filter(|cleared| concerns(finding, cleared)) {
        show_cleared(screen, snapshot, "not by", cleared)?;
    }
    if global.quiet {
        return Ok(());
    }
    let sim = sim_option(&snapshot.origin, global);
    // No command of this machine can act on the machine of a paste or of a recording.
    let is_elsewhere = matches!(snapshot.origin, Origin::Pasted | Origin::Recorded(_));
    let first = if is_elsewhere { "there" } else { "next" };
    for (at, advice) in finding.advice.iter().enumerate() {
        let (command, what) = wording::advice(advice, &sim);
        let head = Line::new().plain("  ").dim(if at == 0 { first } else { "or" }).padded_to(11);
        let head = head.accent(&command).plain("   ");
        if advised.contains(&command) {
            screen.print(&head.plain("as above"))?;
        } else {
            wording::print_wrapped(screen, head, what)?;
            advised.push(command);
        }
    }
    Ok(())
}

pub(super) fn concerns(finding: &Finding, cleared: &Cleared) -> bool {
    let shares =
        |id| finding.devices.iter().any(|other: &gpu_core::DeviceId| other.same_device(id));
    finding.memory.is_some() && cleared.devices.iter().any(shares)
}

fn show_suspect(
    screen: &mut Screen,
    snapshot: &Snapshot,
    suspect: &Suspect,
) -> Result<(), Failure> {
    let head = who(snapshot, "held by", suspect.process.pid);
    wording::print_wrapped(screen, head, &Evidence::texts(&suspect.evidence).join("; "))
}

pub(super) fn show_cleared(
    screen: &mut Screen,
    snapshot: &Snapshot,
    word: &str,
    cleared: &Cleared,
) -> Result<(), Failure> {
    wording::print_wrapped(screen, who(snapshot, word, cleared.process.pid), &cleared.why)
}

/// Formats `held by  100562  t2t-decoder  admin   `.
fn who(snapshot: &Snapshot, word: &str, pid: Pid) -> Line {
    let process = snapshot.process(pid);
    let name = process.map_or("?", |info| info.name.as_str());
    let line = Line::new().plain("  ").dim(word).padded_to(10).plain(format!("{:>7}  ", pid.0));
    let line = line.fitted(name, 15).plain("  ").padded_to(34);
    line.fitted(wording::user(process), 10).plain("  ").padded_to(42)
}
