//! A random day of a machine: its healthy users, its faults and their times, and its script.

use gpu_sim::{Machine, Seed, Simulation};
use gpuws_tests::Chance;
use std::fmt::Write as _;

/// Minutes of a day.
pub(crate) const DAY: u64 = 24 * 60;

const ALICE: (u32, &str) = (1001, "alice");
const BOB: (u32, &str) = (1002, "bob");
const TOTAL_MIB: u64 = 81_920;

/// A fault.
#[derive(Clone, Debug)]
pub(crate) struct Defect {
    /// The kind of the required finding.
    pub(crate) kind: &'static str,
    pub(crate) pid: Option<u32>,
    pub(crate) gpu: u32,
    /// The first minute in which the finding is possible.
    pub(crate) from: u64,
    /// The minute in which the fault ends by itself; `None` if it does not.
    pub(crate) until: Option<u64>,
    /// Whether the test's policy ends the process if it does not change.
    pub(crate) reapable: bool,
}

/// The script of a day.
pub(crate) struct Day {
    chance: Chance,
    text: String,
    pub(crate) defects: Vec<Defect>,
    next_pid: u32,
}

/// A process that an event starts.
struct Start<'a> {
    pid: u32,
    name: &'a str,
    user: (u32, &'a str),
    gpu: u32,
    mib: u64,
    listed: bool,
    load: u64,
    more: &'a str,
}

impl Day {
    /// Creates a day with every kind of healthy program and of fault, at random times.
    pub(crate) fn new(seed: u64) -> Self {
        let mut text = "description = \"made: a random day\"\nhostname = \"lab\"\n\
            clock = 2025-03-03T00:00:00Z\n[driver]\nversion = \"535.261.03\"\ncuda = \"12.2\"\n"
            .to_owned();
        for gpu in 0..8 {
            write!(
                text,
                "[[gpu]]\nindex = {gpu}\nname = \"NVIDIA A100-SXM4-80GB\"\n\
                 memory_total_mib = {TOTAL_MIB}\ndriver_reserve_mib = 4\ntemperature_c = 45\n\
                 power_draw_mw = 90000\npower_limit_mw = 400000\npersistence = true\n"
            )
            .expect("a string takes it");
        }
        let mut day = Day { chance: Chance::new(seed), text, defects: Vec::new(), next_pid: 4_000 };
        day.healthy();
        day.ghosts();
        day.hoarders();
        day.orphan();
        day.devices();
        day
    }

