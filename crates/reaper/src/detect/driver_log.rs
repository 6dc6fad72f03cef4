//! Errors that the driver has written into the kernel log.

use super::ago::when;
use super::consequence::{Cause, causes};
use super::context::DetectContext;
use crate::evidence::Evidence;
use crate::finding::{Advice, Confidence, Finding, FindingKind};
use gpu_core::{
    DeviceId, DeviceState, DriverError, DriverErrorCode, DriverMessage, FaultClass, Origin,
    PciBusId, Relation, Remedy, Severity, Snapshot, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An older message says little: since then the device may have been reset, which leaves no trace
/// in the log. gpud looks back as far.
const RELEVANT: Duration = Duration::from_secs(3 * 86_400);

/// The messages about one error of one device.
struct Logged<'a> {
    /// The gravest one, or the last request.
    error: &'a DriverError,
    count: usize,
    last: Timestamp,
    programs: BTreeSet<&'a str>,
    /// How many messages name this error as their cause, if the log lacks it.
    named: usize,
    /// The errors that follow from it, and how often they were logged.
    follow: BTreeMap<&'a DriverErrorCode, (&'a DriverError, usize)>,
}

/// The errors, by device and code.
type ByDevice<'a> = BTreeMap<PciBusId, BTreeMap<&'a DriverErrorCode, Logged<'a>>>;

/// The messages that are too old to judge a device by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldMessages {
    /// The number of messages.
    pub count: usize,
    /// Older messages are left out.
    pub since: Timestamp,
}

/// Returns the messages of the log that are too old to judge a device by; `None` if there are none.
/// Messages of a pasted text are kept: the user pasted it because of them, and age only weakens the
/// finding.
pub fn old_messages(now: &Snapshot) -> Option<OldMessages> {
    let messages = now.driver_messages.iter().flatten();
    let count = messages.filter(|message| is_left_out(now, message.at)).count();
    let since = Timestamp(now.taken_at.0.saturating_sub(RELEVANT.as_millis() as u64));
    (count > 0).then_some(OldMessages { count, since })
}

fn is_left_out(now: &Snapshot, at: Timestamp) -> bool {
    now.origin != Origin::Pasted && is_old(now, at)
}

/// Returns whether a message is old at the time of the snapshot; for pasted text, that is the
/// latest time in it.
fn is_old(now: &Snapshot, at: Timestamp) -> bool {
    at != DriverMessage::UNDATED && now.taken_at.since(at) > RELEVANT
}

/// Returns the errors of devices that the driver has logged, at least with confidence likely: one
/// finding for each part of a device.
pub fn logged_errors(now: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    add(&DetectContext::of(now), &mut findings);
    findings.retain(|finding| finding.confidence >= Confidence::Likely);
    findings
}

