//! Fake processes, a fake driver and a fake Slurm behind the ports.

use gpu_core::*;
use gpu_nvidia_driver::{device_file, held_files, node};
use gpu_slurm::{Question, Slurm};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A process of the test.
#[derive(Clone, Debug)]
pub(crate) struct FakeProcess {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// The user who started it, if it is a setuid program.
    pub(crate) started_by: Option<u32>,
    /// It belongs entirely to root once its UIDs have been read.
    pub(crate) becomes_root: Option<Arc<AtomicBool>>,
    pub(crate) name: &'static str,
    /// The path of its executable, owned by root; unknown if empty.
    pub(crate) program: &'static str,
    /// It has `/dev/nvidia0` open.
    pub(crate) has_device: bool,
    /// It has the uvm device open.
    pub(crate) uses_uvm: bool,
    /// `SLURM_JOB_ID` in its environment.
    pub(crate) mark: Option<&'static str>,
    /// Its cgroup is that of this job.
    pub(crate) job: Option<(&'static str, &'static str)>,
    /// Its cgroup, if it is not a job's.
    pub(crate) cgroup: &'static str,
    /// It leads a session and has a terminal.
    pub(crate) is_login: bool,
    /// Reading its environment takes seconds.
    pub(crate) blocks: bool,
    /// No signal ends it.
    pub(crate) is_immune: bool,
}

pub(crate) fn process(pid: u32, uid: u32) -> FakeProcess {
    FakeProcess {
        pid,
        uid,
        started_by: None,
        becomes_root: None,
        name: "python",
        program: "",
        has_device: false,
        uses_uvm: false,
        mark: None,
        job: None,
        cgroup: "/",
        is_login: false,
        blocks: false,
        is_immune: false,
    }
}

pub(crate) fn device(pid: u32, uid: u32) -> FakeProcess {
    FakeProcess { has_device: true, uses_uvm: true, ..process(pid, uid) }
}

impl FakeProcess {
    fn info(&self) -> ProcessInfo {
        let mut info = ProcessInfo::from_name(Pid(self.pid), self.name);
        info.key.start = Some(StartTime(u64::from(self.pid)));
        (info.uid, info.parent, info.session) = (Ok(self.uid), Ok(Pid(1)), Ok(Pid(self.pid)));
        (info.has_terminal, info.state) = (Ok(self.is_login), Ok(ProcessState::Sleeping));
        info.executable = match self.program {
            "" => Err(Absent::NotFound),
            path => Ok(Box::new(Executable {
                path: path.to_owned(),
                file: FileId::Inode { dev: 1, ino: 2 },
                owner: 0,
                writable_by_others: false,
                seen_by_caller: Err(Absent::NotRecorded),
            })),
        };
        info.cgroup = Ok(self.cgroup.to_owned());
        if let Some((id, cgroup)) = self.job {
            let (kind, cgroup) = (WorkloadKind::SlurmJob, cgroup.to_owned());
            info.cgroup = Ok(cgroup.clone());
            info.workload = Some(Box::new(Workload { kind, id: id.to_owned(), cgroup }));
        }
        info
    }

    fn held(&self) -> Vec<HeldFile> {
        let paths = [("/dev/nvidia0", self.has_device), ("/dev/nvidia-uvm", self.uses_uvm)];
        let held = paths.into_iter().filter(|(_, has)| *has);
        held_files(held.map(|(path, _)| (path, Access::OPEN_FOR_WRITING)))
    }
}

/// The signals sent so far, with their receivers.
type Signals = Arc<Mutex<Vec<(u32, Signal)>>>;

/// A machine of the test.
pub(crate) struct World {
    pub(crate) processes: Arc<Mutex<Vec<FakeProcess>>>,
    pub(crate) signals: Signals,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
    /// Whether the memory of the driver's GPU is freed; `None` if the driver does not answer.
    pub(crate) driver: Option<bool>,
    pub(crate) has_journal: bool,
    /// The holders of devices cannot be read.
    pub(crate) is_unreadable: bool,
}

/// The lines of the audit log.
pub(crate) fn journal_lines(world: &World) -> Vec<String> {
    world.lines.lock().unwrap().clone()
}

impl World {
    pub(crate) fn new(processes: Vec<FakeProcess>) -> Self {
        let processes = Arc::new(Mutex::new(processes));
        let (signals, lines) = (Arc::default(), Arc::default());
        World { processes, signals, lines, driver: None, has_journal: true, is_unreadable: false }
    }

    pub(crate) fn signalled(&self) -> Vec<(u32, Signal)> {
        self.signals.lock().unwrap().clone()
    }

