//! Findings about GPUs of AMD and Intel.

use crate::driver_log::{NOW, sound, with};
use gpu_core::*;
use gpu_reaper::*;

/// Returns confidence, advice and evidence of what a log of amdgpu or xe shows.
fn logged(lines: &[&str]) -> Vec<(Confidence, Advice, String)> {
    let parse = |line: &&str| gpu_drm_driver::parse_message(line, Timestamp(NOW - 60_000)).unwrap();
    let found = with(vec![sound(0)], lines.iter().map(parse).collect());
    let of = |finding: Finding| {
        assert_eq!(finding.kind, FindingKind::DriverError);
        let text = Evidence::texts(&finding.evidence).join("; ");
        (finding.confidence, finding.advice[0].clone(), text)
    };
    found.into_iter().map(of).collect()
}

#[test]
fn ring_timeout_names_program_and_its_reset() {
    let timeout = "amdgpu 0000:3b:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=8";
    let process =
        |name: &str| format!("amdgpu 0000:3b:00.0: amdgpu: Process {name} pid 7 thread t pid 8");
    let (train, eval) = (process("train"), process("eval"));
    let begin = "amdgpu 0000:3b:00.0: amdgpu: GPU reset begin!";
    let done = "amdgpu 0000:3b:00.0: amdgpu: GPU reset(1) succeeded!";
    let [(confidence, advice, text)] = &logged(&[timeout, &train, begin, done])[..] else {
        panic!()
    };
    assert_eq!((*confidence, advice), (Confidence::Possible, &Advice::ReadProgramError));
    assert_eq!(
        text,
        "ring timeout: a queue stopped, 60 s ago, by train; usually a bug in the program; GPU reset: \
         the driver resets the GPU: a consequence of ring timeout; GPU reset done: the GPU works \
         again: a consequence of ring timeout"
    );
    let several = logged(&[timeout, &train, timeout, &eval]);
    assert_eq!(several[0].0, Confidence::Likely, "{several:?}");
    assert_eq!(logged(&[&train, begin, done]), [], "no error");
}

#[test]
fn failed_reset_and_wedged_device_are_likely_faults() {
    let timeout = "amdgpu 0000:3b:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=8";
    let failed = "amdgpu 0000:3b:00.0: amdgpu: GPU reset end with ret = -22";
    let wedged = "xe 0000:3b:00.0: [drm] device wedged, needs recovery";
    let job = "xe 0000:3b:00.0: [drm] GT0: Timedout job: seqno=4, guc_id=2 in train [7]";
    for (lines, advice) in
        [(&[timeout, failed][..], Advice::ReadKernelLog), (&[job, wedged], Advice::ResetDevice(0))]
    {
        let found = logged(lines);
        assert!(found.len() == 1 && found[0].0 == Confidence::Likely, "{found:?}");
        assert_eq!(found[0].1, advice, "{found:?}");
    }
}

#[test]
fn memory_errors_weigh_by_correction() {
    let ras = |text: &str| logged(&[&format!("amdgpu 0000:3b:00.0: amdgpu: {text}")]);
    assert_eq!(ras("3 correctable hardware errors detected in total in umc block"), []);
    let [(confidence, advice, text)] =
        &ras("2 uncorrectable hardware errors detected in umc block")[..]
    else {
        panic!()
    };
    assert_eq!((*confidence, advice), (Confidence::Possible, &Advice::ResetDevice(0)));
    assert!(text.ends_with("the GPU reports no such error now"), "{text}");
}
