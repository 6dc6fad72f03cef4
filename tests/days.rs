//! What hours of snapshots prove on random days with one snapshot a minute, and that healthy
//! machines get no false findings. Prints the figures of the run.
#![expect(clippy::print_stdout, reason = "the figures of a run are its result")]

use gpu_core::{
    Absent, Access, Bytes, Clock, DeviceDetails, DeviceId, DeviceInfo, DeviceProcess,
    DeviceProcessKind, DeviceSample, DeviceState, DeviceUuid, GpuBackend, Holder, Host, Origin,
    Percent, Pid, Process, ProcessInfo, ProcessKey, ProcessState, Snapshot, StartTime, Timestamp,
    observe_in_detail,
};
use gpu_nvidia_driver::{held_files, node};
use gpu_reaper::{
    Confidence, Finding, FindingKind, Past, diagnose, diagnose_after, full_observation,
};
use gpu_sim::Seed;
use gpuws_tests::{Chance, bound};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60;
/// The wall clock time of the first snapshot, in milliseconds.
const START: u64 = 1_740_000_000_000;
const TOTAL_MIB: u64 = 81_920;

/// The behaviour of a program over a simulated day.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// A job: it computes for this many minutes, then pauses for as many.
    Job(u64, u64),
    /// It prepares data for this many hours, then computes.
    Preparation(u64),
    /// A service that answers at night.
    Service,
    /// A notebook in which a user runs a cell every so many minutes.
    Notebook(u64),
    /// A process held by a debugger.
    Traced,
    /// A process that only renders.
    Display,
    /// A process started with nohup that computes once in so many minutes.
    Nohup(u64),
    /// A job whose caching allocator grows in steps and stops, or grows ever more slowly.
    Warming(bool),
    /// A job that allocates and frees with a period of so many minutes.
    Breathing(u64),

    /// A process that computed for this many minutes and then only holds its memory.
    Abandoned(u64),
    /// A worker without its parent.
    Orphan,
    /// A process that computes while its memory grows by so many MiB a minute.
    Leaking(u64),
}

/// A program on one device.
#[derive(Clone, Copy, Debug)]
struct Program {
    pid: u32,
    /// The minutes in which it starts and ends.
    runs: (u64, u64),
    gpu: u32,
    mib: u64,
    habit: Habit,
}

/// The observable state of a program in one minute.
struct Shown {
    computes: bool,
    cpu_ms: u64,
    mib: u64,
}

impl Program {
    fn shows(&self, minute: u64) -> Shown {
        let age = minute - self.runs.0;
        let ms = |computed: u64, idle: u64| computed * 55_000 + idle * 100;
        let (computes, cpu_ms) = match self.habit {
            Habit::Job(on, off) => {
                let (whole, rest) = (age / (on + off), age % (on + off));
                (rest < on, ms(whole * on + rest.min(on), 0) + (age - whole * on) * 100)
            }
            Habit::Preparation(hours) => (age >= hours * HOUR, ms(age, 0)),
            Habit::Service => (age % 700 < 5, age * 200),
            Habit::Notebook(pause) => (age.is_multiple_of(pause), ms(age / pause, age)),
            Habit::Traced | Habit::Display => (false, age),
            // One of the orphans wakes up occasionally.
            Habit::Orphan => (false, age * u64::from(self.pid % 2)),
            Habit::Nohup(pause) => (age.is_multiple_of(pause), ms(age / pause, age)),
            Habit::Warming(_) | Habit::Breathing(_) | Habit::Leaking(_) => (true, ms(age, 0)),
            Habit::Abandoned(worked) => (age < worked, ms(age.min(worked), age)),
        };
        let more = match self.habit {
            Habit::Warming(true) => age.min(150) / 15 * 500,
            Habit::Warming(false) => ((1.0 + age as f64).ln() * 900.0) as u64,
            Habit::Breathing(period) => age % period * 60,
            Habit::Leaking(mib) => age * mib,
            _ => 0,
        };
        Shown { computes, cpu_ms, mib: self.mib + more }
    }

