//! The whole pipeline on the real kernel, without a GPU: real processes open and map substitutes
//! for the device nodes; the pipeline finds them, ends them and verifies the result.

mod findings;
mod other_users;
mod recheck;

use gpu_core::*;
use gpu_host::{FileJournal, LinuxHost, Roots, SystemClock};
use gpu_nvidia_driver::drivers;
use gpu_reaper::*;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The memory of each holder on the substitute device.
const EACH_MIB: u64 = 9000;

/// A directory with device files, the processes that hold them, and a device with memory in use
/// while they live.
struct Bench {
    dir: tempfile::TempDir,
    children: Vec<Child>,
    /// Programs used by the test, and processes started for it by others.
    tools: Vec<Child>,
    strangers: Vec<Pid>,
    host: Here,
    /// The processes that the driver lists.
    listed: Vec<(Pid, Bytes)>,
    /// The utilisation of the device and of each listed process.
    utilization: Reading<Percent>,
    /// The memory in use, if it does not depend on the children.
    used: Option<Bytes>,
}

/// This machine. In a container, PIDs would differ from the driver's; with this substitute device
/// they do not.
#[derive(Clone)]
struct Here {
    linux: LinuxHost,
    /// The time to add to the age of processes; without it, their age is unknown.
    age: Option<Duration>,
}

/// This machine's clock at four times its rate, so that full waits are shorter.
struct FastClock(SystemClock);

const RATE: u32 = 4;

impl Clock for FastClock {
    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic() * RATE
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration / RATE);
    }
}

impl Bench {
    fn new() -> Self {
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let dir = tempfile::Builder::new().permissions(open_to_all).tempdir().unwrap();
        let dev = dir.path().join("dev");
        std::fs::create_dir(&dev).unwrap();
        // LD_PRELOAD requires a shared library; this uses one of this program's libraries.
        std::fs::copy(library(), dev.join("nvidia0")).unwrap();
        for name in ["nvidiactl", "nvidia-uvm"] {
            std::fs::write(dev.join(name), "").unwrap();
        }
        // Other users must be able to open the devices too.
        for name in ["nvidia0", "nvidiactl", "nvidia-uvm"] {
            let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            std::fs::set_permissions(dev.join(name), open_to_all).unwrap();
        }
        let roots = Roots { proc: "/proc".into(), dev, sys: "/sys".into() };
        let host = Here { linux: LinuxHost::with_drivers(roots, drivers()), age: None };
        Bench {
            dir,
            children: Vec::new(),
            tools: Vec::new(),
            strangers: Vec::new(),
            host,
            listed: Vec::new(),
            utilization: Err(Absent::NotSupported),
            used: None,
        }
    }

    /// Starts a process that has all files open and the device mapped; `before` is a shell command
    /// that runs first.
    fn context(&mut self, before: &str) -> Pid {
        let pid = self.start(&format!(
            "{before} exec 3<>dev/nvidia0 4<>dev/nvidia-uvm 5<>dev/nvidiactl; \
             export LD_PRELOAD=$PWD/dev/nvidia0; exec sleep 600"
        ));
        self.wait_until_mapped(pid);
        pid
    }

    /// Waits until a newly executed program has loaded the device as a library.
    fn wait_until_mapped(&self, pid: Pid) {
        let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        assert!(eventually(|| maps().contains("nvidia0")), "process {pid} maps no device");
    }

    fn start(&mut self, script: &str) -> Pid {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(self.dir.path()).process_group(0);
        command.stdin(Stdio::null());
        let child = command.spawn().unwrap();
        let pid = Pid(child.id());
        self.children.push(child);
        self.wait_until_asleep(pid);
        pid
    }

    /// Waits until a process has executed its final program.
    fn wait_until_asleep(&self, pid: Pid) {
        let is_asleep = || self.host.process(pid).is_ok_and(|info| info.name == "sleep");
        assert!(eventually(is_asleep), "process {pid} did not execute its final program");
    }

    /// Starts a program and waits until it prints "ready".
    fn ready(&mut self, command: &mut Command) -> Pid {
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = [0; 5];
        let reported = child.stdout.as_mut().unwrap().read_exact(&mut output);
        let pid = Pid(child.id());
        self.children.push(child);
        assert!(reported.is_ok() && &output == b"ready", "{:?}", command.get_program());
        pid
    }

    fn lives(&self, pid: Pid) -> bool {
        self.host.process(pid).is_ok_and(|info| info.state != Ok(ProcessState::Zombie))
    }

    fn snapshot(&self) -> Snapshot {
        observe(self, &self.host, &SystemClock::new())
    }

    fn plan(&self, request: &Request<'_>) -> (Plan, Guard) {
        let mut snapshots = [self.snapshot(), self.snapshot()];
        look_up_processes(&self.host, &mut snapshots[1], &request.pids);
        let guard = Guard::new(&self.host, Vec::new()).unwrap();
        (plan(&snapshots, &diagnose(&snapshots), &guard, request), guard)
    }

    fn everyone(&self) -> Vec<ProcessInfo> {
        self.host.processes().unwrap().processes
    }

