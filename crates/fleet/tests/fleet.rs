//! Hosts that answer, fail, hang and lie, simulated by a program in place of ssh.

use gpu_core::{Clock, Timestamp};
use gpu_fleet::{
    Answer, FLEET_LIMIT, HOST_LIMIT, HostMessage, HostName, NoAnswer, Outcome, Progress, Question,
    RemoteRun, Ssh, Wait, Watch, ask, hosts,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock that counts from its creation.
struct RealClock(Instant);

impl RealClock {
    #[expect(clippy::disallowed_methods, reason = "real programs answer")]
    fn new() -> Self {
        RealClock(Instant::now())
    }
}

impl Clock for RealClock {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "real programs answer")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// Writes a program with ssh's command line: `$host` is the host and `$command` is the command to
/// run.
fn ssh(dir: &Path, cases: &str) -> Ssh {
    let path = dir.join("ssh");
    let text = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nhost=$2 command=$3\n[ -n \"$host\" ] || exit 0\n\
         case $host in\n{cases}\nesac\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    // The kernel refuses to run a file that a child of another thread still has open for writing.
    while std::process::Command::new(&path).arg("--").output().is_err() {}
    Ssh::other(path)
}

fn named(names: &str) -> Vec<HostName> {
    hosts::listed([names]).unwrap()
}

fn message(error: &str, hint: Option<&str>) -> HostMessage {
    HostMessage { error: error.to_owned(), hint: hint.map(str::to_owned) }
}

fn question(deadline: Duration) -> Question {
    Question { words: vec!["status".into(), "--json".into()], deadline }
}

#[test]
fn every_host_has_an_answer_or_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let ssh = ssh(
        dir.path(),
        r#"good) echo '{"schema": 1, "gpus": []}' ;;
        greets) echo Welcome; echo '{"schema": 1}'; echo noise >&2 ;;
        shares) sleep 6 & echo '{"schema": 1}' ;;
        fails-with-answer) echo '{"schema": 1}'; exit 3 ;;
        half) printf '{"schema": 1, "gpus": [' ;;
        newer) echo '{"schema": 7}' ;;
        silent) ;;
        none) echo 'sh: 1: gpuws: not found' >&2; exit 127 ;;
        dead) echo noise >&2; echo 'connect to host: Connection refused' >&2; exit 255 ;;
        old) echo "error: unexpected argument '--deadline'" >&2
            printf "\nUsage: gpuws status\n\nFor more information, try '--help'.\n" >&2; exit 2 ;;
        bare) echo 'gpuws: failed to load NVML: no library' >&2; echo 'hint: install the driver' >&2
            echo 'machines: labbox' >&2; exit 3 ;;
        escapes) printf '\033[2Jgpuws: failed to look\n' >&2; exit 3 ;;
        floods) exec yes '{' ;;
        hangs) exec sleep 20 ;;
        shouts) exec yes >&2 ;;
        stubborn) trap '' TERM; while :; do sleep 1; done ;;"#,
    );
    let time = Duration::from_secs(5);
    let hosts = named(
        "good,greets,shares,fails-with-answer,half,newer,silent,none,dead,old,bare,escapes,floods,\
         hangs,shouts,stubborn",
    );
    let answers = ask(&hosts, &question(time), &ssh, &RealClock::new());
    let order: Vec<&HostName> = answers.iter().map(|answer| &answer.host).collect();
    assert_eq!(order, hosts.iter().collect::<Vec<_>>());
    for (host, code) in [("good", 0), ("greets", 0), ("shares", 0), ("fails-with-answer", 3)] {
        let answer = answers.iter().find(|answer| answer.host.as_str() == host).unwrap();
        let reply = answer.answer.as_ref().unwrap_or_else(|why| panic!("{host}: {why}"));
        assert_eq!(reply.exit_code, code, "{host}");
        assert!(reply.object.get().starts_with("{\"schema\": 1"), "{host}");
    }
    let unreadable = |why: &str| NoAnswer::Unreadable(why.to_owned());
    for (host, why) in [
        ("half", unreadable("the JSON ends early")),
        ("newer", NoAnswer::Newer(7)),
        ("silent", unreadable("no JSON in it")),
        ("none", NoAnswer::NoProgram),
        ("dead", NoAnswer::Unreachable("connect to host: Connection refused".into())),
        ("old", NoAnswer::Failed(2, message("error: unexpected argument '--deadline'", None))),
        (
            "bare",
            NoAnswer::Failed(
                3,
                message("failed to load NVML: no library", Some("install the driver")),
            ),
        ),
        ("escapes", NoAnswer::Failed(3, message("\u{1b}[2Jgpuws: failed to look", None))),
        ("floods", NoAnswer::TooMuch),
        ("hangs", NoAnswer::TimedOut(time)),
        ("shouts", NoAnswer::TimedOut(time)),
        ("stubborn", NoAnswer::TimedOut(time)),
    ] {
        let answer = answers.iter().find(|answer| answer.host.as_str() == host).unwrap();
        assert_eq!(answer.answer, Err(why), "{host}");
    }
}

