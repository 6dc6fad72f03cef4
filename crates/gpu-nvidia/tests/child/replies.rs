//! A child receives each request once, and its replies reach the program.

use super::fixture::*;
use gpu_core::{GpuBackend, Groups, Inventory, Origin, Pid};
use std::fs;
use std::path::Path;

#[test]
fn snapshot_arrives_complete_and_in_order() {
    let child = Child::script(&format!("{GREETING}; read -r request; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(2), part(0), part(1), done()]);
    let inventory = child.backend(LONG).inventory(Groups::NONE);
    assert_eq!(inventory, Inventory { driver: Ok(driver()), devices: vec![device(0), device(1)] });
}

#[test]
fn prefetched_answer_serves_only_its_query() {
    let reply = r#"echo "$request" >> "$1/requests"; cat "$1/answer""#;
    let script = format!(
        "{GREETING}; while read -r request; do \
         case $request in *look*) {reply};; *) cat \"$1/driver\";; esac; done"
    );
    let child = Child::script(&script)
        .with("answer", &[begun(1), part(0), done()])
        .with("driver", &[driver_reply(), done()]);
    let requests = || fs::read_to_string(child.dir.path().join("requests")).unwrap_or_default();
    let backend = child.backend(LONG);
    let whole = Inventory { driver: Ok(driver()), devices: vec![device(0)] };
    backend.request_snapshot(Groups::NONE);
    backend.request_snapshot(Groups::all());
    assert_eq!(backend.origin(), Origin::Live, "the greeting is received first");
    assert_eq!(backend.inventory(Groups::NONE), whole);
    assert_eq!(requests().lines().count(), 1, "one request");

    backend.request_snapshot(Groups::NONE);
    assert_eq!(backend.driver().unwrap(), driver());
    assert_eq!(backend.inventory(Groups::NONE), whole);
    assert_eq!(requests().lines().count(), 3, "the first reply was discarded");

    backend.request_snapshot(Groups::NONE);
    assert_eq!(backend.inventory(Groups::all()), whole);
    assert_eq!(requests().lines().count(), 5, "other groups need another request");
    assert_eq!(child.starts().len(), 1);
}

#[test]
fn one_shot_child_ends_before_program() {
    let script = format!("{GREETING}; while read -r request; do cat \"$1/answer\"; done");
    let child = Child::script(&script).with("answer", &[driver_reply(), done()]);
    let backend = child.backend(LONG).for_one_query();
    for count in 1..=2 {
        assert_eq!(backend.driver().unwrap(), driver());
        let pid = child.starts()[count - 1];
        eventually(|| is_zombie(pid));
        assert_eq!(backend.helpers(), []);
    }
    drop(backend);
    assert_eq!(child.starts().len(), 2);
    assert!(!child.starts().into_iter().any(is_there), "both were reaped");
}

#[test]
fn prefetched_answer_of_ended_child_is_read() {
    let child = Child::script(&format!("{GREETING}; read -r request; cat \"$1/answer\""))
        .with("answer", &[begun(1), part(0), done()]);
    let backend = child.backend(LONG).for_one_query();
    backend.request_snapshot(Groups::NONE);
    eventually(|| !child.starts().is_empty() && backend.helpers().is_empty());
    assert!(backend.is_real());
    let inventory = backend.inventory(Groups::NONE);
    assert_eq!(inventory, Inventory { driver: Ok(driver()), devices: vec![device(0)] });
    assert_eq!(child.starts().len(), 1, "no restart");

    let child = Child::script(&format!("{GREETING}; read -r request; kill -9 $$"));
    let backend = child.backend(LONG).for_one_query();
    backend.request_snapshot(Groups::NONE);
    eventually(|| !child.starts().is_empty() && backend.helpers().is_empty());
    let fault = failed(backend.inventory(Groups::NONE));
    assert!(fault.text.contains("it was terminated by signal 9"), "{}", fault.text);
}

#[test]
fn single_child_answers_all_queries() {
    let script = format!("{GREETING}; while read -r request; do cat \"$1/answer\"; done");
    let child = Child::script(&script).with("answer", &[driver_reply(), done()]);
    let backend = child.backend(LONG);
    assert_eq!(backend.helpers(), []);
    for _ in 0..3 {
        assert_eq!(backend.driver().unwrap(), driver());
        assert_eq!(backend.helpers(), [Pid(child.starts()[0])]);
    }
    assert_eq!(child.starts().len(), 1);
    drop(backend);
    assert!(!is_there(child.starts()[0]), "it was reaped");
}

#[test]
fn origin_is_taken_from_greeting() {
    let simulated = r#"{"machine":"labbox","session":"/run/s"}"#;
    let script = format!(r#"echo '{{"greeting":{{"protocol":6,"simulated":{simulated}}}}}'; cat"#);
    let child = Child::script(&script);
    let backend = child.backend(LONG);
    assert_eq!(backend.origin(), Origin::Simulated("labbox".to_owned()));
    let simulated = backend.simulated().unwrap();
    assert!(!backend.is_real());
    assert_eq!(
        (simulated.machine.as_str(), simulated.session.as_path()),
        ("labbox", Path::new("/run/s"))
    );
    assert_eq!(child.starts().len(), 1);

    let real = Child::script(&format!("{GREETING}; cat")).backend(LONG);
    assert!(real.is_real() && real.simulated().is_none());
    let silent = Child::script("exit 1").backend(LONG);
    assert_eq!(silent.origin(), Origin::Live);
    assert!(!silent.is_real() && silent.simulated().is_none());
}

#[test]
fn kept_session_is_closed_on_request() {
    let answer =
        r#"case $request in *'"query":"close"'*) ;; *) cat "$1/answer";; esac; echo '"done"'"#;
    let script = format!(
        "{GREETING}; while read -r request; do echo \"$request\" >> \"$1/requests\"; {answer}; done"
    );
    let child = Child::script(&script).with("answer", &[driver_reply()]);
    let requests = || fs::read_to_string(child.dir.path().join("requests")).unwrap();
    let backend = child.backend(LONG);
    backend.driver().unwrap();
    backend.close().unwrap();
    assert_eq!(requests(), "{\"query\":\"driver\",\"then\":\"close\"}\n");
    let backend = child.backend(LONG).keep_open();
    backend.close().unwrap();
    assert_eq!(child.starts().len(), 1, "no child was started");
    backend.driver().unwrap();
    backend.close().unwrap();
    let requests = requests();
    let kept: Vec<_> = requests.lines().skip(1).collect();
    assert!(kept[0].contains("\"driver\"") && kept[0].contains("stay-open"), "{requests}");
    assert!(kept[1].contains("\"close\""), "{requests}");
    assert_eq!(kept.len(), 2);
}

#[test]
fn unneeded_busy_child_receives_end_order() {
    let script =
        format!("{GREETING}; read -r ask; read -r order <&2; echo \"$order\" > \"$1/order\"");
    let child = Child::script(&script);
    let backend = child.backend(LONG);
    backend.request_snapshot(Groups::NONE);
    assert!(backend.is_real(), "it has started");
    drop(backend);
    let order = || fs::read_to_string(child.dir.path().join("order")).unwrap_or_default();
    eventually(|| order() == "\"end\"\n");
}
