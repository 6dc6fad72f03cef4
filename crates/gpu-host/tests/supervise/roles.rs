//! The roles of this program in its tests.

use gpu_core::{
    ActToken, ErrorKind, Job, JobEvent, JobExit, Launch, Launcher, ProcessFault, ProcessInfo,
    ProcessKey,
};
use gpu_host::Roots;
use gpu_host::supervise::{
    DetachPipe, Front, LinuxLauncher, Relation, dismiss, end_as, parse_words,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// The variable that names the file to which the supervisor appends a line for every event.
pub(crate) const REPORT: &str = "SUPERVISE_REPORT";

/// Plays a role; `None` for an unknown word.
///
/// `front MODE COMMAND…`, `supervisor PID START MODE COMMAND…`, `helper`, `copy FILE`,
/// `companions`, `interrupted DIR`. MODE is words joined by commas: `queue` waits for a request
/// before it starts anything, `keep` continues without a frontend, `own` has its own children
/// next to the job, `tell` sends SIGUSR1 to the rest of the job's group, `kill_tree` kills the tree
/// on a request to end, `suspend_new` then stops and resumes its new processes, `dismiss` then
/// dismisses the frontend, `panic` then panics, `scarce` cannot open files while it first watches,
/// and `plain` is none of these.
pub(crate) fn play(role: &str, words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let words: Vec<_> = words.collect();
    let code = match role {
        "front" => front(&words),
        "supervisor" => supervisor(&words),
        "helper" => helper(),
        "copy" => copy(&words),
        "companions" => crate::companions::act(),
        "interrupted" => crate::interrupted::act(&words),
        _ => return None,
    };
    Some(ExitCode::from(u8::try_from(code).expect("a code of a program")))
}

pub(crate) fn roots() -> Roots {
    Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() }
}

fn front(words: &[OsString]) -> i32 {
    let own = Front::words(&roots()).expect("/proc shows this process");
    let program = std::env::current_exe().expect("this program has a file");
    let dismissal = DetachPipe::new().expect("a pipe can be made");
    let mut words = words.to_vec();
    words[0].push(",word=");
    words[0].push(dismissal.word());
    let arguments = [&["supervisor".into()], &own[..], &words[..]].concat();
    let stands = if plays(&words, "keep") { Relation::Apart } else { Relation::Guarded };
    let mut front = Front::start(&roots(), &program, "supervisor".as_ref(), &arguments, stands)
        .expect("it can be started again")
        .detached_by(dismissal);
    let ending = front.wait().expect("it can be waited for");
    if let Some(orphans) = front.orphans(&roots(), ending).expect("it can be looked for them") {
        report(&format!("orphans {}", orphans.members().expect("members can be read").len()));
        end_members(&orphans);
    }
    front.end_as(ending)
}

/// Returns whether a frontend's mode contains a word.
fn plays(words: &[OsString], word: &str) -> bool {
    let mode = words.first().and_then(|mode| mode.to_str()).unwrap_or_default();
    mode.split(',').any(|mode| mode == word)
}

/// Lives until its standard input closes.
fn helper() -> i32 {
    let mut all = Vec::new();
    std::io::stdin().read_to_end(&mut all).expect("standard input can be read");
    0
}

/// Leads a process group, reports its PID, and lives until it is ended.
fn copy(words: &[OsString]) -> i32 {
    let [file] = words else { panic!("a file") };
    // A session leader already leads a group, and may not have another.
    let _ = rustix::process::setpgid(None, None);
    std::fs::write(file, format!("{}\n", std::process::id())).expect("it can report its PID");
    pass_time(Duration::from_secs(600));
    1
}

fn report(line: &str) {
    let Some(path) = std::env::var_os(REPORT) else { return };
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a report");
    file.write_all(format!("{line}\n").as_bytes()).expect("a line can be added to the report");
}

