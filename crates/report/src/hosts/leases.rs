//! `gpuws leases --host`: the leases and the waiting claims of each host.

use super::few::Few;
use super::{Hosts, PARTS, ROWS};
use crate::text::{Align, Line, Table, Tone, packed, wrapped};
use crate::{Exit, wording};
use gpu_core::{Bytes, Timestamp};
use jiff::Timestamp as Instant;
use serde::Deserialize;

/// The displayed fields of an object of `leases --json`.
#[derive(Debug, Deserialize)]
pub struct Claims {
    /// Earlier versions do not print it.
    taken_at: Option<String>,
    leases: Few<Claim, ROWS>,
    queue: Few<Claim, ROWS>,
}

/// A lease or a waiting claim. Flattened structs would buffer all unknown fields of an answer.
#[derive(Debug, Deserialize)]
struct Claim {
    user: String,
    pid: u32,
    alive: bool,
    command: String,
    since: String,
    count: u32,
    share_bytes: Option<u64>,
    /// Only of a lease, as are the next two.
    #[serde(default)]
    gpus: Few<Gpu, PARTS>,
    #[serde(default)]
    unseen_gpus: Few<String, PARTS>,
    #[serde(default)]
    lease_count: usize,
    /// Only of a waiting claim, as is the next one.
    #[serde(default)]
    ahead_count: usize,
    #[serde(default)]
    is_stopped: bool,
}

#[derive(Debug, Deserialize)]
struct Gpu {
    index: u32,
}

/// The most columns of the devices of a lease.
const DEVICES: usize = 24;

impl Hosts<Claims> {
    /// Returns the exit code: success if every host answered.
    pub fn exit(&self) -> Exit {
        self.failure().unwrap_or(Exit::Done)
    }

    /// Returns a table with a row for each lease and each waiting claim, in the order of the
    /// queue, then the hosts without an answer and a summary, within `room` columns.
    pub fn lines(&self, room: usize) -> Vec<Line> {
        let labels = self.answered().filter_map(|(host, said)| said.head.label(host));
        let mut lines: Vec<Line> = labels.collect();
        let mut table = Table::new(&[
            ("HOST", Align::Left),
            ("USER", Align::Left),
            ("GPUS", Align::Left),
            ("SHARE", Align::Right),
            ("SINCE", Align::Right),
            ("PROCESS", Align::Right),
            ("COMMAND", Align::Left),
        ]);
        let mut none = Vec::new();
        for (host, said) in self.answered() {
            let rows = said.shown.rows();
            if rows.is_empty() {
                none.push(host.to_string());
            }
            for (at, row) in rows.into_iter().enumerate() {
                let host = if at == 0 { Line::new().fitted(host, room / 4) } else { Line::new() };
                table.row(std::iter::once(host).chain(row));
            }
        }
        if none.len() < self.answered().count() {
            lines.extend(table.lines(room));
        }
        if !none.is_empty() {
            let head = Line::new().dim("no leases and no waiting claims: ");
            lines.extend(wrapped(head, Tone::Plain, &none.join(", "), room));
        }
        lines.extend(self.left_out(|claims| claims.leases.left_out + claims.queue.left_out, room));
        lines.extend(self.unanswered(room));
        let sum = |of: fn(&Claims) -> usize| -> usize {
            self.answered().map(|(_, said)| of(&said.shown)).fold(0, usize::saturating_add)
        };
        let leases = wording::count(sum(Claims::count), "lease", "leases");
        let waiting = wording::count(sum(|claims| claims.queue.len()), "claim", "claims");
        let parts = [self.summary(), Line::new().plain(leases)];
        let parts = parts.into_iter().chain([Line::new().plain(format!("{waiting} waiting"))]);
        lines.extend(packed(Line::new(), parts, "  ·  ", 4, room));
        lines
    }
}

impl Claims {
    /// Returns the number of leases. A merged lease stands for several.
    fn count(&self) -> usize {
        let counts = self.leases.iter().map(|lease| lease.lease_count.max(1));
        counts.fold(0, usize::saturating_add)
    }

    /// Returns the cells after the host: the leases, then the waiting claims.
    fn rows(&self) -> Vec<[Line; 6]> {
        let now = self.taken_at.as_deref().and_then(instant);
        let leases = self.leases.iter().map(|lease| lease.cells(lease.devices(), now));
        let waiting = self.queue.iter().map(|claim| claim.cells(claim.place(), now));
        leases.chain(waiting).collect()
    }
}

impl Claim {
    fn devices(&self) -> Line {
        let mut seen: Vec<u32> = self.gpus.iter().map(|gpu| gpu.index).collect();
        seen.sort_unstable();
        seen.dedup();
        let ranges = wording::ranges(&seen);
        let devices = match (seen.len(), self.unseen_gpus.len()) {
            (_, 0) => ranges,
            (0, unseen) => format!("{unseen} not visible"),
            (_, unseen) => format!("{ranges} and {unseen} not visible"),
        };
        Line::new().plain(devices).cut(DEVICES)
    }

    /// Formats `waits: 1st, 2 GPUs` in place of the devices.
    fn place(&self) -> Line {
        let place = match self.is_stopped {
            true => "stopped".to_owned(),
            false => wording::claims::ordinal(self.ahead_count.saturating_add(1)),
        };
        let gpus = wording::count(self.count as usize, "GPU", "GPUs");
        Line::new().accent(format!("waits: {place}")).plain(format!(", {gpus}"))
    }

    fn cells(&self, devices: Line, now: Option<Timestamp>) -> [Line; 6] {
        let unknown = || Line::new().dim("–");
        let share = self.share_bytes.map_or_else(
            || Line::new().dim("whole"),
            |share| Line::new().plain(wording::memory(Bytes(share))),
        );
        // Both times are those of the host: its clock may differ from that of this machine.
        let age = now.zip(instant(&self.since)).map(|(now, since)| wording::age(now.since(since)));
        let process = Line::new().plain(self.pid);
        [
            Line::new().plain(&self.user),
            devices,
            share,
            age.map_or_else(unknown, |age| Line::new().plain(age)),
            if self.alive { process } else { process.dim(" ?") },
            Line::new().plain(&self.command),
        ]
    }
}

/// Parses a time in RFC 3339.
fn instant(text: &str) -> Option<Timestamp> {
    let instant: Instant = text.parse().ok()?;
    Some(Timestamp(u64::try_from(instant.as_millisecond()).ok()?))
}