    fn info(&self, minute: u64, shown: &Shown) -> ProcessInfo {
        let name = match self.habit {
            Habit::Display => "Xorg",
            _ => "python",
        };
        let mut info = ProcessInfo::from_name(Pid(self.pid), name);
        // A reused PID belongs to a process with another start time.
        info.key.start = Some(StartTime(self.runs.0 * 6_000 + 1));
        let ordinary = !matches!(self.habit, Habit::Display);
        info.uid = Ok(if ordinary { 1_000 } else { 0 });
        (info.parent, info.group, info.session) = (Ok(Pid(2)), Ok(Pid(self.pid)), Ok(Pid(2)));
        info.state = Ok(ProcessState::Sleeping);
        info.ignores_hangup = Ok(matches!(self.habit, Habit::Nohup(_)));
        info.tracer = match self.habit {
            Habit::Traced => Ok(Pid(2)),
            _ => Err(Absent::NotFound),
        };
        info.live_threads = Ok(8);
        info.started_at = Ok(Timestamp(START + self.runs.0 * MINUTE));
        info.cpu_time = Ok(Duration::from_millis(shown.cpu_ms));
        match self.habit {
            Habit::Service => info.cgroup = Ok("/system.slice/vllm.service".to_owned()),
            Habit::Notebook(_) => {
                let line = ["python", "-m", "ipykernel_launcher"].map(String::from);
                info.command_line = Ok(line.into());
            }
            Habit::Orphan | Habit::Nohup(_) => {
                (info.parent, info.group) = (Ok(Pid(1)), Ok(Pid(3)));
                info.session = Ok(Pid(3));
                let line = ["python", "--multiprocessing-fork"].map(String::from);
                if matches!(self.habit, Habit::Orphan) {
                    info.command_line = Ok(line.into());
                }
            }
            _ => {}
        }
        assert!(minute >= self.runs.0);
        info
    }
}

/// A machine over a day.
#[derive(Clone, Debug)]
struct Day {
    gpus: u32,
    programs: Vec<Program>,
    /// The minutes without a snapshot: the machine is suspended, or the watcher is off.
    off: BTreeSet<u64>,
    /// The minutes in which the driver does not answer.
    silent: BTreeSet<u64>,
    /// The minute in which the wall clock is set, and by how many milliseconds.
    step: Option<(u64, i64)>,
    /// The unlisted memory, in MiB, and its growth per minute.
    unlisted: (u64, u64),
}

const DAY: u64 = 24 * HOUR;

impl Day {
    /// Returns a day of healthy programs, with each kind on some device at some time.
    fn healthy(chance: &mut Chance) -> Self {
        let gpus = 1 + u32::try_from(chance.below(4)).unwrap();
        let mut day = Day {
            gpus,
            programs: Vec::new(),
            off: BTreeSet::new(),
            silent: BTreeSet::new(),
            step: None,
            unlisted: (0, 0),
        };
        for _ in 0..2 + chance.below(7) {
            let habit = match chance.below(10) {
                0 | 1 => Habit::Job(1 + chance.below(200), 1 + chance.below(8)),
                2 => Habit::Preparation(1 + chance.below(12)),
                3 => Habit::Service,
                4 => Habit::Notebook(1 + chance.below(55)),
                5 => Habit::Traced,
                6 => Habit::Display,
                7 => Habit::Nohup(1 + chance.below(8)),
                8 => Habit::Warming(chance.one_in(2)),
                _ => Habit::Breathing(5 + chance.below(150)),
            };
            day.add(chance, habit, 1 + chance.clone().below(DAY));
        }
        if chance.one_in(3) {
            let from = chance.below(DAY);
            day.off.extend(from..(from + chance.below(600)).min(DAY));
        }
        if chance.one_in(2) {
            let silent = (0..DAY).filter(|_| chance.one_in(60));
            day.silent = silent.collect();
        }
        if chance.one_in(4) {
            let by = i64::try_from(chance.below(7_200_000)).unwrap() - 3_600_000;
            day.step = Some((chance.below(DAY), by));
        }
        day
    }

