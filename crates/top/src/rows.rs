//! The devices and the rows of the table of processes, derived from a snapshot.
//!
//! The users of a device are those that `gpuws status` shows ([`Usage`]). Unlike there, memory that
//! no listed process accounts for always has a row of its own, which names the holders of the
//! device.

use crate::more::More;
use crate::{found, jobs};
use gpu_core::{
    Absent, Bytes, DeviceId, DeviceProcess, DeviceState, LeaseEntry, Pid, ProcessInfo, ProcessKey,
    Snapshot, Timestamp, clean,
};
use gpu_reaper::{Diagnosis, Finding, FindingKind, Usage, User};
use gpu_report::wording;
use gpu_steward::DeviceLeases;
use std::cmp::Ordering;
use std::time::Duration;

/// A device, as it is drawn. Text is escaped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// NVML's index.
    pub index: u32,
    /// The index of a MIG device; `None` for a whole device.
    pub mig: Option<u32>,
    /// The product name, or the profile of a MIG device; `?` if it is unknown.
    pub name: String,
    /// The share of time in which a kernel ran, in percent.
    pub utilization: Option<u8>,
    /// Memory in use.
    pub memory_used: Option<Bytes>,
    /// Whether more memory may be in use: only that of listed processes is known.
    pub is_memory_floor: bool,
    /// All memory.
    pub memory_total: Option<Bytes>,
    /// Power draw in milliwatts.
    pub power: Option<u64>,
    /// Power limit in milliwatts.
    pub power_limit: Option<u64>,
    /// Temperature in degrees Celsius.
    pub temperature: Option<i32>,
    /// Whether it is certainly unused, fit for jobs and without a lease.
    pub is_free: bool,
    /// The users who lease it or parts of it.
    pub leased_by: Vec<String>,
    /// The values of its second line; unknown for a MIG device.
    pub more: More,
    /// The words for its findings: findings, defects, or why it could not be read.
    pub findings: Vec<String>,
}

impl Device {
    /// Returns a device, or a MIG device, with only the values that graphs show. Measurements of the
    /// whole device do not apply to a part.
    fn measured(device: &DeviceState, mig: Option<u32>) -> Self {
        let sample = device.sample.as_ref().ok().filter(|_| mig.is_none());
        let shown = device.memory_shown();
        Device {
            index: device.id().index,
            mig,
            utilization: sample.and_then(|s| s.utilization.ok()).map(|share| share.get()),
            memory_used: shown.ok().map(|(used, _)| used),
            is_memory_floor: shown.is_ok_and(|(_, is_floor)| is_floor),
            memory_total: device.memory_total().ok(),
            power: sample.and_then(|s| s.power_draw.ok()).map(|power| power.0),
            power_limit: sample.and_then(|s| s.power_limit.ok()).map(|power| power.0),
            ..Device::default()
        }
    }

    /// Returns its label in a list: `0`, `0:1` for a MIG device.
    pub fn label(&self) -> String {
        match self.mig {
            None => self.index.to_string(),
            Some(mig) => format!("{}:{mig}", self.index),
        }
    }

    /// Returns the used share of the memory, in percent; `None` if more may be in use.
    pub fn memory_percent(&self) -> Option<u8> {
        let used = self.memory_used.filter(|_| !self.is_memory_floor)?;
        percent(used.0, self.memory_total?.0)
    }

    /// Returns the used share of the power limit, in percent.
    pub fn power_percent(&self) -> Option<u8> {
        percent(self.power?, self.power_limit?)
    }
}

/// Returns the devices of a snapshot with only the values that graphs show.
pub fn measured(snapshot: &Snapshot, shown: impl Fn(&DeviceId) -> bool) -> Vec<Device> {
    let devices = snapshot.devices.iter().filter(|device| shown(device.id()));
    let devices = devices.flat_map(|device| {
        let parts = device.partitions.iter().flatten().zip(device.partitions_as_devices());
        let parts = parts.map(|(instance, part)| Device::measured(&part, Some(instance.index)));
        std::iter::once(Device::measured(device, None)).chain(parts).collect::<Vec<_>>()
    });
    devices.collect()
}

