//! Machines made of directories: a fake /proc shows what this machine cannot, and malformed text.

use gpu_core::{
    Absent, DeviceFiles, ErrorKind, FileId, Pid, ProcessFault, ProcessState, ProcessTable,
    StartTime, Timestamp, Workload, WorkloadKind,
};
use gpu_host::{LinuxHost, Roots, resolve};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// A directory that imitates `/proc`.
struct MadeProc(TempDir);

impl MadeProc {
    fn new() -> Self {
        MadeProc(tempfile::tempdir().unwrap())
    }

    /// Creates a file below the root, with its parent directories.
    fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.below(path);
        fs::write(path, text).unwrap();
        self
    }

    fn link(&self, path: &str, target: impl AsRef<std::path::Path>) -> &Self {
        symlink(target, self.below(path)).unwrap();
        self
    }

    fn below(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn host(&self) -> LinuxHost {
        let proc = self.0.path().to_owned();
        LinuxHost::new(Roots { proc, dev: "/nowhere".into(), sys: "/nowhere".into() })
    }
}

/// `stat` with the relevant fields; the others as in a sleeping process.
fn stat(pid: u32, name: &str, state: char, parent: u32, flags: u32, threads: u32) -> String {
    format!(
        "{pid} ({name}) {state} {parent} {pid} 77 0 -1 {flags} 1 0 0 0 200 50 0 0 20 0 {threads} \
         0 4711 2301952 217 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 \
         0 0 0 0 0\n"
    )
}

fn status(pid: u32, uid: u32, nspid: &str) -> String {
    format!(
        "Name:\tx\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t1\nTracerPid:\t0\n\
         Uid:\t0\t{uid}\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t\nNSpid:\t{nspid}\n\
         Threads:\t1\nSigQ:\t0/1\nSigPnd:\t0\nShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\n\
         CapInh:\t0\nCapPrm:\t0\nCapEff:\t0\n"
    )
}

const PF_KTHREAD: u32 = 0x0020_0000;

/// How many lines of 19 bytes a buffer of 32 KiB holds: its end splits the next line.
const LINES_OF_BUFFER: usize = 1_724;

#[test]
fn container_process_is_described() {
    let made = MadeProc::new();
    let container = "e90e34656806".repeat(6)[..64].to_owned();
    made.file("stat", "cpu  1 2 3\nintr 7 0\nbtime 1700000000\nprocesses 9\n")
        .file("100562/stat", stat(100_562, "t2t-decoder", 'S', 67_193, 0x0040_0000, 12))
        .file("100562/status", status(100_562, 0, "100562\t17"))
        .file("100562/cgroup", format!("0::/system.slice/docker-{container}.scope\n"))
        .file("100562/cmdline", "python\0t2t-decoder\0--name=\0");
    let process = made.host().process(Pid(100_562)).unwrap();
    assert_eq!(process.key.start, Some(StartTime(4711)));
    assert_eq!(process.name, "t2t-decoder");
    assert_eq!(
        process.command_line.unwrap()[..],
        ["python", "t2t-decoder", "--name="].map(str::to_owned)
    );
    assert_eq!(process.user.as_deref(), Ok("root"), "the effective user");
    assert_eq!(process.parent, Ok(Pid(67_193)));
    assert_eq!((process.group, process.session), (Ok(Pid(100_562)), Ok(Pid(77))));
    assert_eq!((process.state, process.live_threads), (Ok(ProcessState::Sleeping), Ok(12)));
    assert_eq!(process.started_at, Ok(Timestamp(1_700_000_047_110)));
    assert_eq!(process.cpu_time, Ok(Duration::from_millis(2500)));
    assert_eq!(process.namespace_pids, Ok(vec![Pid(100_562), Pid(17)]));
    let cgroup = format!("/system.slice/docker-{container}.scope");
    assert_eq!(process.cgroup.as_ref(), Ok(&cgroup));
    let workload = Workload { kind: WorkloadKind::Container, id: container, cgroup };
    assert_eq!(process.workload, Some(Box::new(workload)));
    assert!(!process.kernel_thread);
}