    pub(crate) fn clock(&self) -> MockClock {
        let now = Arc::new(AtomicU64::new(0));
        let mut clock = MockClock::new();
        let (read, slept) = (now.clone(), now);
        clock
            .expect_monotonic()
            .returning(move || Duration::from_millis(read.load(Ordering::Relaxed)));
        clock.expect_wall().returning(|| Timestamp(1));
        clock.expect_sleep().returning(move |time| {
            slept.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
        });
        clock
    }

    pub(crate) fn journal(&self) -> Box<dyn Journal> {
        if !self.has_journal {
            return Box::new(NoJournal::new(Error::new(ErrorKind::Io, "open the audit log")));
        }
        let mut journal = MockJournal::new();
        let lines = self.lines.clone();
        journal.expect_append().returning(move |line| {
            lines.lock().unwrap().push(line.to_owned());
            Ok(())
        });
        Box::new(journal)
    }

    pub(crate) fn backend(&self) -> MockGpuBackend {
        let mut backend = MockGpuBackend::new();
        backend.expect_origin().returning(|| Origin::Simulated("scene".into()));
        let Some(comes_back) = self.driver else {
            backend
                .expect_devices()
                .returning(|| Err(Error::new(Absent::NotFound, "find a driver")));
            return backend;
        };
        // Its file is nvidia0; its index differs.
        let id = DeviceId { node: Ok(node(0)), ..DeviceId::from_index(3) };
        backend.expect_devices().returning(move || Ok(vec![DeviceInfo::unknown(id.clone())]));
        let processes = self.processes.clone();
        backend.expect_sample().returning(move |_| {
            let mut sample = DeviceSample::absent(Absent::NotSupported);
            let is_used = !comes_back || processes.lock().unwrap().iter().any(|p| p.has_device);
            sample.memory.used = Ok(Bytes::from_mib(if is_used { 9_000 } else { 4 }));
            sample.memory.total = Ok(Bytes::from_mib(16_000));
            Ok(sample)
        });
        let processes = self.processes.clone();
        backend.expect_processes().returning(move |_| {
            let processes = processes.lock().unwrap();
            let listed = processes.iter().filter(|p| p.has_device).map(|process| DeviceProcess {
                pid: Pid(process.pid),
                kind: DeviceProcessKind::Compute,
                memory: Ok(Bytes::from_mib(8_990)),
                utilization: Err(Absent::NotSupported),
                name: Err(Absent::NotRecorded),
                gpu_instance: None,
                compute_instance: None,
            });
            Ok(listed.collect())
        });
        backend
    }

    pub(crate) fn host(&self) -> MockHost {
        let mut host = MockHost::new();
        host.expect_origin().returning(|| Origin::Simulated("scene".into()));
        host.expect_own_ancestry().returning(|| Ok(Vec::new()));
        host.expect_sees_host_pids().returning(|| Ok(true));
        host.expect_is_root().returning(|| Ok(true));
        host.expect_hostname().returning(|| Ok("n1".to_owned()));
        host.expect_device_files().returning(|| {
            let uvm = Ok(FileId::Device { major: 511, minor: 0 });
            Ok(vec![device_file("/dev/nvidia0", Ok(node(0))), device_file("/dev/nvidia-uvm", uvm)])
        });
        let (processes, is_unreadable) = (self.processes.clone(), self.is_unreadable);
        host.expect_holders().returning(move |_| {
            if is_unreadable {
                return Err(Error::new(ErrorKind::Io, "read '/proc'"));
            }
            let all = processes.lock().unwrap();
            let holders = all.iter().filter(|p| p.has_device).map(|process| Holder {
                process: process.info().key,
                held: process.held(),
                through_thread: None,
            });
            Ok(HolderScan { holders: holders.collect(), ..HolderScan::default() })
        });
        let processes = self.processes.clone();
        host.expect_pids().returning(move || {
            Ok(processes.lock().unwrap().iter().map(|process| Pid(process.pid)).collect())
        });
        let processes = self.processes.clone();
        host.expect_process().returning(move |pid| {
            let all = processes.lock().unwrap();
            let found = all.iter().find(|process| process.pid == pid.0).map(FakeProcess::info);
            found.ok_or_else(|| gone(pid))
        });
        let (processes, signals) = (self.processes.clone(), self.signals.clone());
        host.expect_open().returning(move |pid| {
            let found = processes.lock().unwrap().iter().find(|p| p.pid == pid.0).cloned();
            let found = found.ok_or_else(|| gone(pid))?;
            Ok(Box::new(handle(found, processes.clone(), signals.clone())))
        });
        host
    }
}

