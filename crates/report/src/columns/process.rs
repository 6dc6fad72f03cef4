//! Columns of a process that uses a device.

use super::{Column, UserColumn, UserRow, cpu_times};
use crate::text::Align;
use crate::wording;
use gpu_core::{Absent, DeviceProcess, ProcessInfo, Reading, WorkloadKind};

/// Makes a column.
macro_rules! column {
    ($name:literal, $title:literal, $align:ident, $cell:expr) => {
        Column { name: $name, title: ($title, Align::$align), group: None, cell: $cell }
    };
}

pub(super) const COLUMNS: &[UserColumn] = &[
    column!("user", "USER", Left, |row| match wording::user(row.info()) {
        name if name == "?" => Err(row.info().err().unwrap_or(Absent::NotRecorded)),
        name => Ok(name.into_owned()),
    }),
    column!("type", "TYPE", Left, |row| {
        let letters = row.listed().ok_or(Absent::NotFound)?.kind.letters();
        Ok(letters.ok_or(Absent::NotRecorded)?.to_owned())
    }),
    column!("gpu-memory", "GPU MEMORY", Right, |row| {
        row.user.memory.map(|bytes| wording::memory(bytes).into_owned())
    }),
    column!("gpu-util", "GPU UTIL", Right, |row| row.user.utilization.map(|util| util.to_string())),
    column!("mig", "MIG", Left, |row| match (row.user.gpu_instance, row.user.compute_instance) {
        (Some(gpu), Some(compute)) => Ok(format!("GI {gpu} CI {compute}")),
        (Some(gpu), None) => Ok(format!("GI {gpu}")),
        _ => Err(Absent::NotFound),
    }),
    column!("age", "AGE", Right, |row| {
        Ok(wording::age(row.snapshot.taken_at.since(row.info()?.started_at?)))
    }),
    column!("cpu", "CPU", Right, |row| row.cpu().map(|percent| format!("{percent} %"))),
    column!("host-memory", "HOST MEMORY", Right, |row| {
        Ok(wording::memory(row.info()?.resident?).into_owned())
    }),
    column!("job", "JOB", Left, |row| job(row.info()?)),
    column!("command", "COMMAND", Left, |row| {
        match wording::command(row.info(), row.user.name.as_deref()) {
            name if name == "?" => Err(row.info().err().unwrap_or(Absent::NotRecorded)),
            name => Ok(name.into_owned()),
        }
    }),
];

impl UserRow<'_> {
    /// Returns the entry of the process in the driver's list.
    fn listed(&self) -> Option<&DeviceProcess> {
        let user = self.user;
        let mut listed = self.device.processes.iter().flatten();
        listed.find(|listed| listed.pid == user.pid && user.listed == Ok(true))
    }

    fn info(&self) -> Reading<&ProcessInfo> {
        self.snapshot.process(self.user.pid)
    }

    /// Returns the CPU time per elapsed time, in percent of one CPU: since the previous snapshot,
    /// or since the start of the process if there is none.
    fn cpu(&self) -> Reading<u128> {
        let since = |before| cpu_times(before, self.snapshot, self.user.pid);
        let (used, elapsed) = match self.before.and_then(since) {
            Some(times) => times,
            None => {
                let info = self.info()?;
                let age = self.snapshot.taken_at.since(info.started_at?);
                (info.cpu_time?.as_millis(), age.as_millis())
            }
        };
        (used * 100).checked_div(elapsed).ok_or(Absent::Implausible)
    }
}

/// Formats the container, pod, Slurm job or service of a process: `Slurm job 1234`.
fn job(info: &ProcessInfo) -> Reading<String> {
    if let Some(pod) = &info.pod {
        return Ok(format!("pod {pod}"));
    }
    if let Some(workload) = &info.workload {
        let id = match workload.kind {
            // As docker and kubectl print it.
            WorkloadKind::Container => workload.id.get(..12).unwrap_or(&workload.id),
            WorkloadKind::Pod | WorkloadKind::SlurmJob => &workload.id,
        };
        return Ok(format!("{} {id}", workload.kind));
    }
    let service = info.service().ok_or(Absent::NotFound)?;
    Ok(format!("{}{}", if service.by_user { "user " } else { "" }, service.name))
}