    /// Starts the machine.
    pub(crate) fn start(&self, seed: u64) -> Simulation {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("machine.toml"), &self.text).expect("a file");
        let machine = Machine::from_dir(dir.path());
        let machine = machine.unwrap_or_else(|error| panic!("{error}\n{}", self.text));
        Simulation::start(machine, Seed(seed))
    }

    fn pid(&mut self) -> u32 {
        self.next_pid += 1 + u32::try_from(self.chance.below(50)).expect("it is small");
        self.next_pid
    }

    /// Returns a random minute within an hour from `first`.
    fn about(&mut self, first: u64) -> u64 {
        first + self.chance.below(60)
    }

    fn event(&mut self, minute: u64, change: &str) {
        let ms = minute * 60_000;
        writeln!(self.text, "[[event]]\nat_ms = {ms}\n{change}").expect("a string takes it");
    }

    fn begin(&mut self, minute: u64, start: &Start<'_>) {
        let Start { pid, name, user: (uid, user), gpu, mib, listed, load, more } = start;
        let change = format!(
            "start = {{ pid = {pid}, name = \"{name}\", uid = {uid}, user = \"{user}\", memory = \
             [{{ gpu = {gpu}, mib = {mib}, listed = {listed}, utilization_percent = {load} }}]{more} \
             }}"
        );
        self.event(minute, &change);
    }

    /// Sets the share of its device and of a CPU that a process uses from this minute on.
    fn load(&mut self, minute: u64, pid: u32, gpu: u32, mib: u64, load: u64) {
        let uses = format!(
            "uses = {{ pid = {pid}, gpu = {gpu}, mib = {mib}, utilization_percent = {load} }}"
        );
        self.event(minute, &uses);
        let cpu = if load > 0 { 100 } else { 0 };
        self.event(minute, &format!("computes = {{ pid = {pid}, cpu_percent = {cpu} }}"));
    }

    fn healthy(&mut self) {
        for gpu in 0..4 {
            // A job with pauses, such as checkpoints.
            let (pid, mib) = (self.pid(), 8_000);
            let start = Start {
                pid,
                name: "python",
                user: *self.chance.of(&[ALICE, BOB]),
                gpu,
                mib,
                listed: true,
                load: 97,
                more: ", cpu_percent = 100",
            };
            self.begin(2, &start);
            let mut minute = 30;
            while minute < DAY {
                minute += 20 + self.chance.below(60);
                self.load(minute, pid, gpu, mib, 0);
                minute += 1 + self.chance.below(7);
                self.load(minute, pid, gpu, mib, 97);
            }
        }
        // Services without requests, each of a different user.
        for (user, cgroup) in [
            (ALICE, "/system.slice/vllm.service"),
            (BOB, "/system.slice/system-triton.slice/triton@0.service"),
        ] {
            let more = format!(", cgroup = \"{cgroup}\"");
            let (pid, gpu) = (self.pid(), u32::try_from(self.chance.below(4)).expect("small"));
            self.begin(
                3,
                &Start {
                    pid,
                    name: "python3",
                    user,
                    gpu,
                    mib: 9_000,
                    listed: true,
                    load: 0,
                    more: &more,
                },
            );
        }
        // A notebook in which a user runs a cell within every hour.
        let (pid, gpu, mib) = (self.pid(), 1, 7_000);
        let more = ", command_line = [\"python\", \"-m\", \"ipykernel_launcher\"]";
        let start =
            Start { pid, name: "python", user: BOB, gpu, mib, listed: true, load: 40, more };
        self.begin(5, &start);
        let mut minute = 10;
        while minute < DAY {
            self.load(minute, pid, gpu, mib, 0);
            minute += 10 + self.chance.below(40);
            self.load(minute, pid, gpu, mib, 40);
            minute += 1 + self.chance.below(5);
        }
        // A process started with nohup over a connection that has ended.
        let pid = self.pid();
        let gone = 100_000 + pid;
        let more = format!(
            ", parent = 1, group = {gone}, session = {gone}, ignores_hangup = true, cpu_percent = 100"
        );
        self.begin(
            4,
            &Start {
                pid,
                name: "train",
                user: BOB,
                gpu: 2,
                mib: 6_000,
                listed: true,
                load: 90,
                more: &more,
            },
        );
    }

    /// The ghosts use one device one after another, so that each is the only one.
    fn ghosts(&mut self) {
        let plans = [
            // This one exits before the policy ends it.
            (BOB, "python", 20, false),
            (ALICE, "python", 150, false),
            (BOB, "precious", 150, false),
            (BOB, "python", u64::MAX, true),
        ];
        let mut minute = 30;
        for (user, name, length, reapable) in plans {
            let from = self.about(minute);
            let pid = self.pid();
            let (mib, more) = (12_000, "");
            self.begin(from, &Start { pid, name, user, gpu: 0, mib, listed: false, load: 0, more });
            let until = (length < DAY).then(|| from + length);
            if let Some(until) = until {
                self.event(until, &format!("exit = {pid}"));
            }
            self.defects.push(Defect {
                kind: "ghost",
                pid: Some(pid),
                gpu: 0,
                from,
                until,
                reapable,
            });
            minute += 250;
        }
    }

    fn hoarders(&mut self) {
        let cases = [
            // This one computes again after two hours.
            (ALICE, 3, "python", "", 120, false),
            (
                BOB,
                5,
                "python",
                ", workload = { kind = \"slurm-job\", id = \"77\" }, cgroup = \
                \"/slurm/uid_1002/job_77\"",
                180,
                false,
            ),
            (BOB, 6, "python", "", u64::MAX, true),
        ];
        for (user, gpu, name, more, length, reapable) in cases {
            let (pid, mib) = (self.pid(), 20_000);
            let begun = self.about(60);
            let more = format!("{more}, cpu_percent = 100");
            let start = Start { pid, name, user, gpu, mib, listed: true, load: 97, more: &more };
            self.begin(begun, &start);
            let from = begun + 100 + self.chance.below(100);
            self.load(from, pid, gpu, mib, 0);
            let until = (length < DAY).then(|| from + length);
            if let Some(until) = until {
                self.load(until, pid, gpu, mib, 97);
            }
            let pid = Some(pid);
            self.defects.push(Defect { kind: "hoarder", pid, gpu, from, until, reapable });
        }
        // Two processes with one PID, one after the other: the first is reapable but exits just
        // before its time; the second is not idle for long enough and then computes.
        let (pid, gpu, mib) = (self.pid(), 6, 15_000);
        let begun = self.about(400);
        let start = Start {
            pid,
            name: "python",
            user: BOB,
            gpu,
            mib,
            listed: true,
            load: 97,
            more: ", cpu_percent = 100",
        };
        for (begun, works, idle) in [(begun, 30, 65), (begun + 96, 30, 50)] {
            self.begin(begun, &start);
            let from = begun + works;
            self.load(from, pid, gpu, mib, 0);
            let until = Some(from + idle);
            self.event(from + idle, &format!("exit = {pid}"));
            let kind = "hoarder";
            self.defects.push(Defect { kind, pid: Some(pid), gpu, from, until, reapable: false });
        }
    }

    /// A worker with a dead launcher.
    fn orphan(&mut self) {
        let pid = self.pid();
        let gone = 100_000 + pid;
        let more = format!(
            ", parent = 1, group = {gone}, session = {gone}, command_line = [\"python\", \"-c\", \
             \"from multiprocessing.spawn import spawn_main\"]"
        );
        let from = self.about(600);
        self.begin(
            from,
            &Start {
                pid,
                name: "python",
                user: BOB,
                gpu: 2,
                mib: 3_000,
                listed: true,
                load: 0,
                more: &more,
            },
        );
        let defect = Defect {
            kind: "orphan",
            pid: Some(pid),
            gpu: 2,
            // A younger process does not count as an orphan yet.
            from: from + 15,
            until: None,
            reapable: true,
        };
        self.defects.push(defect);
    }

    /// Devices without processes.
    fn devices(&mut self) {
        let (pid, from) = (self.pid(), self.about(200));
        let more = ", leaks_memory = true, cpu_percent = 100";
        self.begin(
            20,
            &Start {
                pid,
                name: "python",
                user: ALICE,
                gpu: 4,
                mib: 5_000,
                listed: true,
                load: 97,
                more,
            },
        );
        self.event(from, &format!("exit = {pid}"));
        let of_device =
            |kind, gpu, from| Defect { kind, pid: None, gpu, from, until: None, reapable: false };
        self.defects.push(of_device("driver-leak", 4, from));
        let from = self.about(800);
        self.event(from, "fails = { gpu = 7, fault = \"lost\" }");
        self.defects.push(of_device("device-fault", 7, from));
    }
}