    fn add(&mut self, chance: &mut Chance, habit: Habit, minutes: u64) -> Program {
        let start = chance.below(DAY / 2);
        // Occasionally, a PID is reused.
        let ended = |pid| self.programs.iter().all(|p| p.pid != pid || p.runs.1 < start);
        let mut others = self.programs.iter().filter(|other| ended(other.pid));
        let used = others.next().filter(|_| chance.one_in(2));
        let fresh = 100 + u32::try_from(self.programs.len()).unwrap() * 7;
        let program = Program {
            pid: used.map_or(fresh, |other| other.pid),
            runs: (start, start.saturating_add(minutes)),
            gpu: u32::try_from(chance.below(self.gpus.into())).unwrap(),
            mib: 4_200 + chance.below(4_000),
            habit,
        };
        self.programs.push(program);
        program
    }

    /// Returns the minutes with a snapshot.
    fn minutes(&self) -> impl Iterator<Item = u64> {
        (0..DAY).filter(|minute| !self.off.contains(minute))
    }

    fn at(&self, minute: u64) -> Snapshot {
        let step = self.step.filter(|(from, _)| minute >= *from).map_or(0, |(_, by)| by);
        let wall = (START + minute * MINUTE).saturating_add_signed(step);
        let mut snapshot = Snapshot::empty(Origin::Simulated("day".into()), Timestamp(wall));
        snapshot.sees_host_pids = Ok(true);
        snapshot.processes = [1, 2]
            .map(|pid| {
                let name = if pid == 1 { "systemd" } else { "bash" };
                let mut info = ProcessInfo::from_name(Pid(pid), name);
                info.key.start = Some(StartTime(u64::from(pid)));
                (Pid(pid), Process::from(Ok(info)))
            })
            .into();
        snapshot.processes.insert(Pid(3), Process::from(Err(Absent::NotFound)));
        snapshot.holders = Ok(Vec::new());
        if self.silent.contains(&minute) {
            return snapshot;
        }
        snapshot.devices =
            (0..self.gpus).map(|index| device(index, self.unlisted, minute)).collect();
        let mut holders = Vec::new();
        for program in self.programs.iter().filter(|p| (p.runs.0..p.runs.1).contains(&minute)) {
            let shown = program.shows(minute);
            let info = program.info(minute, &shown);
            holders.push(holder(info.key, program.gpu));
            snapshot.processes.insert(info.key.pid, Process::from(Ok(info)));
            let device = &mut snapshot.devices[program.gpu as usize];
            let sample = device.sample.as_mut().unwrap();
            let used = sample.memory.used.unwrap();
            sample.memory.used = Ok(used + Bytes::from_mib(shown.mib));
            if shown.computes {
                sample.utilization = Ok(Percent::new(90).unwrap());
            }
            device.processes.as_mut().unwrap().push(listed(program, &shown));
        }
        snapshot.holders = Ok(holders);
        snapshot
    }

    /// Returns the more serious findings of the day, each with the minute of its first occurrence.
    fn findings(&self) -> BTreeMap<(FindingKind, Option<Pid>, Confidence), (u64, Finding)> {
        let mut past = Past::every(Duration::from_millis(MINUTE));
        let mut all = BTreeMap::new();
        for minute in self.minutes() {
            let snapshot = self.at(minute);
            past.add(&snapshot);
            for finding in diagnose_after(&past, &snapshot).findings {
                let pid = finding.suspects.first().map(|suspect| suspect.process.pid);
                if finding.confidence > Confidence::Possible {
                    let key = (finding.kind, pid, finding.confidence);
                    all.entry(key).or_insert((minute, finding));
                }
            }
        }
        all
    }
}

fn device(index: u32, (unlisted, growth): (u64, u64), minute: u64) -> DeviceState {
    let uuid = Ok(DeviceUuid(format!("GPU-{index}")));
    let id = DeviceId { uuid, node: Ok(node(index)), ..DeviceId::from_index(index) };
    let mut sample = DeviceSample::absent(Absent::NotSupported);
    sample.memory.used = Ok(Bytes::from_mib(4 + unlisted + growth * minute));
    sample.memory.total = Ok(Bytes::from_mib(TOTAL_MIB));
    sample.utilization = Ok(Percent::new(0).unwrap());
    DeviceState {
        info: DeviceInfo { persistence: Ok(true), ..DeviceInfo::unknown(id) },
        sample: Ok(sample),
        processes: Ok(Vec::new()),
        partitions: Ok(Vec::new()),
        details: Ok(DeviceDetails::default()),
    }
}