#[test]
fn zombies_and_kernel_threads_are_described() {
    let made = MadeProc::new();
    made.file("2/stat", stat(2, "kthreadd", 'S', 0, PF_KTHREAD | 0x8040, 1))
        .file("7/stat", stat(7, "defunct", 'Z', 1, 0x0040_0004, 1))
        .file("8/stat", stat(8, "half-dead", 'Z', 1, 0x0040_0004, 4))
        .file("9/stat", stat(9, "stuck", 'D', 1, 0x0040_0000, 1))
        .file("10/stat", stat(10, "traced", 't', 1, 0x0040_0000, 1));
    let list = made.host().processes().unwrap();
    assert_eq!(list.unreadable.total(), 0);
    let rows: Vec<_> = list
        .processes
        .iter()
        .map(|p| (p.key.pid.0, p.kernel_thread, p.state.unwrap(), p.live_threads.unwrap()))
        .collect();
    assert_eq!(
        rows,
        [
            (2, true, ProcessState::Sleeping, 1),
            (7, false, ProcessState::Zombie, 0),
            (8, false, ProcessState::Zombie, 3),
            (9, false, ProcessState::Uninterruptible, 1),
            (10, false, ProcessState::Stopped, 1),
        ]
    );
}

#[test]
fn unreadable_fields_are_absent_with_reason() {
    let made = MadeProc::new();
    made.file("5/stat", stat(5, "bare", 'S', 1, 0, 1)).file("5/status", "Name:\tx\n");
    let process = made.host().process(Pid(5)).unwrap();
    assert_eq!(process.uid, Err(Absent::Failed), "status lacks the users");
    assert_eq!(process.user, Err(Absent::Failed));
    assert_eq!(process.cgroup, Err(Absent::NotFound));
    assert_eq!(process.command_line, Err(Absent::NotFound));
    assert_eq!(process.started_at, Err(Absent::NotFound), "there is no btime");
    assert_eq!(process.workload, None);
}

#[test]
fn malformed_processes_are_counted() {
    let made = MadeProc::new();
    for (pid, text) in [
        (11, "(x) S 1\n"),
        (12, "12 (x)"),
        (13, "13 )x( S 1 1 1\n"),
        (14, "14 (x) S 1 2\n"),
        (15, "\u{e9}(x)\u{e9}S"),
    ] {
        made.file(&format!("{pid}/stat"), text);
    }
    made.file("16/stat", "").file("17/stat", stat(17, "fine", 'S', 1, 0, 1));
    let list = made.host().processes().unwrap();
    assert_eq!(list.processes.len(), 1);
    assert_eq!(list.unreadable.0.get(&Absent::Failed), Some(&5));
    assert_eq!(list.unreadable.total(), 5, "an empty one is gone");
    assert_eq!(made.host().process(Pid(14)).unwrap_err().kind(), ErrorKind::Io);
    let gone = ErrorKind::Process(ProcessFault::Gone);
    assert_eq!(made.host().process(Pid(99)).unwrap_err().kind(), gone);
}

