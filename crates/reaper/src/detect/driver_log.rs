//! Errors that the driver has written into the kernel log.

use super::context::DetectContext;
use crate::evidence::Evidence;
use crate::finding::{Advice, Confidence, Finding, FindingKind};
use crate::xid::{XidAction, XidClass, XidMeaning, meaning_of, withholds};
use gpu_core::{
    DeviceId, DeviceState, DriverMessage, DriverMessageKind, PciBusId, Snapshot, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An older message says little: since then the device may have been reset, which leaves no trace
/// in the log. gpud looks back as far.
const RELEVANT: Duration = Duration::from_secs(3 * 86_400);

/// The messages of one kind about one device.
struct Logged<'a> {
    code: u32,
    meaning: Option<XidMeaning>,
    count: usize,
    last: Timestamp,
    programs: BTreeSet<&'a str>,
}

/// Returns the errors of devices that the driver has logged, at least with confidence likely: one
/// finding for each part of a device.
pub fn logged_errors(now: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    add(&DetectContext::of(now), &mut findings);
    findings.retain(|finding| finding.confidence >= Confidence::Likely);
    findings
}

/// Adds what the messages say to the findings about the same device, or as findings of their own.
pub(crate) fn add(case: &DetectContext<'_>, findings: &mut Vec<Finding>) {
    let now = case.now.taken_at;
    let messages = case.now.driver_messages.iter().flatten();
    let mut by_device: BTreeMap<PciBusId, BTreeMap<u32, Logged<'_>>> = BTreeMap::new();
    let is_recent = |at: Timestamp| at == DriverMessage::UNDATED || now.since(at) <= RELEVANT;
    for message in messages.filter(|message| is_recent(message.at)) {
        let code = match message.kind {
            DriverMessageKind::Xid(code) => code,
            DriverMessageKind::FallenOffBus => 79,
        };
        let logged = by_device.entry(message.bus).or_default().entry(code);
        let logged = logged.or_insert_with(|| Logged {
            code,
            meaning: None,
            count: 0,
            last: message.at,
            programs: BTreeSet::new(),
        });
        // Of 154, the last one has the present recovery action; else the gravest counts.
        let meaning = meaning_of(message);
        let action = |meaning: Option<XidMeaning>| meaning.map(|meaning| meaning.action);
        if code == 154 || action(meaning) >= action(logged.meaning) {
            logged.meaning = meaning;
        }
        logged.count += 1;
        logged.last = logged.last.max(message.at);
        logged.programs.extend(message.process.as_deref());
    }
    for (bus, logged) in by_device {
        let is_it = |device: &&DeviceState| is_bus_of(device.id(), bus);
        let device = case.now.devices.iter().find(is_it);
        let codes: Vec<u32> = logged.keys().copied().collect();
        for logged in logged.values() {
            if let Some(finding) = finding(case, device, bus, logged, &codes) {
                match findings.iter_mut().find(|known| explains(known, &finding, logged)) {
                    Some(known) => {
                        let resets = |finding: &Finding| {
                            matches!(finding.advice[..], [Advice::ResetDevice(_)])
                        };
                        let graver = finding.confidence > known.confidence
                            || finding.confidence == known.confidence && resets(&finding);
                        if graver && known.kind == FindingKind::DriverError {
                            known.confidence = finding.confidence;
                            known.advice = finding.advice;
                        }
                        known.evidence.extend(finding.evidence);
                    }
                    None => findings.push(finding),
                }
            }
        }
    }
}

/// Returns whether a device is at this address: messages have no function number.
fn is_bus_of(id: &DeviceId, bus: PciBusId) -> bool {
    id.bus.is_ok_and(|own| PciBusId { function: 0, ..own } == PciBusId { function: 0, ..bus })
}

/// Returns whether a finding about the device is of the part that the message is about.
fn explains(known: &Finding, finding: &Finding, logged: &Logged<'_>) -> bool {
    let same_device = !known.devices.is_empty() && known.devices == finding.devices;
    let same_part = match logged.meaning.map(|meaning| meaning.class) {
        Some(XidClass::Memory) => known.kind == FindingKind::MemoryErrors,
        Some(XidClass::Link) => known.kind == FindingKind::NvLinkDown,
        Some(XidClass::Application) => false,
        _ => known.kind == FindingKind::DeviceFault,
    };
    same_device && (same_part || known.kind == FindingKind::DriverError)
}

