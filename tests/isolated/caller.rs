//! A program that runs parts of itself in isolation: caller, supervisor and job in one program.
//!
//! Arguments: the scenario, and a directory with a machine, for leases and notes. The devices are
//! simulated; the processes are real. `ISOLATED_DIR` passes the directory to supervisor and job,
//! which have other arguments.

use gpu_core::{
    ActToken, Clock, DeviceFile, DeviceFiles, DeviceInfo, DriverMessage, DriverView, EntryKind,
    HolderScan, Launch, LeaseId, LeaseStore, Origin, Pid, ProcessHandle, ProcessInfo, ProcessKey,
    ProcessList, ProcessTable, Reading, Result,
};
use gpu_host::supervise::{LinuxLauncher, Reexec, ReexecRole, Successor, SupervisorOrder};
use gpu_host::{
    FileJournal, FileLeaseStore, LeaseLocation, LinuxHost, Roots, SafeGpuFiles, SystemClock,
};
use gpu_sim::Simulation;
use gpu_steward::{
    EntryPoint, Isolated, IsolatedError, Outcome, Ports, RESULT, serve_entry, supervise, take_over,
};
use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The argument that makes this program run until it is killed.
const COPY: &str = "copy";

/// The variable that passes the directory to all child processes.
const DIR: &str = "ISOLATED_DIR";

const ENTRIES: [(&str, EntryPoint); 7] = [
    ("double", |input| {
        let mut text = Vec::new();
        input.read_to_end(&mut text).map_err(|error| error.to_string())?;
        Ok(text.repeat(2))
    }),
    ("visible", |_| {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").map_err(|error| error.to_string())?;
        Ok(visible.into_bytes())
    }),
    ("fail", |_| {
        note_child();
        Err("no luck".to_owned())
    }),
    ("panic", |_| {
        note_child();
        panic!("out of luck")
    }),
    ("leave", |_| {
        note_child();
        Ok(Vec::new())
    }),
    ("leave-copy", |_| {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        // The process has its own session and runs the program of the supervisor.
        leave(Command::new("setsid").arg("--fork").arg(own).arg(COPY));
        Ok(Vec::new())
    }),
    ("hang", |_| {
        note_child();
        SystemClock::new().sleep(Duration::from_secs(600));
        Ok(Vec::new())
    }),
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = std::env::var_os(RESULT);
    let entry = serve_entry(arguments.clone(), result, &mut std::io::stdin(), &ENTRIES);
    if let Some(code) = entry {
        return if code == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    match ReexecRole::find(&roots(), arguments.clone()).expect("the arguments are valid") {
        Some(ReexecRole::Supervisor(asked)) => return supervised(asked),
        Some(ReexecRole::Successor(successor)) => return inherited(&successor),
        Some(ReexecRole::Over) => return ExitCode::SUCCESS,
        None => {}
    }
    if arguments == [COPY] {
        note(&std::process::id().to_string());
        SystemClock::new().sleep(Duration::from_secs(600));
        return ExitCode::FAILURE;
    }
    let [what, dir] = &arguments[..] else { panic!("expected two arguments") };
    let caller = Caller { dir: PathBuf::from(dir) };
    say(&caller.tries(&what.to_string_lossy()));
    ExitCode::SUCCESS
}

struct Caller {
    dir: PathBuf,
}

impl Caller {
    fn tries(&self, what: &str) -> String {
        let own = || std::env::current_exe().expect("this program has a path");
        let supervisors = Reexec::new(roots(), own(), 8 << 20);
        let entry = |name: &str| Isolated::entry(own(), name);
        let reported = |outcome: Result<Outcome, IsolatedError>| match outcome {
            Ok(outcome) => {
                let text = String::from_utf8_lossy(&outcome.value).into_owned();
                format!("value '{text}', clean {}", outcome.report.is_clean())
            }
            Err(IsolatedError::Failed(why, report)) => {
                format!("failed '{why}' {}, clean {}", report.code, report.is_clean())
            }
            Err(IsolatedError::Panicked(why, report)) => {
                format!("panicked '{why}', clean {}", report.is_clean())
            }
            Err(IsolatedError::TimedOut(report)) => {
                format!("timed out, clean {}", report.is_clean())
            }
            Err(IsolatedError::TooLong(report)) => format!("too long, clean {}", report.is_clean()),
            Err(error) => format!("failed to {error}"),
        };
        let shell = |text: &str| {
            let (program, arguments) = ("/bin/sh".into(), vec!["-c".into(), text.into()]);
            Isolated::program(Launch { program, arguments, ..Launch::default() })
        };
        match what {
            "double" => reported(entry("double").input(vec![b'x'; 300_000]).run(&supervisors).map(
                |mut outcome| {
                    outcome.value = outcome.value.len().to_string().into_bytes();
                    outcome
                },
            )),
            "too-long" => reported(entry("double").input(vec![b'x'; 5 << 20]).run(&supervisors)),
            "hang" => {
                let limited = entry("hang").time_limit(Duration::from_secs(2));
                reported(limited.run(&supervisors))
            }
            "hang-long" => reported(entry("hang").grace(Duration::from_secs(1)).run(&supervisors)),
            "drop" => {
                let isolation = entry("hang").start(&supervisors).expect("the job starts");
                self.child();
                drop(isolation);
                "dropped".to_owned()
            }
            "queued" => {
                let isolation = entry("hang").start(&supervisors).expect("the job starts");
                let locks = locks(&self.dir);
                let waits = || locks.entries(EntryKind::Waiter).is_ok_and(|all| !all.is_empty());
                while !waits() {
                    SystemClock::new().sleep(Duration::from_millis(10));
                }
                drop(isolation);
                "dropped".to_owned()
            }
            "killed" => {
                let isolation = entry("hang").start(&supervisors).expect("the job starts");
                say(&self.child());
                SystemClock::new().sleep(Duration::from_secs(600));
                drop(isolation);
                "not killed".to_owned()
            }
            "program" => reported(shell("printf 42 > \"$GPUWS_RESULT\"").run(&supervisors)),
            "no-program" => {
                let launch = Launch { program: "/no/such/program".into(), ..Launch::default() };
                reported(Isolated::program(launch).run(&supervisors))
            }
            name => reported(entry(name).run(&supervisors)),
        }
    }

    /// Waits until the job has left a child behind, and returns its PID.
    fn child(&self) -> String {
        loop {
            match std::fs::read_to_string(self.dir.join("child")) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ => SystemClock::new().sleep(Duration::from_millis(10)),
            }
        }
    }
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}

