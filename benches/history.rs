//! The cost of a history: bytes per frame, and the time to encode a frame, to seek, and to read the
//! next frame.
//!
//! Two workloads of 8 GPUs with 32 processes each, with one snapshot per second: `crowd`, the
//! simulated machine `crowd:8x32` with drifting device values, and `busy`, which changes like a
//! busy day. In `busy`, half of the processes compute: each second, their SM % varies within 20
//! points and their CPU time advances within 10 % of its rate; one in three changes its state, one
//! in twenty its host memory, and one in a hundred its GPU memory. Of the other processes, one in
//! fifty uses some CPU. Every 14 s, a process ends and another starts. Power, utilisation and
//! temperature of all devices change.
//!
//! The bench records an hour (a minute in test mode), or the number of seconds in
//! `GPUWS_BENCH_SECONDS`: 86400 for a whole day. There is no peer: below, atop and sysstat do not
//! record GPU processes.
#![expect(clippy::print_stderr, reason = "sizes are figures of the bench")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gpu_core::{
    Absent, Bytes, Celsius, Clock, Groups, HolderSearch, Milliwatts, Observation, Percent, Pid,
    Process, ProcessDetail, ProcessState, Reading, Snapshot, StartTime, Timestamp,
    observe_in_detail,
};
use gpu_history::{Frame, Reader, Retention, Writer};
use gpu_host::SystemClock;
use gpu_sim::Simulation;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const DAY: u64 = 86_400;

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Returns whether an event occurs that has a probability of this many in a thousand.
    fn happens(&mut self, in_thousand: u64) -> bool {
        self.below(1000) < in_thousand
    }
}

/// Takes a snapshot as the recorder does.
fn snapshot(machine: &Simulation) -> Snapshot {
    let observation = Observation {
        groups: Groups::NONE,
        holders: HolderSearch::IfUnexplained,
        processes: ProcessDetail::Outline,
        driver_messages: false,
    };
    observe_in_detail(machine, machine, machine, observation)
}

fn crowd() -> Simulation {
    Simulation::named(Path::new("crowd:8x32")).expect("a crowd of this size")
}

/// The rates of a process: CPU in hundredths of a second per second, and SM in percent.
#[derive(Clone, Copy)]
struct Rates {
    cpu: u64,
    sm: u64,
}

/// The busy day.
struct Busy {
    snapshot: Snapshot,
    random: Random,
    rates: BTreeMap<Pid, Rates>,
    next_pid: u32,
}

impl Busy {
    fn new() -> Self {
        let snapshot = snapshot(&crowd());
        let mut random = Random(7);
        let pids = snapshot.processes.keys();
        let rates = pids.map(|pid| (*pid, rates(&mut random))).collect();
        Busy { snapshot, random, rates, next_pid: 70_000 }
    }

    fn next(&mut self) -> Frame {
        self.snapshot.taken_at.0 += 1000;
        if self.random.happens(70) {
            self.replace();
        }
        let Busy { snapshot, random, rates, .. } = self;
        for device in &mut snapshot.devices {
            let mut used = Bytes::from_mib(4);
            for listed in device.processes.iter_mut().flatten() {
                let rates = rates[&listed.pid];
                let info = snapshot.processes.get_mut(&listed.pid).and_then(Process::info_mut);
                let Some(info) = info else { continue };
                let mut cpu = if random.happens(20) { 1 } else { 0 };
                listed.utilization = percent(0);
                if rates.cpu > 0 {
                    let sm = (rates.sm + random.below(21)).saturating_sub(10).min(100);
                    listed.utilization = percent(sm);
                    cpu = (rates.cpu * 95 + random.below(rates.cpu * 10 + 1)) / 100;
                    if random.happens(300) {
                        let runs = random.happens(600);
                        let state =
                            if runs { ProcessState::Running } else { ProcessState::Sleeping };
                        info.state = Ok(state);
                    }
                    if random.happens(50) {
                        info.resident = Ok(Bytes((1 << 32) + (random.below(1 << 18) << 12)));
                    }
                    if random.happens(10) {
                        listed.memory = Ok(Bytes(random.below(400) << 21));
                    }
                }
                info.cpu_time = info.cpu_time.map(|time| time + Duration::from_millis(cpu * 10));
                used += listed.memory.unwrap_or(Bytes(0));
            }
            let Ok(sample) = &mut device.sample else { continue };
            sample.memory.used = Ok(used);
            sample.utilization = percent(60 + random.below(40));
            sample.power_draw = Ok(Milliwatts(250_000 + random.below(60_000)));
            if random.happens(300) {
                sample.temperature = Ok(Celsius(60 + random.below(8) as i32));
            }
        }
        Frame { snapshot: snapshot.clone(), leases: Ok(Vec::new()) }
    }

