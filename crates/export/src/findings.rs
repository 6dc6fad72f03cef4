//! The findings of `gpuws doctor`.

use crate::catalog::Metric;
use crate::context::Context;
use crate::metrics::{Metrics, number};
use gpu_core::Bytes;
use gpu_reaper::{Confidence, FindingKind};
use std::collections::BTreeMap;

pub(crate) fn add(context: &Context<'_>, metrics: &mut Metrics) {
    // Without devices, no device was examined, so no finding is certain to be absent.
    if context.snapshot.devices.is_empty() {
        return;
    }
    let findings = &context.diagnosis.findings;
    for kind in FindingKind::ALL {
        let certain = || {
            let of_kind = findings.iter().filter(move |finding| finding.kind == kind);
            of_kind.filter(|finding| finding.confidence >= Confidence::Likely)
        };
        let labels = [("kind", kind.name())];
        metrics.add(Metric::Findings, labels, number(certain().count() as u64));
        let memory: Vec<Bytes> = certain().filter_map(|finding| finding.memory).collect();
        if !memory.is_empty() {
            let sum: Bytes = memory.into_iter().sum();
            metrics.add(Metric::FindingMemory, labels, number(sum.0));
        }
    }
    for (device, labels) in context.devices() {
        let mut counts: BTreeMap<(FindingKind, Confidence), u64> = BTreeMap::new();
        for finding in findings {
            if finding.devices.iter().any(|id| id.same_device(device.id())) {
                *counts.entry((finding.kind, finding.confidence)).or_default() += 1;
            }
        }
        for ((kind, confidence), count) in counts {
            let [index, uuid] = labels.only();
            let labels =
                [index, uuid, ("kind", kind.name()), ("confidence", confidence_name(confidence))];
            metrics.add(Metric::GpuFinding, labels, number(count));
        }
    }
}

fn confidence_name(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Possible => "possible",
        Confidence::Likely => "likely",
        Confidence::High => "high",
    }
}
