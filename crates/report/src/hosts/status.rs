//! `gpuws status --host`: a row for each GPU of each host.

use super::few::Few;
use super::{Hosts, PARTS, ROWS, What};
use crate::text::{Align, Line, Table, Tone, wrapped};
use crate::{Exit, wording};
use gpu_core::Bytes;
use serde::Deserialize;
use std::time::Duration;

/// The displayed fields of an object of `status --json`.
#[derive(Debug, Deserialize)]
pub struct Seen {
    gpus: Few<Gpu, ROWS>,
    finding_count: Option<u64>,
    #[serde(default)]
    possible_finding_count: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Gpu {
    index: u32,
    name: Option<String>,
    temperature_c: Option<i32>,
    utilization_percent: Option<u8>,
    memory_used_bytes: Option<u64>,
    memory_total_bytes: Option<u64>,
    free: bool,
    defects: Few<String, PARTS>,
    leases: Option<Few<Lease, PARTS>>,
    processes: Vec<Process>,
    error: Option<What>,
}

#[derive(Debug, Deserialize)]
struct Lease {
    user: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Process {
    pid: u32,
    name: Option<String>,
    user: Option<String>,
    memory_bytes: Option<u64>,
    listed: Option<bool>,
    role: String,
}

/// The maximum number of users of a GPU that are named; the others are counted.
const NAMED: usize = 3;

impl Hosts<Seen> {
    /// Returns the exit code: success if every host answered.
    pub fn exit(&self) -> Exit {
        self.failure().unwrap_or(Exit::Done)
    }

    /// Returns the table, the hosts without an answer, and a summary, within `room` columns.
    pub fn lines(&self, room: usize) -> Vec<Line> {
        let mut lines = self.table(None, room);
        lines.push(self.totals());
        lines
    }

    /// Returns the summary, and the table with the age of each answer, within `room` columns. `now`
    /// is on the clock of the arrival times.
    pub fn lines_at(&self, now: Duration, room: usize) -> (Line, Vec<Line>) {
        let mut lines = self.table(Some(now), room);
        let pending = self.hosts.iter().filter(|host| host.answer().is_none());
        lines.extend(pending.map(|host| Line::new().plain(&host.name).dim("  asking …").cut(room)));
        (self.totals().cut(room), lines)
    }

    fn table(&self, now: Option<Duration>, room: usize) -> Vec<Line> {
        let labels = self.answered().filter_map(|(host, said)| said.head.label(host));
        let mut lines: Vec<Line> = labels.collect();
        let columns = [
            ("HOST", Align::Left),
            ("GPU", Align::Right),
            ("NAME", Align::Left),
            ("TEMP", Align::Right),
            ("UTIL", Align::Right),
            ("MEMORY", Align::Right),
            ("USED BY", Align::Left),
        ];
        let mut columns = columns.to_vec();
        columns.splice(1..1, now.map(|_| ("AGE", Align::Right)));
        let mut table = Table::new(&columns);
        let mut is_empty = true;
        for host in &self.hosts {
            let Some((said, heard_at)) = &host.said else { continue };
            for (at, gpu) in said.shown.gpus.iter().enumerate() {
                // A long name must not push the values off the screen.
                let name = Line::new().fitted(&host.name, room / 4);
                let first = |line: Line| if at == 0 { line } else { Line::new() };
                let age = now.map(|now| wording::age(now.saturating_sub(*heard_at)));
                let age = age.map(|age| match host.error {
                    None => Line::new().plain(age),
                    Some(_) => Line::new().accent(age),
                });
                let head = std::iter::once(first(name)).chain(age.map(first));
                table.row(head.chain(gpu.cells()));
                is_empty = false;
            }
        }
        if !is_empty {
            lines.extend(table.lines(room));
        }
        for (host, said) in self.answered().filter(|(_, said)| said.shown.gpus.is_empty()) {
            let why = said.head.driver_error.as_ref().map_or("no GPU", |why| &why.what);
            let head = Line::new().plain(host).plain("  ");
            lines.extend(wrapped(head, Tone::Plain, why, room));
        }
        lines.extend(self.left_out(|seen| seen.gpus.left_out, room));
        lines.extend(self.unanswered(room));
        lines
    }