    /// Ends a process and starts another.
    fn replace(&mut self) {
        let at = self.random.below(self.snapshot.devices.len() as u64) as usize;
        let Ok(list) = &mut self.snapshot.devices[at].processes else { return };
        let mut listed = list.remove(self.random.below(list.len() as u64) as usize);
        self.rates.remove(&listed.pid);
        let Some(Process(Ok(info))) = self.snapshot.processes.remove(&listed.pid) else {
            return;
        };
        self.next_pid += 1 + self.random.below(40) as u32;
        listed.pid = Pid(self.next_pid);
        let now = self.snapshot.taken_at;
        let mut info = Arc::unwrap_or_clone(info);
        info.key.pid = listed.pid;
        info.key.start = Some(StartTime(now.0 / 10 % (1 << 32) + self.random.below(100)));
        info.started_at = Ok(now);
        info.cpu_time = Ok(Duration::from_millis(20));
        (info.parent, info.group) = (Ok(Pid(listed.pid.0 - 1)), Ok(listed.pid));
        self.rates.insert(listed.pid, rates(&mut self.random));
        self.snapshot.processes.insert(listed.pid, Reading::Ok(info).into());
        list.insert(self.random.below(list.len() as u64 + 1) as usize, listed);
    }
}

fn percent(value: u64) -> Reading<Percent> {
    Percent::new(value).ok_or(Absent::Implausible)
}

fn rates(random: &mut Random) -> Rates {
    if random.happens(500) {
        Rates { cpu: 20 + random.below(180), sm: 10 + random.below(80) }
    } else {
        Rates { cpu: 0, sm: 0 }
    }
}

fn seconds() -> u64 {
    let asked = std::env::var("GPUWS_BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let is_test = std::env::args().any(|argument| argument == "--test");
    asked.unwrap_or(if is_test { 60 } else { 3600 })
}

fn writer(dir: &TempDir) -> Writer {
    let dir = File::open(dir.path()).expect("a directory");
    Writer::open(dir, Retention::default()).expect("a new history")
}

fn reader(dir: &TempDir) -> Reader {
    Reader::open(File::open(dir.path()).expect("a directory")).expect("a history")
}

fn size(dir: &TempDir) -> u64 {
    let files = fs::read_dir(dir.path()).expect("a directory").flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn history(criterion: &mut Criterion) {
    let machine = crowd();
    let mut busy = Busy::new();
    day(criterion, "crowd", || {
        machine.sleep(Duration::from_secs(1));
        Frame { snapshot: snapshot(&machine), leases: Ok(Vec::new()) }
    });
    day(criterion, "busy", || busy.next());
}

fn day(criterion: &mut Criterion, name: &str, mut next: impl FnMut() -> Frame) {
    let mut group = criterion.benchmark_group(format!("history/{name}"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut recorder = writer(&dir);
    let count = seconds();
    let (clock, mut spent) = (SystemClock::new(), Duration::ZERO);
    // Keep some frames to encode again later.
    let mut frames = Vec::new();
    for number in 0..count {
        let frame = next();
        let start = clock.monotonic();
        recorder.add(&frame).expect("the frame is written");
        spent += clock.monotonic() - start;
        if number < 1024 {
            frames.push(frame);
        }
    }
    drop(recorder);
    let bytes = size(&dir);
    let (a_frame, a_day) = (bytes as f64 / count as f64, bytes as f64 / count as f64 * DAY as f64);
    let encoded = spent / u32::try_from(count).unwrap_or(u32::MAX);
    eprintln!(
        "history/{name}: {count} frames, {a_frame:.0} bytes each, {:.1} MB a day; \
         {encoded:.0?} to add one",
        a_day / 1e6
    );

    group.throughput(Throughput::Elements(1));
    let again = tempfile::tempdir().expect("a temporary directory");
    let mut recorder = writer(&again);
    let mut at = 0;
    group.bench_function("add", |bencher| {
        bencher.iter(|| {
            at = (at + 1) % frames.len();
            recorder.add(&frames[at]).expect("the frame is written");
        });
    });
    let (first, last) = reader(&dir).span().expect("there are frames");
    let mut random = Random(1);
    let mut any = move || Timestamp(first.0 + random.below(last.0 - first.0 + 1));
    group.bench_function("open and seek", |bencher| {
        bencher.iter(|| black_box(reader(&dir).at(any()).expect("a frame")));
    });
    let mut open = reader(&dir);
    group.bench_function("seek", |bencher| {
        bencher.iter(|| black_box(open.at(any()).expect("a frame")));
    });
    let mut number = 0;
    group.bench_function("next frame", |bencher| {
        bencher.iter(|| {
            number = (number + 1) % open.len();
            black_box(open.frame(number).expect("a frame"))
        });
    });
    group.finish();
}

criterion_group!(benches, history);
criterion_main!(benches);