/// Adds the messages to the findings about the same device, or as findings of their own.
pub(crate) fn add(context: &DetectContext<'_>, findings: &mut Vec<Finding>) {
    let messages = context.now.driver_messages.iter().flatten();
    let recent: Vec<&DriverMessage> =
        messages.filter(|message| !is_left_out(context.now, message.at)).collect();
    let causes = causes(&recent);
    for (bus, logged) in by_device(&recent, &causes) {
        let is_it = |device: &&DeviceState| is_bus_of(device.id(), bus);
        let device = context.now.devices.iter().find(is_it);
        let is_fatal = is_fatal(logged.values().map(|logged| logged.error.severity));
        for logged in logged.values() {
            if let Some(finding) = finding(context, device, bus, logged, is_fatal) {
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
    findings.extend(super::switch::findings(context, &recent, &causes));
}

/// Returns whether a device with errors of these severities should not be handed out.
fn is_fatal(severities: impl Iterator<Item = Severity> + Clone) -> bool {
    let is_contained = severities.clone().any(|severity| severity == Severity::Contained);
    severities.max().is_some_and(|gravest| match gravest {
        Severity::Fatal => true,
        Severity::FatalUnlessContained => !is_contained,
        _ => false,
    })
}

/// Groups the errors of devices; an error that follows from another counts towards its cause.
fn by_device<'a>(messages: &[&'a DriverMessage], causes: &[Option<Cause<'a>>]) -> ByDevice<'a> {
    let mut by_device = ByDevice::new();
    let mut before = BTreeMap::<(PciBusId, &DriverErrorCode), &DriverMessage>::new();
    for (message, cause) in messages.iter().zip(causes) {
        let error = &message.error;
        if error.class == FaultClass::Switch {
            continue;
        }
        let before = before.insert((message.bus, &error.code), message);
        match cause {
            // It adds the program to the error before it.
            Some(Cause::Logged(at)) if error.relation == Relation::Detail => {
                let Some(cause) = messages.get(*at) else { continue };
                let logged = logged(&mut by_device, cause.bus, &cause.error, cause.at);
                logged.programs.extend(message.process.as_deref());
            }
            None if error.relation == Relation::Detail => {}
            None => {
                let logged = logged(&mut by_device, message.bus, error, message.at);
                if error.relation == Relation::Request || error.remedy >= logged.error.remedy {
                    logged.error = error;
                }
                logged.count += usize::from(!before.is_some_and(|it| are_one_event(it, message)));
                logged.last = logged.last.max(message.at);
                logged.programs.extend(message.process.as_deref());
            }
            Some(Cause::Logged(at)) => {
                let Some(cause) = messages.get(*at) else { continue };
                let logged = logged(&mut by_device, cause.bus, &cause.error, cause.at);
                logged.follow.entry(&error.code).or_insert((error, 0)).1 += 1;
            }
            Some(Cause::Named(cause)) => {
                let logged = logged(&mut by_device, message.bus, cause, message.at);
                logged.named += 1;
                logged.last = logged.last.max(message.at);
                logged.follow.entry(&error.code).or_insert((error, 0)).1 += 1;
            }
        }
    }
    by_device
}

fn logged<'m, 'a>(
    by_device: &'m mut ByDevice<'a>,
    bus: PciBusId,
    error: &'a DriverError,
    at: Timestamp,
) -> &'m mut Logged<'a> {
    by_device.entry(bus).or_default().entry(&error.code).or_insert_with(|| Logged {
        error,
        count: 0,
        last: at,
        programs: BTreeSet::new(),
        named: 0,
        follow: BTreeMap::new(),
    })
}

/// Returns whether two messages are about one event: the driver prints the same error in two forms,
/// within a second.
fn are_one_event(first: &DriverMessage, second: &DriverMessage) -> bool {
    let span = match (first.elapsed, second.elapsed) {
        (Some(first), Some(second)) => second.abs_diff(first),
        _ => second.at.since(first.at),
    };
    first.code != second.code && span <= Duration::from_secs(1)
}

/// Returns whether a device is at this address: messages have no function number.
fn is_bus_of(id: &DeviceId, bus: PciBusId) -> bool {
    id.bus.is_ok_and(|own| PciBusId { function: 0, ..own } == PciBusId { function: 0, ..bus })
}

/// Returns whether a finding about the device concerns the part that the message is about.
fn explains(known: &Finding, finding: &Finding, logged: &Logged<'_>) -> bool {
    let same_device = !known.devices.is_empty() && known.devices == finding.devices;
    let same_part = match logged.error.class {
        FaultClass::Memory => known.kind == FindingKind::MemoryErrors,
        FaultClass::Link => known.kind == FindingKind::NvLinkDown,
        FaultClass::Program => false,
        _ => known.kind == FindingKind::DeviceFault,
    };
    same_device && (same_part || known.kind == FindingKind::DriverError)
}

fn finding(
    context: &DetectContext<'_>,
    device: Option<&DeviceState>,
    bus: PciBusId,
    logged: &Logged<'_>,
    is_fatal: bool,
) -> Option<Finding> {
    let DriverError { class, severity, remedy, relation, .. } = *logged.error;
    if class == FaultClass::Notice && remedy == Remedy::None {
        return None;
    }
    let mut evidence = logged.describe(context.now);
    if device.is_none() {
        evidence.insert_str(0, &format!("{bus}: "));
    }
    let lost = device.is_none_or(|device| device.sample.is_err());
    let confidence = match class {
        _ if is_old(context.now, logged.last) => {
            let days = context.now.taken_at.since(logged.last).as_secs() / 86_400;
            evidence.push_str(&format!(
                "; {days} days before the last time in the text: the GPU may have been reset since"
            ));
            Confidence::Possible
        }
        // The program is to blame unless several programs have the same error.
        FaultClass::Program if logged.programs.len() > 1 => {
            evidence.push_str("; several programs hit it: the GPU may be faulty");
            Confidence::Likely
        }
        // The log may lack the error before it, or there was none.
        FaultClass::Program if relation == Relation::Cleanup => {
            evidence.push_str(
                "; no error precedes it in the log, so most likely the program was killed",
            );
            Confidence::Possible
        }
        FaultClass::Program => {
            evidence.push_str("; usually a bug in the program");
            Confidence::Possible
        }
        FaultClass::Memory if device.is_some_and(has_healthy_memory) => {
            evidence.push_str("; the GPU reports no such error now");
            Confidence::Possible
        }
        FaultClass::Lost if !lost => {
            evidence.push_str("; it responds now");
            Confidence::Possible
        }
        // A part of the device failed, and took the work of programs with it.
        _ if logged.named > 0 => Confidence::Likely,
        // It may be from before a reset.
        _ if logged.last == DriverMessage::UNDATED && !lost => Confidence::Possible,
        _ if severity == Severity::FatalUnlessContained && !is_fatal => Confidence::Possible,
        _ if severity >= Severity::FatalUnlessContained => Confidence::Likely,
        _ if matches!(remedy, Remedy::Reset | Remedy::Reboot) => Confidence::Likely,
        _ => Confidence::Possible,
    };
    let advice = match (remedy, device) {
        (Remedy::Reset, Some(device)) => Advice::ResetDevice(device.id().index),
        // The driver itself requests it.
        (Remedy::Reboot, _) if relation == Relation::Request => Advice::Reboot,
        _ if class == FaultClass::Program && logged.programs.len() <= 1 => Advice::ReadProgramError,
        _ => Advice::ReadKernelLog,
    };
    let follow = logged.follow.values().map(|(error, count)| {
        let DriverError { name, text, .. } = error;
        let times = if *count > 1 { format!(", {count} times") } else { String::new() };
        let text = format!("{name}: {text}{times}: a consequence of {}", logged.error.name);
        Evidence::of_error(error, text)
    });
    let own = Evidence::of_error(logged.error, evidence);
    let evidence = std::iter::once(own).chain(follow).collect();
    Some(Finding {
        kind: FindingKind::DriverError,
        confidence,
        devices: device.map(|device| device.id().clone()).into_iter().collect(),
        memory: None,
        suspects: Vec::new(),
        evidence,
        advice: vec![advice],
    })
}

/// Returns whether a device reports its memory health, and no problem with it.
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
    fn describe(&self, now: &Snapshot) -> String {
        let mut line = format!("{}: {}", self.error.name, self.error.text);
        match (self.count, self.named) {
            (0, _) => line.push_str(", named as the cause by its consequences,"),
            (1, _) => line.push(','),
            (count, _) => line.push_str(&format!(", {count} times, last")),
        }
        line.push_str(&when(now, self.last));
        let programs: Vec<&str> = self.programs.iter().take(3).copied().collect();
        if !programs.is_empty() {
            line.push_str(&format!(", by {}", programs.join(", ")));
        }
        line
    }
}