fn finding(
    case: &DetectContext<'_>,
    device: Option<&DeviceState>,
    bus: PciBusId,
    logged: &Logged<'_>,
    codes: &[u32],
) -> Option<Finding> {
    let class = logged.meaning.map(|meaning| meaning.class);
    let action = logged.meaning.map_or(XidAction::None, |meaning| meaning.action);
    if class == Some(XidClass::Informational) && action == XidAction::None {
        return None;
    }
    let mut evidence = logged.describe(case.now.taken_at);
    if device.is_none() {
        evidence.insert_str(0, &format!("{bus}: "));
    }
    let lost = device.is_none_or(|device| device.sample.is_err());
    let confidence = match class {
        // The program is to blame unless several have the same error.
        Some(XidClass::Application) if logged.programs.len() > 1 => {
            evidence.push_str("; several programs have it: the GPU may be faulty");
            Confidence::Likely
        }
        Some(XidClass::Application) => {
            evidence.push_str("; most often a fault of the program");
            Confidence::Possible
        }
        Some(XidClass::Memory) if device.is_some_and(has_healthy_memory) => {
            evidence.push_str("; the GPU reports no such error now");
            Confidence::Possible
        }
        Some(XidClass::Lost) if logged.code == 79 && !lost => {
            evidence.push_str("; it answers now");
            Confidence::Possible
        }
        // It may be from before a reset.
        _ if logged.last == DriverMessage::UNDATED && !lost => Confidence::Possible,
        _ if withholds(&[logged.code]) && !withholds(codes) => Confidence::Possible,
        _ if withholds(&[logged.code]) => Confidence::Likely,
        _ if matches!(action, XidAction::Reset | XidAction::Reboot) => Confidence::Likely,
        _ => Confidence::Possible,
    };
    let advice = match (action, device) {
        (XidAction::Reset, Some(device)) => Advice::ResetDevice(device.id().index),
        _ if class == Some(XidClass::Application) && logged.programs.len() <= 1 => {
            Advice::ReadProgramError
        }
        _ => Advice::ReadKernelLog,
    };
    Some(Finding {
        kind: FindingKind::DriverError,
        confidence,
        devices: device.map(|device| device.id().clone()).into_iter().collect(),
        memory: None,
        suspects: Vec::new(),
        evidence: vec![Evidence::of_xid(logged.code, evidence)],
        advice: vec![advice],
    })
}

/// Returns whether a device reports its memory health, and nothing wrong.
fn has_healthy_memory(device: &DeviceState) -> bool {
    let health = device.details.as_ref().ok().and_then(|details| details.memory_health.as_ref());
    health.is_some_and(|health| {
        health.uncorrected == Ok(0)
            && health.remapped_pending != Ok(true)
            && health.remapped_failure != Ok(true)
            && health.retired_pending != Ok(true)
    })
}

impl Logged<'_> {
    /// Formats `Xid 31: invalid memory access (MMU fault), 3 times, last 2 h ago, by python`.
    fn describe(&self, now: Timestamp) -> String {
        let text = self.meaning.map_or("unknown to this version", |meaning| meaning.text);
        let mut line = format!("Xid {}: {text}", self.code);
        if self.code == 154 {
            let action = self.meaning.map(|meaning| meaning.action);
            line.push_str(if action == Some(XidAction::Reboot) {
                " to reboot"
            } else {
                " to reset"
            });
        }
        if self.count > 1 {
            line.push_str(&format!(", {} times, last", self.count));
        } else {
            line.push(',');
        }
        let seconds = now.since(self.last).as_secs();
        line.push_str(&match seconds {
            _ if self.last == DriverMessage::UNDATED => " at an unknown time".to_owned(),
            0..120 => format!(" {seconds} s ago"),
            120..7_200 => format!(" {} min ago", seconds / 60),
            _ => format!(" {} h ago", seconds / 3600),
        });
        let programs: Vec<&str> = self.programs.iter().take(3).copied().collect();
        if !programs.is_empty() {
            line.push_str(&format!(", by {}", programs.join(", ")));
        }
        line
    }
}
