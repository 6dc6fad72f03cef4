//! The findings of the diagnosis on a set of test machines and on random populations: the findings
//! that it must make, and that it makes none about healthy processes. Prints precision and recall;
//! a finding counts if its confidence is likely or higher.
#![expect(clippy::print_stdout, reason = "the figures of a run are its result")]

use gpu_core::{
    HolderSearch, Observation, Pid, Process, ProcessDetail, Snapshot, observe_in_detail,
};
use gpu_machine::Source;
use gpu_reaper::{
    Confidence, Finding, defect_groups, diagnose, diagnose_outlines, full_observation,
};
use gpu_sim::{Machine, Seed, Simulation, machines};
use gpuws_tests::{Chance, bound};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// Returns a snapshot of the devices of all vendors.
fn observe(simulation: &Simulation) -> Snapshot {
    Source::simulated(simulation.clone()).detailed_snapshot(full_observation())
}

/// Diagnoses a machine after these times, in seconds.
fn findings(simulation: &Simulation, times: &[u64]) -> Vec<Finding> {
    let mut snapshots = Vec::new();
    for seconds in times {
        simulation.advance_to(Duration::from_secs(*seconds));
        snapshots.push(observe(simulation));
    }
    diagnose(&snapshots).findings
}

fn kind(finding: &Finding) -> String {
    finding.kind.name().to_owned()
}

fn confidence(name: &str) -> Confidence {
    match name {
        "possible" => Confidence::Possible,
        "likely" => Confidence::Likely,
        "high" => Confidence::High,
        other => panic!("{other} is no confidence"),
    }
}

/// A required finding.
#[derive(Clone, Debug)]
struct Expected {
    kind: String,
    gpus: BTreeSet<u32>,
    pid: Option<Pid>,
    least: Confidence,
}

impl Expected {
    fn is(&self, finding: &Finding) -> bool {
        let gpus: BTreeSet<u32> = finding.devices.iter().map(|device| device.index).collect();
        let suspects = &finding.suspects;
        self.kind == kind(finding)
            && self.gpus == gpus
            && self.pid.is_none_or(|pid| suspects.iter().any(|suspect| suspect.process.pid == pid))
    }
}

/// The findings that `sim-fixtures/findings.toml` expects for a machine.
fn expected(table: &toml::Table, name: &str, watched: bool) -> Vec<Expected> {
    let machines = table["machine"].as_array().unwrap();
    let Some(machine) = machines.iter().find(|machine| machine["name"].as_str() == Some(name))
    else {
        return Vec::new();
    };
    let number = |value: &toml::Value| u32::try_from(value.as_integer().unwrap()).unwrap();
    let faulty = machine["sick"].as_array().unwrap().iter().filter_map(|faulty| {
        let least = faulty.get("watched").filter(|_| watched).or_else(|| faulty.get("once"))?;
        Some(Expected {
            kind: faulty["kind"].as_str().unwrap().to_owned(),
            gpus: faulty["gpus"].as_array().unwrap().iter().map(number).collect(),
            pid: faulty.get("pid").map(|pid| Pid(number(pid))),
            least: confidence(least.as_str().unwrap()),
        })
    });
    faulty.collect()
}

/// True alarms, false alarms, and missed findings.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    found: u32,
    missed: u32,
    false_alarms: u32,
}

impl Score {
    fn precision(self) -> f64 {
        f64::from(self.found) / f64::from((self.found + self.false_alarms).max(1))
    }

    fn recall(self) -> f64 {
        f64::from(self.found) / f64::from((self.found + self.missed).max(1))
    }
}