fn listed(program: &Program, shown: &Shown) -> DeviceProcess {
    DeviceProcess {
        pid: Pid(program.pid),
        kind: match program.habit {
            Habit::Display => DeviceProcessKind::Graphics,
            _ => DeviceProcessKind::Compute,
        },
        memory: Ok(Bytes::from_mib(shown.mib)),
        utilization: Ok(Percent::new(if shown.computes { 90 } else { 0 }).unwrap()),
        name: Err(Absent::NotRecorded),
        gpu_instance: None,
        compute_instance: None,
    }
}

fn holder(process: ProcessKey, gpu: u32) -> Holder {
    let path = format!("/dev/nvidia{gpu}");
    let mapped = Access::OPEN_FOR_WRITING | Access::MAPPED;
    let held = held_files([(path.as_str(), mapped), ("/dev/nvidia-uvm", mapped)]);
    Holder { process, held, through_thread: None }
}

#[test]
fn healthy_days_raise_at_most_possible_findings() {
    let count = bound("GPUWS_DAYS", 60, 2_000);
    let mut programs = 0;
    for seed in 0..count {
        let day = Day::healthy(&mut Chance::new(seed));
        programs += day.programs.len();
        let findings = day.findings();
        assert!(findings.is_empty(), "seed {seed}: {findings:#?}\n{day:#?}");
    }
    println!("{count} healthy days with {programs} programs: no false alarm");
}

#[test]
fn only_faulty_program_of_a_day_is_found() {
    let count = bound("GPUWS_DAYS", 60, 2_000);
    let mut after: BTreeMap<(FindingKind, Confidence), Vec<u64>> = BTreeMap::new();
    for seed in 0..count {
        let mut chance = Chance::new(seed);
        let mut day = Day::healthy(&mut chance);
        (day.off, day.step) = Default::default();
        let (habit, kind, best) = match seed % 3 {
            0 => {
                let habit = Habit::Abandoned(chance.below(100));
                (habit, FindingKind::Hoarder, Confidence::High)
            }
            1 => (Habit::Orphan, FindingKind::Orphan, Confidence::High),
            _ => {
                let habit = Habit::Leaking(15 + chance.below(10));
                (habit, FindingKind::MemoryGrowth, Confidence::Likely)
            }
        };
        let faulty = day.add(&mut chance, habit, DAY);
        let findings = day.findings();
        let found = findings.get(&(kind, Some(Pid(faulty.pid)), best));
        let (minute, _) =
            found.unwrap_or_else(|| panic!("seed {seed}: {faulty:?} {:?}", findings.keys()));
        let strangers = findings.keys().filter(|(_, pid, _)| *pid != Some(Pid(faulty.pid)));
        assert_eq!(strangers.count(), 0, "seed {seed}: {findings:#?}\n{day:#?}");
        after.entry((kind, best)).or_default().push(minute - faulty.runs.0);
    }
    for ((kind, confidence), minutes) in after {
        let most = minutes.iter().max().unwrap();
        let (name, count) = (kind.name(), minutes.len());
        println!("{name}: {count} found, {confidence:?} after {most} minutes at most");
    }
}

#[test]
fn growth_of_unlisted_memory_is_evidence_of_leak() {
    let mut day = Day::healthy(&mut Chance::new(1));
    day.programs.clear();
    (day.off, day.silent, day.step) = Default::default();
    let text = |minutes: u64, day: &Day| {
        let mut past = Past::every(Duration::from_millis(MINUTE));
        (0..minutes).for_each(|minute| past.add(&day.at(minute)));
        let mut findings = diagnose_after(&past, &day.at(minutes - 1)).findings;
        assert_eq!(findings[0].kind, FindingKind::DriverLeak);
        findings.remove(0).evidence.into_iter().map(|one| one.text).collect::<Vec<_>>()
    };
    day.unlisted = (2_000, 20);
    let grows = "grew from 2,004 to 8,004 MiB over 5 h without falling; at this rate the device is \
                 full in 60 h";
    assert_eq!(text(5 * HOUR + 45, &day)[1], grows);
    day.unlisted = (2_000, 0);
    assert!(!text(9 * HOUR, &day).iter().any(|text| text.contains("grew")), "it is constant");
}

