//! NVML in a child process: what the program gets whatever the child does.
//!
//! Children that misbehave are shell scripts. The real one hangs when the library that it loads
//! is a FIFO that nobody writes to: opening it never returns. That wait can be ended by a signal,
//! and only a driver can make one that cannot.

use gpu_core::{
    Absent, ActToken, DeviceId, DeviceInfo, DeviceState, Driver, ErrorKind, Fault, GpuBackend,
    Groups, Inventory, MachineFault, Origin, Pid,
};
use gpu_nvidia::{Helper, NvmlChild, Waiting};
use rustix::event::{Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const GREETING: &str = r#"echo '{"greeting":{"protocol":3,"simulated":null}}'"#;

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// Shorter than the children here are silent.
const SHORT: Duration = Duration::from_millis(300);

/// A folder with a child in it: a script, or the real one, that writes down each start.
struct Child {
    folder: TempDir,
    arguments: Vec<OsString>,
}

impl Child {
    /// A child that runs a script. `$1` is its folder.
    fn script(script: &str) -> Self {
        Child::run(&[], script)
    }

    /// The real child.
    fn real(library: &[&Path]) -> Self {
        let helper = Path::new(env!("CARGO_BIN_EXE_gpu-nvidia-helper"));
        Child::run(&[&[helper], library].concat(), r#"shift; exec "$@""#)
    }

    fn run(command: &[&Path], script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        let script = format!("echo $$ >> \"$1/starts\"\n{script}");
        let mut arguments: Vec<OsString> = vec!["-c".into(), script.into(), "sh".into()];
        arguments.push(folder.path().into());
        arguments.extend(command.iter().map(|word| word.into()));
        Child { folder, arguments }
    }

    /// Puts a file into the folder that the script can read.
    fn with(self, name: &str, lines: &[serde_json::Value]) -> Self {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.folder.path().join(name), lines).unwrap();
        self
    }

    fn backend(&self, deadline: Duration) -> NvmlChild {
        self.backend_that_waits(deadline, |_| {})
    }

    fn backend_that_waits(
        &self,
        deadline: Duration,
        waiting: impl Fn(&Waiting) + Send + Sync + 'static,
    ) -> NvmlChild {
        let mut helper = Helper::new("/bin/sh");
        helper.arguments.clone_from(&self.arguments);
        helper.proc = self.proc();
        NvmlChild::new(helper, deadline, Box::new(waiting))
    }

    fn proc(&self) -> PathBuf {
        self.folder.path().join("proc")
    }

    /// The process numbers of the children, in the order of their starts.
    fn starts(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.folder.path().join("starts")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Puts a process that hangs into the folder that stands for `/proc`.
    fn hanging_process(&self, user: u32) {
        let process = self.proc().join("4711");
        fs::create_dir(&process).unwrap();
        fs::write(process.join("comm"), "gpuws-stuck\n").unwrap();
        let status = format!("State:\tD (disk sleep)\nUid:\t{user}\t0\t0\t0\n");
        fs::write(process.join("status"), status).unwrap();
        let zeros = "0 ".repeat(40);
        fs::write(process.join("stat"), format!("4711 (gpuws-stuck) D {zeros}\n")).unwrap();
    }
}

fn pause(duration: Duration) {
    let timeout = Timespec::try_from(duration).unwrap();
    poll(&mut [], Some(&timeout)).unwrap();
}

/// Waits until something has come true, ten seconds at most.
fn eventually(mut condition: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if condition() {
            return;
        }
        pause(Duration::from_millis(2));
    }
    panic!("it did not come true in time");
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn info(index: u32) -> DeviceInfo {
    DeviceInfo::unknown(DeviceId::from_index(index))
}

fn driver() -> Driver {
    Driver { version: Ok("535.261.03".to_owned()), cuda: Err(Absent::TooOld) }
}

/// A device that answered, with a fault to tell it by.
fn device(index: u32) -> DeviceState {
    let fault = Fault { kind: ErrorKind::Unsupported, text: format!("sample {index}") };
    DeviceState {
        sample: Err(fault.clone()),
        processes: Ok(Vec::new()),
        ..DeviceState::unanswered(info(index), Groups::NONE, &fault)
    }
}

fn begun(count: u32) -> serde_json::Value {
    serde_json::json!({ "begun": { "driver": { "Ok": driver() }, "count": count } })
}

fn part(index: u32) -> serde_json::Value {
    serde_json::json!({ "device": device(index) })
}

fn done() -> serde_json::Value {
    "done".into()
}

/// The fault of a look at which nothing was learned.
fn failed(look: Inventory) -> Fault {
    assert!(look.devices.is_empty());
    look.driver.unwrap_err()
}

#[test]
fn a_look_comes_whole_and_in_order() {
    let child = Child::script(&format!("{GREETING}; read -r order; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(2), part(0), part(1), done()]);
    let look = child.backend(LONG).look(Groups::NONE);
    assert_eq!(look, Inventory { driver: Ok(driver()), devices: vec![device(0), device(1)] });
}

#[test]
fn a_look_ahead_answers_that_look_and_no_other_question() {
    let look = r#"echo "$order" >> "$1/asked"; cat "$1/answer""#;
    let driver_answer = serde_json::json!({ "driver": { "Ok": driver() } });
    let script = format!(
        "{GREETING}; while read -r order; do \
         case $order in *look*) {look};; *) cat \"$1/driver\";; esac; done"
    );
    let child = Child::script(&script)
        .with("answer", &[begun(1), part(0), done()])
        .with("driver", &[driver_answer, done()]);
    let asked = || fs::read_to_string(child.folder.path().join("asked")).unwrap_or_default();
    let backend = child.backend(LONG);
    let whole = Inventory { driver: Ok(driver()), devices: vec![device(0)] };
    backend.look_ahead(Groups::NONE);
    backend.look_ahead(Groups::all());
    assert_eq!(backend.origin(), Origin::Live, "the greeting comes in between");
    assert_eq!(backend.look(Groups::NONE), whole);
    assert_eq!(asked().lines().count(), 1, "it was asked once");

    backend.look_ahead(Groups::NONE);
    assert_eq!(backend.driver().unwrap(), driver());
    assert_eq!(backend.look(Groups::NONE), whole);
    assert_eq!(asked().lines().count(), 3, "the answer to the first was not kept");

    backend.look_ahead(Groups::NONE);
    assert_eq!(backend.look(Groups::all()), whole);
    assert_eq!(asked().lines().count(), 5, "other groups are another question");
    assert_eq!(child.starts().len(), 1);
}

#[test]
fn a_child_for_one_question_ends_while_the_program_goes_on() {
    let answers = [serde_json::json!({ "driver": { "Ok": driver() } }), done()];
    let script = format!("{GREETING}; while read -r order; do cat \"$1/answer\"; done");
    let child = Child::script(&script).with("answer", &answers);
    let backend = child.backend(LONG).for_one_question();
    for count in 1..=2 {
        assert_eq!(backend.driver().unwrap(), driver());
        let pid = child.starts()[count - 1];
        eventually(|| {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        });
        assert_eq!(backend.helpers(), []);
    }
    drop(backend);
    assert_eq!(child.starts().len(), 2);
    assert!(!child.starts().into_iter().any(is_there), "both were waited for");
}

#[test]
fn the_answer_of_a_child_that_has_ended_since_it_was_asked_ahead_is_heard() {
    let child = Child::script(&format!("{GREETING}; read -r order; cat \"$1/answer\""))
        .with("answer", &[begun(1), part(0), done()]);
    let backend = child.backend(LONG).for_one_question();
    backend.look_ahead(Groups::NONE);
    eventually(|| !child.starts().is_empty() && backend.helpers().is_empty());
    assert!(backend.is_real());
    let look = backend.look(Groups::NONE);
    assert_eq!(look, Inventory { driver: Ok(driver()), devices: vec![device(0)] });
    assert_eq!(child.starts().len(), 1, "no other was started");

    let child = Child::script(&format!("{GREETING}; read -r order; kill -9 $$"));
    let backend = child.backend(LONG).for_one_question();
    backend.look_ahead(Groups::NONE);
    eventually(|| !child.starts().is_empty() && backend.helpers().is_empty());
    let fault = failed(backend.look(Groups::NONE));
    assert!(fault.text.contains("it was ended by signal 9"), "{}", fault.text);
}

#[test]
fn one_child_answers_all_questions() {
    let answers = [serde_json::json!({ "driver": { "Ok": driver() } }), done()];
    let script = format!("{GREETING}; while read -r order; do cat \"$1/answer\"; done");
    let child = Child::script(&script).with("answer", &answers);
    let backend = child.backend(LONG);
    assert_eq!(backend.helpers(), []);
    for _ in 0..3 {
        assert_eq!(backend.driver().unwrap(), driver());
        assert_eq!(backend.helpers(), [Pid(child.starts()[0])]);
    }
    assert_eq!(child.starts().len(), 1);
    drop(backend);
    assert!(!is_there(child.starts()[0]), "it has ended and was waited for");
}

#[test]
fn the_real_child_says_that_the_library_cannot_be_loaded() {
    let child = Child::real(&[Path::new("/nowhere/libnvidia-ml.so.1")]);
    let backend = child.backend(LONG);
    let wrong = ErrorKind::Invalid;
    assert_eq!(failed(backend.look(Groups::all())).kind, wrong);
    assert_eq!(backend.topology().unwrap_err().kind(), wrong);
    assert_eq!(backend.origin(), Origin::Live);
    assert_eq!(backend.simulated(), None);
    assert_eq!(child.starts().len(), 1);
}

#[test]
fn the_origin_comes_from_the_greeting() {
    let simulated = r#"{"machine":"labbox","session":"/run/s"}"#;
    let script = format!(r#"echo '{{"greeting":{{"protocol":3,"simulated":{simulated}}}}}'; cat"#);
    let child = Child::script(&script);
    let backend = child.backend(LONG);
    assert_eq!(backend.origin(), Origin::Simulated("labbox".to_owned()));
    let simulated = backend.simulated().unwrap();
    assert!(!backend.is_real());
    assert_eq!(
        (simulated.machine.as_str(), simulated.session.as_path()),
        ("labbox", Path::new("/run/s"))
    );
    assert_eq!(child.starts().len(), 1);

    let real = Child::script(&format!("{GREETING}; cat")).backend(LONG);
    assert!(real.is_real() && real.simulated().is_none());
    let silent = Child::script("exit 1").backend(LONG);
    assert_eq!(silent.origin(), Origin::Live);
    assert!(!silent.is_real() && silent.simulated().is_none());
}

#[test]
fn a_silent_child_is_given_up_and_no_second_is_started() {
    let hangs = format!("{GREETING}; exec sleep 1000");
    let child = Child::script(&hangs);
    let backend = child.backend(SHORT);
    let fault = failed(backend.look(Groups::NONE));
    assert_eq!(fault.kind, ErrorKind::TimedOut);
    assert_eq!(fault.text, "get an answer from the driver within 0.3 s");
    assert_eq!(failed(backend.look(Groups::NONE)), fault);
    assert_eq!(backend.driver().unwrap_err().fault(), fault);
    assert_eq!(child.starts().len(), 1);
    assert!(!is_there(child.starts()[0]), "it was killed and waited for");
}

#[test]
fn the_call_that_hangs_is_named() {
    let call = r#"echo '{"where":"nvmlDeviceGetMemoryInfo_v2 of GPU 2"}'"#;
    let script = format!("{GREETING}; read -r ask; cat \"$1/answer\"; read -r end; {call}; cat");
    let child = Child::script(&script).with("answer", &[begun(4), part(0), part(1)]);
    let look = child.backend(SHORT).look(Groups::all());
    assert_eq!(look.driver, Ok(driver()));
    assert_eq!(look.devices[..2], [device(0), device(1)], "what came before is kept");
    assert_eq!(look.devices.len(), 4);
    for (index, hung) in (2..).zip(&look.devices[2..]) {
        assert_eq!(hung.info, info(index));
        for fault in [
            hung.sample.as_ref().unwrap_err(),
            hung.processes.as_ref().unwrap_err(),
            hung.mig.as_ref().unwrap_err(),
            hung.details.as_ref().unwrap_err(),
        ] {
            assert_eq!(fault.kind, ErrorKind::TimedOut);
            assert_eq!(
                fault.text,
                "get an answer from the driver within 0.3 s: \
                 nvmlDeviceGetMemoryInfo_v2 of GPU 2 did not return"
            );
        }
    }
}

#[test]
fn an_answer_that_was_whole_before_the_hang_stands() {
    let script = format!("{GREETING}; read -r ask; cat \"$1/answer\"; exec sleep 1000");
    let child = Child::script(&script).with("answer", &[begun(1), part(0)]);
    let backend = child.backend(SHORT);
    let look = backend.look(Groups::NONE);
    assert_eq!(look, Inventory { driver: Ok(driver()), devices: vec![device(0)] });
    assert_eq!(failed(backend.look(Groups::NONE)).kind, ErrorKind::TimedOut);
}

#[test]
fn a_child_that_ends_is_replaced_once() {
    for (end, how) in
        [("exit 3", "it ended with code 3"), ("kill -SEGV $$", "it was ended by signal 11")]
    {
        let child = Child::script(&format!("{GREETING}; read -r ask; {end}"));
        let backend = child.backend(LONG);
        let fault = failed(backend.look(Groups::NONE));
        assert_eq!(fault.kind, MachineFault::Unknown(999).into());
        assert_eq!(fault.text, format!("get an answer from the process that asks NVML: {how}"));
        for _ in 0..3 {
            assert_eq!(failed(backend.look(Groups::NONE)), fault);
        }
        assert_eq!(child.starts().len(), 2);
        assert!(child.starts().iter().all(|pid| !is_there(*pid)));
    }
}

#[test]
fn a_crash_keeps_what_was_learned() {
    let script = format!("{GREETING}; read -r ask; cat \"$1/answer\"; kill -SEGV $$");
    let child = Child::script(&script).with("answer", &[begun(2), part(0)]);
    let look = child.backend(LONG).look(Groups::NONE);
    assert_eq!(look.devices[0], device(0));
    assert_eq!(
        look.devices[1].sample.as_ref().unwrap_err().kind,
        MachineFault::Unknown(999).into()
    );
}

#[test]
fn an_idle_child_that_was_ended_is_not_missed() {
    let answers = [serde_json::json!({ "driver": { "Ok": driver() } }), done()];
    let script = format!("{GREETING}; read -r order; cat \"$1/answer\"");
    let child = Child::script(&script).with("answer", &answers);
    let backend = child.backend(LONG);
    for count in 1..=3 {
        assert_eq!(backend.driver().unwrap(), driver());
        let pid = child.starts()[count - 1];
        eventually(|| {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        });
    }
    assert_eq!(child.starts().len(), 3);
}

#[test]
fn a_child_that_makes_no_sense_is_ended() {
    let long = "head -c 8000000 /dev/zero; cat";
    for (script, how) in [
        ("echo nonsense; cat".to_owned(), "what it says makes no sense"),
        (
            r#"echo '{"greeting":{"protocol":1,"simulated":null}}'; cat"#.to_owned(),
            "it is of another version",
        ),
        ("echo '\"done\"'; cat".to_owned(), "what it says makes no sense"),
        (format!("{GREETING}; {GREETING}; cat"), "what it says makes no sense"),
        (format!("{GREETING}; echo '\"done\"'; cat"), "what it says makes no sense"),
        (
            format!("{GREETING}; echo '{{\"sample\":{{\"Ok\":7}}}}'; cat"),
            "what it says makes no sense",
        ),
        (
            format!("{GREETING}; read -r ask; echo 'half a line'; printf half; exit 0"),
            "what it says makes no sense",
        ),
        (format!("{GREETING}; read -r ask; printf half; exit 0"), "it ended with code 0"),
        (format!("{GREETING}; exec >&-; exec sleep 1000"), "it says nothing any more"),
        (format!("{GREETING}; {long}"), "what it says makes no sense"),
        (format!("{GREETING}; yes '{{\"where\":null}}'"), "what it says makes no sense"),
    ] {
        let child = Child::script(&script);
        let fault = failed(child.backend(LONG).look(Groups::NONE));
        let text = format!("get an answer from the process that asks NVML: {how}");
        assert_eq!((fault.kind, fault.text), (MachineFault::Unknown(999).into(), text), "{script}");
        assert!(!is_there(child.starts()[0]), "{script}");
    }
}

#[test]
fn one_that_chatters_past_the_deadline_is_given_up() {
    let script = format!("{GREETING}; while :; do echo '{{\"where\":\"x\"}}'; sleep 0.01; done");
    let child = Child::script(&script);
    let fault = failed(child.backend(SHORT).look(Groups::NONE));
    assert_eq!(fault.kind, ErrorKind::TimedOut);
    assert!(fault.text.ends_with(": x did not return"), "{}", fault.text);
}

#[test]
fn a_child_that_ignores_everything_holds_nothing_up() {
    let script = format!("trap '' TERM INT HUP; {GREETING}; exec 0<&-; while :; do sleep 1; done");
    let child = Child::script(&script);
    let backend = child.backend(SHORT);
    assert_eq!(backend.origin(), Origin::Live);
    drop(backend);
    assert!(!is_there(child.starts()[0]));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let helper = Helper::new("/nowhere/helper");
    let backend = NvmlChild::new(helper, LONG, Box::new(|_| {}));
    let fault = failed(backend.look(Groups::NONE));
    assert_eq!(fault.kind, ErrorKind::Io);
    assert!(fault.text.starts_with("start '/nowhere/helper' to ask NVML: "), "{}", fault.text);
}

#[test]
fn what_stays_open_is_closed_when_that_is_asked_for() {
    let answer =
        r#"case $order in *'"question":"close"'*) ;; *) cat "$1/answer";; esac; echo '"done"'"#;
    let script = format!(
        "{GREETING}; while read -r order; do echo \"$order\" >> \"$1/orders\"; {answer}; done"
    );
    let answers = [serde_json::json!({ "driver": { "Ok": driver() } })];
    let child = Child::script(&script).with("answer", &answers);
    let orders = || fs::read_to_string(child.folder.path().join("orders")).unwrap();
    let backend = child.backend(LONG);
    backend.driver().unwrap();
    backend.close().unwrap();
    assert_eq!(orders(), "{\"ask\":{\"question\":\"driver\",\"then\":\"close\"}}\n");
    let backend = child.backend(LONG).keep_open();
    backend.close().unwrap();
    assert_eq!(child.starts().len(), 1, "nothing is open");
    backend.driver().unwrap();
    backend.close().unwrap();
    let orders = orders();
    let kept: Vec<_> = orders.lines().skip(1).collect();
    assert!(kept[0].contains("\"driver\"") && kept[0].contains("stay-open"), "{orders}");
    assert!(kept[1].contains("\"close\""), "{orders}");
    assert_eq!(kept.len(), 2);
}

#[test]
fn nothing_is_reset_that_is_simulated_or_hangs() {
    let token = ActToken::the_user_asked();
    let mut device = DeviceId::from_index(0);
    device.bus = Ok("04:00.0".parse().unwrap());
    let simulated = r#"{"machine":"labbox","session":"/run/s"}"#;
    let greeting = format!(r#"echo '{{"greeting":{{"protocol":3,"simulated":{simulated}}}}}'"#);
    let child = Child::script(&format!("{greeting}; read -r order; echo '\"done\"'; cat"));
    let error = child.backend(LONG).reset(&device, &token).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.fault().text, "reset GPU 0: the machine is simulated");
    let child = Child::script(&format!("{GREETING}; exec sleep 1000"));
    let error = child.backend(SHORT).reset(&device, &token).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn waiting_is_reported_with_the_call() {
    let call = r#"echo '{"where":"nvmlInit_v2"}'"#;
    let script = format!("{GREETING}; read -r ask; while read -r order; do {call}; done");
    let child = Child::script(&script);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let deadline = Duration::from_millis(1500);
    let told = Arc::clone(&seen);
    let backend = child
        .backend_that_waits(deadline, move |waiting| told.lock().unwrap().push(waiting.clone()));
    let fault = failed(backend.look(Groups::NONE));
    assert!(fault.text.ends_with("nvmlInit_v2 did not return"), "{}", fault.text);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].call.as_deref(), Some("nvmlInit_v2"));
    assert_eq!(seen[0].deadline, deadline);
    assert!(seen[0].elapsed >= Duration::from_secs(1));
}

#[test]
fn nothing_is_asked_while_a_child_of_an_earlier_look_hangs() {
    let own = rustix::process::getuid().as_raw();
    let told = r#"read -r order; echo "$order" >> "$1/told""#;
    let child = Child::script(&format!("{GREETING}; {told}; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(0), done()]);
    child.hanging_process(own);
    let backend = child.backend(LONG);
    for _ in 0..2 {
        let fault = failed(backend.look(Groups::NONE));
        assert_eq!(fault.kind, ErrorKind::TimedOut);
        assert_eq!(
            fault.text,
            "get an answer from the driver: process 4711 of an earlier look still hangs in it"
        );
    }
    assert_eq!(backend.origin(), Origin::Live);
    let told = || fs::read_to_string(child.folder.path().join("told")).unwrap_or_default();
    assert_eq!(told().trim(), "", "a child that was started was asked nothing");
    assert!(child.starts().len() <= 1, "nor was it started again");
    assert!(!child.starts().into_iter().any(is_there), "and it has ended");
    fs::remove_dir_all(child.proc().join("4711")).unwrap();
    assert_eq!(backend.look(Groups::NONE).driver, Ok(driver()), "it has ended");
    assert!(told().trim().contains("look"), "{}", told());
}

#[test]
fn a_process_of_somebody_else_stops_nobody() {
    let child = Child::script(&format!("{GREETING}; read -r order; cat \"$1/answer\"; cat"))
        .with("answer", &[begun(0), done()]);
    child.hanging_process(rustix::process::getuid().as_raw() + 1);
    assert_eq!(child.backend(LONG).look(Groups::NONE).driver, Ok(driver()));
}

#[test]
fn the_real_child_has_nothing_but_its_conversation() {
    let child = Child::real(&[]);
    let lease = File::create(child.folder.path().join("lease")).unwrap();
    fcntl_setfd(&lease, FdFlags::empty()).unwrap();
    let backend = child.backend(LONG);
    assert!(backend.look(Groups::NONE).devices.is_empty());
    let pid = child.starts()[0];
    let mut open: Vec<(u32, String)> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let number = path.file_name().unwrap().to_string_lossy().parse().unwrap();
            (number, fs::read_link(path).unwrap().to_string_lossy().into_owned())
        })
        .collect();
    open.sort_unstable();
    let (numbers, links): (Vec<_>, Vec<_>) = open.into_iter().unzip();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert!(links[0].starts_with("socket:") && links[1].starts_with("pipe:"), "{links:?}");
    assert_eq!(links[2], "/dev/null");
    assert_eq!(links[3], format!("/proc/{pid}/comm"), "its own name");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let group = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(2).unwrap();
    assert_eq!(group, pid.to_string(), "a process group of its own");
    drop(lease);
}

/// A FIFO, which stands for a library whose loading never ends.
fn endless_library(folder: &Path) -> PathBuf {
    let path = folder.join("libnvidia-ml.so.1");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

#[test]
fn the_real_child_says_what_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let child = Child::real(&[&endless_library(folder.path())]);
    let backend = child.backend(SHORT);
    let fault = failed(backend.look(Groups::NONE));
    assert_eq!(
        fault.text,
        "get an answer from the driver within 0.3 s: the loading of the library did not return"
    );
    assert!(!is_there(child.starts()[0]));
    assert_eq!(failed(backend.look(Groups::NONE)), fault);
    assert_eq!(child.starts().len(), 1);
}

#[test]
fn the_real_child_ends_with_the_program_even_while_it_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let library = endless_library(folder.path());
    let (input, to_child) = std::io::pipe().unwrap();
    let mut program = Command::new("sleep").arg("1000").stdout(to_child).spawn().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpu-nvidia-helper"))
        .arg(&library)
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Both threads are there: it hangs in the one and listens in the other.
    eventually(|| {
        fs::read_dir(format!("/proc/{}/task", child.id())).is_ok_and(|tasks| tasks.count() == 2)
    });
    assert!(child.try_wait().unwrap().is_none());
    program.kill().unwrap();
    program.wait().unwrap();
    let mut code = None;
    eventually(|| {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    assert_eq!(code.unwrap().code(), Some(0));
}
