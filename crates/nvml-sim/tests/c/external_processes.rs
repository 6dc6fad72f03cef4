//! Real processes that register themselves on the devices.

use crate::fixture::{Stage, session};
use crate::placeholders::{Idle, shown, soon};
use gpu_sim::{ExternalProcess, Session, Use};
use nvml_sim::start_of;
use nvml_wrapper_sys::bindings::nvmlUtilization_t;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A machine with free devices and advancing time.
fn live() -> Session {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let began_ns = (seconds * 1e9) as u64;
    Session { live: true, frozen_at_ms: None, began_ns, ..session("labbox") }
}

/// Serves a session that permits external processes.
fn stage(session: Session) -> Stage {
    let stage = Stage::begun(session);
    ExternalProcess::admit(stage.dir.path()).unwrap();
    let files = stage.dir.path().join(Session::DEVICE_FILES);
    fs::create_dir(&files).unwrap();
    for name in ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm"] {
        fs::write(files.join(name), [0; 4096]).unwrap();
    }
    stage
}

fn external(idle: &Idle, gpu: u32, mib: u64) -> ExternalProcess {
    let uses = vec![Use { gpu, mig: None, mib, utilization_percent: None }];
    ExternalProcess { pid: idle.pid(), start_ticks: idle.start_ticks(), uses }
}

fn named(stage: &Stage) -> PathBuf {
    stage.dir.path().join(ExternalProcess::DIR)
}

/// Returns the command of an external process.
fn program(stage: &Stage, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvml-sim-process"));
    command.args(words).env(Session::VARIABLE, stage.dir.path()).stdin(Stdio::null());
    command.env_remove("CUDA_VISIBLE_DEVICES");
    command
}

/// A child process that ends with the test at the latest.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        Running(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn external_process_is_listed_while_alive_and_memory_is_freed() {
    let stage = stage(live());
    assert_eq!(shown(&stage, 1), (vec![], 4));
    let (mut one, two) = (Idle::new(), Idle::new());
    external(&one, 1, 1000).enter(stage.dir.path()).unwrap();
    soon("it is not listed", || shown(&stage, 1) == (vec![one.pid()], 1004));
    external(&two, 1, 500).enter(stage.dir.path()).unwrap();
    let both = {
        let mut both = vec![one.pid(), two.pid()];
        both.sort();
        both
    };
    soon("two on one device", || shown(&stage, 1) == (both.clone(), 1504));
    one.kill();
    soon("it has ended and is listed", || shown(&stage, 1).0 == [two.pid()]);
    soon("its memory is not back", || shown(&stage, 1).1 == 504);
    external(&two, 1, 500).leave(stage.dir.path()).unwrap();
    soon("who left is still listed", || shown(&stage, 1) == (vec![], 4));
}

#[test]
fn later_reader_sees_external_process() {
    let idle = Idle::new();
    let dir = tempfile::tempdir().unwrap();
    live().write(dir.path()).unwrap();
    ExternalProcess::admit(dir.path()).unwrap();
    external(&idle, 1, 1000).enter(dir.path()).unwrap();
    let stage = Stage::at(dir);
    assert_eq!(stage.init(), 0);
    assert_eq!(shown(&stage, 1), (vec![idle.pid()], 1004), "in the first snapshot");
}

#[test]
fn memory_is_capped_and_oldest_process_is_served_first() {
    let stage = stage(live());
    let (one, two) = (Idle::new(), Idle::new());
    let mut pids = vec![one.pid(), two.pid()];
    pids.sort();
    for idle in [&one, &two] {
        external(idle, 1, 60_000).enter(stage.dir.path()).unwrap();
    }
    soon("all memory is used", || shown(&stage, 1) == (pids.clone(), 81_920));
}

#[test]
fn simulated_pid_yields_to_real_process() {
    // On each device, the machine has a process with this PID, running or not.
    let idle = Idle::new();
    let dir = tempfile::tempdir().unwrap();
    let machine = dir.path().join("machine.toml");
    let text = format!(
        "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
         [[gpu]]\nindex = 0\nmemory_total_mib = 1000\n\
         [[process]]\npid = {0}\nname = 'a'\nmemory = [{{ gpu = 0, mib = 10 }}]\n",
        idle.pid()
    );
    fs::write(&machine, text).unwrap();
    let stage = stage(Session { machine: dir.path().to_owned(), ..live() });
    external(&idle, 0, 20).enter(stage.dir.path()).unwrap();
    soon("both are listed", || {
        let (pids, used) = shown(&stage, 0);
        pids.len() == 2 && pids[0] == idle.pid() && pids[1] >= 1 << 22 && used == 30
    });
}