#[test]
fn queries_hosts_concurrently_with_total_output_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    // The hosts of the first round wait for each other. Each sends less than a host may, and all
    // together more than the fleet may.
    let size = HOST_LIMIT / 4 * 3;
    let (count, fitting) = (96, FLEET_LIMIT / size);
    assert!(fitting < count);
    let each = format!(
        "*) : > {path}/$host.here\n\
         while [ $(ls {path} | grep -c here) -lt 40 ]; do sleep 0.05; done\n\
         printf '{{\"schema\": 1, \"x\": \"'; head -c {size} /dev/zero | tr '\\0' x; echo '\"}}' ;;"
    );
    let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
    let ssh = ssh(dir.path(), &each);
    let clock = RealClock::new();
    let answers = ask(&named(&names.join(",")), &question(Duration::from_secs(120)), &ssh, &clock);
    let answered = answers.iter().filter(|answer| answer.answer.is_ok()).count() as u64;
    let refused = |answer: &&gpu_fleet::Answer| answer.answer == Err(NoAnswer::TooMuch);
    assert!((1..=fitting).contains(&answered), "{answered} of {fitting}");
    assert_eq!(answers.iter().filter(refused).count() as u64, count - answered);
}

#[test]
fn reports_missing_ssh() {
    let clock = RealClock::new();
    let ssh = Ssh::other("/nonexistent/ssh");
    let answers = ask(&named("a"), &question(Duration::from_secs(1)), &ssh, &clock);
    assert!(matches!(answers[0].answer, Err(NoAnswer::NoSsh(_))), "{answers:?}");
}

/// Runs a job on hosts that behave as `cases` defines. Returns the outcome and the hosts that were
/// asked to run it.
fn run(names: &str, cases: &str) -> (Outcome, String) {
    run_within(Duration::from_secs(20), names, cases)
}

fn run_within(deadline: Duration, names: &str, cases: &str) -> (Outcome, String) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("tried");
    fs::write(&log, "").unwrap();
    let asked = format!(
        "never) case $command in *claim*) \
           echo '{{\"schema\": 1, \"possible\": false, \"ahead_count\": 0}}'; exit 2 ;; esac ;;\n\
         full) case $command in *claim*) \
           echo '{{\"schema\": 1, \"possible\": false, \"ahead_count\": 0}}' ;; esac ;;\n\
         queue) case $command in *claim*) \
           echo '{{\"schema\": 1, \"possible\": true, \"ahead_count\": 1}}' ;; esac ;;\n\
         dead) exit 255 ;;\n\
         *) case $command in *claim*) \
           echo '{{\"schema\": 1, \"possible\": true, \"ahead_count\": 0}}'; exit 0 ;; esac\n\
           echo $host >> {}\n\
           case $host in\n{cases}\nesac ;;",
        log.display()
    );
    let ssh = ssh(dir.path(), &asked);
    let remote = RemoteRun {
        hosts: named(names),
        claim: vec!["-n".into(), "2".into()],
        options: vec!["--quiet".into()],
        command: vec!["true".into()],
        wait: Wait::AtMost(Duration::ZERO),
        deadline,
    };
    let mut reported = Vec::new();
    let mut report = |progress: Progress<'_>| reported.push(format!("{progress:?}"));
    let outcome = remote.run(&ssh, &RealClock::new(), &mut report).unwrap();
    assert_eq!(
        reported.iter().any(|line| line.contains("Started")),
        matches!(outcome, Outcome::Ended(_))
    );
    (outcome, fs::read_to_string(&log).unwrap().replace('\n', " "))
}