fn gone(pid: Pid) -> Error {
    Error::new(ProcessFault::Gone, format!("open process {pid}"))
}

fn handle(
    process: FakeProcess,
    all: Arc<Mutex<Vec<FakeProcess>>>,
    signals: Signals,
) -> MockProcessHandle {
    let mut handle = MockProcessHandle::new();
    let pid = process.pid;
    let is_there = {
        let all = all.clone();
        move || all.lock().unwrap().iter().any(|other| other.pid == pid)
    };
    let known = process.clone();
    let there = is_there.clone();
    handle.expect_info().returning(move || match there() {
        true => Ok(known.info()),
        false => Err(gone(Pid(pid))),
    });
    let real = process.started_by.unwrap_or(process.uid);
    let uids = Uids { real, effective: process.uid, saved: process.uid };
    let becomes_root = process.becomes_root.clone();
    let of_root = Uids { real: 0, effective: 0, saved: 0 };
    handle.expect_uids().returning(move || {
        let is_root = becomes_root.as_ref().is_some_and(|read| read.swap(true, Ordering::SeqCst));
        Ok(if is_root { of_root } else { uids })
    });
    let known = process.clone();
    handle.expect_held().returning(move |_| Ok(known.held()));
    handle.expect_has_exited().returning(move || Ok(!is_there()));
    let known = process.clone();
    handle.expect_environment().returning(move || {
        if known.blocks {
            wait_for_seconds();
        }
        let mark = known.mark.map(|id| ("SLURM_JOB_ID".to_owned(), id.to_owned()));
        Ok(Environment { variables: mark.into_iter().collect(), is_cut: false })
    });
    handle.expect_signal().returning(move |signal, _| {
        signals.lock().unwrap().push((pid, signal));
        if !process.is_immune {
            all.lock().unwrap().retain(|other| other.pid != pid);
        }
        Ok(())
    });
    handle
}

#[expect(clippy::disallowed_methods, reason = "a reader in another thread must wait")]
fn wait_for_seconds() {
    std::thread::sleep(Duration::from_secs(3));
}

/// A Slurm of the test.
#[derive(Debug)]
pub(crate) struct FakeSlurm {
    /// The jobs on the node, with the details of each.
    pub(crate) jobs: Vec<(&'static str, &'static str)>,
    /// The rows of `scontrol listpids`.
    pub(crate) tracked: &'static str,
    /// The rows after the controller has been asked for jobs, if others.
    pub(crate) tracked_later: Option<&'static str>,
    /// State and reason of the node.
    pub(crate) node: &'static str,
    /// The controller does not answer.
    pub(crate) is_away: bool,
    /// The signals sent so far, reported with each query.
    pub(crate) signals: Option<Signals>,
    pub(crate) asked: RefCell<Vec<String>>,
}

impl Default for FakeSlurm {
    fn default() -> Self {
        FakeSlurm {
            jobs: Vec::new(),
            tracked: "",
            tracked_later: None,
            node: "State=IDLE",
            is_away: false,
            signals: None,
            asked: RefCell::default(),
        }
    }
}

impl FakeSlurm {
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.borrow().clone()
    }
}

impl Slurm for FakeSlurm {
    fn ask(&self, question: Question<'_>) -> Result<String> {
        let mut asked = question.arguments().join(" ");
        if let Some(signals) = &self.signals {
            asked = format!("after {} signals: {asked}", signals.lock().unwrap().len());
        }
        self.asked.borrow_mut().push(asked);
        let away = || Err(Error::new(ErrorKind::TimedOut, "run bin/squeue"));
        match question {
            Question::Processes => {
                let is_later = self.asked.borrow().iter().any(|asked| !asked.ends_with("listpids"));
                let later = self.tracked_later.filter(|_| is_later);
                Ok(later.unwrap_or(self.tracked).to_owned())
            }
            _ if self.is_away => away(),
            Question::Jobs(_) => {
                Ok(self.jobs.iter().map(|(id, _)| format!("{id} {id}\n")).collect())
            }
            Question::Job(id) => {
                let gres = self.jobs.iter().find(|(other, _)| *other == id);
                Ok(gres
                    .map(|(_, gres)| format!("Nodes=n1 CPU_IDs=0 Mem=0 GRES={gres}"))
                    .unwrap_or_default())
            }
            Question::Node(node) => Ok(format!("NodeName={node} {}", self.node)),
            _ => Ok(String::new()),
        }
    }
}