#[test]
fn registration_without_live_process_is_ignored() {
    let stage = stage(live());
    let (mut gone, idle) = (Idle::new(), Idle::new());
    let dir = stage.dir.path();
    let was = external(&gone, 1, 100);
    gone.kill();
    was.enter(dir).unwrap();
    let good = external(&idle, 1, 100);
    // The PID was reused: the current process started at another time.
    ExternalProcess { start_ticks: good.start_ticks - 1, ..good.clone() }.enter(dir).unwrap();
    let twice = ExternalProcess { uses: vec![good.uses[0], good.uses[0]], ..good.clone() };
    let none = ExternalProcess { uses: Vec::new(), ..good.clone() };
    let busy = Use { utilization_percent: Some(101), ..good.uses[0] };
    let busy = ExternalProcess { uses: vec![busy], ..good.clone() };
    for wrong in [twice, none, busy] {
        wrong.enter(dir).unwrap();
        assert_eq!(ExternalProcess::named(dir).unwrap().iter().filter(|w| **w == wrong).count(), 0);
        wrong.leave(dir).unwrap();
    }

    let file = named(&stage).join(format!("{}-{}", good.pid, good.start_ticks));
    good.enter(dir).unwrap();
    let json = fs::read(&file).unwrap();
    let other_name = named(&stage).join("1-1");
    fs::write(&other_name, &json).unwrap();
    for bytes in [&b""[..], b"{}", b"\x7fELF", &vec![b' '; 1 << 20], &[&json[..], b"x"].concat()] {
        fs::write(&file, bytes).unwrap();
        assert!(!ExternalProcess::named(dir).unwrap().contains(&good), "{bytes:?}");
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    fs::create_dir(named(&stage).join("directory")).unwrap();
    assert!(!ExternalProcess::named(dir).unwrap().contains(&good));
    fs::remove_dir(&file).unwrap();
    symlink(&other_name, &file).unwrap();
    assert!(!ExternalProcess::named(dir).unwrap().contains(&good), "a link");
    fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(
        made.success() && !ExternalProcess::named(dir).unwrap().contains(&good),
        "the FIFO has no writer"
    );
    fs::remove_file(&file).unwrap();
    fs::write(&file, &json).unwrap();
    for (mode, is_there) in [(0o622, false), (0o600, true)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        assert_eq!(ExternalProcess::named(dir).unwrap().contains(&good), is_there, "{mode:o}");
    }
    soon("only the valid registration is listed", || shown(&stage, 1) == (vec![good.pid], 104));

    fs::set_permissions(named(&stage), Permissions::from_mode(0o777)).unwrap();
    assert!(ExternalProcess::named(dir).is_err(), "others may write into it");
    soon("no registration is trusted", || shown(&stage, 1).0.is_empty());
}

#[test]
fn use_of_missing_device_is_ignored() {
    let stage = stage(live());
    let idle = Idle::new();
    let mut one = external(&idle, 1, 100);
    one.uses.push(Use { gpu: 99, ..one.uses[0] });
    one.enter(stage.dir.path()).unwrap();
    soon("it is on the other", || shown(&stage, 1) == (vec![idle.pid()], 104));
}

#[test]
fn external_process_is_refused_outside_live_session() {
    let stage = stage(session("labbox"));
    let idle = Idle::new();
    external(&idle, 1, 100).enter(stage.dir.path()).unwrap();
    assert_eq!(shown(&stage, 1), (vec![], 4));
    let Output { status, stderr, .. } = program(&stage, &["--use", "1:5"]).output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{message}");
    assert!(message.ends_with("run inside gpuws sim MACHINE --live\n"), "{message}");
    let mut outside = program(&stage, &["--use", "1:5"]);
    let Output { status, stderr, .. } = outside.env_remove(Session::VARIABLE).output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{message}");
    assert!(message.ends_with("run inside gpuws sim MACHINE --live\n"), "{message}");
}

/// Returns the names of the files that a process has open or mapped in the session.
fn held(stage: &Stage, pid: u32) -> Vec<String> {
    let files = stage.dir.path().join(Session::DEVICE_FILES);
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    let inside = |path: PathBuf| Some(path.strip_prefix(&files).ok()?.display().to_string());
    let mut names: Vec<String> = links.filter_map(inside).collect();
    names.sort();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    for name in &names {
        let path = files.join(name).display().to_string();
        assert!(maps.lines().any(|line| line.ends_with(&path)), "{name} is mapped: {maps}");
    }
    names
}

#[test]
fn program_registers_name_files_and_utilization() {
    let stage = stage(live());
    let words = ["--use", "1:1000,3:5", "--load", "40", "--name", "trainer"];
    let mut program = Running::start(program(&stage, &words));
    let pid = program.0.id();
    soon("it is on both", || shown(&stage, 1).0 == [pid] && shown(&stage, 3).0 == [pid]);
    assert_eq!((shown(&stage, 1).1, shown(&stage, 3).1), (1004, 15_779), "next to a ghost");
    assert_eq!(held(&stage, pid), ["nvidia-uvm", "nvidia1", "nvidia3", "nvidiactl"]);
    let device = stage.device(1);
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "trainer\n");
    soon("it computes", || {
        let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
        // SAFETY: the value outlives the call.
        let code = unsafe { stage.nvml.nvmlDeviceGetUtilizationRates(device, &mut rates) };
        code == 0 && rates.gpu > 20
    });
    program.0.kill().unwrap();
    program.0.wait().unwrap();
    soon("it was killed", || {
        shown(&stage, 1) == (vec![], 4) && shown(&stage, 3) == (vec![], 15_774)
    });
    let left = || fs::read_dir(named(&stage)).unwrap().count();
    assert_eq!(left(), 1, "what it could not remove");
    let ended = self::program(&stage, &["--use", "1:1", "--", "true"]).status().unwrap();
    assert!(ended.success() && left() == 0, "the next one does, and itself leaves nothing");
}