    fn execute(&self, plan: &Plan, guard: &Guard) -> (Report, String) {
        let path = self.dir.path().join("audit.jsonl");
        let (clock, journal) = (FastClock(SystemClock::new()), FileJournal::open(&path).unwrap());
        let ports = Ports { backend: self, host: &self.host, clock: &clock, journal: &journal };
        let report = execute(plan, guard, ports, &ActToken::user_confirmed(), &mut |_| {
            ControlFlow::Continue(())
        });
        (report, std::fs::read_to_string(path).unwrap())
    }

    fn holders(&self) -> usize {
        let files = self.host.device_files().unwrap();
        self.host.holders(&files).unwrap().holders.len()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for pid in &self.strangers {
            let process = self.host.open(*pid);
            let _ = process.and_then(|it| it.signal(Signal::Kill, &ActToken::user_confirmed()));
        }
        for child in self.tools.iter_mut().chain(&mut self.children) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits up to five seconds for a condition; returns whether it became true.
fn eventually(condition: impl Fn() -> bool) -> bool {
    (0..500).any(|_| {
        let is_so = condition();
        if !is_so {
            SystemClock::new().sleep(Duration::from_millis(10));
        }
        is_so
    })
}

/// A shared library that this program has mapped but `sleep` does not need.
fn library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let path = paths.find(|path| path.contains("libgcc_s")).expect("Rust programs map libgcc_s");
    Path::new(path).to_owned()
}

impl GpuBackend for Bench {
    fn origin(&self) -> Origin {
        self.host.origin()
    }
    fn driver(&self) -> Result<Driver> {
        Ok(Driver { version: Err(Absent::NotRecorded), cuda: Err(Absent::NotRecorded) })
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let mut id = DeviceId::from_index(0);
        id.node = Ok(gpu_nvidia_driver::node(0));
        Ok(vec![DeviceInfo::unknown(id)])
    }
    fn sample(&self, _: &DeviceId) -> Result<DeviceSample> {
        let living = self.children.iter().filter(|child| self.lives(Pid(child.id())));
        let living = living.count() as u64;
        let mut sample = DeviceSample::absent(Absent::NotSupported);
        let used = self.used.unwrap_or(Bytes::from_mib(25 + living * EACH_MIB));
        sample.memory.used = Ok(used);
        sample.memory.total = Ok(Bytes::from_mib(80_000));
        sample.utilization = self.utilization;
        Ok(sample)
    }
    fn processes(&self, _: &DeviceId) -> Result<Vec<DeviceProcess>> {
        let listed = self.listed.iter().map(|(pid, memory)| DeviceProcess {
            pid: *pid,
            kind: DeviceProcessKind::Compute,
            memory: Ok(*memory),
            utilization: self.utilization,
            name: Err(Absent::NotRecorded),
            gpu_instance: None,
            compute_instance: None,
        });
        Ok(listed.collect())
    }
    fn partitions(&self, _: &DeviceId) -> Result<Vec<Partition>> {
        Ok(Vec::new())
    }
    fn details(&self, _: &DeviceId, _: Groups) -> Result<DeviceDetails> {
        Ok(DeviceDetails::default())
    }
    fn events(&self, _: Duration) -> Result<Vec<DeviceEvent>> {
        Ok(Vec::new())
    }
    fn topology(&self) -> Result<Topology> {
        Err(Error::new(Absent::NotSupported, "read the topology"))
    }
    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("reset {device}")))
    }
}

impl ProcessTable for Here {
    fn origin(&self) -> Origin {
        self.linux.origin()
    }
    fn hostname(&self) -> Reading<String> {
        self.linux.hostname()
    }
    fn sees_host_pids(&self) -> Reading<bool> {
        Ok(true)
    }
    fn is_root(&self) -> Reading<bool> {
        self.linux.is_root()
    }
    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        let info = self.linux.process(pid)?;
        // A process that has just started is not certainly a ghost.
        let age = self.age.ok_or(Absent::NotRecorded);
        let started_at = age.and_then(|age| {
            let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            Ok(Timestamp(info.started_at?.0.saturating_sub(millis)))
        });
        Ok(ProcessInfo { started_at, ..info })
    }
    fn processes(&self) -> Result<ProcessList> {
        self.linux.processes()
    }
    fn own_ancestry(&self) -> Result<Vec<ProcessKey>> {
        self.linux.own_ancestry()
    }
    fn inherited_leases(&self) -> Vec<(LeaseId, u32)> {
        self.linux.inherited_leases()
    }
    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        self.linux.open(pid)
    }
}

impl DeviceFiles for Here {
    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        self.linux.device_files()
    }
    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        // A sandbox may hide its own processes from all others: none of them belongs to this test.
        Ok(HolderScan { unreadable: Unreadable::default(), ..self.linux.holders(files)? })
    }
}

impl DriverView for Here {
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }
    fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        Ok(Vec::new())
    }
}

/// Reports a skipped test, past the capture of the test harness.
fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

