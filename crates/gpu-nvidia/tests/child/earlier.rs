//! A child of an earlier look that still hangs in the driver.

use super::stage::*;
use gpu_core::{ErrorKind, GpuBackend, Groups, Origin};
use std::fs;

impl Child {
    /// Puts a process that hangs into the folder that stands for `/proc`.
    fn hanging_process(&self, user: u32) {
        let process = self.proc().join("4711");
        fs::create_dir(&process).unwrap();
        fs::write(process.join("comm"), "gpuws-stuck\n").unwrap();
        let status = format!("State:\tD (disk sleep)\nUid:\t{user}\t0\t0\t0\n");
        fs::write(process.join("status"), status).unwrap();
        let zeros = "0 ".repeat(40);
        fs::write(process.join("stat"), format!("4711 (gpuws-stuck) D {zeros}\n")).unwrap();
    }
}

#[test]
fn nothing_is_asked_while_a_child_of_an_earlier_look_hangs() {
    let own = rustix::process::getuid().as_raw();
    let told = r#"read -r order; echo "$order" >> "$1/told""#;
    let child = Child::script(&format!("{GREETING}; {told}; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(0), done()]);
    child.hanging_process(own);
    let backend = child.backend(LONG);
    for _ in 0..2 {
        let fault = failed(backend.look(Groups::NONE));
        assert_eq!(fault.kind, ErrorKind::TimedOut);
        assert_eq!(
            fault.text,
            "get an answer from the driver: process 4711 of an earlier look still hangs in it"
        );
    }
    assert_eq!(backend.origin(), Origin::Live);
    let told = || fs::read_to_string(child.folder.path().join("told")).unwrap_or_default();
    assert_eq!(told().trim(), "", "a child that was started was asked nothing");
    assert!(child.starts().len() <= 1, "nor was it started again");
    assert!(!child.starts().into_iter().any(is_there), "and it has ended");
    fs::remove_dir_all(child.proc().join("4711")).unwrap();
    assert_eq!(backend.look(Groups::NONE).driver, Ok(driver()), "it has ended");
    assert!(told().trim().contains("look"), "{}", told());
}

#[test]
fn a_process_of_somebody_else_stops_nobody() {
    let child = Child::script(&format!("{GREETING}; read -r order; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(0), done()]);
    child.hanging_process(rustix::process::getuid().as_raw() + 1);
    assert_eq!(child.backend(LONG).look(Groups::NONE).driver, Ok(driver()));
}
