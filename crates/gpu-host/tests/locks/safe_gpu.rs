//! Coexistence with safe-gpu, whose locks are taken in the same way, with Python's `fcntl.lockf`.

use crate::{eventually, locks, skip};
use gpu_core::{ErrorKind, LeaseStore, Pid, SafeGpuHolder};
use rustix::fs::inotify;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::tempdir;

const NAME: &str = "gpu-lock-magic-RaNdOM-This_Name-NEED_BE-THE_SAME-Across_Users";

/// A program that locks one of the files until it is ended.
struct Python(Child);

impl Python {
    /// As safe-gpu does.
    fn start(path: &Path) -> Self {
        Python::locking(path, "fcntl.lockf(file, fcntl.LOCK_EX)")
    }

    /// With an open file description lock (`F_OFD_SETLK`, 37).
    fn start_ofd(path: &Path) -> Self {
        let lock = "struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)";
        Python::locking(path, &format!("fcntl.fcntl(file, 37, {lock})"))
    }

    fn locking(path: &Path, how: &str) -> Self {
        let program = format!(
            "import fcntl, struct, sys, time\n\
             file = open(sys.argv[1], 'w')\n\
             {how}\n\
             open(sys.argv[1] + '-has-it', 'w').close()\n\
             time.sleep(1000)"
        );
        let mut command = Command::new("python3");
        command.arg("-c").arg(program).arg(path).stdin(Stdio::null());
        Python(command.spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // A process that is already gone needs no signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_python(test: &str) -> bool {
    let found = Command::new("python3").arg("-c").arg("import fcntl").status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        skip(test, "needs Python");
    }
    found
}

fn files(tmp: &Path) -> [PathBuf; 2] {
    [tmp.join(NAME), tmp.join("safe_gpu").join(NAME)]
}

fn has_it(path: &Path) -> bool {
    path.with_file_name(format!("{NAME}-has-it")).exists()
}

#[test]
fn every_safe_gpu_version_waits_while_locks_are_held() {
    if !has_python("every_safe_gpu_version_waits_while_locks_are_held") {
        return;
    }
    let tmp = tempdir().unwrap();
    let (here, there) = (locks(tmp.path()), locks(tmp.path()));
    let held = here.hold_back_safe_gpu(Duration::ZERO).unwrap();
    assert_eq!(held.waiting().unwrap(), []);
    let also = there.hold_back_safe_gpu(Duration::ZERO).expect("ours do not exclude each other");
    let waiters = files(tmp.path()).map(|file| Python::start(&file));
    let mut pids: Vec<Pid> = waiters.iter().map(Python::pid).collect();
    pids.sort();
    eventually(|| held.waiting().unwrap() == pids);
    assert_eq!(also.waiting().unwrap(), pids);
    let (first, second) = (files(tmp.path())[0].clone(), files(tmp.path())[1].clone());
    assert!(!has_it(&first) && !has_it(&second));

    // Waiting safe-gpu processes come before later gpuws claims.
    let error = locks(tmp.path()).hold_back_safe_gpu(Duration::ZERO).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let (path, pid) = (first.display(), waiters[0].pid());
    let named = format!("hold safe-gpu's locks: process {pid} is already waiting for '{path}'");
    assert_eq!(error.to_string(), named);
    drop((held, also));
    eventually(|| has_it(&first) && has_it(&second));
}

#[test]
fn running_safe_gpu_is_awaited() {
    if !has_python("running_safe_gpu_is_awaited") {
        return;
    }
    let tmp = tempdir().unwrap();
    let here = locks(tmp.path());
    drop(here.hold_back_safe_gpu(Duration::ZERO).unwrap());
    for file in files(tmp.path()) {
        let at_work = Python::start(&file);
        eventually(|| has_it(&file));
        let error = here.hold_back_safe_gpu(Duration::from_millis(20)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let (path, pid) = (file.display(), at_work.pid());
        let named = format!("hold safe-gpu's lock '{path}': it is locked by process {pid}");
        assert_eq!(error.to_string(), named);
        let index = files(tmp.path()).iter().position(|other| *other == file).unwrap();
        let holder = SafeGpuHolder { file: index, process: Some(pid) };
        assert_eq!(here.safe_gpu_holder(), Some(holder));
        drop(at_work);
        eventually(|| here.safe_gpu_holder().is_none());
        drop(here.hold_back_safe_gpu(Duration::from_secs(10)).unwrap());
    }
}

#[test]
fn timeout_error_names_lock_holder() {
    if !has_python("timeout_error_names_lock_holder") {
        return;
    }
    let tmp = tempdir().unwrap();
    let here = locks(tmp.path());
    // Readers of the file do not block, and are not named.
    let readers = here.hold_back_safe_gpu(Duration::ZERO).unwrap();
    drop(readers);
    let [_, second] = files(tmp.path());
    let reader = fs::File::open(&second).unwrap();
    let holder = Python::start_ofd(&second);
    eventually(|| has_it(&second));
    let error = here.hold_back_safe_gpu(Duration::ZERO).err().unwrap();
    assert_eq!(here.safe_gpu_holder(), Some(SafeGpuHolder { file: 1, process: None }));
    drop(reader);
    let (path, pid) = (second.display(), holder.pid());
    assert_eq!(
        error.to_string(),
        format!(
            "hold safe-gpu's lock '{path}': it is locked, and open for writing in process {pid}"
        )
    );
}

#[test]
fn locks_are_released_independently() {
    if !has_python("locks_are_released_independently") {
        return;
    }
    let tmp = tempdir().unwrap();
    let mut held = locks(tmp.path()).hold_back_safe_gpu(Duration::ZERO).unwrap();
    let [first, second] = files(tmp.path());
    let (old, new) = (Python::start(&first), Python::start(&second));
    eventually(|| held.queues().unwrap() == [[old.pid()], [new.pid()]]);
    held.release(1).unwrap();
    eventually(|| has_it(&second));
    assert_eq!(held.queues().unwrap(), [vec![old.pid()], vec![]]);
    assert!(!has_it(&first));
}

#[test]
fn missing_lock_files_are_created_world_writable() {
    let tmp = tempdir().unwrap();
    let old_umask = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let held = locks(tmp.path()).hold_back_safe_gpu(Duration::ZERO);
    rustix::process::umask(old_umask);
    drop(held.unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(files(tmp.path()).map(|file| mode(&file)), [0o666, 0o666]);
    assert_eq!(mode(&tmp.path().join("safe_gpu")), 0o1777);
}

#[test]
fn lock_files_are_made_world_writable_before_they_are_named() {
    let tmp = tempdir().unwrap();
    let [first, second] = files(tmp.path());
    let dir = second.parent().unwrap();
    let appeared_in = |dir: &Path| {
        let inotify = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let how = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&inotify, dir, how).unwrap();
        drop(locks(tmp.path()).hold_back_safe_gpu(Duration::ZERO).unwrap());
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&inotify, &mut buffer);
        let mut renamed = Vec::new();
        while let Ok(event) = events.next() {
            let name = event.file_name().unwrap().to_string_lossy().into_owned();
            let is_ready = event.events().contains(inotify::ReadFlags::MOVED_TO);
            let is_looked_for = [NAME, "safe_gpu"].contains(&name.as_str());
            assert!(is_ready || !is_looked_for, "{name} is there before others may open it");
            renamed.extend(is_ready.then_some(name));
        }
        renamed
    };
    assert_eq!(appeared_in(tmp.path()), [NAME, "safe_gpu"]);
    fs::remove_file(&second).unwrap();
    assert_eq!(appeared_in(dir), [NAME]);
    assert!(first.exists() && second.exists());
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn non_regular_lock_file_is_rejected() {
    let tmp = tempdir().unwrap();
    let [first, second] = files(tmp.path());
    let fifo = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &first, rustix::fs::FileType::Fifo, fifo, 0).unwrap();
    let hold = || locks(tmp.path()).hold_back_safe_gpu(Duration::from_secs(10)).err().unwrap();
    assert_eq!(hold().kind(), ErrorKind::Invalid);
    fs::remove_file(&first).unwrap();
    std::os::unix::fs::symlink("/dev/null", &first).unwrap();
    assert_eq!(hold().kind(), ErrorKind::Io);
    fs::remove_file(&first).unwrap();
    std::os::unix::fs::symlink("/", second.parent().unwrap()).unwrap();
    assert_eq!(hold().kind(), ErrorKind::Io);
    assert!(!Path::new("/").join(NAME).exists(), "no link is followed");
}