#[test]
fn runs_job_only_on_first_host_with_free_devices() {
    let cases = "lost) exit 75 ;;\n\
                 takes) echo 'gpuws: GPU 1' >&2; echo 'gpuws: started' >&2; exit 7 ;;\n\
                 other) echo 'gpuws: started' >&2 ;;";
    let (outcome, tried) = run("never,full,queue,dead,lost,takes,other", cases);
    assert_eq!((outcome, tried.as_str()), (Outcome::Ended(7), "lost takes "));
}

/// A clock on which each reading takes a millisecond.
struct SteppingClock(AtomicU64);

impl Clock for SteppingClock {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) {}
}

#[test]
fn waits_for_free_devices_and_reports_each_reason_once() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let ssh = ssh(
        dir.path(),
        &format!(
            "dead) echo 'No route to host' >&2; exit 255 ;;\n\
             *) case $command in *claim*) echo >> {0}\n\
             [ $(wc -l < {0}) -ge 2 ]; ahead=$?\n\
             echo '{{\"schema\": 1, \"possible\": true, \"ahead_count\": '$ahead'}}' ;;\n\
             *) echo 'gpuws: started' >&2; exit 7 ;; esac ;;",
            asked.display()
        ),
    );
    let remote = RemoteRun {
        hosts: named("dead,busy"),
        claim: Vec::new(),
        options: Vec::new(),
        command: vec!["true".into()],
        wait: Wait::AtMost(Duration::from_millis(400)),
        deadline: Duration::from_secs(600),
    };
    let mut reported = Vec::new();
    let mut report = |progress: Progress<'_>| {
        reported.push(match progress {
            Progress::NoAnswer(host, why) => format!("{host}: {why}"),
            Progress::Waiting => "waiting".to_owned(),
            Progress::Started(host, _) => format!("{host} starts"),
            Progress::Ending(host) => format!("{host} ends"),
        });
    };
    let clock = SteppingClock(AtomicU64::new(0));
    assert_eq!(remote.run(&ssh, &clock, &mut report).unwrap(), Outcome::Ended(7));
    assert_eq!(reported, ["dead: unreachable: No route to host", "waiting", "busy starts"]);
}

#[test]
fn uses_hint_of_host_as_remedy() {
    let failed = NoAnswer::Failed(3, message("failed to load NVML", Some("install the driver")));
    assert_eq!(failed.to_string(), "gpuws exited with 3: failed to load NVML");
    assert_eq!(failed.remedy(), Some("install the driver"));
    let silent = NoAnswer::Failed(9, message("", None));
    assert_eq!((silent.to_string().as_str(), silent.remedy()), ("gpuws exited with 9", None));
}

#[test]
fn does_not_retry_job_after_possible_start() {
    // The job's own exit code may equal that of a refused claim.
    let started = "a) echo 'gpuws: started' >&2; exit 75 ;;";
    assert_eq!(run("a,b", started), (Outcome::Ended(75), "a ".to_owned()));
    let broken = "a) echo 'Connection closed' >&2; exit 255 ;;";
    let host: HostName = "a".parse().unwrap();
    let lost = Outcome::NotStarted(host, 255, message("Connection closed", None));
    assert_eq!(run("a,b", broken), (lost, "a ".to_owned()));
}

