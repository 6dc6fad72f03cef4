use super::*;
use gpu_core::{FaultClass, Relation, Remedy, Severity};
use proptest::prelude::*;

fn parsed(text: &str) -> Option<DriverMessage> {
    parse_message(text, Timestamp(7))
}

/// Returns code, PID and name of a message.
fn found(text: &str) -> Option<(String, Option<u32>, Option<String>)> {
    let message = parsed(text)?;
    assert_eq!((message.bus.bus, message.bus.function, message.at), (3, 0, Timestamp(7)));
    Some((message.code.to_string(), message.pid.map(|pid| pid.0), message.process))
}

/// Lines in the formats of the kernel's sources; names, numbers and addresses are made.
const LINES: &[(&str, &str, u32, &str)] = &[
    (
        "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=8, emitted seq=9",
        "ring-timeout",
        0,
        "",
    ),
    (
        "amdgpu 0000:03:00.0: [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=8",
        "ring-timeout",
        0,
        "",
    ),
    ("amdgpu 0000:03:00.0: amdgpu: Ring gfx_0.0.0 reset succeeded", "engine-reset", 0, ""),
    (
        "amdgpu 0000:03:00.0: amdgpu: Process information: process train pid 812 thread train:cs0 pid 815",
        "process",
        812,
        "train",
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu:  Process train pid 812 thread train:cs0 pid 815)",
        "process",
        812,
        "train",
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu:  in process my job pid 812 thread t pid 815",
        "process",
        812,
        "my job",
    ),
    ("amdgpu 0000:03:00.0: amdgpu:  in process  pid 0 thread  pid 0", "process", 0, ""),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!", "gpu-reset", 0, ""),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!. Source:  1", "gpu-reset", 0, ""),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset(2) succeeded!", "gpu-reset-done", 0, ""),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset(2) failed", "reset-failed", 0, ""),
    ("amdgpu 0000:03:00.0: amdgpu: GPU reset end with ret = -22", "reset-failed", 0, ""),
    ("amdgpu 0000:03:00.0: amdgpu: GPU Recovery Failed: -22", "reset-failed", 0, ""),
    ("amdgpu 0000:03:00.0: amdgpu: GPU recovery disabled.", "reset-off", 0, ""),
    ("amdgpu 0000:03:00.0: [drm] *ERROR* VRAM is lost due to GPU reset!", "memory-lost", 0, ""),
    (
        "amdgpu 0000:03:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:3 pasid:32771)",
        "page-fault",
        0,
        "",
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:158 vmid:8 pasid:32769, \
         for process train pid 812 thread train pid 812)",
        "page-fault",
        812,
        "train",
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x6",
        "firmware-timeout",
        0,
        "",
    ),
    ("amdgpu 0000:03:00.0: amdgpu: device lost from bus!", "device-lost", 0, ""),
    ("amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init", "start-failed", 0, ""),
    (
        "amdgpu 0000:03:00.0: Direct firmware load for amdgpu/made.bin failed with error -2",
        "firmware-missing",
        0,
        "",
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
        "ras-uncorrected",
        0,
        "",
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu: socket: 0, die: 1, 2 new uncorrectable hardware errors detected in umc block",
        "ras-uncorrected",
        0,
        "",
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu: uncorrectable hardware errors (ERREVENT_ATHUB_INTERRUPT) detected!",
        "ras-uncorrected",
        0,
        "",
    ),
    (
        "amdgpu 0000:03:00.0: amdgpu: 12 correctable hardware errors detected in total in umc block, no user action is needed",
        "ras-corrected",
        0,
        "",
    ),
    ("amdgpu 0000:03:00.0: amdgpu: RAS poison is consumed by gfx, vmid 8", "ras-poison", 0, ""),
    (
        "amdgpu 0000:03:00.0: amdgpu: Saved bad pages 3 reaches threshold value 10",
        "bad-pages",
        0,
        "",
    ),
    ("amdgpu 0000:03:00.0: [drm] device wedged, but recovered through reset", "recovered", 0, ""),
    (
        "i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in train [812]",
        "gpu-hang",
        812,
        "train",
    ),
    (
        "i915 0000:03:00.0: [drm] GPU HANG: ecode 9:0:0x0, in train [812], reason: hang on rcs0, action: reset",
        "gpu-hang",
        812,
        "train",
    ),
    ("i915 0000:03:00.0: GPU HANG: ecode 9:0:00000000", "gpu-hang", 0, ""),
    ("i915 0000:03:00.0: [drm] Resetting chip for stopped heartbeat on rcs0", "gpu-reset", 0, ""),
    ("i915 0000:03:00.0: [drm] Resetting rcs0 for preemption time out", "engine-reset", 0, ""),
    (
        "i915 0000:03:00.0: [drm] train[812] context reset due to GPU hang",
        "context-reset",
        812,
        "train",
    ),
    ("i915 0000:03:00.0: [drm] *ERROR* Failed to reset chip", "reset-failed", 0, ""),
    ("i915 0000:03:00.0: [drm] device wedged, needs recovery", "wedged", 0, ""),
    (
        "xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=rcs, logical_mask: 0x1, guc_id=2",
        "engine-reset",
        0,
        "",
    ),
    (
        "xe 0000:03:00.0: [drm] Tile0: GT0: Timedout job: seqno=4, lrc_seqno=4, guc_id=2, flags=0x0 in train [812]",
        "job-timeout",
        812,
        "train",
    ),
    ("xe 0000:03:00.0: [drm] *ERROR* GT1: reset failed (-ETIMEDOUT)", "reset-failed", 0, ""),
    ("xe 0000:03:00.0: [drm] GT0: reset done", "gpu-reset-done", 0, ""),
    (
        "xe 0000:03:00.0: [drm] GT0: Engine memory CAT error [18]: class=rcs, guc_id: 2",
        "engine-fault",
        0,
        "",
    ),
    (
        "xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged.",
        "wedged",
        0,
        "",
    ),
    ("xe 0000:03:00.0: [drm] device wedged, needs recovery", "wedged", 0, ""),
    ("xe 0000:03:00.0: [drm] Xe device coredump has been created", "core-dump", 0, ""),
];