    /// Formats `3 of 4 hosts answered  ·  12 GPUs, 5 free  ·  2+ findings  ·  1 possible finding`.
    fn totals(&self) -> Line {
        let gpus = || self.answered().flat_map(|(_, said)| &said.shown.gpus);
        let free = gpus().filter(|gpu| gpu.free).count();
        let gpus = wording::count(gpus().count(), "GPU", "GPUs");
        let line = self.summary().plain(format!("  ·  {gpus}, {free} free"));
        let sum = |of: fn(&Seen) -> Option<u64>| {
            let counts = self.answered().filter_map(|(_, said)| of(&said.shown));
            counts.fold(0_u64, u64::saturating_add)
        };
        let possible = sum(|seen| seen.possible_finding_count);
        let line = match sum(|seen| seen.finding_count).saturating_sub(possible) {
            0 => line,
            count => line.plain("  ·  ").accent(wording::findings_at_least(count)),
        };
        match usize::try_from(possible).unwrap_or(usize::MAX) {
            0 => line,
            count => {
                let text = wording::count(count, "possible finding", "possible findings");
                line.plain("  ·  ").dim(text)
            }
        }
    }
}

impl Gpu {
    /// Returns the cells after the host.
    fn cells(&self) -> [Line; 6] {
        let with = |value: Option<String>| match value {
            Some(value) => Line::new().plain(value),
            None => Line::new().dim("–"),
        };
        let memory = match (self.memory_used_bytes, self.memory_total_bytes) {
            (Some(used), Some(total)) => Some(wording::used_of(Bytes(used), Bytes(total), (0, 0))),
            (used, _) => used.map(|used| wording::memory(Bytes(used)).into_owned()),
        };
        [
            Line::new().plain(self.index),
            with(self.name.clone()),
            with(self.temperature_c.map(|degrees| format!("{degrees} °C"))),
            with(self.utilization_percent.map(|percent| format!("{percent} %"))),
            with(memory),
            self.used_by(),
        ]
    }

    fn used_by(&self) -> Line {
        if let Some(error) = &self.error {
            return Line::new().accent(&error.what);
        }
        let mut parts: Vec<Line> =
            self.defects.iter().map(|defect| Line::new().accent(defect)).collect();
        let owners = self.leases.iter().flatten();
        parts.extend(owners.map(|lease| {
            Line::new().plain("leased by ").plain(lease.user.as_deref().unwrap_or("unknown"))
        }));
        let users: Vec<&Process> = self.processes.iter().filter(|user| user.counts()).collect();
        parts.extend(users.iter().take(NAMED).map(|user| user.line()));
        if users.len() > NAMED {
            parts.push(Line::new().plain(format!("{} more", users.len() - NAMED)));
        }
        if self.free {
            parts.push(Line::new().dim("free"));
        }
        let join = |one: Line, other: Line| one.plain(", ").line(other);
        parts.into_iter().reduce(join).unwrap_or_default()
    }
}

impl Process {
    /// Returns whether it keeps others off the GPU: monitors and display servers do not.
    fn counts(&self) -> bool {
        self.role == "memory-user" || self.listed == Some(false)
    }

    fn line(&self) -> Line {
        let unknown = || format!("process {}", self.pid);
        let name = self.name.clone().unwrap_or_else(unknown);
        let line = match &self.user {
            Some(user) => Line::new().plain(user).plain(" ").plain(name),
            None => Line::new().plain(name),
        };
        let line = match self.memory_bytes {
            Some(bytes) => line.plain(" ").plain(wording::memory(Bytes(bytes))),
            None => line,
        };
        if self.listed == Some(false) { line.accent(" (not listed)") } else { line }
    }
}