#[test]
fn machines_have_exactly_the_expected_findings() {
    let text = std::fs::read_to_string("../sim-fixtures/findings.toml").unwrap();
    let table: toml::Table = text.parse().unwrap();
    let names: BTreeSet<&str> = machines().iter().map(|machine| machine.name).collect();
    for machine in table["machine"].as_array().unwrap() {
        assert!(names.contains(machine["name"].as_str().unwrap()), "{machine:?}");
    }
    let mut score = Score::default();
    let mut wrong = Vec::new();
    for name in &names {
        let minutes: Vec<u64> = (0..=10).map(|minute| minute * 60).collect();
        for (watched, times) in [(false, &[0][..]), (true, &minutes)] {
            let wanted = expected(&table, name, watched);
            // A simulated healthy machine does not change, but a healthy job is idle for at most a
            // minute.
            let times = if watched && wanted.is_empty() { &[0, 30, 60][..] } else { times };
            let found = findings(&Simulation::embedded(name).unwrap(), times);
            for want in &wanted {
                let best = found.iter().filter(|finding| want.is(finding)).map(|f| f.confidence);
                if best.max() >= Some(want.least) {
                    score.found += 1;
                } else {
                    score.missed += 1;
                    wrong.push(format!("{name} watched={watched}: missed {want:?}"));
                }
            }
            let false_alarm = |finding: &&Finding| {
                finding.confidence > Confidence::Possible
                    && !wanted.iter().any(|want| want.is(finding))
            };
            for finding in found.iter().filter(false_alarm) {
                score.false_alarms += 1;
                wrong.push(format!("{name} watched={watched}: false alarm {finding:?}"));
            }
        }
    }
    println!(
        "{} machines: {} findings expected, precision {:.3}, recall {:.3}",
        names.len(),
        score.found + score.missed,
        score.precision(),
        score.recall()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(score.found > 40, "the battery is not empty");
}

/// A random machine, as text.
struct Population {
    chance: Chance,
    gpus: Vec<String>,
    processes: String,
    next_pid: u32,
    /// Used memory of each device, in MiB.
    used: Vec<u64>,
    /// Whether some process is in uninterruptible sleep. Such processes stay in it, so they must
    /// not be observed for long.
    has_reader: bool,
}

const TOTAL_MIB: u64 = 81_920;

impl Population {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let count = 1 + chance.below(4);
        let gpus = (0..count).map(|index| {
            format!(
                "[[gpu]]\nindex = {index}\nname = \"NVIDIA A100-SXM4-80GB\"\n\
                 memory_total_mib = {TOTAL_MIB}\ndriver_reserve_mib = 4\ntemperature_c = 45\n\
                 power_draw_mw = 90000\npower_limit_mw = 400000\npersistence = true\n"
            )
        });
        Population {
            gpus: gpus.collect(),
            used: vec![0; count as usize],
            chance,
            processes: String::new(),
            next_pid: 4000,
            has_reader: false,
        }
    }

    fn pid(&mut self) -> u32 {
        self.next_pid += 1 + u32::try_from(self.chance.below(50)).unwrap();
        self.next_pid
    }

    fn gpu(&mut self) -> usize {
        self.chance.below(self.gpus.len() as u64) as usize
    }

    /// Adds memory on a device, at most a fifth of it; returns the field of a process.
    fn memory(&mut self, gpu: usize, load: u64, kind: &str) -> String {
        let mib = 200 + self.chance.below(TOTAL_MIB / 6);
        self.used[gpu] += mib;
        format!(
            "memory = [{{ gpu = {gpu}, mib = {mib}, utilization_percent = {load}, \
             kind = \"{kind}\" }}]\n"
        )
    }

    /// Adds a process with its name, its age in seconds at the machine's clock, and further fields.
    fn process(&mut self, pid: u32, name: &str, age: u64, fields: &str) {
        let started = 1_740_996_000 - age;
        let (day, second) = (started / 86_400, started % 86_400);
        // 2025-03-03 is day 20,150 since 1970.
        let back = 20_150 - day;
        let date = match back {
            0..=2 => format!("2025-03-{:02}", 3 - back),
            _ => format!("2025-02-{:02}", 28_u64.saturating_sub(back - 3).max(1)),
        };
        let time = format!("{:02}:{:02}:{:02}", second / 3600, second % 3600 / 60, second % 60);
        write!(
            self.processes,
            "[[process]]\npid = {pid}\nname = \"{name}\"\nstarted = {date}T{time}Z\n{fields}\n"
        )
        .unwrap();
    }

    fn age(&mut self) -> u64 {
        let most = [2, 60, 900, 3_600, 40_000, 900_000][self.chance.below(6) as usize];
        1 + self.chance.below(most)
    }

    /// Adds a healthy program of a random kind.
    fn add_healthy(&mut self) {
        let (gpu, pid, age) = (self.gpu(), self.pid(), self.age());
        let load = [0, 0, 3, 40, 97, 100][self.chance.below(6) as usize];
        let any = self.memory(gpu, load, "compute");
        let gone = 100_000 + pid;
        match self.chance.below(18) {
            // A job that computes or pauses.
            0 | 1 => {
                let cpu = if load == 0 { self.chance.below(3) } else { 100 };
                self.process(pid, "python", age, &format!("{any}cpu_percent = {cpu}\n"));
            }
            2 => self.process(pid, "python", age, &format!("{any}cpu_percent = 95\n")),
            3 => {
                self.has_reader = true;
                self.process(pid, "python", age, &format!("{any}state = \"uninterruptible\"\n"));
            }
            // A process started with nohup, from a script that has ended or over ssh.
            4 | 5 => {
                let fields = format!(
                    "{any}parent = 1\ngroup = {gone}\nsession = {gone}\nignores_hangup = true\n"
                );
                self.process(pid, "python", age, &fields);
            }
            // A background process of a script that has ended.
            6 => {
                let fields = format!("{any}parent = 1\ngroup = {gone}\nsession = {gone}\n");
                self.process(pid, "train", age, &fields);
            }
            7 => self.process(pid, "python", age, &format!("{any}parent = 1\n")),
            8 => {
                let unit = ["vllm", "triton@0", "inference"][self.chance.below(3) as usize];
                let fields = format!("{any}cgroup = \"/system.slice/{unit}.service\"\n");
                self.process(pid, "python3", age, &fields);
            }
            9 => {
                let fields = format!(
                    "{any}cgroup = \"/user.slice/user-1001.slice/user@1001.service/app.slice/\
                     ollama.service\"\n"
                );
                self.process(pid, "ollama", age, &fields);
            }
            10 => {
                let fields =
                    format!("{any}command_line = [\"python\", \"-m\", \"ipykernel_launcher\"]\n");
                self.process(pid, "python", age, &fields);
            }
            11 => {
                let tracer = self.pid();
                self.process(tracer, "gdb", age, "");
                let fields = format!("{any}state = \"stopped\"\ntracer = {tracer}\n");
                self.process(pid, "prog", age, &fields);
            }
            // torchrun, a rank, and its DataLoader workers.
            12 | 13 => {
                let (rank, workers) = (self.pid(), 1 + self.chance.below(4));
                self.process(pid, "torchrun", age, "");
                let family = format!("group = {pid}\nsession = {pid}\n");
                self.process(rank, "python", age, &format!("{any}{family}parent = {pid}\n"));
                for _ in 0..workers {
                    let worker = self.pid();
                    let fields = format!(
                        "{family}parent = {rank}\ncommand_line = [\"python\", \"-c\", \
                         \"from multiprocessing.spawn import spawn_main\"]\n\
                         files = {{ \"/dev/nvidia{gpu}\" = \"F....\", \"/dev/nvidia-uvm\" = \
                         \"F....\" }}\n"
                    );
                    self.process(worker, "pt_data_worker", age, &fields);
                }
            }
            // A Ray worker below a raylet that was detached on purpose.
            14 => {
                let worker = self.pid();
                self.process(pid, "raylet", age, &format!("parent = 1\ngroup = {gone}\n"));
                let fields = format!("{any}parent = {pid}\ngroup = {gone}\nsession = {gone}\n");
                self.process(worker, "ray::Worker", age, &fields);
            }
            15 => {
                let job = self.chance.below(90_000);
                let cgroup = format!("/slurm/uid_1001/job_{job}");
                let fields = format!(
                    "{any}cgroup = \"{cgroup}\"\nworkload = {{ kind = \"slurm-job\", id = \
                     \"{job}\" }}\n"
                );
                self.process(pid, "python", age, &fields);
            }
            16 => {
                let server = self.pid();
                let files = format!(
                    "uid = 0\nfiles = {{ \"/dev/nvidia{gpu}\" = \"F...m\", \"/dev/nvidia-uvm\" = \
                     \"F...m\" }}\n"
                );
                self.process(server, "nvidia-cuda-mps", 900_000, &files);
                let client = self.memory(gpu, load, "mps");
                self.process(pid, "gmx", age, &client);
            }
            _ => {
                let screen = self.memory(gpu, 0, "graphics");
                self.process(pid, "Xorg", 900_000, &format!("uid = 0\n{screen}"));
                let files = format!(
                    "uid = 0\nfiles = {{ \"/dev/nvidia{gpu}\" = \"F....\", \"/dev/nvidiactl\" = \
                     \"F....\" }}\n"
                );
                for name in ["nv-hostengine", "nvidia-persiste"] {
                    let daemon = self.pid();
                    self.process(daemon, name, 900_000, &files);
                }
            }
        }
    }

    fn healthy(seed: u64) -> Self {
        let mut population = Population::new(seed);
        for _ in 0..1 + population.chance.below(7) {
            if population.used.iter().all(|used| *used < TOTAL_MIB / 2) {
                population.add_healthy();
            }
        }
        population
    }

    /// Introduces a fault; returns the required finding with its kind, device and process.
    fn add_fault(&mut self) -> Expected {
        let (gpu, pid) = (self.gpu(), self.pid());
        let gone = 100_000 + pid;
        let mib = 2_000 + self.chance.below(10_000);
        let memory = |listed: bool| {
            format!(
                "memory = [{{ gpu = {gpu}, mib = {mib}, listed = {listed}, \
                 utilization_percent = 0 }}]\n"
            )
        };
        let of_process = |kind: &str, least| Expected {
            kind: kind.to_owned(),
            gpus: BTreeSet::from([gpu as u32]),
            pid: Some(Pid(pid)),
            least,
        };
        let of_device = |kind: &str| Expected { pid: None, ..of_process(kind, Confidence::Likely) };
        let fresh = self.gpus.len();
        let on_fresh = |kind: &str| Expected {
            gpus: BTreeSet::from([fresh as u32]),
            pid: None,
            ..of_process(kind, Confidence::Likely)
        };
        let mut add_gpu = |fields: &str, mig: &str| {
            self.gpus.push(format!(
                "[[gpu]]\nindex = {fresh}\nname = \"NVIDIA A100-SXM4-80GB\"\n\
                 memory_total_mib = {TOTAL_MIB}\ndriver_reserve_mib = 4\n{mig}{fields}"
            ));
        };
        match self.chance.below(12) {
            11 => {
                add_gpu("", "");
                self.processes.push_str(&format!(
                    "[[driver_message]]\ngpu = {fresh}\nxid = 119\nseconds_ago = 600\n"
                ));
                on_fresh("driver-error")
            }
            0 => {
                self.process(pid, "python", 7_200, &memory(false));
                of_process("ghost", Confidence::High)
            }
            1 => {
                let fields = format!(
                    "{}parent = 1\ngroup = {gone}\nsession = {gone}\ncommand_line = [\"python\", \
                     \"-c\", \"from multiprocessing.spawn import spawn_main\"]\n",
                    memory(true)
                );
                self.process(pid, "python", 7_200, &fields);
                of_process("orphan", Confidence::Likely)
            }
            2 => {
                let fields = format!("{}state = \"zombie\"\nthreads = 3\n", memory(true));
                self.process(pid, "python", 7_200, &fields);
                of_process("zombie-holder", Confidence::High)
            }
            3 => {
                self.process(pid, "python", 7_200, &format!("{}gone = true\n", memory(true)));
                Expected { pid: None, ..of_device("listed-but-gone") }
            }
            4 => {
                add_gpu(&format!("memory_leaked_mib = {mib}\n"), "");
                on_fresh("driver-leak")
            }
            5 => {
                add_gpu("fault = \"lost\"\n", "");
                on_fresh("device-fault")
            }
            6 => {
                add_gpu("fault = \"reset-required\"\n", "");
                on_fresh("device-fault")
            }
            7 => {
                add_gpu("details.memory_health = { uncorrected = 3 }\n", "");
                on_fresh("memory-errors")
            }
            8 => {
                add_gpu("details.modes = { compute_mode = \"prohibited\" }\n", "");
                on_fresh("compute-prohibited")
            }
            9 => {
                add_gpu("", "mig_enabled = true\n");
                on_fresh("no-mig-instance")
            }
            _ => {
                add_gpu("temperature_c = 92\ndetails.activity = { throttle = 0x40 }\n", "");
                on_fresh("throttled")
            }
        }
    }

    fn start(&self, seed: u64) -> Simulation {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "description = \"made: a random population\"\nhostname = \"lab\"\n\
             clock = 2025-03-03T10:00:00Z\n[driver]\nversion = \"535.261.03\"\ncuda = \"12.2\"\n\
             {}{}",
            self.gpus.concat(),
            self.processes
        );
        std::fs::write(dir.path().join("machine.toml"), &text).unwrap();
        let machine = Machine::from_dir(dir.path());
        Simulation::start(machine.unwrap_or_else(|error| panic!("{error}\n{text}")), Seed(seed))
    }

    /// Returns the times of the snapshots.
    fn times(&mut self) -> Vec<u64> {
        let most = if self.has_reader { 100 } else { 550 };
        match self.chance.below(3) {
            0 => vec![0],
            1 => vec![0, 5, 10],
            _ => vec![0, 1 + self.chance.below(most)],
        }
    }
}

