//! Findings about real processes: none about healthy ones, and all required ones about faulty ones.
//! Only the device, the age of the processes and the time between two samples are substitutes.
//! Prints precision and recall; a finding counts if its confidence is likely or higher.

use super::{Bench, EACH_MIB, eventually, skip};
use gpu_core::*;
use gpu_host::SystemClock;
use gpu_reaper::*;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A wall clock that runs ahead.
struct Ahead(Duration);

impl Clock for Ahead {
    fn wall(&self) -> Timestamp {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        Timestamp(SystemClock::new().wall().0 + millis)
    }

    fn monotonic(&self) -> Duration {
        SystemClock::new().monotonic() + self.0
    }

    fn sleep(&self, duration: Duration) {
        SystemClock::new().sleep(duration);
    }
}

/// Shell commands that open all device files and map the device.
const OPEN: &str = "exec 3<>dev/nvidia0 4<>dev/nvidia-uvm 5<>dev/nvidiactl; \
                    export LD_PRELOAD=$PWD/dev/nvidia0; exec sleep 600";

const HOURS: Duration = Duration::from_secs(3 * 60 * 60);

/// The minutes of the samples, with continuous observation and with a single one.
const WATCHED: &[u64] = &[0, 5, 11];
const ONCE: &[u64] = &[0];

struct Case {
    name: &'static str,
    /// The required kind of finding and its minimum confidence; `None` for a healthy process.
    expected: Option<(FindingKind, Confidence)>,
    minutes: &'static [u64],
    age: Duration,
    utilization: u64,
    /// Whether the driver lists the process.
    is_listed: bool,
    /// Starts the process; `None` if that is impossible on this machine.
    start: fn(&mut Bench) -> Option<Pid>,
}

const HEALTHY: Case = Case {
    name: "",
    expected: None,
    minutes: WATCHED,
    age: HOURS,
    utilization: 60,
    is_listed: true,
    start: |bench| Some(bench.context("")),
};

/// Runs a shell script to its end, and returns the process with the PID that it prints.
fn left_by(bench: &mut Bench, script: &str) -> Option<Pid> {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(bench.dir.path()).process_group(0);
    let mut shell = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().ok()?;
    let mut number = String::new();
    BufReader::new(shell.stdout.take()?).read_line(&mut number).ok()?;
    let pid = Pid(number.trim().parse().ok()?);
    bench.strangers.push(pid);
    shell.wait().ok()?;
    // setsid may have started another shell, which leads the group.
    let is_alone = |info: ProcessInfo| {
        info.group == Ok(pid) || info.group.is_ok_and(|leader| bench.host.process(leader).is_err())
    };
    assert!(eventually(|| bench.host.process(pid).is_ok_and(is_alone)));
    Some(pid)
}

/// Starts a shell that starts a background process and ends.
fn background(bench: &mut Bench, how: &str) -> Option<Pid> {
    std::fs::write(bench.dir.path().join("job"), format!("echo $$; {OPEN}")).unwrap();
    let pid = left_by(bench, &format!("{how} sh job 2>/dev/null & sleep 0.1"))?;
    bench.wait_until_asleep(pid);
    bench.wait_until_mapped(pid);
    Some(pid)
}

fn python(bench: &mut Bench, program: &str) -> Option<Pid> {
    let command = super::recheck::python("findings_about_real_processes");
    Some(bench.ready(command?.args(["-c", program])))
}

/// Compiles and starts a C program that prints `ready`.
fn compiled(bench: &mut Bench, source: &str) -> Option<Pid> {
    let (text, program) = (bench.dir.path().join("program.c"), bench.dir.path().join("program"));
    std::fs::write(&text, source).unwrap();
    let mut compiler = Command::new("cc");
    let done = compiler.args(["-pthread", "-o"]).arg(&program).arg(&text).status();
    if !done.is_ok_and(|status| status.success()) {
        skip("findings_about_real_processes", "there is no C compiler");
        return None;
    }
    Some(bench.ready(&mut Command::new(program)))
}

/// Opens and maps the devices like a CUDA program.
const CONTEXT: &str = "import mmap, os, sys, time\n\
    gpu = os.open('dev/nvidia0', os.O_RDWR)\n\
    others = [os.open(f'dev/nvidia{name}', os.O_RDWR) for name in ('ctl', '-uvm')]\n\
    mapped = mmap.mmap(gpu, 4096)\n";

const C_CONTEXT: &str = "#define _GNU_SOURCE\n\
    #include <fcntl.h>\n#include <pthread.h>\n#include <signal.h>\n\
    #include <sys/mman.h>\n#include <sys/prctl.h>\n\
    #include <sys/wait.h>\n#include <unistd.h>\n\
    static void *idle(void *unused) { for (;;) pause(); return unused; }\n\
    static void context(void) {\n\
        int gpu = open(\"dev/nvidia0\", O_RDWR);\n\
        open(\"dev/nvidia-uvm\", O_RDWR); open(\"dev/nvidiactl\", O_RDWR);\n\
        mmap(0, 4096, PROT_READ, MAP_SHARED, gpu, 0);\n\
    }\n";