#[test]
fn each_form_of_driver_is_parsed() {
    for (line, code, pid, name) in LINES {
        let pid = (*pid != 0).then_some(*pid);
        let name = (!name.is_empty()).then(|| (*name).to_owned());
        assert_eq!(found(line), Some(((*code).to_owned(), pid, name)), "{line}");
        assert_eq!(start_in(&format!("[   12.5] {line}")), Some(10), "{line}");
    }
}

#[test]
fn other_lines_are_no_messages() {
    for line in [
        "",
        "amdgpu",
        "amdgpu: ring gfx timeout",
        "amdgpu 0000:03:00.0:",
        "amdgpu 0000:03:00.0: amdgpu: SMU is initialized successfully!",
        "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
        "amdgpu 0000:03:00.0: [drm:x [amdgpu]] *ERROR* ",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1",
        "radeon 0000:03:00.0: ring 0 stalled for more than 10000msec",
        "xe x: [drm] device wedged, needs recovery",
        "xe 0000:03:00.0: [drm] not that the device wedged",
    ] {
        assert_eq!(parsed(line), None, "{line}");
    }
    for line in ["axe 0000:03:00.0: x", "xe 0000:03:00", "xe xe amdgpu", "é"] {
        assert_eq!(start_in(line), None, "{line}");
    }
}