#[test]
fn healthy_populations_raise_at_most_possible_findings() {
    let count = bound("GPUWS_POPULATIONS", 1_000, 10_000);
    let mut possible: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..count {
        let mut population = Population::healthy(seed);
        let times = population.times();
        let found = findings(&population.start(seed), &times);
        for finding in found {
            assert_eq!(
                finding.confidence,
                Confidence::Possible,
                "seed {seed}, snapshots at {times:?}: {finding:?}\n{}",
                population.processes
            );
            *possible.entry(kind(&finding)).or_default() += 1;
        }
    }
    println!("{count} healthy populations: no false alarm; possible: {possible:?}");
    assert!(possible.values().sum::<u32>() > 0, "the populations are not trivial");
}

#[test]
fn only_fault_in_healthy_population_is_found() {
    let count = bound("GPUWS_POPULATIONS", 1_000, 10_000);
    let mut scores: BTreeMap<String, Score> = BTreeMap::new();
    let mut wrong = Vec::new();
    for seed in 0..count {
        let mut population = Population::healthy(seed);
        let want = population.add_fault();
        let times = population.times();
        let found = findings(&population.start(seed), &times);
        let best = found.iter().filter(|finding| want.is(finding)).map(|f| f.confidence).max();
        let score = scores.entry(want.kind.clone()).or_default();
        if best >= Some(want.least) {
            score.found += 1;
        } else {
            score.missed += 1;
            wrong.push(format!("seed {seed}: missed {want:?} in {found:?}"));
        }
        let false_alarm = |finding: &&Finding| {
            finding.confidence > Confidence::Possible
                && !want.is(finding)
                // The processes that block a required reset belong to the fault.
                && kind(finding) != "blocked-reset"
        };
        for finding in found.iter().filter(false_alarm) {
            score.false_alarms += 1;
            wrong.push(format!("seed {seed}: {want:?}, false alarm {finding:?}"));
        }
    }
    for (kind, score) in &scores {
        println!(
            "{kind:20} {:4} populations  precision {:.3}  recall {:.3}",
            score.found + score.missed,
            score.precision(),
            score.recall()
        );
    }
    wrong.truncate(5);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(scores.len() >= 10, "every kind of sickness occurs");
}