fn cases() -> Vec<Case> {
    vec![
        Case { name: "a job that computes", ..HEALTHY },
        Case {
            name: "a job that was started just now",
            age: Duration::ZERO,
            utilization: 0,
            minutes: ONCE,
            ..HEALTHY
        },
        Case {
            name: "a job that was started just now and is not listed yet",
            age: Duration::ZERO,
            is_listed: false,
            minutes: ONCE,
            ..HEALTHY
        },
        Case {
            name: "a job between two steps, in one sample",
            utilization: 0,
            minutes: ONCE,
            ..HEALTHY
        },
        Case {
            name: "nohup from a script that has ended",
            start: |bench| background(bench, "nohup"),
            ..HEALTHY
        },
        Case {
            name: "the background of a script that has ended",
            start: |bench| background(bench, ""),
            ..HEALTHY
        },
        Case { name: "setsid", start: |bench| background(bench, "setsid"), ..HEALTHY },
        Case {
            name: "a process in a PID namespace of its own",
            start: |bench| {
                let test = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
                if !test.is_ok_and(|output| output.status.success()) {
                    skip("findings_about_real_processes", "no PID namespace can be made");
                    return None;
                }
                std::fs::write(bench.dir.path().join("inner"), OPEN).unwrap();
                let mut unshare = Command::new("unshare");
                unshare.args(["--pid", "--fork", "--kill-child", "sh", "inner"]);
                let outer = unshare.current_dir(bench.dir.path()).spawn().ok()?;
                let outer_pid = outer.id();
                bench.tools.push(outer);
                let inner = |bench: &Bench| {
                    let all = bench.host.processes().unwrap().processes;
                    let mut all = all.into_iter().filter(|it| it.name == "sleep");
                    Some(all.find(|it| it.parent == Ok(Pid(outer_pid)))?.key.pid)
                };
                assert!(eventually(|| inner(bench).is_some()));
                inner(bench)
            },
            ..HEALTHY
        },
        Case { name: "a window of tmux", start: in_tmux, ..HEALTHY },
        Case {
            name: "a job that a debugger has stopped",
            utilization: 0,
            start: under_gdb,
            ..HEALTHY
        },
        Case {
            name: "a job with workers that load data",
            start: |bench| {
                // The workers end with their parent.
                let workers = "main = os.getpid()\nfor worker in range(4):\n\
                    \x20   if os.fork() == 0:\n\
                    \x20       while os.getppid() == main: time.sleep(0.1)\n\
                    \x20       os._exit(0)\n";
                python(bench, &format!("{CONTEXT}{workers}os.write(1, b'ready')\ntime.sleep(600)"))
            },
            ..HEALTHY
        },
        Case {
            name: "unlisted memory",
            expected: Some((FindingKind::Ghost, Confidence::High)),
            is_listed: false,
            ..HEALTHY
        },
        Case {
            name: "a process that does not compute",
            expected: Some((FindingKind::Hoarder, Confidence::Likely)),
            utilization: 0,
            ..HEALTHY
        },
        Case {
            name: "a worker of multiprocessing without its parent",
            expected: Some((FindingKind::Orphan, Confidence::High)),
            utilization: 0,
            start: orphaned_worker,
            ..HEALTHY
        },
        Case {
            name: "a first thread that has ended",
            expected: Some((FindingKind::ZombieHolder, Confidence::High)),
            start: |bench| {
                let main = "int main(void) { context(); pthread_t other; \
                    pthread_create(&other, 0, idle, 0); write(1, \"ready\", 5); pthread_exit(0); }";
                compiled(bench, &format!("{C_CONTEXT}{main}"))
            },
            ..HEALTHY
        },
        Case {
            name: "uninterruptible sleep",
            expected: Some((FindingKind::StuckHolder, Confidence::Likely)),
            utilization: 0,
            // A process waits for its vforked child in state D; the child ends with it.
            start: |bench| {
                let main = "int main(void) { context(); write(1, \"ready\", 5); \
                    if (vfork() == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); for (;;) pause(); } \
                    return 0; }";
                compiled(bench, &format!("{C_CONTEXT}{main}"))
            },
            ..HEALTHY
        },
        Case {
            name: "a listed process that has ended",
            expected: Some((FindingKind::ListedButGone, Confidence::Likely)),
            start: |bench| {
                let pid = bench.context("");
                let ended = bench.children.last_mut()?;
                ended.kill().and_then(|()| ended.wait()).ok()?;
                // The memory stays in use.
                bench.start("exec sleep 600");
                Some(pid)
            },
            ..HEALTHY
        },
        Case {
            name: "memory that nobody holds",
            expected: Some((FindingKind::DriverLeak, Confidence::Likely)),
            is_listed: false,
            start: |bench| Some(bench.start("exec sleep 600")),
            ..HEALTHY
        },
    ]
}