fn ghost(grace: u64) -> Request<'static> {
    Request { grace: Duration::from_secs(grace), ..Request::default() }
}

fn targets(plan: &Plan) -> Vec<Pid> {
    plan.targets.iter().map(|target| target.key.pid).collect()
}

#[test]
fn holder_is_found_ended_and_verified() {
    let mut bench = Bench::new();
    let pid = bench.context("");
    let monitor = bench.start("exec 3<>dev/nvidia0; exec sleep 600");
    // The device's memory counts every child; the monitor's share does not belong to the holder.
    let diagnosis = diagnose(&[bench.snapshot()]);
    assert_eq!(diagnosis.findings[0].kind, FindingKind::Ghost);
    assert_eq!(diagnosis.findings[0].confidence, Confidence::High);
    assert_eq!(diagnosis.cleared[0].process.pid, monitor);
    let (plan, guard) = bench.plan(&ghost(10));
    assert_eq!(targets(&plan), [pid]);
    let (report, audit) = bench.execute(&plan, &guard);
    assert_eq!(report.actions[0].signals, [Signal::Term]);
    assert!(matches!(report.actions[0].outcome, Outcome::Ended { .. }), "{report:?}");
    assert_eq!(report.memory[0].freed, Some(Bytes::from_mib(EACH_MIB)));
    assert!(!report.memory[0].came_back, "half of the unexplained memory is still in use");
    assert_eq!(audit.lines().count(), 2, "{audit}");
    assert_eq!(bench.holders(), 1, "the monitor still runs");
}

#[test]
fn process_ignoring_sigterm_is_killed_after_grace_period() {
    let mut bench = Bench::new();
    let pid = bench.context("trap '' TERM;");
    let (plan, guard) = bench.plan(&ghost(1));
    assert_eq!(targets(&plan), [pid]);
    let (report, audit) = bench.execute(&plan, &guard);
    assert_eq!(report.actions[0].signals, [Signal::Term, Signal::Kill]);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.memory[0].after, Ok(Bytes::from_mib(25)));
    let events: Vec<bool> =
        audit.lines().map(|line| line.contains(r#""event":"signal""#)).collect();
    assert_eq!(events, [true, true, false], "{audit}");
    assert_eq!(bench.holders(), 0);
}

#[test]
fn stopped_process_is_ended() {
    let mut bench = Bench::new();
    let pid = bench.context("");
    assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
    let (plan, guard) = bench.plan(&ghost(1));
    assert_eq!(plan.targets[0].process.state, Ok(ProcessState::Stopped));
    let (report, _) = bench.execute(&plan, &guard);
    assert_eq!(report.actions[0].signals, [Signal::Term, Signal::Kill]);
    assert!(report.is_complete(), "{report:?}");
}

#[test]
fn forking_process_is_ended_with_its_group() {
    let mut bench = Bench::new();
    let pid = bench.context("sleep 601 3<>dev/nvidia0 &");
    let (alone, _) = bench.plan(&ghost(5));
    assert_eq!(targets(&alone), [pid], "the child uses no memory: open, nothing mapped, no uvm");
    let everyone = bench.everyone();
    let (plan, guard) = bench.plan(&Request { scope: Scope::Group(&everyone), ..ghost(5) });
    assert_eq!(plan.targets.len(), 2);
    assert_eq!(plan.targets[1].on_account_of, pid);
    let (report, _) = bench.execute(&plan, &guard);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(bench.holders(), 0);
}

#[test]
fn process_releasing_device_after_plan_is_spared() {
    let mut bench = Bench::new();
    let pid = bench.start("exec 3<>dev/nvidia0 4<>dev/nvidia-uvm; exec sleep 600");
    let request = Request { pids: vec![pid], ..ghost(5) };
    let (plan, guard) = bench.plan(&request);
    assert_eq!(targets(&plan), [pid]);
    // This is the case that `execute` must detect: the same process without the device.
    std::fs::remove_file(bench.dir.path().join("dev/nvidia0")).unwrap();
    std::fs::write(bench.dir.path().join("dev/nvidia0"), "another device").unwrap();
    let (report, audit) = bench.execute(&plan, &guard);
    assert_eq!(report.actions[0].outcome, Outcome::LetGo);
    assert_eq!(report.actions[0].signals, []);
    assert!(!audit.contains("SIG"), "{audit}");
}

#[test]
fn own_ancestors_are_never_targets() {
    let bench = Bench::new();
    let own: Vec<Pid> = bench.host.own_ancestry().unwrap().iter().map(|key| key.pid).collect();
    assert!(own.contains(&Pid(std::process::id())));
    let (plan, _) = bench.plan(&Request { pids: own.clone(), ..ghost(5) });
    assert_eq!(plan.targets, []);
    assert_eq!(plan.refused.len(), own.len());
}

/// Copies a program in a child process, because a copy that this process has open for writing
/// cannot be executed while a newly forked child of any test holds the inherited descriptor
/// (`ETXTBSY`).
fn copy_program(from: &std::path::Path, to: &std::path::Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp can be run");
    assert!(copied.success());
}
