//! Links that are slower than they should be: PCI Express and NVLink.

use super::context::DetectContext;
use crate::condition::slow_link;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind};
use gpu_core::{DeviceDetails, DeviceId, DeviceState, FabricState, NvLink, Origin, Reading};
use std::collections::BTreeMap;

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    let mut equals: BTreeMap<&str, Vec<&DeviceState>> = BTreeMap::new();
    for device in &context.now.devices {
        if let Ok(name) = &device.info.name {
            equals.entry(name).or_default().push(device);
        }
    }
    let mut findings: Vec<Finding> =
        context.now.devices.iter().filter_map(|device| pcie(context, device)).collect();
    findings.extend(equals.values().flat_map(|equals| nvlinks(equals)));
    findings.extend(context.now.devices.iter().filter_map(fabric));
    findings.extend(context.now.devices.iter().filter_map(fabric_health));
    if context.now.origin == Origin::Pasted {
        let of_equals: Vec<DeviceId> =
            findings.iter().flat_map(|finding| finding.devices.clone()).collect();
        let others = context.now.devices.iter().filter(|device| !of_equals.contains(device.id()));
        findings.extend(others.filter_map(inactive));
    }
    findings
}

/// The link of an idle device saves power and is slow (manual of nvidia-smi, "GPU Link
/// information"), so only a busy device can show a fault. A fault is likely only if it shows again,
/// because a link also retrains after a change of clocks.
fn pcie(context: &DetectContext<'_>, device: &DeviceState) -> Option<Finding> {
    let slow = Evidence::new(Sign::SlowPcieLink, slow_link(device)?);
    let lasting = context.lasting(device, |past| Some(past.slow_link));
    let mut evidence = vec![slow];
    evidence.extend(lasting.describe());
    let index = device.id().index;
    let (confidence, advice) = if lasting.is_long() {
        (Confidence::Likely, vec![Advice::CheckSlot(index)])
    } else {
        (Confidence::Possible, vec![Advice::LookLonger, Advice::CheckSlot(index)])
    };
    Some(Finding::about_device(device, FindingKind::SlowPcie, confidence, evidence, advice))
}

/// Compares devices of one product: a board with fewer active links than the others has lost some.
/// A board without any may simply have no bridge, unless it is the only one of several.
fn nvlinks(equals: &[&DeviceState]) -> Vec<Finding> {
    let counts: Vec<(&DeviceState, usize)> = equals
        .iter()
        // In MIG mode the links are off.
        .filter(|device| device.info.partitioned != Ok(true))
        .filter_map(|device| Some((*device, active_links(details(device)?.nvlinks.as_ref()?)?)))
        .collect();
    let Some(most) = counts.iter().map(|(_, count)| *count).max() else { return Vec::new() };
    let fewer = counts.iter().filter(|(_, count)| *count < most);
    let with_most = counts.iter().filter(|(_, count)| *count == most).count();
    fewer
        .map(|(device, count)| {
            let alone = with_most >= 3 && with_most + 1 == counts.len();
            let confidence = match (count, alone) {
                (1.., _) | (0, true) if with_most >= 2 => Confidence::Likely,
                _ => Confidence::Possible,
            };
            let text = format!("{count} active NVLinks; other GPUs of this model have {most}");
            let advice = vec![Advice::CheckNvLinks(device.id().index)];
            Finding::about_device(
                device,
                FindingKind::NvLinkDown,
                confidence,
                vec![Evidence::new(Sign::FewerNvLinks, text)],
                advice,
            )
        })
        .collect()
}

/// In a pasted text, a device without any active link is remarkable. On a machine, it may simply
/// have no bridge.
fn inactive(device: &DeviceState) -> Option<Finding> {
    let links = details(device)?.nvlinks.as_ref()?;
    let is_down = !links.is_empty() && active_links(links) == Some(0);
    let advice = vec![Advice::CheckNvLinks(device.id().index)];
    let evidence = vec![Evidence::new(Sign::NvLinksInactive, "all its NVLinks are inactive")];
    let kind = FindingKind::NvLinkDown;
    is_down.then(|| Finding::about_device(device, kind, Confidence::Possible, evidence, advice))
}

/// The number of active links; `None` if the state of one is unknown.
fn active_links(links: &[NvLink]) -> Option<usize> {
    let states: Option<Vec<bool>> = links.iter().map(|link| link.active.ok()).collect();
    Some(states?.into_iter().filter(|active| *active).count())
}

/// A device behind NVLink switches works only once the fabric manager has registered it: before,
/// CUDA fails with error 802 (NVIDIA Fabric Manager User Guide).
fn fabric(device: &DeviceState) -> Option<Finding> {
    let fabric = details(device)?.fabric.as_ref()?;
    let (confidence, evidence) = match (fabric.state.ok()?, fabric.status) {
        (FabricState::NotStarted | FabricState::InProgress, _) => {
            let text = "not registered with its NVLink fabric yet: CUDA fails with error 802";
            (Confidence::Likely, Evidence::new(Sign::FabricNotRegistered, text))
        }
        (FabricState::Completed, Ok(code)) if code != 0 => {
            let text = format!("registration with its NVLink fabric failed: error {code}");
            (Confidence::High, Evidence::new(Sign::FabricRegistrationFailed, text))
        }
        _ => return None,
    };
    let advice = vec![Advice::CheckFabricManager];
    Some(Finding::about_device(device, FindingKind::NvLinkDown, confidence, vec![evidence], advice))
}

/// The driver reports the health of a device's routes in the fabric (`nvmlGpuFabricInfo_v3_t`):
/// collective operations fail on an unhealthy or misconfigured one, and are slow with less bandwidth.
fn fabric_health(device: &DeviceState) -> Option<Finding> {
    let fabric = details(device)?.fabric.as_ref()?;
    let wrong = fabric.incorrect_configuration.as_deref().unwrap_or_default();
    let wrong = (!wrong.is_empty()).then(|| format!("its fabric configuration is wrong: {wrong}"));
    let flag = |flag: Reading<bool>, text: &str| (flag == Ok(true)).then(|| text.to_owned());
    let signs = [
        (
            Confidence::High,
            flag(fabric.route_unhealthy, "a route in its NVLink fabric is unhealthy"),
        ),
        (Confidence::High, wrong),
        (
            Confidence::Likely,
            flag(fabric.bandwidth_degraded, "the bandwidth of its NVLink fabric is degraded"),
        ),
        (
            Confidence::Possible,
            flag(fabric.route_recovery, "a route in its NVLink fabric is being recovered"),
        ),
        (
            Confidence::Possible,
            flag(
                fabric.access_timeout_recovery,
                "its NVLink fabric is recovering from an access that timed out",
            ),
        ),
    ];
    let signs: Vec<_> = signs.into_iter().filter_map(|(rank, text)| Some((rank, text?))).collect();
    let confidence = signs.iter().map(|(confidence, _)| *confidence).max()?;
    let evidence = signs.into_iter().map(|(_, text)| Evidence::new(Sign::FabricUnhealthy, text));
    let advice = vec![Advice::CheckNvLinks(device.id().index), Advice::CheckFabricManager];
    let kind = FindingKind::NvLinkDown;
    Some(Finding::about_device(device, kind, confidence, evidence.collect(), advice))
}

fn details(device: &DeviceState) -> Option<&DeviceDetails> {
    device.details.as_ref().ok()
}
