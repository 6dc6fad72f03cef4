//! The output of `gpustat --json`, in the format of version 1.1.1.
//!
//! Names, order and types are gpustat's: memory in whole MiB and power in whole W, rounded down;
//! null for an absent value; no process that is missing from `/proc`. There are two differences,
//! neither of which affects readers of the JSON. The CPU share of all processes is measured over
//! the same 0.1 s, once for all devices. The query time includes its fraction even if it is zero.

use crate::local_time;
use gpu_core::{
    Activity, Bytes, DeviceFault, DeviceProcess, DeviceProcessKind, DeviceState, ErrorKind, Group,
    Groups, Inventory, Pid, ProcessInfo, Reading, Timestamp,
};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The interval over which the CPU share of a process is measured.
pub const CPU_WINDOW: Duration = Duration::from_millis(100);

/// Returns the groups of details that the output needs.
pub fn groups() -> Groups {
    [Group::Activity, Group::Thermal].into_iter().collect()
}

/// The machine.
#[derive(Serialize)]
pub struct Machine {
    hostname: String,
    driver_version: Option<String>,
    query_time: String,
    gpus: Vec<Gpu>,
}

/// A device, or the placeholder for a device that does not answer.
#[derive(Serialize)]
#[serde(untagged)]
enum Gpu {
    Answering(Box<Answering>),
    Silent { index: u32, name: &'static str, processes: Option<Vec<Process>> },
}

#[derive(Serialize)]
struct Answering {
    index: u32,
    uuid: Option<String>,
    name: Option<String>,
    #[serde(rename = "temperature.gpu")]
    temperature: Option<i32>,
    #[serde(rename = "fan.speed")]
    fan_speed: Option<u32>,
    #[serde(rename = "utilization.gpu")]
    utilization: Option<u8>,
    #[serde(rename = "utilization.enc")]
    encoder: Option<u8>,
    #[serde(rename = "utilization.dec")]
    decoder: Option<u8>,
    #[serde(rename = "power.draw")]
    power_draw: Option<u64>,
    #[serde(rename = "enforced.power.limit")]
    power_limit: Option<u64>,
    #[serde(rename = "memory.used")]
    memory_used: Option<u64>,
    #[serde(rename = "memory.total")]
    memory_total: Option<u64>,
    processes: Option<Vec<Process>>,
}

#[derive(Serialize)]
struct Process {
    username: String,
    command: String,
    full_command: Arc<[String]>,
    gpu_memory_usage: Option<u64>,
    cpu_percent: Option<f64>,
    cpu_memory_usage: Option<u64>,
    pid: u32,
}

/// The listed processes: their current state, and their CPU time at the start of [`CPU_WINDOW`].
#[derive(Default)]
pub struct Processes {
    now: BTreeMap<Pid, ProcessInfo>,
    before: BTreeMap<Pid, ProcessInfo>,
}

impl Processes {
    /// Samples the processes that are listed on the devices twice, and calls `pause` between the
    /// samples. Without processes it does not pause.
    ///
    /// `process` returns a process, or why it is absent.
    pub fn look_up(
        devices: &[DeviceState],
        process: impl Fn(Pid) -> Reading<ProcessInfo>,
        pause: impl FnOnce(),
    ) -> Self {
        let listed = devices.iter().flat_map(|device| device.processes.iter().flatten());
        let mut pids: Vec<Pid> = listed.map(|process| process.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let all = || pids.iter().filter_map(|pid| Some((*pid, process(*pid).ok()?))).collect();
        let before: BTreeMap<_, _> = all();
        if before.is_empty() {
            return Processes::default();
        }
        pause();
        // Every process of the first sample is shown, as in gpustat.
        let mut now: BTreeMap<_, _> = all();
        now.retain(|pid, _| before.contains_key(pid));
        for (pid, info) in &before {
            now.entry(*pid).or_insert_with(|| info.clone());
        }
        Processes { now, before }
    }

    /// Returns the share of one CPU that a process used between the samples, in percent.
    fn cpu_percent(&self, pid: Pid) -> Option<f64> {
        let time = |infos: &BTreeMap<Pid, ProcessInfo>| infos.get(&pid)?.cpu_time.ok();
        let (before, now) = (time(&self.before)?, time(&self.now)?);
        let share = now.saturating_sub(before).as_secs_f64() / CPU_WINDOW.as_secs_f64() * 100.0;
        Some((share * 10.0).round() / 10.0)
    }

    fn shown(&self, process: &DeviceProcess) -> Option<Process> {
        let info = self.now.get(&process.pid)?;
        let unknown = || "?".to_owned();
        let line = info.command_line.clone().ok().filter(|line| !line.is_empty());
        let line = line.unwrap_or_else(|| [unknown()].into());
        let program = line.first().map_or("", |program| program.rsplit('/').next().unwrap_or(""));
        Some(Process {
            username: (info.user.clone().ok())
                .or_else(|| info.uid.ok().map(|uid| uid.to_string()))
                .unwrap_or_else(unknown),
            command: program.to_owned(),
            full_command: line,
            gpu_memory_usage: process.memory.ok().filter(|bytes| bytes.0 > 0).map(Bytes::mib),
            cpu_percent: self.cpu_percent(process.pid),
            cpu_memory_usage: info.resident.ok().map(|bytes| bytes.0),
            pid: process.pid.0,
        })
    }
}

impl Machine {
    /// Returns the output for `devices`, which may be a subset of the machine's devices.
    pub fn of(
        hostname: Reading<String>,
        machine: &Inventory,
        devices: &[DeviceState],
        processes: &Processes,
        at: Timestamp,
        zone: &TimeZone,
    ) -> Self {
        Machine {
            hostname: hostname.unwrap_or_default(),
            driver_version: machine.driver.as_ref().ok().and_then(|d| d.version.clone().ok()),
            query_time: local_time::as_python(at, zone),
            gpus: devices.iter().map(|device| Gpu::of(device, processes)).collect(),
        }
    }
}

impl Gpu {
    fn of(device: &DeviceState, processes: &Processes) -> Self {
        let sample = match &device.sample {
            Ok(sample) => sample,
            Err(fault) => {
                let name = match fault.kind {
                    ErrorKind::Device(DeviceFault::Lost) => "((GPU is lost))",
                    _ => "((Unknown Error))",
                };
                return Gpu::Silent { index: device.id().index, name, processes: None };
            }
        };
        let details = device.details.as_ref().ok();
        let activity = |pick: fn(&Activity) -> Reading<gpu_core::Percent>| {
            let share = pick(details?.activity.as_ref()?).ok()?;
            Some(share.get())
        };
        Gpu::Answering(Box::new(Answering {
            index: device.id().index,
            uuid: device.id().uuid.as_ref().ok().map(ToString::to_string),
            name: device.info.name.clone().ok(),
            temperature: sample.temperature.ok().map(|at| at.0),
            fan_speed: details.and_then(|details| details.thermal.as_ref()?.fan_speed.ok()),
            utilization: sample.utilization.ok().map(gpu_core::Percent::get),
            encoder: activity(|activity| activity.encoder),
            decoder: activity(|activity| activity.decoder),
            power_draw: sample.power_draw.ok().map(|power| power.0 / 1000),
            power_limit: sample.power_limit.ok().map(|power| power.0 / 1000),
            memory_used: sample.memory.used.ok().map(Bytes::mib),
            memory_total: sample.memory.total.ok().map(Bytes::mib),
            processes: device.processes.as_ref().ok().map(|listed| deduplicated(listed, processes)),
        }))
    }
}

/// Returns each process once, although NVML may list it in several MIG instances. Compute processes
/// precede processes that only use graphics.
fn deduplicated(listed: &[DeviceProcess], processes: &Processes) -> Vec<Process> {
    let mut shown: Vec<Process> = Vec::new();
    let draws = |process: &&DeviceProcess| process.kind == DeviceProcessKind::Graphics;
    let (drawing, computing): (Vec<_>, Vec<_>) = listed.iter().partition(draws);
    for process in computing.into_iter().chain(drawing) {
        if !shown.iter().any(|one| one.pid == process.pid.0) {
            shown.extend(processes.shown(process));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Absent, DeviceDetails, DeviceId, DeviceInfo, DeviceSample, Error, Milliwatts};
    use std::cell::Cell;

    fn device(processes: &[(u32, u64)]) -> DeviceState {
        let process = |(pid, mib): &(u32, u64)| DeviceProcess {
            pid: Pid(*pid),
            kind: DeviceProcessKind::Compute,
            memory: Ok(Bytes::from_mib(*mib)),
            utilization: Err(Absent::NotSupported),
            name: Err(Absent::NotSupported),
            gpu_instance: None,
            compute_instance: None,
        };
        DeviceState {
            info: DeviceInfo::unknown(DeviceId::from_index(0)),
            sample: Ok(DeviceSample {
                power_draw: Ok(Milliwatts(61_999)),
                ..DeviceSample::absent(Absent::NotSupported)
            }),
            processes: Ok(processes.iter().map(process).collect()),
            partitions: Ok(vec![]),
            details: Ok(DeviceDetails::default()),
        }
    }

    /// Returns a process that uses a quarter of a CPU: each call adds 25 ms of CPU time.
    fn busy(pid: Pid, reads: &Cell<u64>) -> Reading<ProcessInfo> {
        reads.set(reads.get() + 1);
        let mut info = ProcessInfo::from_name(pid, "python");
        info.command_line = Ok(["/usr/bin/python3", "train.py"].map(str::to_owned).into());
        info.cpu_time = Ok(Duration::from_millis(1000 + 25 * reads.get().saturating_sub(1)));
        info.resident = Ok(Bytes(4096));
        Ok(info)
    }

    fn machine(devices: &[DeviceState], processes: &Processes) -> serde_json::Value {
        let driver = Err(Error::new(ErrorKind::Io, "read").fault());
        let inventory = Inventory { driver, devices: vec![] };
        let name = Ok("box".to_owned());
        let machine =
            Machine::of(name, &inventory, devices, processes, Timestamp(0), &TimeZone::UTC);
        serde_json::to_value(machine).unwrap()
    }

    #[test]
    fn compute_processes_precede_graphics_processes() {
        let mut device = device(&[(5, 1), (6, 2), (7, 3)]);
        let listed = device.processes.as_mut().unwrap();
        listed[0].kind = DeviceProcessKind::Graphics;
        listed[2].kind = DeviceProcessKind::ComputeAndGraphics;
        let devices = [device];
        let processes = Processes::look_up(&devices, |pid| busy(pid, &Cell::new(0)), || ());
        let shown = &machine(&devices, &processes)["gpus"][0]["processes"];
        let pids: Vec<_> = shown.as_array().unwrap().iter().map(|one| &one["pid"]).collect();
        assert_eq!(pids, [6, 7, 5]);
    }

    #[test]
    fn process_is_listed_once_with_cpu_percent() {
        let devices = [device(&[(7, 100), (7, 50)])];
        let (reads, paused) = (Cell::new(0), Cell::new(false));
        let processes = Processes::look_up(&devices, |pid| busy(pid, &reads), || paused.set(true));
        assert!(paused.get() && reads.get() == 2);
        let shown = machine(&devices, &processes);
        let gpu = &shown["gpus"][0];
        assert_eq!(gpu["power.draw"], 61);
        assert_eq!(gpu["temperature.gpu"], serde_json::Value::Null);
        let process = &gpu["processes"][0];
        assert_eq!(gpu["processes"].as_array().map(Vec::len), Some(1));
        assert_eq!(process["cpu_percent"], 25.0);
        assert_eq!(process["command"], "python3");
        assert_eq!(process["username"], "?");
        assert_eq!(process["cpu_memory_usage"], 4096);
        assert_eq!(process["gpu_memory_usage"], 100);
    }

    #[test]
    fn process_missing_from_proc_is_skipped_without_pause() {
        let devices = [device(&[(7, 100)])];
        let gone = |_| Err(Absent::NotFound);
        let processes = Processes::look_up(&devices, gone, || panic!("there is nobody to measure"));
        assert_eq!(machine(&devices, &processes)["gpus"][0]["processes"], serde_json::json!([]));
    }

    #[test]
    fn lost_device_keeps_its_row() {
        let mut lost = device(&[]);
        lost.sample = Err(Error::new(DeviceFault::Lost, "ask").fault());
        let shown = machine(&[lost], &Processes::default());
        let expected = serde_json::json!(
            {"index": 0, "name": "((GPU is lost))", "processes": null}
        );
        assert_eq!(shown["gpus"][0], expected);
    }
}