/// Leaves behind a process outside its group and session, and records its PID.
fn note_child() {
    let script = "echo $$ > \"$ISOLATED_DIR/child\"; exec sleep 600";
    leave(Command::new("setsid").args(["--fork", "sh", "-c", script]));
}

/// Runs a command that leaves a process behind, and waits until that process has recorded its PID.
fn leave(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(status.expect("setsid runs").success());
    while !std::fs::read_to_string(noted()).is_ok_and(|text| text.ends_with('\n')) {
        SystemClock::new().sleep(Duration::from_millis(10));
    }
}

fn note(number: &str) {
    std::fs::write(noted(), format!("{number}\n")).expect("the directory is writable");
}

fn noted() -> PathBuf {
    PathBuf::from(std::env::var_os(DIR).expect("the variable is set")).join("child")
}

fn supervised(asked: SupervisorOrder) -> ExitCode {
    let launcher = LinuxLauncher::new(&roots(), Some(asked.front)).expect("the launcher starts");
    let mut stop = || launcher.asked().is_some() || launcher.is_abandoned().unwrap_or(false);
    let report = with_ports(|ports, token| {
        supervise(&asked.order, &asked.result, ports, &launcher, token, |_| None, &mut stop)
    });
    // If the caller has ended, no process reads the report.
    let _ = asked.report(&report.expect("the isolated job can be supervised"));
    ExitCode::SUCCESS
}

/// Ends the processes left behind by a killed supervisor.
fn inherited(successor: &Successor) -> ExitCode {
    if let Some(mut orphans) = successor.orphans().expect("orphans can be listed") {
        let own = LinuxHost::new(roots()).own_ancestry().expect("the own process is visible")[0];
        with_ports(|ports, token| {
            let Ports { backend, host, clock, journal, .. } = *ports;
            let ports = gpu_reaper::Ports { backend, host, clock, journal };
            let grace = Duration::from_secs(1);
            take_over(&mut orphans, own, ports, token, grace, &mut |_| ControlFlow::Continue(()))
        });
    }
    ExitCode::FAILURE
}

fn with_ports<T>(act: impl FnOnce(&Ports<'_>, &ActToken) -> T) -> T {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("the variable is set"));
    let machine = Simulation::named(&dir.join("machine")).expect("the machine can be loaded");
    let origin = gpu_core::GpuBackend::origin(&machine);
    let host = HostOfMachine { host: LinuxHost::new(roots()), origin };
    let journal = FileJournal::open(dir.join("journal")).expect("the journal opens");
    let locks = locks(&dir);
    let clock = SystemClock::new();
    let ports =
        Ports { backend: &machine, host: &host, clock: &clock, journal: &journal, locks: &locks };
    act(&ports, &ActToken::user_confirmed())
}

fn locks(dir: &Path) -> FileLeaseStore {
    FileLeaseStore::new(LeaseLocation::dir(dir.join("leases")), SafeGpuFiles::below(dir), roots())
}

fn roots() -> Roots {
    Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() }
}

/// Presents the real processes as those of the simulated machine. Only the process tree of this
/// test ever receives a signal.
struct HostOfMachine {
    host: LinuxHost,
    origin: Origin,
}

impl ProcessTable for HostOfMachine {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }
    fn hostname(&self) -> Reading<String> {
        self.host.hostname()
    }
    fn sees_host_pids(&self) -> Reading<bool> {
        self.host.sees_host_pids()
    }
    fn is_root(&self) -> Reading<bool> {
        self.host.is_root()
    }
    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        self.host.process(pid)
    }
    fn processes(&self) -> Result<ProcessList> {
        self.host.processes()
    }
    fn own_ancestry(&self) -> Result<Vec<ProcessKey>> {
        self.host.own_ancestry()
    }
    fn inherited_leases(&self) -> Vec<(LeaseId, u32)> {
        self.host.inherited_leases()
    }
    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        self.host.open(pid)
    }
}

impl DeviceFiles for HostOfMachine {
    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        self.host.device_files()
    }
    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        self.host.holders(files)
    }
}

impl DriverView for HostOfMachine {
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        self.host.driver_devices()
    }
    fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        self.host.driver_messages()
    }
}
