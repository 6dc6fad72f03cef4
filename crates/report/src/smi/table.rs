//! The table that nvidia-smi prints without arguments, in the layout of release 590.

use crate::details::group_of;
use crate::release::Release;
use crate::{local_time, wording};
use gpu_core::{
    Absent, Activity, Bytes, DeviceProcess, DeviceSample, DeviceState, Group, Groups, MemoryHealth,
    Milliwatts, Modes, Partition, Reading, Snapshot, Thermal, clean,
};
use jiff::tz::TimeZone;

const RULE: &str =
    "+-----------------------------------------------------------------------------------------+";
const CELLS: &str =
    "+-----------------------------------------+------------------------+----------------------+";
const HEAD: &str = "\
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|";
const PARTS: &str = "\
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|";
const PART_RULE: &str =
    "+------------------+----------------------------------+-----------+-----------------------+";
const PROCESSES: &str = "\
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|";
const NO_PROCESS: &str =
    "|  No running processes found                                                             |";

/// The characters of a process name that fit; the end of a longer one is shown.
const NAME: usize = 35;

/// Returns the groups that the table shows.
pub fn groups() -> Groups {
    [Group::Activity, Group::Thermal, Group::Modes, Group::MemoryHealth].into_iter().collect()
}

/// Returns the table of these devices, which are some or all of the snapshot.
pub fn table(snapshot: &Snapshot, devices: &[DeviceState], zone: &TimeZone) -> String {
    let driver = snapshot.driver.as_ref().ok();
    let version = clean(text(driver.and_then(|driver| driver.version.as_deref().ok())));
    let cuda = clean(text(driver.and_then(|driver| driver.cuda.as_deref().ok())));
    let release = Release::of(&snapshot.driver);
    let at = local_time::format(snapshot.taken_at, zone, "%a %b %e %H:%M:%S %Y");
    let mut lines = vec![
        format!("{at:<31}"),
        RULE.to_owned(),
        format!("| NVIDIA-SMI {version:<23}Driver Version: {version:<15}CUDA Version: {cuda:<9}|",),
        CELLS.to_owned(),
        HEAD.to_owned(),
    ];
    for device in devices {
        lines.extend(rows(device, release));
        lines.push(CELLS.to_owned());
    }
    let parts: Vec<String> = devices.iter().flat_map(|device| part_rows(device, release)).collect();
    if !parts.is_empty() {
        lines.extend([String::new(), RULE.to_owned(), PARTS.to_owned()]);
        lines.extend(parts);
    }
    lines.extend([String::new(), RULE.to_owned(), PROCESSES.to_owned()]);
    let processes: Vec<String> =
        devices.iter().flat_map(|device| process_rows(snapshot, device, release)).collect();
    if processes.is_empty() {
        lines.push(NO_PROCESS.to_owned())
    } else {
        lines.extend(processes)
    }
    lines.push(RULE.to_owned());
    lines.join("\n") + "\n"
}

fn text(known: Option<&str>) -> &str {
    known.unwrap_or("N/A")
}

/// Returns the three lines of a device.
fn rows(device: &DeviceState, release: Release) -> [String; 3] {
    let (id, info) = (device.id(), &device.info);
    let sample =
        device.sample.clone().unwrap_or_else(|fault| DeviceSample::absent(fault.kind.absent()));
    let activity = group_of(device, |details| details.activity.as_ref(), Activity::absent);
    let thermal = group_of(device, |details| details.thermal.as_ref(), Thermal::absent);
    let modes = group_of(device, |details| details.modes.as_ref(), Modes::absent);
    let health = group_of(device, |details| details.memory_health.as_ref(), MemoryHealth::absent);
    let name: String = clean(text(info.name.as_deref().ok())).chars().take(30).collect();
    let bus = cell(id.bus);
    let ecc = match modes.ecc {
        Ok(false) => "Off".to_owned(),
        _ => cell(health.uncorrected),
    };
    let watts =
        |power: Reading<Milliwatts>| cell(power.map(|power| format!("{}W", power.0 / 1000)));
    let divided = match info.partitioned {
        Ok(true) => "Enabled",
        Ok(false) => "Disabled",
        Err(_) => "N/A",
    };
    let memory = match (sample.memory.used, sample.memory.total) {
        (Err(Absent::NotSupported), Err(Absent::NotSupported)) => {
            format!("{:<23}", " Not Supported")
        }
        (used, total) => format!("{:>11} / {:>9}", mib(used, release), mib(total, release)),
    };
    [
        format!(
            "| {:>3}  {name:<30} {:<3} |   {bus:<16} {:<3} |{ecc:>21} |",
            id.index,
            on(info.persistence),
            on(info.display_active),
        ),
        format!(
            "|{:>4}{:>6}{:>6}{:>16} / {:>5} |{memory:>23} |{:>8}{:>13} |",
            cell(thermal.fan_speed.map(|speed| format!("{speed}%"))),
            cell(sample.temperature.map(|celsius| format!("{}C", celsius.0))),
            cell(activity.performance_state.map(|state| format!("P{state}"))),
            watts(sample.power_draw),
            watts(sample.power_limit),
            cell(sample.utilization.map(|share| format!("{}%", share.get()))),
            cell(modes.compute_mode.map(super::compute_mode)),
        ),
        format!("|{:41}|{:24}|{divided:>21} |", "", ""),
    ]
}

fn on(reading: Reading<bool>) -> &'static str {
    match reading {
        Ok(true) => "On",
        Ok(false) => "Off",
        Err(_) => "N/A",
    }
}

fn cell(reading: Reading<impl ToString>) -> String {
    reading.map_or("N/A".to_owned(), |value| value.to_string())
}

fn mib(reading: Reading<Bytes>, release: Release) -> String {
    cell(reading.map(|bytes| format!("{}MiB", release.mib(bytes))))
}

fn part_rows(device: &DeviceState, release: Release) -> Vec<String> {
    let index = device.id().index;
    let row = |part: &Partition| {
        let id = |id: Option<u32>| cell(id.ok_or(Absent::NotFound));
        format!(
            "|{index:>3} {:>4} {:>3} {:>3}  |{:>20} / {:>9}  |{:>3}{:>7} |{:23}|\n{PART_RULE}",
            id(part.gpu_instance),
            id(part.compute_instance),
            part.index,
            mib(part.memory.used, release),
            mib(part.memory.total, release),
            "N/A",
            "N/A",
            "",
        )
    };
    device.partitions.iter().flatten().map(row).collect()
}

fn process_rows(snapshot: &Snapshot, device: &DeviceState, release: Release) -> Vec<String> {
    let row = |process: &DeviceProcess| {
        let listed = process.name.as_deref().ok();
        let name = wording::command(snapshot.process(process.pid), listed);
        let name = clean(name.split(' ').next().unwrap_or_default());
        let length = name.chars().count();
        let name: String = match length <= NAME {
            true => name.into_owned(),
            false => "...".chars().chain(name.chars().skip(length - NAME + 3)).collect(),
        };
        format!(
            "|{:>5}{:>6}{:>5}{:>16}{:>7}   {name:<NAME$}{:>11} |",
            device.id().index,
            cell(process.gpu_instance.ok_or(Absent::NotFound)),
            cell(process.compute_instance.ok_or(Absent::NotFound)),
            process.pid.to_string(),
            text(process.kind.letters()),
            mib(process.memory, release),
        )
    };
    device.processes.iter().flatten().map(row).collect()
}
