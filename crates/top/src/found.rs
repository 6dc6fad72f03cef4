//! The findings about a device.

use gpu_core::{DeviceId, DeviceState, clean};
use gpu_reaper::{Diagnosis, Finding, FindingKind};
use gpu_report::{fault, wording};

/// Returns the findings about a device.
pub(crate) fn on<'d>(
    diagnosis: &'d Diagnosis,
    device: &DeviceId,
) -> impl Iterator<Item = &'d Finding> {
    let is_here = move |finding: &&Finding| finding.devices.iter().any(|id| id.same_device(device));
    diagnosis.findings.iter().filter(is_here)
}

/// Returns the findings about a device that are at least likely.
pub(crate) fn confident<'d>(
    diagnosis: &'d Diagnosis,
    device: &DeviceId,
) -> impl Iterator<Item = &'d Finding> {
    on(diagnosis, device).filter(|finding| finding.is_confident())
}

/// Returns the finding about the memory of a device that no listed process accounts for.
pub(crate) fn about_unlisted<'d>(
    diagnosis: &'d Diagnosis,
    device: &DeviceId,
) -> Option<&'d Finding> {
    let kinds = [FindingKind::Ghost, FindingKind::DriverLeak, FindingKind::NotPermitted];
    on(diagnosis, device).find(|finding| kinds.contains(&finding.kind))
}

/// Returns words for the findings about a device, each once: the fault of its sample, the kind of
/// each confident finding with the defects that it rests on, and other defects.
pub(crate) fn words(diagnosis: &Diagnosis, device: &DeviceState) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    if let Err(fault) = &device.sample {
        found.push(clean(&fault::brief(fault)).into_owned());
    }
    let mut defects: Vec<String> =
        gpu_reaper::defects(device).iter().map(ToString::to_string).collect();
    defects.extend(wording::busy_alone(device));
    for finding in confident(diagnosis, device.id()) {
        let kind = wording::kind(finding.kind);
        let is_defect = |text: &&str| defects.iter().any(|defect| defect == text);
        let texts = finding.evidence.iter().map(|one| one.text.as_str());
        let covered: Vec<String> = texts.filter(is_defect).map(str::to_owned).collect();
        defects.retain(|defect| !covered.contains(defect));
        found.push(if covered.is_empty() {
            kind.to_owned()
        } else {
            clean(&format!("{kind}: {}", covered.join(", "))).into_owned()
        });
    }
    found.extend(defects.iter().map(|defect| clean(defect).into_owned()));
    let mut seen = Vec::new();
    found.retain(|word| {
        !seen.contains(word) && {
            seen.push(word.clone());
            true
        }
    });
    found
}
