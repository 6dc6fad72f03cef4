//! Children that end, crash or make no sense.

use super::stage::*;
use gpu_core::{ErrorKind, GpuBackend, Groups, MachineFault};
use gpu_nvidia::{Helper, NvmlChild};

#[test]
fn a_child_that_ends_is_replaced_once() {
    for (end, how) in
        [("exit 3", "it ended with code 3"), ("kill -SEGV $$", "it was ended by signal 11")]
    {
        let child = Child::script(&format!("{GREETING}; read -r ask; {end}"));
        let backend = child.backend(LONG);
        let fault = failed(backend.look(Groups::NONE));
        assert_eq!(fault.kind, MachineFault::Unknown(999).into());
        assert_eq!(fault.text, format!("get an answer from the process that asks NVML: {how}"));
        for _ in 0..3 {
            assert_eq!(failed(backend.look(Groups::NONE)), fault);
        }
        assert_eq!(child.starts().len(), 2);
        assert!(child.starts().iter().all(|pid| !is_there(*pid)));
    }
}

#[test]
fn a_crash_keeps_what_was_learned() {
    let script = format!("{GREETING}; read -r ask; cat \"$1/answer\"; kill -SEGV $$");
    let child = Child::script(&script).with("answer", &[begun(2), part(0)]);
    let look = child.backend(LONG).look(Groups::NONE);
    assert_eq!(look.devices[0], device(0));
    assert_eq!(
        look.devices[1].sample.as_ref().unwrap_err().kind,
        MachineFault::Unknown(999).into()
    );
}

#[test]
fn an_idle_child_that_was_ended_is_not_missed() {
    let script = format!("{GREETING}; read -r order; cat \"$1/answer\"");
    let child = Child::script(&script).with("answer", &[told_driver(), done()]);
    let backend = child.backend(LONG);
    for count in 1..=3 {
        assert_eq!(backend.driver().unwrap(), driver());
        let pid = child.starts()[count - 1];
        eventually(|| is_zombie(pid));
    }
    assert_eq!(child.starts().len(), 3);
}

#[test]
fn a_child_that_makes_no_sense_is_ended() {
    let long = "head -c 8000000 /dev/zero; cat";
    for (script, how) in [
        ("echo nonsense; cat".to_owned(), "what it says makes no sense"),
        (
            r#"echo '{"greeting":{"protocol":1,"simulated":null}}'; cat"#.to_owned(),
            "it is of another version",
        ),
        ("echo '\"done\"'; cat".to_owned(), "what it says makes no sense"),
        (format!("{GREETING}; {GREETING}; cat"), "what it says makes no sense"),
        (format!("{GREETING}; echo '\"done\"'; cat"), "what it says makes no sense"),
        (
            format!("{GREETING}; echo '{{\"sample\":{{\"Ok\":7}}}}'; cat"),
            "what it says makes no sense",
        ),
        (
            format!("{GREETING}; read -r ask; echo 'half a line'; printf half; exit 0"),
            "what it says makes no sense",
        ),
        (format!("{GREETING}; read -r ask; printf half; exit 0"), "it ended with code 0"),
        (format!("{GREETING}; exec >&-; exec sleep 1000"), "it says nothing any more"),
        (format!("{GREETING}; {long}"), "what it says makes no sense"),
        (format!("{GREETING}; yes '{{\"where\":null}}'"), "what it says makes no sense"),
    ] {
        let child = Child::script(&script);
        let fault = failed(child.backend(LONG).look(Groups::NONE));
        let text = format!("get an answer from the process that asks NVML: {how}");
        assert_eq!((fault.kind, fault.text), (MachineFault::Unknown(999).into(), text), "{script}");
        assert!(!is_there(child.starts()[0]), "{script}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let helper = Helper::new("/nowhere/helper");
    let backend = NvmlChild::new(helper, LONG, Box::new(|_| {}));
    let fault = failed(backend.look(Groups::NONE));
    assert_eq!(fault.kind, ErrorKind::Io);
    assert!(fault.text.starts_with("start '/nowhere/helper' to ask NVML: "), "{}", fault.text);
}
