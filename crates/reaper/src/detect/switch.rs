//! Errors of switches between devices in the kernel log.
//!
//! A fatal error needs a reset of all devices and switches together, or a reboot; others are counted
//! and watched (NVIDIA, "Fabric Manager User Guide", appendix of NVSwitch errors).

use super::ago::when;
use super::consequence::Cause;
use super::context::DetectContext;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind};
use gpu_core::{
    DriverError, DriverErrorCode, DriverMessage, FaultClass, PciBusId, Relation, Severity,
    Timestamp,
};
use std::collections::BTreeMap;

/// Messages about one error of a switch.
struct Logged<'a> {
    /// The gravest one; `None` if only further lines were logged.
    error: Option<&'a DriverError>,
    name: &'a str,
    count: usize,
    last: Timestamp,
    /// An error of a device in the same burst explains it.
    follows: bool,
}

impl Logged<'_> {
    fn severity(&self) -> Severity {
        self.error.map_or(Severity::Unstated, |error| error.severity)
    }
}

/// Returns a finding for each switch with errors.
pub(super) fn findings(
    context: &DetectContext<'_>,
    messages: &[&DriverMessage],
    causes: &[Option<Cause<'_>>],
) -> Vec<Finding> {
    let mut switches: BTreeMap<PciBusId, BTreeMap<&DriverErrorCode, Logged<'_>>> = BTreeMap::new();
    for (message, cause) in messages.iter().zip(causes) {
        let error = &message.error;
        if error.class != FaultClass::Switch {
            continue;
        }
        let of_switch = switches.entry(message.bus).or_default();
        let name = &error.name;
        let new = || Logged { error: None, name, count: 0, last: message.at, follows: true };
        let logged = of_switch.entry(&error.code).or_insert_with(new);
        logged.last = logged.last.max(message.at);
        let is_detail = error.relation == Relation::Detail;
        logged.follows &= cause.is_some() || is_detail;
        if !is_detail {
            logged.count += 1;
            if logged.error.is_none() || error.severity >= logged.severity() {
                logged.error = Some(error);
            }
        }
    }
    switches.into_iter().map(|(bus, logged)| finding(context, bus, &logged)).collect()
}

fn finding(
    context: &DetectContext<'_>,
    bus: PciBusId,
    logged: &BTreeMap<&DriverErrorCode, Logged<'_>>,
) -> Finding {
    let is_fatal = |logged: &Logged<'_>| logged.severity() == Severity::Fatal && !logged.follows;
    let confidence =
        if logged.values().any(is_fatal) { Confidence::Likely } else { Confidence::Possible };
    let evidence = logged.values().map(|logged| {
        let severity = match logged.severity() {
            Severity::Fatal | Severity::FatalUnlessContained => "fatal",
            Severity::NotFatal | Severity::Contained => "not fatal",
            Severity::Unstated => "of unknown severity",
        };
        let mut text = format!("NVSwitch {bus}: {}, {severity}", logged.name);
        if let Some(error) = logged.error.filter(|error| !error.text.is_empty()) {
            text.push_str(&format!(": {}", error.text));
        }
        match logged.count {
            0 | 1 => text.push(','),
            count => text.push_str(&format!(", {count} times, last")),
        }
        text.push_str(&when(context.now, logged.last));
        if logged.follows && logged.count > 0 {
            text.push_str("; a GPU failed before it and took the link down");
        }
        Evidence::new(Sign::SwitchError, text)
    });
    let advice = match confidence {
        Confidence::Possible => Advice::ReadLinkErrors,
        _ => Advice::ResetFabric,
    };
    Finding {
        kind: FindingKind::DriverError,
        confidence,
        devices: Vec::new(),
        memory: None,
        suspects: Vec::new(),
        evidence: evidence.collect(),
        advice: vec![advice, Advice::CheckFabricManager],
    }
}
