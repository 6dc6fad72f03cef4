//! The errors of XLA and JAX.

use super::*;

#[test]
fn xla_errors_are_parsed() {
    let error = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate \
        6000000000 bytes.\n";
    let twice = one(&format!("{error}The above exception\n{error}"));
    assert_eq!(
        (twice.framework, twice.times, count(&twice.tried)),
        (Framework::Jax, 2, Some(6_000_000_000))
    );
    let newer = one(
        "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 19.50GiB. [executable_name='jit_f']",
    );
    assert_eq!(text(&newer.tried), "19.50GiB");
    let older = one(
        "RuntimeError: Resource exhausted: Out of memory while trying to allocate 12884901888 bytes.",
    );
    assert_eq!(count(&older.tried), Some(12_884_901_888));
    let request = one(
        "RESOURCE_EXHAUSTED: Failed to allocate request for 1.50GiB (1610612736B) on device ordinal 3",
    );
    assert_eq!((request.gpu, count(&request.tried)), (Some(3), Some(1_610_612_736)));
    let host =
        one("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 80000000000 bytes.");
    assert_eq!((host.framework, host.wording), (Framework::Jax, Some(Wording::XlaHost)));
}

#[test]
fn compiler_warning_is_attached_to_error() {
    let complaint = "W hlo_rematerialization.cc:2941] Can't reduce memory use below 22.25GiB (23890755584 bytes) by \
        rematerialization; only reduced to 37.00GiB (39728447488 bytes), down from 38.00GiB originally\n";
    let alone = one(complaint);
    assert_eq!(alone.wording, Some(Wording::NoFailure));
    let event = one(&format!(
        "{complaint}RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7000000000 bytes.\n"
    ));
    let reached = event.rematerialization.unwrap();
    assert_eq!(reached.limit.bytes.map(|bytes| bytes.0), Some(23_890_755_584));
    assert_eq!(count(&reached.reduced), Some(39_728_447_488));
}

#[test]
fn host_request_is_identified_by_its_error() {
    for word in ["RESOURCE_EXHAUSTED", "Resource exhausted", "XlaRuntimeError", "JaxRuntimeError"] {
        let event = one(&format!("{word}: Out of memory allocating 8000000 bytes."));
        assert_eq!(event.wording, Some(Wording::XlaHost), "{word}");
    }
    assert_eq!(all("Out of memory allocating 8000000 bytes."), []);
}

#[test]
fn retries_belong_to_one_event_as_long_as_they_decrease() {
    let retry = |bytes: u64| format!("failed to allocate 1.00G ({bytes} bytes) from device: x\n");
    let events_of = |sizes: &[u64]| all(&sizes.iter().map(|size| retry(*size)).collect::<String>());
    assert_eq!(events_of(&[900, 800])[0].ladder.len(), 2);
    let same = events_of(&[900, 900, 800]);
    assert_eq!((same.len(), same[0].ladder.len()), (1, 2), "a repeated size counts once");
    assert_eq!(events_of(&[800, 900]).len(), 2);
    for prose in
        ["failed to allocate 1.00G (7 bytes) from host", "failed to allocate 1.00G 7 bytes"]
    {
        assert_eq!(all(prose), [], "{prose}");
    }
}

#[test]
fn complaint_without_exact_sizes_is_kept_as_printed() {
    let event = one(
        "Can't reduce memory use below 22.25GiB by rematerialization; only reduced to 37.00GiB",
    );
    let reached = event.rematerialization.unwrap();
    assert_eq!((reached.limit.text.as_str(), text(&reached.reduced)), ("22.25GiB", "37.00GiB"));
    assert_ne!(reached.limit.slack.0, 0);
    let event = one("Can't reduce memory use below 22.25GiB (7 words)");
    assert_eq!(event.rematerialization.unwrap().reduced, None);
}
