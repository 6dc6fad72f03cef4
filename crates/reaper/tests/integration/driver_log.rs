//! Findings from the driver's messages in the kernel log.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

pub(crate) const NOW: u64 = 1_000_000_000;

/// A healthy device at bus 3b + index.
pub(crate) fn sound(index: u8) -> DeviceState {
    let mut device = device(index.into(), 4, 16_280);
    device.info.id.bus = Ok(PciBusId { domain: 0, bus: 0x3b + index, device: 0, function: 0 });
    let health = MemoryHealth { uncorrected: Ok(0), ..MemoryHealth::default() };
    device.details = Ok(DeviceDetails { memory_health: Some(health), ..DeviceDetails::default() });
    device
}

fn logged(seconds_ago: u64, line: &str) -> DriverMessage {
    gpu_nvidia_driver::parse_message(&format!("NVRM: {line}"), Timestamp(NOW - seconds_ago * 1000))
        .unwrap()
}

pub(crate) fn with(devices: Vec<DeviceState>, messages: Vec<DriverMessage>) -> Vec<Finding> {
    let now = snapshot_of(devices, vec![], vec![]);
    let now = Snapshot { taken_at: Timestamp(NOW), driver_messages: Ok(messages), ..now };
    diagnose(&[now]).findings
}

/// Returns the finding for one message about a healthy device.
fn of(seconds_ago: u64, message: &str) -> Option<(FindingKind, Confidence, String)> {
    let line = format!("Xid (PCI:0000:3b:00): {message}");
    let mut found = with(vec![sound(0)], vec![logged(seconds_ago, &line)]);
    assert!(found.len() < 2, "{found:?}");
    found
        .pop()
        .map(|found| (found.kind, found.confidence, Evidence::texts(&found.evidence).join("; ")))
}

#[test]
fn error_of_a_program_does_not_accuse_the_device() {
    let (kind, confidence, evidence) = of(60, "31, pid=7, name=python, Ch 00000008").unwrap();
    assert_eq!((kind, confidence), (FindingKind::DriverError, Confidence::Possible));
    assert_eq!(
        evidence,
        "Xid 31: invalid memory access (MMU fault), 60 s ago, by python; usually a bug in the \
         program"
    );
    let by = |name: &str| logged(60, &format!("Xid (PCI:0000:3b:00): 31, pid=7, name={name}, Ch"));
    let several = with(vec![sound(0)], vec![by("train"), by("train"), by("eval")]);
    let [several] = &several[..] else { panic!("{several:?}") };
    assert_eq!(several.confidence, Confidence::Likely);
    assert!(several.evidence[0].text.contains("3 times, last 60 s ago, by eval, train"));
}

#[test]
fn old_messages_and_notices_are_not_findings() {
    let day = 86_400;
    assert!(of(3 * day, "119, Timeout").is_some());
    assert!(of(3 * day + 1, "119, Timeout").is_none());
    assert!(of(60, "93, pid=7, name=x, wear").is_none(), "a notice");
    let changed = "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)";
    let (kind, confidence, _) = of(60, changed).unwrap();
    assert_eq!((kind, confidence), (FindingKind::DriverError, Confidence::Likely));
    let changed = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)";
    assert!(of(60, changed).is_none(), "it was reset");
}

#[test]
fn unknown_number_is_shown() {
    let (_, confidence, evidence) = of(7200, "999, new").unwrap();
    assert_eq!(confidence, Confidence::Possible);
    assert_eq!(evidence, "Xid 999: unknown to this version, 2 h ago");
}

#[test]
fn message_joins_the_finding_about_the_same_part() {
    let mut worn = sound(0);
    let health = worn.details.as_mut().unwrap().memory_health.as_mut().unwrap();
    health.remapped_failure = Ok(true);
    let message = logged(60, "Xid (PCI:0000:3b:00): 64, Row Remapper Error");
    let found = with(vec![worn], vec![message.clone()]);
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.kind, found.evidence.len()), (FindingKind::MemoryErrors, 2));
    assert_eq!(found.advice, [Advice::ReplaceDevice(0)]);
    // The device was reset or replaced after the message.
    let found = with(vec![sound(0)], vec![message]);
    assert_eq!(
        (found[0].kind, found[0].confidence),
        (FindingKind::DriverError, Confidence::Possible)
    );
    assert!(found[0].evidence[0].text.ends_with("the GPU reports no such error now"));
    let mut lost = sound(0);
    let kind = DeviceFault::Lost.into();
    lost.sample = Err(Fault { kind, text: "ask GPU 0".into() });
    let off = logged(60, "Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
    let found = with(vec![lost], vec![off.clone()]);
    let [fault] = &found[..] else { panic!("{found:?}") };
    assert_eq!((fault.kind, fault.evidence.len()), (FindingKind::DeviceFault, 2));
    let found = with(vec![sound(0)], vec![off.clone()]);
    assert!(found[0].evidence[0].text.ends_with("; it responds now"));
    assert_eq!(found[0].confidence, Confidence::Possible);
    // Several messages about one device are one finding.
    let gsp = logged(60, "Xid (PCI:0000:3b:00): 119, Timeout");
    let found = with(vec![sound(0)], vec![off, gsp]);
    let [both] = &found[..] else { panic!("{found:?}") };
    assert_eq!((both.evidence.len(), both.confidence), (2, Confidence::Likely));
    assert_eq!(both.advice, [Advice::ResetDevice(0)]);
}