#[test]
fn gap_and_clock_step_do_not_count_as_idle_time() {
    let mut day = Day::healthy(&mut Chance::new(1));
    day.programs.clear();
    (day.off, day.silent, day.step) = Default::default();
    day.programs.push(Program {
        pid: 100,
        runs: (0, DAY),
        gpu: 0,
        mib: 24_576,
        habit: Habit::Abandoned(20),
    });
    let high = |day: &Day| {
        let found = day.findings();
        let key = (FindingKind::Hoarder, Some(Pid(100)), Confidence::High);
        found.get(&key).map(|(minute, finding)| {
            let texts: Vec<_> =
                finding.suspects[0].evidence.iter().map(|e| e.text.clone()).collect();
            (*minute, texts)
        })
    };
    let (minute, texts) = high(&day).unwrap();
    // For ten more minutes, the CPU time includes that of the earlier work.
    assert_eq!(minute, 30 + 8 * HOUR);
    assert_eq!(texts, ["holds 24,576 MiB", "no compute for 8 h, in 491 samples"]);
    // After an hour off, the time starts over.
    day.off = (300..360).collect();
    assert_eq!(high(&day).unwrap().0, 360 + 8 * HOUR);
    // If the clock is set back or the driver does not respond, no time is lost.
    day.off = BTreeSet::new();
    day.step = Some((200, -3_000_000));
    assert_eq!(high(&day).unwrap().0, 31 + 8 * HOUR, "a minute passed unseen");
    day.step = None;
    day.silent = [100, 200, 201].into();
    assert_eq!(high(&day).unwrap().0, 30 + 8 * HOUR);
    // Setting the clock ahead is like a gap.
    (day.silent, day.step) = (BTreeSet::new(), Some((200, 3_600_000)));
    assert_eq!(high(&day).unwrap().0, 200 + 8 * HOUR);
}

#[test]
fn series_of_snapshots_and_past_agree_on_random_machines() {
    let count = bound("GPUWS_POPULATIONS", 300, 3_000);
    let mut findings = 0;
    for seed in 0..count {
        let mut chance = Chance::new(seed);
        let simulation = gpu_sim::random(Seed(seed));
        let (mut snapshots, mut past, mut second) = (Vec::new(), Past::new(), 0);
        for _ in 0..1 + chance.below(8) {
            simulation.advance_to(Duration::from_secs(second));
            second += [0, 1, 60, 600][chance.index(4)];
            let (backend, host): (&dyn GpuBackend, &dyn Host) = (&simulation, &simulation);
            let clock: &dyn Clock = &simulation;
            snapshots.push(observe_in_detail(backend, host, clock, full_observation()));
            let now = snapshots.last().unwrap();
            past.add(now);
            let diagnosis = diagnose_after(&past, now);
            findings += diagnosis.findings.len();
            assert_eq!(diagnosis, diagnose(&snapshots), "seed {seed}");
        }
    }
    println!("{count} machines: {findings} findings agree");
    assert!(findings > 500);
}

#[test]
fn past_forgets_ended_processes() {
    let mut past = Past::every(Duration::from_secs(1));
    let mut day = Day::healthy(&mut Chance::new(3));
    (day.off, day.silent, day.step) = Default::default();
    let size = |past: &Past| format!("{past:?}").len();
    let mut sizes = Vec::new();
    for minute in 0..600 {
        // Every minute has different processes.
        day.programs = (0..8)
            .map(|index| Program {
                pid: 1_000 + u32::try_from(minute).unwrap() * 8 + index,
                runs: (minute, minute + 1),
                gpu: 0,
                mib: 100,
                habit: Habit::Service,
            })
            .collect();
        past.add(&day.at(minute));
        sizes.push(size(&past));
    }
    let settled = sizes[20..].iter().max().unwrap();
    assert!(*settled < sizes[10] * 3 / 2, "{} then {settled}", sizes[10]);
}
