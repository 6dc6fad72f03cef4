//! Errors of NVSwitches in the kernel log (SXid).
//!
//! The line itself says whether an error is fatal. A fatal one needs a reset of all GPUs and
//! switches together, or a reboot; others are counted and watched (NVIDIA, "Fabric Manager User
//! Guide", appendix of NVSwitch errors).

use super::ago::when;
use super::consequence::Cause;
use super::context::DetectContext;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind};
use gpu_core::{DriverMessage, DriverMessageKind, PciBusId, Timestamp};
use std::collections::BTreeMap;

/// Messages of a switch with one number.
struct Logged<'a> {
    /// The text after the severity, from the gravest message.
    text: &'a str,
    fatal: Option<bool>,
    count: usize,
    last: Timestamp,
    /// A GPU's error in the same burst explains it.
    follows: bool,
}

/// Returns a finding for each switch with errors.
pub(super) fn findings(
    context: &DetectContext<'_>,
    messages: &[&DriverMessage],
    causes: &[Option<Cause>],
) -> Vec<Finding> {
    let mut switches: BTreeMap<PciBusId, BTreeMap<u32, Logged<'_>>> = BTreeMap::new();
    for (message, cause) in messages.iter().zip(causes) {
        let DriverMessageKind::SXid(code) = message.kind else { continue };
        let new = || Logged { text: "", fatal: None, count: 0, last: message.at, follows: true };
        let of_switch = switches.entry(message.bus).or_default();
        let logged = of_switch.entry(code).or_insert_with(new);
        logged.last = logged.last.max(message.at);
        logged.follows &= cause.is_some() || is_detail(&message.text);
        // Further lines of an error have its number, and its severity and data as numbers.
        if is_detail(&message.text) {
            continue;
        }
        logged.count += 1;
        let (severity, text) = message.text.split_once(", ").unwrap_or((&message.text, ""));
        let fatal = match severity {
            "Fatal" => Some(true),
            "Non-fatal" => Some(false),
            _ => None,
        };
        if fatal >= logged.fatal {
            logged.fatal = fatal;
            logged.text = if fatal.is_some() { text } else { &message.text };
        }
    }
    switches.into_iter().map(|(bus, logged)| finding(context, bus, &logged)).collect()
}

fn is_detail(text: &str) -> bool {
    text.starts_with("Data {") || text.starts_with("Severity ")
}

fn finding(
    context: &DetectContext<'_>,
    bus: PciBusId,
    logged: &BTreeMap<u32, Logged<'_>>,
) -> Finding {
    let is_fatal = |logged: &Logged<'_>| logged.fatal == Some(true) && !logged.follows;
    let confidence =
        if logged.values().any(is_fatal) { Confidence::Likely } else { Confidence::Possible };
    let evidence = logged.iter().map(|(code, logged)| {
        let severity = match logged.fatal {
            Some(true) => "fatal",
            Some(false) => "not fatal",
            None => "of a severity that the log lacks",
        };
        let mut text = format!("NVSwitch {bus}: SXid {code}, {severity}");
        if !logged.text.is_empty() {
            text.push_str(&format!(": {}", logged.text));
        }
        match logged.count {
            0 | 1 => text.push(','),
            count => text.push_str(&format!(", {count} times, last")),
        }
        text.push_str(&when(context.now, logged.last));
        if logged.follows && logged.count > 0 {
            text.push_str("; a GPU failed before it, so the link went down with that");
        }
        Evidence::new(Sign::SXid, text)
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