/// Removes the data that an outline of a process does not have.
fn outlined(whole: &Snapshot) -> Snapshot {
    let mut snapshot = whole.clone();
    for info in snapshot.processes.values_mut().filter_map(Process::info_mut) {
        *info = info.clone().in_detail(ProcessDetail::Outline);
    }
    snapshot
}

/// An outline lacks the data that clears a process, so with outlines the diagnosis must read
/// suspects whole, and then give the same findings as with whole processes.
#[test]
fn outlines_have_the_findings_of_whole_processes() {
    let count = bound("GPUWS_POPULATIONS", 1_000, 10_000);
    let embedded =
        machines().into_iter().map(|machine| Simulation::embedded(machine.name).unwrap());
    let healthy = (0..count).map(|seed| Population::healthy(seed).start(seed));
    let faulty = (0..count).map(|seed| {
        let mut population = Population::healthy(seed);
        population.add_fault();
        population.start(seed)
    });
    let (mut compared, mut searched, mut exonerated) = (0, 0, 0);
    for simulation in embedded.chain(healthy).chain(faulty) {
        let observation = Observation {
            groups: defect_groups(),
            holders: HolderSearch::IfUnexplained,
            processes: ProcessDetail::Whole,
            driver_messages: false,
        };
        let whole = Source::simulated(simulation.clone()).detailed_snapshot(observation);
        searched += u32::from(whole.holders.is_ok());
        let mut outlines = outlined(&whole);
        let suspected = diagnose(std::slice::from_ref(&outlines));
        let diagnosis = diagnose_outlines(&mut outlines, &simulation);
        exonerated += u32::from(suspected != diagnosis);
        compared += 1;
        assert_eq!(diagnosis, diagnose(std::slice::from_ref(&whole)), "{:#?}", whole.processes);
    }
    println!(
        "{compared} machines, {searched} with a search; in {exonerated} a suspect was exonerated"
    );
    assert!(compared - searched > 1_000 && searched > 100 && exonerated > 100);
}

#[test]
fn snapshot_without_details_finds_no_defect() {
    let simulation = Simulation::embedded("sick-gpus").unwrap();
    let snapshot = observe_in_detail(&simulation, &simulation, &simulation, Observation::default());
    let kinds: Vec<String> = diagnose(&[snapshot]).findings.iter().map(kind).collect();
    assert_eq!(kinds, ["no-mig-instance", "busy-without-process"]);
}
