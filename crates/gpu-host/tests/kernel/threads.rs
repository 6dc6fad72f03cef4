//! Processes whose first thread does not represent all threads.

use crate::child::{Sleeper, compile, eventually};
use crate::{host, skip};
use gpu_core::{ActToken, DeviceFiles, Pid, ProcessState, ProcessTable, Signal};
use gpu_host::resolve;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Opens the file named by the argument, then ends its first thread and lives on in another.
pub(crate) const ZOMBIE: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
static void *live(void *unused) {
    for (;;) pause();
    return unused;
}
int main(int count, char **arguments) {
    int file = open(arguments[1], O_RDWR);
    if (count != 2 || file < 0) return 1;
    if (mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED) return 2;
    pthread_t thread;
    if (pthread_create(&thread, 0, live, 0)) return 3;
    puts("ready");
    fflush(stdout);
    pthread_exit(0);
}
"#;

#[test]
fn zombie_leader_with_live_threads_is_a_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nvidia0");
    std::fs::write(&path, "stand-in").unwrap();
    let Some(program) = compile(dir.path(), ZOMBIE) else {
        return skip("zombie_leader_with_live_threads_is_a_holder", "there is no C compiler");
    };
    let mut sleeper = Sleeper::ready(Command::new(program).arg(&path));
    let pid = sleeper.pid();
    eventually(|| host().process(pid).unwrap().state == Ok(ProcessState::Zombie));
    assert_eq!(host().process(pid).unwrap().live_threads, Ok(1));

    let files = [resolve(&path).unwrap()];
    let scan = host().holders(&files).unwrap();
    let holder = scan.holders.iter().find(|holder| holder.process.pid == pid).unwrap();
    assert_eq!(holder.held[0].access.to_string(), "F...m");
    let thread = holder.through_thread.unwrap();
    assert_ne!(thread, pid);
    assert!(Path::new(&format!("/proc/{pid}/task/{thread}")).exists());

    let handle = host().open(pid).unwrap();
    assert!(!handle.has_exited().unwrap(), "its threads live");
    assert_eq!(handle.info().unwrap().state, Ok(ProcessState::Zombie));
    assert_eq!(handle.held(&files).unwrap(), holder.held);
    handle.signal(Signal::Term, &ActToken::user_confirmed()).unwrap();
    eventually(|| handle.has_exited().unwrap());
    assert!(host().holders(&files).unwrap().holders.is_empty());
    sleeper.reap();
}

/// Opens the file named by the argument in a thread with its own descriptor table.
pub(crate) const UNSHARED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
static void *live(void *path) {
    if (unshare(CLONE_FILES) || open(path, O_RDONLY) < 0) return 0;
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
int main(int count, char **arguments) {
    pthread_t thread;
    if (count != 2 || pthread_create(&thread, 0, live, arguments[1])) return 1;
    pthread_join(thread, 0);
    return 2;
}
"#;

#[test]
fn thread_with_own_descriptor_table_is_scanned() {
    const TEST: &str = "thread_with_own_descriptor_table_is_scanned";
    if std::fs::metadata("/proc/self/fd").unwrap().size() == 0 {
        return skip(TEST, "the kernel (before 6.2) does not tell how many a thread has");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nvidia0");
    std::fs::write(&path, "stand-in").unwrap();
    let Some(program) = compile(dir.path(), UNSHARED) else {
        return skip(TEST, "there is no C compiler");
    };
    let sleeper = Sleeper::ready(Command::new(program).arg(&path));
    let scan = host().holders(&[resolve(&path).unwrap()]).unwrap();
    let found: Vec<_> = scan.holders.iter().map(|holder| holder.process.pid).collect();
    assert_eq!(found, [sleeper.pid()]);
    assert_eq!(scan.holders[0].through_thread, None, "the first thread lives");
    assert_eq!(host().process(sleeper.pid()).unwrap().live_threads, Ok(2));
}

#[test]
fn thread_id_is_not_a_process() {
    let thread = std::thread::spawn(|| {
        let tid = Pid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        assert_ne!(tid, Pid(std::process::id()));
        let gone = gpu_core::ErrorKind::Process(gpu_core::ProcessFault::Gone);
        assert_eq!(host().process(tid).unwrap_err().kind(), gone);
        assert_eq!(host().open(tid).err().unwrap().kind(), gone);
    });
    thread.join().unwrap();
}