#[test]
fn name_of_process_cannot_forge_message() {
    let of =
        |line: String| found(&line).map(|(code, pid, name)| (code, pid, name.unwrap_or_default()));
    let is = |code: &str, pid, name: &str| Some((code.to_owned(), pid, name.to_owned()));
    let hang =
        |name: &str| of(format!("i915 0000:03:00.0: [drm] GPU HANG: ecode 1:1:1, in {name} [9]"));
    assert_eq!(hang("a [7]"), is("gpu-hang", Some(9), "a [7]"));
    assert_eq!(hang("a in b"), is("gpu-hang", Some(9), "a in b"));
    assert_eq!(hang("device wedged"), is("gpu-hang", Some(9), "device wedged"));
    assert_eq!(hang("\x1b[2J\u{202e}\tx"), is("gpu-hang", Some(9), "[2J x"));
    let reset = |name: &str| {
        of(format!("i915 0000:03:00.0: [drm] {name}[9] context reset due to GPU hang"))
    };
    assert_eq!(reset("device wedged"), is("context-reset", Some(9), "device wedged"));
    assert_eq!(reset("GPU HANG: ecode "), is("context-reset", Some(9), "GPU HANG: ecode"));
    let process = |name: &str, thread: &str| {
        of(format!("amdgpu 0000:03:00.0: amdgpu: Process {name} pid 9 thread {thread} pid 10"))
    };
    assert_eq!(process("a pid 7", "t"), is("process", Some(9), "a pid 7"));
    assert_eq!(process("a", "t pid 7"), is("process", Some(9), "a"));
    // It could be read in two ways.
    assert_eq!(process("a pid 7 thread", "t"), is("process", None, ""));
    assert_eq!(process("a", "pid 7 thread t"), is("process", None, ""));
    let long = hang(&"é".repeat(2_000)).unwrap();
    assert_eq!((long.1, long.2.as_str()), (None, ""), "the text is cut before the PID");
}

#[test]
fn errors_of_programs_accuse_no_device_and_lost_devices_need_more() {
    let errors = LINES.iter().map(|(line, ..)| parsed(line).unwrap().error);
    for error in errors {
        assert!(error.text.len() <= 60 && error.name.len() <= 20, "{error:?}");
        match error.class {
            FaultClass::Program => assert!(error.remedy <= Remedy::RestartProgram, "{error:?}"),
            FaultClass::Notice => {
                assert_eq!(error.remedy, Remedy::None, "{error:?}");
                let is_harmless = matches!(error.relation, Relation::Cleanup | Relation::Alone);
                assert!(is_harmless, "{error:?}");
            }
            FaultClass::Lost | FaultClass::Unresponsive => {
                assert!(
                    error.remedy > Remedy::RestartProgram && error.severity == Severity::Fatal,
                    "{error:?}"
                );
            }
            _ => {}
        }
        assert_eq!(crate::error(&error.code), Some(error));
    }
    for other in ["xid", "fallen-off-bus", ""] {
        let code = DriverErrorCode { list: other.into(), number: None };
        assert_eq!(crate::error(&code), None);
    }
}

#[test]
fn each_code_of_message_has_error() {
    for (_, list) in MESSAGES {
        let code = DriverErrorCode { list: (*list).into(), number: None };
        assert!(crate::error(&code).is_some() && list.len() <= DriverErrorCode::MAX_NAME, "{list}");
    }
}

const PIECES: &[&str] = &[
    "amdgpu ",
    "i915 ",
    "xe ",
    "0000:03:00.0: ",
    "amdgpu: ",
    "[drm] ",
    "[drm:f [amdgpu]] ",
    "*ERROR* ",
    "GT0: ",
    "Tile",
    "GUC: ",
    "socket: 1, ",
    "12 ",
    "GPU reset(",
    "ring ",
    " timeout",
    "Process ",
    " pid ",
    " thread ",
    " in ",
    " [",
    "7",
    "]",
    "é",
    "\n",
    "[gfxhub] ",
    "page fault ",
    "device wedged",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]
    #[test]
    fn arbitrary_lines_never_panic(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..16),
        text in ".{0,20}",
    ) {
        let line = format!("xe 0000:03:00.0: {}{text}", pieces.concat());
        for line in [&line, &pieces.concat()] {
            if let Some(message) = parsed(line) {
                prop_assert!(message.text.chars().count() <= DriverMessage::MAX_TEXT);
            }
            if let Some(at) = start_in(line) {
                prop_assert!(line.is_char_boundary(at));
            }
        }
    }
}