#[test]
fn gives_up_on_host_without_job_start() {
    let (outcome, tried) = run_within(Duration::from_secs(4), "a,b", "a) exec sleep 60 ;;");
    let why = message("the job did not start within 8 s", None);
    let host: HostName = "a".parse().unwrap();
    assert_eq!((outcome, tried), (Outcome::NotStarted(host, 255, why), "a ".to_owned()));
}

#[test]
fn reports_reason_without_usable_host() {
    assert_eq!(run("full,queue,dead", ""), (Outcome::NotNow, String::new()));
    assert_eq!(run("never,dead", ""), (Outcome::Never, String::new()));
    assert_eq!(run("dead", ""), (Outcome::NoHost, String::new()));
    assert_eq!(run("full,a", "a) exit 75 ;;"), (Outcome::NotNow, "a ".to_owned()));
}

#[test]
fn watched_hosts_are_asked_again_whatever_the_others_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    // One host hangs, one has an answer only from the third time on, one answers always.
    let ssh = ssh(
        dir.path(),
        &format!(
            "hangs) : >> {path}/hangs; exec sleep 100 ;;\n\
             late) echo . >> {path}/late\n\
                 [ $(wc -l < {path}/late) -lt 3 ] && exit 255; echo '{{\"schema\": 1}}' ;;\n\
             *) echo '{{\"schema\": 1}}' ;;"
        ),
    );
    let (sender, answers) = std::sync::mpsc::channel();
    let question = question(Duration::from_secs(300));
    let report = move |answer, at| drop(sender.send((answer, at)));
    let clock = Arc::new(RealClock::new());
    let interval = Duration::from_millis(10);
    let watch =
        Watch::start(named("hangs,late,good"), question, interval, ssh, clock.clone(), report);
    let watch = watch.unwrap();
    let (mut good, mut late, mut due) = (0, Vec::new(), Duration::ZERO);
    while good < 5 || late.last() != Some(&true) {
        let (Answer { host, answer }, at) = answers.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(at <= clock.monotonic());
        match host.as_str() {
            "good" => {
                assert!(answer.is_ok() && at >= due, "{answer:?} at {at:?}");
                (good, due) = (good + 1, at + interval);
            }
            "late" => late.push(answer.is_ok()),
            host => panic!("{host}: {answer:?}"),
        }
    }
    assert_eq!(late.iter().position(|is_ok| *is_ok), Some(2));
    while !dir.path().join("hangs").exists() {
        std::thread::yield_now();
    }
    // The program of the host that hangs ends as well: its deadline and its own time are longer
    // than any test may take.
    drop(watch);
    let rest: Vec<_> = answers.iter().collect();
    assert!(rest.iter().all(|(answer, _)| answer.host.as_str() != "hangs"), "{rest:?}");
}

#[test]
fn watched_hosts_share_the_limit_of_all_answers() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..128).map(|number| format!("h{number}")).collect();
    let size = FLEET_LIMIT / 128;
    // An object of exactly the limit, and one more byte.
    let answer = |extra| {
        format!(
            "printf '{{\"schema\": 1}}'; head -c {} /dev/zero | tr '\\0' ' '",
            size - 13 + extra
        )
    };
    let ssh =
        ssh(dir.path(), &format!("h0) {} ;;\nh1) {} ;;\n*) exit 255 ;;", answer(0), answer(1)));
    let (sender, answers) = std::sync::mpsc::channel();
    let report = move |answer, _| drop(sender.send(answer));
    let (clock, day) = (Arc::new(RealClock::new()), Duration::from_secs(86_400));
    let question = question(Duration::from_secs(300));
    let _watch = Watch::start(named(&names.join(",")), question, day, ssh, clock, report).unwrap();
    let mut fits = std::collections::BTreeMap::new();
    for _ in 0..128 {
        let Answer { host, answer } = answers.recv_timeout(Duration::from_secs(120)).unwrap();
        fits.insert(host.to_string(), answer.map(|_| ()));
    }
    assert_eq!((&fits["h0"], &fits["h1"]), (&Ok(()), &Err(NoAnswer::TooMuch)));
    assert_eq!(fits.len(), 128);
}
