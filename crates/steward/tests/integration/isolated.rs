//! Isolation without real processes: the supervisor's order and report, and how the report is read.

use crate::fake::*;
use gpu_core::visible::Form;
use gpu_core::*;
use gpu_steward::{Isolated, IsolatedError, IsolatedReport, Wait, serve_entry, supervise};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A fake supervisor on the fake machine, whose job sends `result`.
struct Played {
    world: World,
    result: Vec<u8>,
    stop: bool,
}

impl Supervisors for Played {
    fn start(&self, order: &[u8], _input: &[u8]) -> Result<Box<dyn Supervised>> {
        let token = ActToken::user_confirmed();
        let path = Path::new("/proc/50/fd/9");
        let ports = self.world.ports();
        let report =
            supervise(order, path, &ports, &self.world, &token, |_| None, &mut || self.stop)?;
        let sent = Sent { complete: true, report, result: self.result.clone(), cut: false };
        Ok(Box::new(Ended(Some(sent), Arc::default())))
    }
}

/// A supervisor that has ended, and the calls to it.
struct Ended(Option<Sent>, Arc<Mutex<Vec<&'static str>>>);

impl Supervised for Ended {
    fn end(&self) -> Result<()> {
        self.1.lock().unwrap().push("end");
        Ok(())
    }

    fn is_over_within(&self, _: Duration) -> Result<bool> {
        Ok(true)
    }

    fn wait(&mut self) -> Result<Sent> {
        self.1.lock().unwrap().push("wait");
        Ok(self.0.take().unwrap_or_default())
    }
}

fn played(world: &World, result: &[u8]) -> Played {
    Played { world: world.clone(), result: result.to_vec(), stop: false }
}

fn ends_after(world: &World, seconds: u64, code: i32) {
    world.after(Duration::from_secs(seconds), move |state| state.ends(JOB, JobExit::Code(code)));
}

#[test]
fn isolated_program_returns_result_through_given_path() {
    let world = World::new(2);
    world.after(Duration::from_secs(1), |state| state.uses(JOB, 1, 700));
    ends_after(&world, 3, 0);
    let launch = Launch { program: "train".into(), ..Launch::default() };
    let claim = Claim { required: vec![uuid(1)], ..Claim::whole(1) };
    let outcome = Isolated::program(launch).claim(claim).run(&played(&world, b"42")).unwrap();
    assert_eq!(outcome.value, b"42");
    assert!(outcome.report.is_clean());
    let [used] = &outcome.report.devices[..] else { panic!("{:?}", outcome.report) };
    assert_eq!((used.index, used.peak), (1, Ok(Bytes::from_mib(700))));
    let set = world.state().launched[0].set.clone();
    let value = |name: &str| set.iter().find(|(other, _)| other == name).map(|(_, v)| v.clone());
    assert_eq!(value("GPUWS_RESULT"), Some("/proc/50/fd/9".into()));
    assert_eq!(value("CUDA_VISIBLE_DEVICES"), Some("GPU-1".into()));
}

#[test]
fn entry_point_outcomes_are_distinguished() {
    let tried = |result: &[u8], code: i32, limit: Option<u64>| {
        let world = World::new(1);
        ends_after(&world, 10, code);
        let entry = Isolated::entry("self", "train");
        let entry = match limit {
            Some(limit) => entry.time_limit(Duration::from_secs(limit)),
            None => entry,
        };
        entry.run(&played(&world, result)).map(|outcome| outcome.value)
    };
    assert_eq!(tried(b"\0yes", 0, None).unwrap(), b"yes");
    assert!(matches!(tried(b"\x01no", 1, None), Err(IsolatedError::Failed(why, _)) if why == "no"));
    assert!(
        matches!(tried(b"\x02oh", 1, None), Err(IsolatedError::Panicked(why, _)) if why == "oh")
    );
    // A killed supervisor sends no report, or only a part.
    assert!(matches!(tried(b"", 0, None), Err(IsolatedError::Failed(..))));
    assert!(matches!(tried(b"\0ye", 1, None), Err(IsolatedError::Failed(..))));
    assert!(matches!(tried(b"\0yes", 0, Some(5)), Err(IsolatedError::TimedOut(_))));
}

#[test]
fn unstarted_job_reports_reason() {
    let world = World::new(1);
    let two = Isolated::entry("self", "train").claim(Claim::whole(2));
    let refused = two.run(&played(&world, b""));
    assert!(matches!(refused, Err(IsolatedError::NeverGranted(_))), "{refused:?}");
    let stopped = Played { stop: true, ..played(&world, b"") };
    let stopped = Isolated::entry("self", "train").run(&stopped);
    assert!(matches!(stopped, Err(IsolatedError::NotGranted(_))), "{stopped:?}");
    world.state().launch_fault = Some(ProcessFault::Gone.into());
    let missing = Isolated::entry("self", "train").run(&played(&world, b""));
    let Err(IsolatedError::NotStarted(fault)) = missing else { panic!("{missing:?}") };
    assert_eq!(fault.kind, ProcessFault::Gone.into());
    assert!(world.state().launched.len() == 1 && world.state().leases.is_empty());
}

#[test]
fn lost_supervisor_is_an_error() {
    for sent in [
        Sent { complete: false, report: b"{}".to_vec(), ..Sent::default() },
        Sent { complete: true, report: b"no report".to_vec(), ..Sent::default() },
        Sent { complete: true, ..Sent::default() },
    ] {
        let mut supervisors = MockSupervisors::new();
        supervisors
            .expect_start()
            .returning(move |_, _| Ok(Box::new(Ended(Some(sent.clone()), Arc::default()))));
        let lost = Isolated::entry("self", "train").run(&supervisors);
        assert!(matches!(lost, Err(IsolatedError::Lost(_))), "{lost:?}");
    }
}

#[test]
fn dropped_job_is_ended_and_awaited() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&asked);
    let mut supervisors = MockSupervisors::new();
    supervisors
        .expect_start()
        .returning(move |_, _| Ok(Box::new(Ended(None, Arc::clone(&reported)))));
    let isolation = Isolated::entry("self", "train").start(&supervisors).unwrap();
    assert!(format!("{isolation:?}").starts_with("Isolation"));
    drop(isolation);
    assert_eq!(*asked.lock().unwrap(), ["end", "wait"]);
}

