//! Findings from the kernel log of a driver that only this file knows. It prints no numbers.

use crate::driver_log::{NOW, sound, with};
use gpu_core::*;
use gpu_reaper::*;
use std::sync::Arc;

struct Toy;

impl KernelDriver for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn directories(&self) -> &'static [&'static str] {
        &[]
    }
    fn shared(&self) -> &'static [&'static str] {
        &[]
    }
    fn describe(&self, _: &str, _: Reading<FileId>) -> Option<(FileRole, Option<DeviceKey>)> {
        None
    }
    fn log_prefixes(&self) -> &'static [&'static str] {
        &["toy "]
    }

    /// Parses `toy 0000:3b:00.0: ring timeout: process train pid 7`.
    fn log_message(&self, text: &str, at: Timestamp) -> Option<DriverMessage> {
        let (bus, text) = text.strip_prefix("toy ")?.split_once(": ")?;
        let (name, text) = text.split_once(": ").unwrap_or((text, ""));
        let process = text.strip_prefix("process ").and_then(|text| text.split_once(" pid "));
        let message = DriverMessage {
            at,
            elapsed: None,
            is_local: false,
            bus: bus.parse().ok()?,
            code: DriverErrorCode { list: name.replace(' ', "-").into(), number: None },
            pid: process.and_then(|(_, pid)| pid.parse().ok()).map(Pid),
            process: process.map(|(name, _)| name.to_owned()),
            gpu_instance: None,
            compute_instance: None,
            text: text.to_owned(),
            error: DriverError::default(),
        };
        Some(DriverMessage { error: self.explain(&message)?, ..message })
    }

    fn explain(&self, message: &DriverMessage) -> Option<DriverError> {
        use FaultClass::{Hardware, Lost, Memory, Notice, Program};
        use Relation::{Cause, Cleanup, Request};
        use Severity::{Contained, Fatal, FatalUnlessContained, Unstated};
        let (text, class, severity, remedy, relation) = match &*message.code.list {
            "ring-timeout" => ("a queue stopped", Hardware, Unstated, Remedy::Reset, Cause),
            "job-killed" => {
                ("a job ended with its queue", Program, Unstated, Remedy::None, Cleanup)
            }
            "page-fault" => ("invalid access", Program, Unstated, Remedy::RestartProgram, Cause),
            "poison" => ("bad data", Memory, FatalUnlessContained, Remedy::Reset, Cause),
            "poison-consumed" => ("a job is ended", Memory, Contained, Remedy::None, Cause),
            "gone" => ("the device is gone", Lost, Fatal, Remedy::Support, Cause),
            "wedged" => ("the driver gave up", Notice, Unstated, Remedy::Reboot, Request),
            _ => return None,
        };
        Some(DriverError {
            code: message.code.clone(),
            name: message.code.list.replace('-', " "),
            text: text.into(),
            class,
            severity,
            remedy,
            relation,
            cause: None,
        })
    }

    fn find_memory_use(&self, _: &mut [HeldFile], _: &dyn Fn(u32) -> Option<String>) {}
}

fn logged(lines: &[&str]) -> Vec<DriverMessage> {
    let at = Timestamp(NOW - 60_000);
    lines.iter().map(|line| Toy.log_message(&format!("toy {line}"), at).unwrap()).collect()
}

/// Returns confidence, advice and evidence of the only finding.
fn only(found: Vec<Finding>) -> (Confidence, Advice, String) {
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!(found.kind, FindingKind::DriverError);
    let text = Evidence::texts(&found.evidence).join("; ");
    (found.confidence, found.advice[0].clone(), text)
}

#[test]
fn errors_of_any_driver_are_judged_by_their_explanation() {
    use Advice::{ReadDrmLog, Reboot, ResetDevice};
    use Confidence::{Likely, Possible};
    let ring = "0000:3b:00.0: ring timeout: process train pid 7";
    let killed = "0000:3c:00.0: job killed: process train pid 7";
    let poison = "0000:3b:00.0: poison";
    for (lines, confidence, advice, evidence) in [
        (&[ring][..], Likely, ResetDevice(0), "ring timeout: a queue stopped, 60 s ago, by train"),
        (
            &[ring, killed, killed],
            Likely,
            ResetDevice(0),
            "ring timeout: a queue stopped, 60 s ago, by train; job killed: a job ended with its \
             queue, 2 times: a consequence of ring timeout",
        ),
        (
            &["0000:3b:00.0: page fault: process train pid 7"],
            Possible,
            ReadDrmLog,
            "page fault: invalid access, 60 s ago, by train; usually a bug in the program",
        ),
        (&[poison], Likely, ResetDevice(0), "poison: bad data, 60 s ago"),
        (
            &[poison, "0000:3b:00.0: poison consumed"],
            Possible,
            ResetDevice(0),
            "poison: bad data, 60 s ago; poison consumed: a job is ended, 60 s ago",
        ),
        (
            &["0000:3b:00.0: gone"],
            Possible,
            ReadDrmLog,
            "gone: the device is gone, 60 s ago; it responds now",
        ),
        (&["0000:3b:00.0: wedged"], Likely, Reboot, "wedged: the driver gave up, 60 s ago"),
    ] {
        let mut devices = [sound(0), sound(1)];
        for device in &mut devices {
            device.details = Ok(DeviceDetails::default());
        }
        let found = only(with(devices.to_vec(), logged(lines)));
        assert_eq!(found, (confidence, advice, evidence.to_owned()), "{lines:?}");
    }
}

#[test]
fn recorded_error_is_explained_if_its_driver_is_known() {
    let mut seen = Snapshot::empty(Origin::Live, Timestamp(NOW));
    seen.devices = vec![sound(0)];
    seen.driver_messages = Ok(logged(&["0000:3b:00.0: ring timeout"]));
    let text = serde_json::to_string(&seen).unwrap();
    assert!(text.contains(r#""kind":{"kind":"ring-timeout"}"#), "{text}");
    let read = |drivers: &[Arc<dyn KernelDriver>]| {
        let mut read: Snapshot = serde_json::from_str(&text).unwrap();
        read.explain(drivers);
        read
    };
    assert!(read(&[Arc::new(gpu_nvidia_driver::NvidiaDriver), Arc::new(Toy)]) == seen);
    let (confidence, advice, evidence) = only(diagnose(&[read(&[])]).findings);
    assert_eq!((confidence, advice), (Confidence::Possible, Advice::ReadDrmLog));
    assert_eq!(evidence, "ring-timeout: unknown to this version, 60 s ago");
}