#[test]
fn holders_are_found_by_descriptors_maps_and_threads() {
    let made = MadeProc::new();
    let stand_in = made.below("dev/nvidia0");
    fs::write(&stand_in, "").unwrap();
    let file = resolve(&stand_in).unwrap();
    let Ok(FileId::Inode { dev, ino }) = file.id else { panic!("a plain file has an inode") };
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let line = format!("7f00-7f01 rw-s 00000000 {major:02x}:{minor:02x} {ino}    /nowhere\n");

    made.file("20/stat", stat(20, "open", 'S', 1, 0, 1))
        .link("20/fd/0", "/dev/null")
        .link("20/fd/33", &stand_in)
        .link("20/task/20/fd/33", &stand_in)
        .file("20/maps", "");
    made.file("21/stat", stat(21, "mapped", 'S', 1, 0, 1))
        .link("21/fd/0", "/dev/null")
        .link("21/task/21/fd/0", "/dev/null")
        .file("21/maps", format!("{}{line}", "not a line of maps\n".repeat(LINES_OF_BUFFER)));
    made.file("22/stat", stat(22, "half-dead", 'Z', 1, 0, 2)).file("22/maps", "");
    fs::create_dir_all(made.below("22/fd/x").parent().unwrap()).unwrap();
    made.link("22/task/23/fd/3", &stand_in).file("22/task/23/maps", &line);
    fs::create_dir_all(made.below("22/task/22/fd/x").parent().unwrap()).unwrap();
    made.file("24/stat", stat(24, "other", 'S', 1, 0, 1))
        .link("24/fd/0", "/dev/null")
        .link("24/task/24/fd/0", "/dev/null")
        .file("24/maps", "7f00-7f01 rw-s 00000000 00:00 0 [heap]\n");

    let scan = made.host().holders(&[file]).unwrap();
    let rows: Vec<_> = scan
        .holders
        .iter()
        .map(|h| (h.process.pid.0, h.held[0].access.to_string(), h.through_thread))
        .collect();
    assert_eq!(
        rows,
        [
            (20, "F....".to_owned(), None),
            (21, "....m".to_owned(), None),
            (22, "F...m".to_owned(), Some(Pid(23))),
        ]
    );
    assert_eq!(scan.holders[0].held[0].descriptors, [33]);
    assert_eq!(scan.unreadable.total(), 0);
}

#[test]
fn overlong_maps_line_is_skipped() {
    let made = MadeProc::new();
    let stand_in = made.below("dev/nvidia0");
    fs::write(&stand_in, "").unwrap();
    let file = resolve(&stand_in).unwrap();
    let Ok(FileId::Inode { dev, ino }) = file.id else { panic!("a plain file has an inode") };
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    made.file("30/stat", stat(30, "long", 'S', 1, 0, 1))
        .link("30/fd/0", "/dev/null")
        .link("30/task/30/fd/0", "/dev/null")
        .file(
            "30/maps",
            format!(
                "7f00-7f01 rw-s 00000000 08:01 5 /{}\n7f01-7f02 r--s 00000000 \
                 {major:x}:{minor:x} {ino} /nowhere\n",
                "x".repeat(1 << 20)
            ),
        );
    assert_eq!(made.host().holders(&[file]).unwrap().holders.len(), 1);
}