#[test]
fn entry_point_runs_only_when_requested() {
    let dir = std::env::temp_dir().join(format!("gpu-steward-entry-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("result");
    let entries: [(&str, gpu_steward::EntryPoint); 5] = [
        ("yes", |_| Ok(b"done".to_vec())),
        ("no", |_| Err("why not".into())),
        ("literal", |_| panic!("oh")),
        ("formatted", |input| panic!("oh {}", 7 + input.read(&mut []).unwrap())),
        ("other", |_| std::panic::panic_any(7)),
    ];
    let served = |words: &[&str]| {
        std::fs::write(&file, "").unwrap();
        let words = words.iter().map(OsString::from);
        let result = Some(file.clone().into_os_string());
        let code = serve_entry(words, result, &mut std::io::empty(), &entries);
        (code, std::fs::read(&file).unwrap())
    };
    assert_eq!(served(&[]), (None, vec![]));
    assert_eq!(served(&["run", "yes"]), (None, vec![]));
    assert_eq!(served(&["gpuws-entry", "yes"]), (Some(0), b"\0done".to_vec()));
    assert_eq!(served(&["gpuws-entry", "no"]), (Some(1), b"\x01why not".to_vec()));
    let unknown = (Some(1), b"\x01no such entry point".to_vec());
    assert_eq!(served(&["gpuws-entry", "else"]), unknown);
    assert_eq!(served(&["gpuws-entry", "literal"]), (Some(1), b"\x02oh".to_vec()));
    assert_eq!(served(&["gpuws-entry", "formatted"]), (Some(1), b"\x02oh 7".to_vec()));
    assert_eq!(served(&["gpuws-entry", "other"]), (Some(1), b"\x02no reason given".to_vec()));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn settings_of_isolated_job_reach_its_run() {
    let world = World::new(3);
    world.state().deaf_to.insert(JOB, vec![15]);
    let job = || Isolated::entry("self", "train");
    let tried = |isolated: Isolated| isolated.run(&played(&world, b"\0yes")).map(|_| ());

    // One device needs no topology, and two are named as requested.
    ends_after(&world, 1, 0);
    tried(job().claim(Claim::whole(1))).unwrap();
    assert_eq!(world.state().topology_queries, 0);
    ends_after(&world, 1, 0);
    tried(job().claim(Claim::whole(2)).visible(Form::Index)).unwrap();
    assert_eq!(world.state().topology_queries, 1);
    let first = world.state().launched[0].clone();
    assert_eq!((first.program, first.arguments.len()), ("self".into(), 2));
    let named = |launch: &Launch| {
        launch.set.iter().find(|(name, _)| name == "CUDA_VISIBLE_DEVICES").unwrap().1.clone()
    };
    let visible: Vec<OsString> = world.state().launched.iter().map(named).collect();
    assert_eq!(visible, ["GPU-2", "0,1"]);

    // SIGKILL follows SIGTERM after the grace period.
    let start = world.state().now;
    let limited = job().time_limit(Duration::from_secs(5)).grace(Duration::from_secs(3));
    assert!(matches!(tried(limited), Err(IsolatedError::TimedOut(_))));
    let signals = world.state().signals.clone();
    assert_eq!((signals.first(), signals.last()), (Some(&(JOB, 15)), Some(&(JOB, 9))));
    assert_eq!((world.state().now - start).as_secs(), 8);
}

#[test]
fn supervisor_reports_unkillable_processes_and_leaves_lease() {
    let world = World::new(1);
    world.after(Duration::from_secs(1), |state| {
        state.deaf_to.insert(JOB, vec![15, 9]);
        state.processes.get_mut(&JOB).unwrap().state = Ok(ProcessState::Uninterruptible);
    });
    let limited = Isolated::entry("self", "train").time_limit(Duration::from_secs(5));
    let report = match limited.run(&played(&world, b"")) {
        Err(IsolatedError::TimedOut(report)) => report,
        outcome => panic!("{outcome:?}"),
    };
    assert_eq!((report.left_pids, report.ended_pids), (vec![Pid(JOB)], vec![]));
    assert!(report.stopped.is_some() && world.state().left_to_others);
}

#[test]
fn isolated_job_waits_as_long_as_asked() {
    let waited = |wait: Wait, until: u64| {
        let world = World::new(1);
        world.state().leases.push(lease("other", 1, 100, &[0]));
        world.after(Duration::from_secs(until), |state| state.leases.clear());
        ends_after(&world, until + 10, 0);
        let job = Isolated::entry("self", "train").wait(wait);
        let granted = job.run(&played(&world, b"\0yes")).is_ok();
        (granted, (world.state().now - Duration::from_secs(1000)).as_secs())
    };
    assert_eq!(waited(Wait::No, 20), (false, 0));
    assert_eq!(waited(Wait::For(Duration::from_secs(7)), 20), (false, 7));
    // The shortest wait is still a wait.
    assert_eq!(waited(Wait::For(Duration::from_nanos(1)), 20), (false, 0));
    assert!(waited(Wait::For(Duration::from_secs(60)), 20).0);
    assert!(waited(Wait::Forever, 2000).0);
}

#[test]
fn truncated_result_is_too_long() {
    for (limit, code) in [(None, 0), (Some(5), 0)] {
        let world = World::new(1);
        ends_after(&world, 10, code);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut supervisors = MockSupervisors::new();
        let (played, kept) = (played(&world, b"\0half"), Arc::clone(&order));
        supervisors.expect_start().returning(move |order, input| {
            kept.lock().unwrap().push(input.to_vec());
            let mut ended = played.start(order, input)?;
            let sent = Sent { cut: true, ..ended.wait()? };
            Ok(Box::new(Ended(Some(sent), Arc::default())))
        });
        let job = Isolated::entry("self", "train").input(b"12".to_vec());
        let job = match limit {
            Some(limit) => job.time_limit(Duration::from_secs(limit)),
            None => job,
        };
        let cut = job.run(&supervisors);
        // The time limit is the cause if it was reached.
        assert_eq!(matches!(cut, Err(IsolatedError::TooLong(_))), limit.is_none(), "{cut:?}");
        assert_eq!(*order.lock().unwrap(), [b"12"]);
    }
}

#[test]
fn isolated_report_is_clean_without_leftovers() {
    let world = World::new(1);
    ends_after(&world, 1, 0);
    let clean = Isolated::entry("self", "train").run(&played(&world, b"\0")).unwrap().report;
    assert!(clean.is_clean());
    let fault = Fault { kind: ErrorKind::Io, text: "read".into() };
    for unclean in [
        IsolatedReport { left_pids: vec![Pid(61)], ..clean.clone() },
        IsolatedReport { stopped: Some(fault), ..clean.clone() },
        IsolatedReport { memory_back: Ok(false), ..clean.clone() },
        IsolatedReport { memory_back: Err(Absent::NotSupported), ..clean },
    ] {
        assert!(!unclean.is_clean(), "{unclean:?}");
    }
}

#[test]
fn isolated_errors_are_described_in_words() {
    let world = World::new(1);
    let words = |result: &[u8], code: i32| {
        ends_after(&world, 1, code);
        Isolated::entry("self", "train").run(&played(&world, result)).unwrap_err().to_string()
    };
    let failed = "run an isolated job, which ended with code 3: ";
    assert_eq!(words(b"\x01no", 3), format!("{failed}no"));
    assert_eq!(words(b"", 3), format!("{failed}it sent no result"));
    assert_eq!(words(b"\0half", 3), format!("{failed}no further output"));
    assert_eq!(words(b"\x02oh", 3), "run an isolated job: panic: oh");
    let two = Isolated::entry("self", "train").claim(Claim::whole(2));
    let refused = two.run(&played(&world, b"")).unwrap_err();
    let expected = "claim devices for an isolated job: no matching GPUs exist";
    assert_eq!(refused.to_string(), expected);
    let mut supervisors = MockSupervisors::new();
    supervisors.expect_start().returning(|_, _| Err(Error::new(ErrorKind::Io, "start it")));
    let lost = Isolated::entry("self", "train").run(&supervisors).unwrap_err();
    assert_eq!(lost.to_string(), "supervise an isolated job");
    assert_eq!(std::error::Error::source(&lost).unwrap().to_string(), "start it");
}
