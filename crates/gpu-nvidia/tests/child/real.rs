//! The real child.

use super::fixture::*;
use crate::isolation::{endless_library, has_nothing_else, inheritable, with_named_call};
use gpu_core::{ErrorKind, GpuBackend, Groups, Origin};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn real_child_reports_unloadable_library() {
    let child = Child::real(&[Path::new("/nowhere/libnvidia-ml.so.1")]);
    let backend = child.backend(LONG);
    let wrong = ErrorKind::Invalid;
    assert_eq!(failed(backend.inventory(Groups::all())).kind, wrong);
    assert_eq!(backend.topology().unwrap_err().kind(), wrong);
    assert_eq!(backend.origin(), Origin::Live);
    assert_eq!(backend.simulated(), None);
    assert_eq!(child.starts().len(), 1);
}

#[test]
fn real_child_inherits_only_its_pipes() {
    let child = Child::real(&[]);
    let lease = inheritable();
    let backend = child.backend(LONG);
    assert!(backend.inventory(Groups::NONE).devices.is_empty());
    has_nothing_else(child.starts()[0]);
    drop(lease);
}

#[test]
fn real_child_reports_hanging_call() {
    let dir = tempfile::tempdir().unwrap();
    let library = endless_library(dir.path());
    let hangs = || failed(Child::real(&[&library]).backend(SHORT).inventory(Groups::NONE));
    assert_eq!(
        with_named_call(hangs).text,
        "get an answer from the driver within 0.3 s: loading the library did not return"
    );
    let child = Child::real(&[&library]);
    let backend = child.backend(SHORT);
    let fault = failed(backend.inventory(Groups::NONE));
    assert_eq!(fault.kind, ErrorKind::TimedOut);
    assert!(!is_there(child.starts()[0]));
    assert_eq!(failed(backend.inventory(Groups::NONE)), fault);
    assert_eq!(child.starts().len(), 1);
}

#[test]
fn child_without_order_pipe_reports_its_version() {
    let child = Command::new(env!("CARGO_BIN_EXE_gpu-nvidia-helper"))
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let output = String::from_utf8(child.stdout).unwrap();
    assert!(output.starts_with("{\"greeting\":{\"protocol\":"), "{output}");
    assert_eq!((child.status.code(), output.lines().count()), (Some(0), 1), "{output}");
}

#[test]
fn hanging_real_child_ends_with_program() {
    let dir = tempfile::tempdir().unwrap();
    let library = endless_library(dir.path());
    let (orders, to_child) = std::io::pipe().unwrap();
    let mut program = Command::new("sleep").arg("1000").stdout(to_child).spawn().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpu-nvidia-helper"))
        .arg(&library)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(orders)
        .spawn()
        .unwrap();
    // Both threads are running: one hangs, the other waits for orders.
    eventually(|| {
        fs::read_dir(format!("/proc/{}/task", child.id())).is_ok_and(|tasks| tasks.count() == 2)
    });
    assert!(child.try_wait().unwrap().is_none());
    program.kill().unwrap();
    program.wait().unwrap();
    let mut code = None;
    eventually(|| {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    assert_eq!(code.unwrap().code(), Some(0));
}
