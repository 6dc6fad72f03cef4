//! Children that exit, crash or send invalid messages.

use super::fixture::*;
use gpu_core::{ErrorKind, GpuBackend, Groups, MachineFault};
use gpu_nvidia::{Helper, NvmlChild};

#[test]
fn ended_child_is_restarted_once() {
    for (end, how) in
        [("exit 3", "it exited with code 3"), ("kill -SEGV $$", "it was terminated by signal 11")]
    {
        let child = Child::script(&format!("{GREETING}; read -r ask; {end}"));
        let backend = child.backend(LONG);
        let fault = failed(backend.inventory(Groups::NONE));
        assert_eq!(fault.kind, MachineFault::Unknown(999).into());
        assert_eq!(fault.text, format!("query the NVML helper process: {how}"));
        for _ in 0..3 {
            assert_eq!(failed(backend.inventory(Groups::NONE)), fault);
        }
        assert_eq!(child.starts().len(), 2);
        assert!(child.starts().iter().all(|pid| !is_there(*pid)));
    }
}

#[test]
fn crash_keeps_received_parts() {
    let script = format!("{GREETING}; read -r ask; cat \"$1/answer\"; kill -SEGV $$");
    let child = Child::script(&script).with("answer", &[begun(2), part(0)]);
    let inventory = child.backend(LONG).inventory(Groups::NONE);
    assert_eq!(inventory.devices[0], device(0));
    assert_eq!(
        inventory.devices[1].sample.as_ref().unwrap_err().kind,
        MachineFault::Unknown(999).into()
    );
}

#[test]
fn ended_idle_child_is_restarted_silently() {
    let script = format!("{GREETING}; read -r request; cat \"$1/answer\"");
    let child = Child::script(&script).with("answer", &[driver_reply(), done()]);
    let backend = child.backend(LONG);
    for count in 1..=3 {
        assert_eq!(backend.driver().unwrap(), driver());
        let pid = child.starts()[count - 1];
        eventually(|| is_zombie(pid));
    }
    assert_eq!(child.starts().len(), 3);
}

#[test]
fn malformed_child_output_ends_child() {
    let long = "head -c 8000000 /dev/zero; cat";
    for (script, how) in [
        ("echo nonsense; cat".to_owned(), "it sent an invalid message"),
        (
            r#"echo '{"greeting":{"protocol":1,"simulated":null}}'; cat"#.to_owned(),
            "its version differs",
        ),
        ("echo '\"done\"'; cat".to_owned(), "it sent an invalid message"),
        (format!("{GREETING}; {GREETING}; cat"), "it sent an invalid message"),
        (format!("{GREETING}; echo '\"done\"'; cat"), "it sent an invalid message"),
        (
            format!("{GREETING}; echo '{{\"sample\":{{\"Ok\":7}}}}'; cat"),
            "it sent an invalid message",
        ),
        (
            format!("{GREETING}; read -r ask; echo 'half a line'; printf half; exit 0"),
            "it sent an invalid message",
        ),
        (format!("{GREETING}; read -r ask; printf half; exit 0"), "it exited with code 0"),
        (format!("{GREETING}; exec >&-; exec sleep 1000"), "it stopped answering"),
        (format!("{GREETING}; {long}"), "it sent an invalid message"),
        (format!("{GREETING}; yes '{{\"where\":null}}'"), "it sent an invalid message"),
    ] {
        let child = Child::script(&script);
        let fault = failed(child.backend(LONG).inventory(Groups::NONE));
        let text = format!("query the NVML helper process: {how}");
        assert_eq!((fault.kind, fault.text), (MachineFault::Unknown(999).into(), text), "{script}");
        assert!(!is_there(child.starts()[0]), "{script}");
    }
}

#[test]
fn missing_helper_is_named() {
    let helper = Helper::new("/nowhere/helper");
    let backend = NvmlChild::new(helper, LONG, Box::new(|_| {}));
    let fault = failed(backend.inventory(Groups::NONE));
    assert_eq!(fault.kind, ErrorKind::Io);
    assert!(fault.text.starts_with("start the NVML helper '/nowhere/helper': "), "{}", fault.text);
}