fn percent(part: u64, whole: u64) -> Option<u8> {
    let share = (u128::from(part) * 100).checked_div(u128::from(whole))?;
    u8::try_from(share.min(100)).ok()
}

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A process, by PID and start time.
    Process(ProcessKey),
    /// A process that the driver lists by a PID that is invalid here.
    Foreign(Pid),
    /// Memory that no listed process accounts for.
    Unlisted,
}

/// The identity of a row. It stays the same in every snapshot and in every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// The index of the device; `None` for an ancestor without a device.
    pub gpu: Option<u32>,
    /// The subject of the row.
    pub subject: Subject,
}

/// A row of the table. Text is escaped.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its identity.
    pub key: RowKey,
    /// The index of the MIG device, if it is known.
    pub mig: Option<u32>,
    /// The owner, or the owners of the suspects; `?` if unknown.
    pub user: String,
    /// Device memory.
    pub memory: Option<Bytes>,
    /// The share of time in which its kernels ran, in percent.
    pub sm: Option<u8>,
    /// CPU time so far.
    pub cpu_time: Option<Duration>,
    /// CPU time per elapsed time since the previous look, in percent of one CPU.
    pub cpu: Option<u32>,
    /// Host memory.
    pub host: Option<Bytes>,
    /// The time since its start.
    pub age: Option<Duration>,
    /// The kind of use, in nvidia-smi's letters; `-` if it is unknown.
    pub kind: &'static str,
    /// The finding that suspects it, if at least likely.
    pub finding: Option<FindingKind>,
    /// Whether a lease covers it: it descends from the process that has the lease.
    pub is_leased: bool,
    /// The container, pod, job or service, such as `Slurm 4711`; empty if none is known.
    pub job: String,
    /// The command line, or the holders of unlisted memory.
    pub command: String,
}

impl Row {
    /// Returns the PID; `None` for memory without a listed process, or listed for a PID that is
    /// invalid here.
    pub fn pid(&self) -> Option<Pid> {
        match self.key.subject {
            Subject::Process(key) => Some(key.pid),
            Subject::Foreign(_) | Subject::Unlisted => None,
        }
    }

    /// Returns the device, and the MIG device after a colon: `0`, `0:1`; `–` for none.
    pub fn device_label(&self) -> String {
        match (self.key.gpu, self.mig) {
            (Some(gpu), Some(mig)) => format!("{gpu}:{mig}"),
            (Some(gpu), None) => gpu.to_string(),
            (None, _) => "–".to_owned(),
        }
    }

    /// Returns the row of a process that uses no device.
    pub(crate) fn of_ancestor(info: &ProcessInfo, snapshot: &Snapshot) -> Self {
        let key = RowKey { gpu: None, subject: Subject::Process(info.key) };
        let command = clean(&wording::command(Ok(info), None)).into_owned();
        Row {
            user: clean(&wording::user(Ok(info))).into_owned(),
            cpu_time: info.cpu_time.ok(),
            host: info.resident.ok(),
            age: age(info, snapshot.taken_at),
            ..Row::unknown(key, command)
        }
    }

    /// Returns a row in which only the subject and the command are known.
    fn unknown(key: RowKey, command: String) -> Self {
        Row {
            key,
            mig: None,
            user: "?".to_owned(),
            memory: None,
            sm: None,
            cpu_time: None,
            cpu: None,
            host: None,
            age: None,
            kind: "-",
            finding: None,
            is_leased: false,
            job: String::new(),
            command,
        }
    }

    /// Returns the word for the finding, otherwise for unlisted memory or for the lease; empty
    /// without these.
    pub fn note(&self) -> &'static str {
        match self.finding {
            // Shortened to fit the column.
            Some(FindingKind::ForeignNamespace) => "foreign",
            Some(FindingKind::NotPermitted) => "denied",
            Some(FindingKind::DriverLeak) => "leak",
            Some(kind) if !wording::short(kind).is_empty() => wording::short(kind),
            Some(kind) => wording::kind(kind),
            None if self.key.subject == Subject::Unlisted => "unlisted",
            None if self.is_leased => "leased",
            None => "",
        }
    }
}