fn supervisor(words: &[OsString]) -> i32 {
    let [pid, start, mode, command @ ..] = words else { panic!("a front and a mode") };
    let mode = mode.to_str().expect("a mode is text").to_owned();
    let is = |word: &str| mode.split(',').any(|mode| mode == word);
    let front = parse_words(pid, start).expect("the front's own words");
    let launcher = LinuxLauncher::new(&roots(), Some(front)).expect("it can supervise");
    report(&format!("supervisor {}", std::process::id()));
    if is("queue") {
        return queue(&launcher);
    }
    let own = is("own").then(own_children);
    let _held = ReportsUnwinding;
    let [program, arguments @ ..] = command else { panic!("a command") };
    let launch = Launch {
        program: program.clone(),
        arguments: arguments.to_vec(),
        set: vec![("SUPERVISE_SET".into(), "set".into())],
        unset: vec![REPORT.into()],
    };
    let mut job = match launcher.launch(&launch) {
        Ok(job) => job,
        Err(error) => {
            report(&format!("failed {:?} {}", error.kind(), error.fault().text));
            return match error.kind() {
                ErrorKind::Process(ProcessFault::Gone) => 127,
                ErrorKind::Process(ProcessFault::NotPermitted) => 126,
                _ => 125,
            };
        }
    };
    // Like a program that is started again while the job runs.
    let late = is("fell").then(|| a_helper().spawn().expect("it can be started"));
    let spared: Vec<_> = late.iter().map(|late| gpu_core::Pid(late.id())).collect();
    let let_go = || {
        let word = mode.split(',').find_map(|word| word.strip_prefix("word="));
        let word = word.expect("every front gives one");
        let reported = dismiss(&roots(), front, word.as_ref(), JobExit::Code(9));
        report(&format!("dismissed {}", reported.expect("it can be dismissed")));
    };
    let ending = watch(&mut *job, &is, &spared, &let_go);
    if let Some(late) = late {
        let late = late.wait_with_output().expect("it ends with its input");
        report(&format!("spared {:?}", late.status.code()));
    }
    if let Some(own) = own {
        check(own, &*job);
    }
    for member in job.members().expect("members can be read") {
        let parent = member.parent.expect("a parent is known");
        let adopted = parent.0 == std::process::id();
        report(&format!("left {} {} {adopted}", member.key, member.name));
    }
    end_members(&*job);
    let gone = job.pass(15).expect_err("its group is empty").kind();
    assert_eq!(gone, ErrorKind::Process(ProcessFault::Gone));
    drop(job);
    report("empty");
    end_as(ending)
}

/// Waits like a claim in a queue.
fn queue(launcher: &LinuxLauncher) -> i32 {
    report("queues");
    loop {
        if let Some(signal) = launcher.asked() {
            report(&format!("asked {signal}"));
            // An echo would have arrived by now.
            pass_time(Duration::from_millis(300));
            if let Some(signal) = launcher.asked() {
                report(&format!("asked {signal}"));
            }
            return end_as(JobExit::Signal(signal));
        }
        if launcher.is_abandoned().expect("the front can be watched") {
            report("abandoned");
            return 1;
        }
        pass_time(Duration::from_millis(5));
    }
}

/// How often, for a tenth of a second each, no file can be opened.
const SCARCE_SCANS: u32 = 15;

fn watch(
    job: &mut dyn Job,
    is: &dyn Fn(&str) -> bool,
    spared: &[gpu_core::Pid],
    let_go: &dyn Fn(),
) -> JobExit {
    let mut scarce = if is("scarce") { SCARCE_SCANS } else { 0 };
    loop {
        let usual = getrlimit(Resource::Nofile);
        if scarce > 0 {
            scarce -= 1;
            // poll(2) takes no more files than that either.
            setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..usual }).expect("it is less");
        }
        let event = job.next(Duration::from_millis(100));
        setrlimit(Resource::Nofile, usual).expect("it was so");
        match event.expect("the job can be watched") {
            Some(JobEvent::Ended(ending)) => {
                report(&format!("ended {ending:?}"));
                if is("tell")
                    && let Err(error) = job.pass(10)
                {
                    assert_eq!(error.kind(), ErrorKind::Process(ProcessFault::Gone));
                    report("alone");
                }
                return ending;
            }
            Some(JobEvent::Abandoned) => {
                report("abandoned");
                if !is("keep") {
                    end_members(job);
                }
            }
            Some(JobEvent::EndRequested(signal)) => {
                report(&format!("asked {signal}"));
                assert!(!is("panic"), "as it was to");
                if is("fell") {
                    kill_tree(job, spared);
                } else if is("arrest") {
                    suspend_new(job);
                } else if is("dismiss") {
                    let_go();
                } else {
                    job.pass(signal).expect("the job can be signalled");
                }
            }
            None => {}
        }
    }
}

/// Kills the tree, and reports the name of each killed process.
fn kill_tree(job: &dyn Job, spared: &[gpu_core::Pid]) {
    let token = ActToken::user_confirmed();
    loop {
        let killed_tree =
            job.kill_tree(spared, Duration::from_secs(5), &token).expect("it can be felled");
        for (killed, _) in &killed_tree.killed {
            report(&format!("felled {}", killed.name));
        }
        // A killed process may take longer to end than the wait for it.
        if killed_tree.none_left {
            return report("none left");
        }
    }
}