#[test]
fn command_uses_devices_while_running_and_exit_code_is_propagated() {
    let stage = stage(live());
    let (start, end) = (stage.dir.path().join("start"), stage.dir.path().join("end"));
    let script = format!(
        "touch {}; while ! [ -e {} ]; do sleep 0.02; done; exit 7",
        start.display(),
        end.display()
    );
    let mut visible = program(&stage, &["--use", "visible:10", "--", "sh", "-c", &script]);
    let mut running = Running::start({
        visible.env("CUDA_VISIBLE_DEVICES", "3,1,9");
        visible
    });
    soon("the command runs", || start.exists());
    let pid = running.0.id();
    soon("it is on those it sees", || shown(&stage, 3).0 == [pid] && shown(&stage, 1).0 == [pid]);
    fs::write(&end, "").unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(7));
    soon("it has left", || shown(&stage, 3).0.is_empty() && shown(&stage, 1).0.is_empty());

    for (value, words, why) in [
        (Some(""), &["--use", "visible:1"][..], "CUDA_VISIBLE_DEVICES makes no GPU visible"),
        (Some("1,1"), &["--use", "visible:1"], "CUDA_VISIBLE_DEVICES makes no GPU visible"),
        (Some("MIG-a"), &["--use", "visible:1"], "CUDA_VISIBLE_DEVICES makes no GPU visible"),
        (None, &["--use", "4:1"], "the machine has no such device"),
        (None, &["--use", "1:1,visible:1"], "use GPU 1: it is listed twice"),
        (None, &["--use", "1:1", "--", "/nobody/has/this"], "failed to run '/nobody/has/this'"),
    ] {
        let mut command = program(&stage, words);
        value.map(|value| command.env("CUDA_VISIBLE_DEVICES", value));
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && message.contains(why), "{words:?}: {message}");
    }
    assert_eq!(fs::read_dir(named(&stage)).unwrap().count(), 0);
}

#[test]
fn program_ends_with_session() {
    let stage = stage(live());
    let mut forever = Running::start(program(&stage, &["--use", "1:1"]));
    let mut brief = Running::start(program(&stage, &["--use", "1:1", "--seconds", "1"]));
    let pids = |running: &[&Running]| running.iter().all(|one| start_of(one.0.id()).is_some());
    soon("both are there", || shown(&stage, 1).0.len() == 2 || !pids(&[&forever, &brief]));
    assert_eq!(brief.0.wait().unwrap().code(), Some(0));
    fs::remove_file(Path::new(stage.dir.path()).join(Session::FILE)).unwrap();
    assert_eq!(forever.0.wait().unwrap().code(), Some(0));
}

/// Returns whether the other end of a pipe is closed in every process.
fn is_closed(pipe: &impl std::os::fd::AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut end = [PollFd::new(pipe, PollFlags::empty())];
    poll(&mut end, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    end[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[test]
fn program_ends_with_killed_session_and_closes_inherited_pipes() {
    let stage = stage(live());
    let lock = fs::File::create(stage.dir.path().join(Session::ALIVE)).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    // As under `nohup`, with the lock's descriptor inherited as from `gpuws sim`.
    let script = "trap '' HUP INT QUIT; exec \"$0\" --use 1:1000";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_nvml-sim-process")]);
    command.env(Session::VARIABLE, stage.dir.path()).env_remove("CUDA_VISIBLE_DEVICES");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Only this child inherits it: a child of a concurrent test would keep the session alive.
    let inherited = lock.try_clone().unwrap();
    let inherit = move || Ok(rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty())?);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(inherit) };
    let mut program = Running::start(command);
    let pid = program.0.id();
    soon("it is listed", || shown(&stage, 1).0 == [pid]);
    let [stdout, stderr] = [0, 1].map(|number| match number {
        0 => std::os::fd::OwnedFd::from(program.0.stdout.take().unwrap()),
        _ => program.0.stderr.take().unwrap().into(),
    });
    let stdin = program.0.stdin.take().unwrap();
    soon("it keeps no pipe open", || is_closed(&stdout) && is_closed(&stderr) && is_closed(&stdin));
    assert!(program.0.try_wait().unwrap().is_none(), "its session lives");
    // The kernel does this when the session is killed; the directory remains.
    drop(lock);
    soon("it ends with its session", || shown(&stage, 1) == (vec![], 4));
    assert!(program.0.wait().unwrap().success());
}