/// A column of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Column {
    /// The index of the device.
    #[default]
    Gpu,
    /// The PID.
    Pid,
    /// The owner.
    User,
    /// Device memory.
    Memory,
    /// The share of time in which its kernels ran.
    Sm,
    /// CPU.
    Cpu,
    /// Host memory.
    Host,
    /// The age.
    Age,
    /// The kind of use.
    Kind,
    /// The finding or the lease.
    Note,
    /// The container, pod, job or service.
    Job,
    /// The command line.
    Command,
}

impl Column {
    /// Every column, from left to right, with its name in settings and its title.
    pub const ALL: [(Column, &str, &str); 12] = [
        (Column::Gpu, "gpu", "GPU"),
        (Column::Pid, "pid", "PID"),
        (Column::User, "user", "USER"),
        (Column::Memory, "gpu-mem", "GPU-MEM"),
        (Column::Sm, "sm", "SM%"),
        (Column::Cpu, "cpu", "CPU%"),
        (Column::Host, "host", "HOST"),
        (Column::Age, "age", "AGE"),
        (Column::Kind, "type", "TYPE"),
        (Column::Note, "note", "NOTE"),
        (Column::Job, "job", "JOB"),
        (Column::Command, "command", "COMMAND"),
    ];

    /// Returns its name in settings.
    pub fn name(self) -> &'static str {
        Column::ALL[self as usize].1
    }

    /// Returns its title.
    pub fn title(self) -> &'static str {
        Column::ALL[self as usize].2
    }

    /// Returns whether the largest value comes first in the default order.
    pub fn is_largest_first(self) -> bool {
        matches!(self, Column::Memory | Column::Sm | Column::Cpu | Column::Host | Column::Age)
    }

    /// Compares two rows by this column in its usual order; an unknown value comes last even if
    /// the order is `reversed`. Rows with the same value are compared by device, then by memory.
    pub fn compare(self, a: &Row, b: &Row, reversed: bool) -> Ordering {
        let first = match self {
            Column::Gpu => known(a.key.gpu.zip(Some(a.mig)), b.key.gpu.zip(Some(b.mig)), reversed),
            Column::Pid => known(a.pid(), b.pid(), reversed),
            Column::User => known(Some(&a.user), Some(&b.user), reversed),
            Column::Memory => known(a.memory, b.memory, !reversed),
            Column::Sm => known(a.sm, b.sm, !reversed),
            Column::Cpu => known(a.cpu, b.cpu, !reversed),
            Column::Host => known(a.host, b.host, !reversed),
            Column::Age => known(a.age, b.age, !reversed),
            Column::Kind => known(Some(a.kind), Some(b.kind), reversed),
            Column::Note => known(filled(a.note()), filled(b.note()), reversed),
            Column::Job => known(filled(&a.job), filled(&b.job), reversed),
            Column::Command => known(Some(&a.command), Some(&b.command), reversed),
        };
        let by_device = || (a.key.gpu, a.mig).cmp(&(b.key.gpu, b.mig));
        first
            .then_with(by_device)
            .then_with(|| known(a.memory, b.memory, true))
            .then_with(|| a.key.cmp(&b.key))
    }
}

fn filled(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn known<T: Ord>(a: Option<T>, b: Option<T>, falling: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if falling => b.cmp(&a),
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// The inputs of the rows.
pub(crate) struct RowSource<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) diagnosis: &'a Diagnosis,
    pub(crate) usage: &'a Usage,
}

/// The most suspects that the row of unlisted memory names.
const NAMED: usize = 3;