#[test]
fn both_lines_about_the_loss_of_a_device_are_one_event() {
    let number = "Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.";
    let line = "GPU 0000:3b:00.0: GPU has fallen off the bus.";
    for (log, times) in [
        (&[(60, number), (59, line)][..], ", 59 s ago"),
        (&[(60, line), (60, number)], ", 60 s ago"),
        (&[(60, number), (58, line)], ", 2 times, last 58 s ago"),
        (&[(60, number), (59, number)], ", 2 times, last 59 s ago"),
        (&[(60, number), (60, line), (9, number), (8, line)], ", 2 times, last 8 s ago"),
    ] {
        let messages = log.iter().map(|(ago, line)| logged(*ago, line)).collect();
        let found = with(vec![sound(0)], messages);
        let [found] = &found[..] else { panic!("{log:?}: {found:?}") };
        let text = &found.evidence[0].text;
        let want = format!("Xid 79: the GPU has fallen off the bus{times}");
        assert!(text.starts_with(&want), "{log:?}: {text}");
    }
}

#[test]
fn message_about_unlisted_device_is_a_finding() {
    let off = logged(60, "Xid (PCI:0000:3e:00): 79, GPU has fallen off the bus.");
    let found = with(vec![sound(0)], vec![off]);
    assert_eq!(found[0].devices, []);
    assert_eq!(found[0].confidence, Confidence::Likely);
    assert!(found[0].evidence[0].text.contains("3E:00.0: Xid 79"), "{found:?}");
    let mut diagnosis = Diagnosis { findings: found, ..Diagnosis::default() };
    diagnosis.retain(Confidence::Possible, &["driver-error:0".parse().unwrap()]);
    assert_eq!(diagnosis.findings.len(), 1, "it is on no device of this index");
    diagnosis.retain(Confidence::Possible, &["driver-error".parse().unwrap()]);
    assert_eq!((diagnosis.findings.len(), diagnosis.left_out), (0, 1));
}

#[test]
fn contained_memory_error_does_not_withhold() {
    let mut unknown = sound(0);
    unknown.details = Ok(DeviceDetails::default());
    let double = logged(60, "Xid (PCI:0000:3b:00): 48, DBE");
    let contained = logged(60, "Xid (PCI:0000:3b:00): 94, Contained");
    let confidence = |messages| with(vec![unknown.clone()], messages)[0].confidence;
    assert_eq!(confidence(vec![double.clone()]), Confidence::Likely);
    assert_eq!(confidence(vec![double, contained]), Confidence::Possible);
}

#[test]
fn gravest_text_and_remedy_count() {
    let at = |ago, text: &str| logged(ago, &format!("Xid (PCI:0000:3b:00): {text}"));
    let fatal = at(90, "145, RLW_X Fatal XC0 i0 Link 08 (0x1 0x2)");
    let mild = at(60, "145, RLW_X Nonfatal XC0 i0 Link 08 (0x1 0x2)");
    let found = with(vec![sound(0)], vec![fatal, mild]);
    assert_eq!(found[0].advice, [Advice::ResetDevice(0)]);
    let by = |name: &str| at(60, &format!("31, pid=7, name={name}, Ch"));
    let found = with(vec![sound(0)], vec![by("a"), by("b"), at(60, "119, Timeout")]);
    assert_eq!(found[0].advice, [Advice::ResetDevice(0)]);
    let reboot = at(60, "154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)");
    assert!(
        with(vec![sound(0)], vec![reboot])[0].evidence[0].text.contains(" to reboot, 60 s ago")
    );
    // The same event with its number and without.
    let off = logged(60, "GPU 0000:3e:00.0: GPU has fallen off the bus.");
    let numbered = logged(60, "Xid (PCI:0000:3e:00): 79, GPU has fallen off the bus.");
    assert_eq!(with(vec![sound(0)], vec![off, numbered]).len(), 1);
}