#[test]
fn own_ancestry_is_complete_or_an_error() {
    let made = MadeProc::new();
    made.link("self", "40")
        .file("40/stat", stat(40, "a", 'S', 41, 0, 1))
        .file("41/stat", stat(41, "b", 'S', 1, 0, 1));
    let gone = ErrorKind::Process(ProcessFault::Gone);
    assert_eq!(made.host().own_ancestry().unwrap_err().kind(), gone, "process 1 is missing");
    made.file("1/stat", stat(1, "init", 'S', 0, 0, 1));
    let line: Vec<_> = made.host().own_ancestry().unwrap().iter().map(|key| key.pid.0).collect();
    assert_eq!(line, [40, 41, 1]);
    made.file("1/stat", stat(1, "circle", 'S', 40, 0, 1));
    assert_eq!(made.host().own_ancestry().unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn initial_pid_namespace_is_recognised_by_inode() {
    let made = MadeProc::new();
    assert_eq!(made.host().sees_host_pids(), Err(Absent::NotFound));
    made.link("self/ns/pid", "pid:[4026532201]");
    assert_eq!(made.host().sees_host_pids(), Ok(false));
    made.link("1/ns/pid", "pid:[4026531836]");
    assert_eq!(made.host().sees_host_pids(), Ok(true), "the /proc shown is the first one's");
}

#[test]
fn inherited_leases_count_below_the_initial_pid_namespace() {
    let made = MadeProc::new();
    let kept = made.below("leases/kept-mine");
    fs::write(&kept, "").unwrap();
    let locked = |how: &str| format!("pos:\t0\nlock:\t1: {how} -1 00:1b:5 0 EOF\n");
    made.link("self/fd/5", &kept);
    let ids = || -> Vec<String> {
        made.host().inherited_leases().iter().map(|(id, _)| id.to_string()).collect()
    };
    assert_eq!(ids(), [""; 0], "its lock is not known");
    for (how, counts) in [
        ("OFDLCK  ADVISORY  WRITE", true),
        ("OFDLCK  ADVISORY  READ", false),
        ("POSIX  ADVISORY  WRITE", false),
        ("FLOCK  ADVISORY  WRITE", false),
    ] {
        made.file("self/fdinfo/5", locked(how));
        assert_eq!(!ids().is_empty(), counts, "{how}");
    }
    made.file("self/fdinfo/5", locked("OFDLCK  ADVISORY  WRITE"));
    for (namespace, expected) in [("pid:[4026532201]", &["mine"][..]), ("pid:[4026531836]", &[])] {
        made.link("self/ns/pid", namespace);
        assert_eq!(ids(), expected, "{namespace}");
        fs::remove_file(made.below("self/ns/pid")).unwrap();
    }
}

#[test]
fn empty_proc_yields_no_data() {
    let made = MadeProc::new();
    assert_eq!(made.host().hostname(), Err(Absent::NotFound));
    assert_eq!(made.host().processes().unwrap(), Default::default());
    assert_eq!(made.host().device_files().unwrap_err().kind(), ErrorKind::Io);
    let no_such_dir = LinuxHost::new(Roots {
        proc: "/nowhere".into(),
        dev: "/nowhere".into(),
        sys: "/nowhere".into(),
    });
    let file = resolve("/dev/null").unwrap();
    let error = no_such_dir.holders(&[file]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(error.to_string(), "open '/nowhere'");
}

#[test]
fn malformed_stat_is_rejected() {
    for stat in
        [" () 0", "() S 1", "1 ()", "1 ) S (", "\u{2003} (a) S 1", "1 (a) \u{a0}", "1 (a)  "]
    {
        let made = MadeProc::new();
        made.file("50/stat", stat);
        assert!(made.host().process(Pid(50)).is_err(), "{stat:?}");
    }
}

proptest! {
    /// Whatever the files of a process contain, it is read or refused, and the walk completes.
    #[test]
    fn arbitrary_proc_contents_never_panic(
        stat_text in "([0-9]{1,3} )?[(]?[ -~é\n]{0,12}[)]?( [A-Za-zé])?( -?[0-9]{1,20}){0,60}",
        status_text in proptest::collection::vec(any::<u8>(), 0..400),
        lines in "([0-9a-f]{0,17}-?[0-9a-f]{0,17} .{0,5} .{0,5} [0-9a-f:]{0,9} [0-9]{0,21} .{0,9}\n){0,5}",
        cgroup in "([0-9]{0,11}:[a-z,=]{0,9}:(/[a-z0-9:_.-]{0,20}){0,5}\n){0,3}",
        cmdline in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let made = MadeProc::new();
        made.file("50/stat", &stat_text)
            .file("50/status", &status_text)
            .file("50/maps", &lines)
            .file("50/cgroup", &cgroup)
            .file("50/cmdline", &cmdline)
            .file("stat", &cmdline)
            .link("50/fd/0", "/dev/null");
        let file = resolve("/dev/null").unwrap();
        let _ = made.host().process(Pid(50));
        let scan = made.host().holders(&[file]).unwrap();
        prop_assert!(scan.holders.len() + scan.unreadable.total() as usize <= 1);
    }
}