impl RowSource<'_> {
    pub(crate) fn device(
        &self,
        device: &DeviceState,
        leased: &DeviceLeases,
        user_name: &dyn Fn(u32) -> String,
    ) -> Device {
        let sample = device.sample.as_ref().ok();
        let name = device.info.name.as_deref().map_or("?", wording::product);
        Device {
            name: clean(name).into_owned(),
            temperature: sample.and_then(|s| s.temperature.ok()).map(|degrees| degrees.0),
            is_free: leased.is_free(device, self.usage),
            leased_by: owners(device, leased, user_name),
            more: match &device.details {
                Ok(details) => More::of(details),
                Err(fault) => More::absent(fault.kind.absent()),
            },
            findings: found::words(self.diagnosis, device),
            ..Device::measured(device, None)
        }
    }

    /// Returns the MIG devices of a device.
    pub(crate) fn parts<'d>(
        &'d self,
        device: &'d DeviceState,
        leased: &'d DeviceLeases,
        user_name: &'d dyn Fn(u32) -> String,
    ) -> impl Iterator<Item = Device> + 'd {
        let instances = device.partitions.iter().flatten();
        instances.zip(device.partitions_as_devices()).map(|(instance, part)| {
            let has_unlisted = instance.gpu_instance.is_some()
                && self.usage.unexplained_in(device.id()) == instance.gpu_instance;
            let profile = instance.profile.as_deref().unwrap_or("?");
            Device {
                name: match instance.is_mig() {
                    true => format!("MIG {}", clean(profile)),
                    false => format!("partition {}", instance.index),
                },
                is_free: leased.is_part_free(device, instance, self.usage),
                leased_by: owners(&part, leased, user_name),
                findings: if has_unlisted { vec!["unlisted".to_owned()] } else { Vec::new() },
                ..Device::measured(&part, Some(instance.index))
            }
        })
    }

    pub(crate) fn rows_of(&self, device: &DeviceState, leased: &DeviceLeases) -> Vec<Row> {
        let roots: Vec<ProcessKey> = leased.on(device).map(|lease| lease.root).collect();
        let users = self.usage.on(device.id()).iter();
        let mut rows: Vec<Row> = users.map(|user| self.row(device, user, &roots)).collect();
        rows.extend(self.usage.foreign(device.id()).iter().map(|own| self.foreign(device, own)));
        rows.extend(self.unlisted(device));
        rows
    }

    fn row(&self, device: &DeviceState, user: &User, roots: &[ProcessKey]) -> Row {
        let info = self.snapshot.process(user.pid).ok();
        let key = info.map_or(ProcessKey { pid: user.pid, start: None }, |info| info.key);
        let is_gone = self.snapshot.process(user.pid).err() == Some(Absent::NotFound);
        let is_about = |finding: &&Finding| {
            // Its suspects are the processes that have the memory now.
            (is_gone && finding.kind == FindingKind::ListedButGone)
                || finding.suspects.iter().any(|suspect| suspect.process.pid == user.pid)
        };
        let finding = found::confident(self.diagnosis, device.id())
            .find(is_about)
            .map(|finding| finding.kind);
        let command = wording::command(self.snapshot.process(user.pid), user.name.as_deref());
        Row {
            key: RowKey { gpu: Some(device.id().index), subject: Subject::Process(key) },
            // A suspect for unexplained memory is shown with that memory.
            mig: match finding {
                Some(FindingKind::Ghost) if user.listed == Ok(false) => {
                    mig_index(device, self.usage.unexplained_in(device.id()), None)
                }
                _ => mig_index(device, user.gpu_instance, user.compute_instance),
            },
            user: clean(&wording::user(self.snapshot.process(user.pid))).into_owned(),
            memory: user.memory.ok(),
            sm: user.utilization.ok().map(|share| share.get()),
            cpu_time: info.and_then(|info| info.cpu_time.ok()),
            cpu: None,
            host: info.and_then(|info| info.resident.ok()),
            age: info.and_then(|info| age(info, self.snapshot.taken_at)),
            kind: kind_of(device, user.pid),
            finding,
            job: info.map(jobs::of).unwrap_or_default(),
            is_leased: ancestry(self.snapshot, user.pid).any(|own| roots.contains(&own.key)),
            command: clean(&command).into_owned(),
        }
    }

    /// Returns the row of a process that the driver lists by a PID that is invalid here. The PID is
    /// not looked up.
    fn foreign(&self, device: &DeviceState, process: &DeviceProcess) -> Row {
        let namespace = |finding: &&Finding| finding.kind == FindingKind::ForeignNamespace;
        let subject = Subject::Foreign(process.pid);
        Row {
            mig: mig_index(device, process.gpu_instance, process.compute_instance),
            memory: process.memory.ok(),
            sm: process.utilization.ok().map(|share| share.get()),
            kind: kind(process),
            finding: found::confident(self.diagnosis, device.id())
                .find(namespace)
                .map(|finding| finding.kind),
            ..Row::unknown(
                RowKey { gpu: Some(device.id().index), subject },
                format!("listed as host PID {}, not visible here", process.pid),
            )
        }
    }

    /// Returns the row of the memory that no listed process accounts for.
    fn unlisted(&self, device: &DeviceState) -> Option<Row> {
        let memory = self.usage.unexplained(device.id())?;
        let finding = found::about_unlisted(self.diagnosis, device.id());
        let suspects = finding.map_or(&[][..], |finding| &finding.suspects[..]);
        let processes = || suspects.iter().map(|suspect| suspect.process.pid);
        let mut users: Vec<String> = processes()
            .map(|pid| clean(&wording::user(self.snapshot.process(pid))).into_owned())
            .collect();
        users.dedup();
        let named = processes().take(NAMED).map(|pid| named(self.snapshot, pid));
        let mut holders: Vec<String> = named.collect();
        if suspects.len() > NAMED {
            holders.push(format!("{} more", suspects.len() - NAMED));
        }
        let command = if holders.is_empty() {
            "not listed, holder unknown".to_owned()
        } else {
            format!("not listed: {}", holders.join(", "))
        };
        let key = RowKey { gpu: Some(device.id().index), subject: Subject::Unlisted };
        Some(Row {
            mig: mig_index(device, self.usage.unexplained_in(device.id()), None),
            user: if users.is_empty() { "?".to_owned() } else { users.join(",") },
            memory: Some(memory),
            finding: finding.filter(|finding| finding.is_confident()).map(|finding| finding.kind),
            ..Row::unknown(key, command)
        })
    }
}