/// Stops all but the top shell, reports their names, and resumes those that are not Python; the
/// others are killed.
fn suspend_new(job: &dyn Job) {
    let token = ActToken::user_confirmed();
    let members = || job.members().expect("members can be read");
    let known: Vec<_> = members().iter().filter(|it| it.name == "sh").map(|it| it.key).collect();
    let suspended = job.suspend_new(&known, &[], Duration::from_secs(10), &token);
    let suspended = suspended.expect("the kernel keeps lists of children");
    report(if suspended.still_forking { "restless" } else { "at rest" });
    let stopped = |key: ProcessKey| {
        let is_it = |member: &ProcessInfo| {
            member.key == key && member.state == Ok(gpu_core::ProcessState::Stopped)
        };
        members().iter().any(is_it)
    };
    let (kill, resume): (Vec<_>, Vec<_>) =
        suspended.stopped.into_iter().partition(|it| it.name.starts_with("python"));
    for one in kill.iter().chain(&resume) {
        let since = gpu_host::SystemClock::new();
        while !stopped(one.key) {
            assert!(gpu_core::Clock::monotonic(&since) < crate::fixture::PATIENCE, "{one:?}");
            pass_time(Duration::from_millis(2));
        }
        report(&format!("arrested {}", one.name));
    }
    for one in &kill {
        let pid = Pid::from_raw(i32::try_from(one.key.pid.0).expect("a number"));
        kill_process(pid.expect("not zero"), Signal::KILL).expect("it is there");
    }
    // A killed process is a member until it has ended, which takes CPU time of its own.
    let since = gpu_host::SystemClock::new();
    while kill.iter().any(|one| members().iter().any(|member| member.key == one.key)) {
        assert!(gpu_core::Clock::monotonic(&since) < crate::fixture::PATIENCE, "{kill:?}");
        pass_time(Duration::from_millis(2));
    }
    let resume: Vec<_> = resume.iter().map(|one| one.key).collect();
    job.resume(&resume, &token);
    let since = gpu_host::SystemClock::new();
    while resume.iter().any(|key| stopped(*key)) {
        assert!(gpu_core::Clock::monotonic(&since) < crate::fixture::PATIENCE, "{resume:?}");
        pass_time(Duration::from_millis(2));
    }
    report(&format!("resumed {}", resume.len()));
}

/// Stands for what the supervisor holds; reports if a panic unwinds it.
struct ReportsUnwinding;

impl Drop for ReportsUnwinding {
    fn drop(&mut self) {
        if std::thread::panicking() {
            report("unwound");
        }
    }
}

fn end_members(job: &dyn Job) {
    loop {
        let members = job.members().expect("members can be read");
        if members.is_empty() {
            return;
        }
        for member in members {
            let pid = Pid::from_raw(i32::try_from(member.key.pid.0).expect("a number"));
            // It may have ended by itself.
            let _ = kill_process(pid.expect("not zero"), Signal::KILL);
        }
        pass_time(Duration::from_millis(2));
    }
}

/// A child that exits with a code, once in this process's group and once in its own, and a helper.
fn own_children() -> Vec<Child> {
    let ends = |code: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exit {code}")]);
        command
    };
    let (mut same_group, mut apart, mut helper) = (ends("7"), ends("8"), a_helper());
    let children = [&mut same_group, apart.process_group(0), &mut helper];
    children.map(|command| command.spawn().expect("it can be started")).into()
}

/// A helper program of this one, in its own group.
fn a_helper() -> Command {
    let mut helper = Command::new(std::env::current_exe().expect("this program has a file"));
    helper.arg("helper").stdin(Stdio::piped()).process_group(0);
    helper
}

/// Checks that no code has taken their exit statuses, and that the helper is not a member.
fn check(mut own: Vec<Child>, job: &dyn Job) {
    let members = job.members().expect("members can be read");
    let helper = own.pop().expect("there are three");
    assert!(members.iter().all(|member| member.key.pid.0 != helper.id()), "{members:?}");
    let codes: Vec<_> = own
        .iter_mut()
        .map(|child| child.wait().expect("its status is still there").code())
        .collect();
    report(&format!("own {codes:?}"));
    let helper = helper.wait_with_output().expect("it ends with its input");
    assert!(helper.status.success(), "it was ended: {helper:?}");
}

fn pass_time(time: Duration) {
    gpu_core::Clock::sleep(&gpu_host::SystemClock::new(), time);
}