fn in_tmux(bench: &mut Bench) -> Option<Pid> {
    let socket = bench.dir.path().join("tmux");
    std::fs::write(bench.dir.path().join("inner"), OPEN).unwrap();
    let mut tmux = Command::new("tmux");
    tmux.arg("-S").arg(&socket).args(["-f", "/dev/null", "new-session", "-d", "-P", "-F"]);
    tmux.args(["#{pane_pid}", "sh inner"]).current_dir(bench.dir.path());
    let output = tmux.output().ok().filter(|output| output.status.success());
    let Some(output) = output else {
        skip("findings_about_real_processes", "there is no tmux");
        return None;
    };
    let pid = Pid(String::from_utf8_lossy(&output.stdout).trim().parse().ok()?);
    bench.strangers.push(pid);
    bench.wait_until_asleep(pid);
    bench.wait_until_mapped(pid);
    Some(pid)
}

fn under_gdb(bench: &mut Bench) -> Option<Pid> {
    let pid = bench.context("");
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-p", &pid.to_string()]).stdin(Stdio::piped());
    let Ok(gdb) = gdb.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        skip("findings_about_real_processes", "there is no gdb");
        return None;
    };
    // gdb ends with its standard input, when the bench is dropped.
    bench.tools.push(gdb);
    let is_stopped =
        |info: ProcessInfo| info.tracer.is_ok() && info.state == Ok(ProcessState::Stopped);
    assert!(eventually(|| bench.host.process(pid).is_ok_and(is_stopped)));
    Some(pid)
}

/// A worker without its parent and session. The tests may run under nohup, but the worker does not.
fn orphaned_worker(bench: &mut Bench) -> Option<Pid> {
    super::recheck::python("findings_about_real_processes")?;
    let worker = format!(
        "from multiprocessing.spawn import spawn_main\nimport signal\n\
         signal.signal(signal.SIGHUP, signal.SIG_DFL)\n{CONTEXT}\
         print(os.getpid(), flush=True)\ntime.sleep(600)\n"
    );
    std::fs::write(bench.dir.path().join("worker"), worker).unwrap();
    let script = "exec setsid sh -c '/usr/bin/python3 -c \"$(cat worker)\" & sleep 0.1'";
    let pid = left_by(bench, script)?;
    // A concurrent test may have made this process adopt orphans.
    if bench.host.process(pid).ok()?.parent != Ok(Pid(1)) {
        skip("findings_about_real_processes", "orphans are adopted by another process than 1");
        return None;
    }
    Some(pid)
}

#[test]
fn findings_about_real_processes() {
    let (mut found, mut wanted, mut false_alarms, mut skipped) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    let cases = cases();
    for case in &cases {
        let mut bench = Bench::new();
        let Some(pid) = (case.start)(&mut bench) else {
            skipped += 1;
            continue;
        };
        bench.used = Some(Bytes::from_mib(25 + EACH_MIB));
        bench.host.age = Some(case.age);
        bench.utilization = Ok(Percent::new(case.utilization).unwrap());
        if case.is_listed {
            bench.listed.push((pid, Bytes::from_mib(EACH_MIB)));
        }
        let snapshot_at = |minutes: &u64| {
            let clock = Ahead(Duration::from_secs(minutes * 60));
            observe_in_detail(&bench, &bench.host, &clock, full_observation())
        };
        let snapshots: Vec<Snapshot> = case.minutes.iter().map(snapshot_at).collect();
        let findings = diagnose(&snapshots).findings;
        let certain = |finding: &&Finding| finding.confidence >= Confidence::Likely;
        let is_expected = |finding: &Finding| {
            case.expected
                .is_some_and(|(kind, least)| finding.kind == kind && finding.confidence >= least)
        };
        wanted += u32::from(case.expected.is_some());
        let hit = findings.iter().any(is_expected);
        found += u32::from(hit);
        let alarms: Vec<&Finding> =
            findings.iter().filter(certain).filter(|finding| !is_expected(finding)).collect();
        false_alarms += alarms.len();
        if !alarms.is_empty() || hit != case.expected.is_some() {
            wrong.push(format!("{}: {findings:#?}", case.name));
        }
    }
    let alarms = found as usize + false_alarms;
    println!(
        "{} real processes: {wanted} findings expected, precision {:.3}, recall {:.3}",
        cases.len() - skipped,
        f64::from(found) / alarms as f64,
        f64::from(found) / f64::from(wanted),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(wanted > 0 && skipped < cases.len());
}