/// Returns the users who lease a device or parts of it.
fn owners(
    device: &DeviceState,
    leased: &DeviceLeases,
    user_name: &dyn Fn(u32) -> String,
) -> Vec<String> {
    let owner = |lease: &LeaseEntry| clean(&user_name(lease.owner)).into_owned();
    let mut owners: Vec<String> = leased.on(device).map(owner).collect();
    owners.dedup();
    owners
}

/// Returns the PID and the name of a process, escaped.
pub(crate) fn named(snapshot: &Snapshot, pid: Pid) -> String {
    let name = snapshot.process(pid).ok().map_or("?", |info| info.name.as_str());
    format!("{pid} {}", clean(name))
}

fn mig_index(device: &DeviceState, gpu: Option<u32>, compute: Option<u32>) -> Option<u32> {
    Some(device.partition(gpu, compute)?.index)
}

fn age(info: &ProcessInfo, now: Timestamp) -> Option<Duration> {
    Some(now.since(info.started_at.ok()?))
}

fn kind_of(device: &DeviceState, pid: Pid) -> &'static str {
    device.processes.iter().flatten().find(|process| process.pid == pid).map_or("-", kind)
}

fn kind(process: &DeviceProcess) -> &'static str {
    process.kind.letters().unwrap_or("-")
}

/// Returns a process and its known ancestors, nearest first.
pub(crate) fn ancestry(snapshot: &Snapshot, pid: Pid) -> impl Iterator<Item = &ProcessInfo> {
    let find = |pid| snapshot.process(pid).ok();
    gpu_core::line_of(find(pid), find)
}
