//! A child of an earlier query that still hangs in the driver.

use super::fixture::*;
use gpu_core::{ErrorKind, GpuBackend, Groups, Origin};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, SEEK_SET, flock};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

impl Child {
    /// Adds a hanging process to the directory that replaces `/proc`.
    fn hanging_process(&self, user: u32) {
        let process = self.proc().join("4711");
        fs::create_dir(&process).unwrap();
        fs::write(process.join("comm"), "gpuws-stuck\n").unwrap();
        let status = format!("State:\tD (disk sleep)\nUid:\t{user}\t{user}\t{user}\t{user}\n");
        fs::write(process.join("status"), status).unwrap();
        let zeros = "0 ".repeat(40);
        fs::write(process.join("stat"), format!("4711 (gpuws-stuck) D {zeros}\n")).unwrap();
        symlink(std::env::current_exe().unwrap(), process.join("exe")).unwrap();
        for entry in ["self", "4711"] {
            let namespaces = self.proc().join(entry).join("ns");
            fs::create_dir_all(&namespaces).unwrap();
            for kind in ["pid", "user"] {
                symlink(format!("{kind}:[4026531836]"), namespaces.join(kind)).unwrap();
            }
        }
    }
}

/// Sets the mark of a hanging child with this PID that runs this test program.
fn set_mark(pid: u32) -> File {
    let program = File::open("/proc/self/exe").unwrap();
    let l_start = (i64::from(rustix::process::getuid().as_raw()) << 22) + i64::from(pid);
    let (l_type, l_whence) = (F_RDLCK as i16, SEEK_SET as i16);
    let lock = flock { l_type, l_whence, l_start, l_len: 1, l_pid: 0 };
    fcntl(&program, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    program
}

#[test]
fn no_query_while_earlier_child_hangs() {
    let own = rustix::process::getuid().as_raw();
    let reported = r#"read -r request; echo "$request" >> "$1/requests""#;
    let child = Child::script(&format!("{GREETING}; {reported}; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(0), done()]);
    child.hanging_process(own);
    let _mark = set_mark(4711);
    let backend = child.backend(LONG);
    for _ in 0..2 {
        let fault = failed(backend.inventory(Groups::NONE));
        assert_eq!(fault.kind, ErrorKind::TimedOut);
        assert_eq!(
            fault.text,
            "query the driver: process 4711 of an earlier query is still blocked in it"
        );
    }
    assert_eq!(backend.origin(), Origin::Live);
    let reported = || fs::read_to_string(child.dir.path().join("requests")).unwrap_or_default();
    assert_eq!(reported().trim(), "", "no request was sent");
    assert!(child.starts().len() <= 1, "no restart");
    assert!(!child.starts().into_iter().any(is_there), "it has exited");
    fs::remove_dir_all(child.proc().join("4711")).unwrap();
    assert_eq!(backend.inventory(Groups::NONE).driver, Ok(driver()), "it has exited");
    assert!(reported().trim().contains("look"), "{}", reported());
}

#[test]
fn hanging_process_of_other_user_is_ignored() {
    let child = Child::script(&format!("{GREETING}; read -r request; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(0), done()]);
    child.hanging_process(rustix::process::getuid().as_raw() + 1);
    let _mark = set_mark(4711);
    assert_eq!(child.backend(LONG).inventory(Groups::NONE).driver, Ok(driver()));
}

#[test]
fn busy_program_with_same_name_is_ignored() {
    // It has the same user (root if root runs the tests) and the same namespaces.
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sh");
    fs::copy("/bin/sh", &program).unwrap();
    let script = "printf gpuws-stuck > /proc/$$/comm; while :; do :; done";
    let mut busy = Command::new(&program);
    busy.args(["-c", script]).stdout(Stdio::null());
    let busy = loop {
        match busy.spawn() {
            // Another test, while starting a program, has the copy open for writing.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            child => break Ended(child.unwrap()),
        }
    };
    let comm = format!("/proc/{}/comm", busy.0.id());
    eventually(|| fs::read_to_string(&comm).is_ok_and(|name| name == "gpuws-stuck\n"));
    let _mark = set_mark(busy.0.id());
    let child = Child::script(&format!("{GREETING}; read -r request; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(0), done()]);
    let inventory = child.backend_with_proc("/proc".into(), LONG).inventory(Groups::NONE);
    assert_eq!(inventory.driver, Ok(driver()));
}

/// A process that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
