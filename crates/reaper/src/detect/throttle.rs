//! Clocks that the hardware reduces.

use super::context::DetectContext;
use crate::condition::throttle_faults;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind};
use gpu_core::{DeviceState, ThrottleReasons};

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    context.now.devices.iter().filter_map(|device| detect_on(context, device)).collect()
}

/// The reasons appear for a moment when clocks change, so a single sample proves little. It proves
/// more if the temperature agrees: at the slowdown threshold or above.
fn detect_on(context: &DetectContext<'_>, device: &DeviceState) -> Option<Finding> {
    let reasons =
        throttle_faults(device).filter(|reasons| *reasons != ThrottleReasons::default())?;
    let lasting = context.lasting(device, |past| past.throttled(reasons));
    let names: Vec<&str> = reasons.names().collect();
    let text = format!("clocks reduced: {}", names.join(", "));
    let mut evidence = vec![Evidence::new(Sign::ClocksReduced, text)];
    let heat = ThrottleReasons::SOFTWARE_THERMAL | ThrottleReasons::HARDWARE_THERMAL;
    let hot = reasons.has_any(heat);
    let heat = temperatures(device);
    if let Some((temperature, limit)) = heat {
        let sign = if temperature >= limit {
            Sign::AtSlowdownTemperature
        } else {
            Sign::BelowSlowdownTemperature
        };
        let text = format!("{temperature} °C; clocks are reduced at {limit} °C");
        evidence.push(Evidence::new(sign, text));
    }
    let agrees = hot && heat.is_some_and(|(temperature, limit)| temperature >= limit);
    // The firmware of some GPUs of AMD sets the bit of a cool chip: an RX 7600S does at 54 °C.
    let is_cool = hot && !agrees && heat.is_some() && device.lists_clients();
    let confidence = match (lasting.is_long(), agrees) {
        (true, true) => Confidence::High,
        _ if is_cool => Confidence::Possible,
        (true, false) | (false, true) => Confidence::Likely,
        (false, false) => Confidence::Possible,
    };
    evidence.extend(lasting.describe());
    let mut advice = Vec::new();
    if !lasting.is_long() {
        advice.push(Advice::LookLonger);
    }
    advice.push(if hot {
        Advice::CheckCooling(device.id().index)
    } else {
        Advice::CheckPower(device.id().index)
    });
    let kind = FindingKind::Throttled;
    Some(Finding::about_device(device, kind, confidence, evidence, advice))
}

/// The temperature of the chip and its slowdown threshold, in °C.
fn temperatures(device: &DeviceState) -> Option<(i32, i32)> {
    let thermal = device.details.as_ref().ok()?.thermal.as_ref()?;
    let temperature = device.sample.as_ref().ok()?.temperature.ok()?;
    Some((temperature.0, thermal.slowdown.ok()?.0))
}
