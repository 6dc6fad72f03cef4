//! The lines for the users of a device and its leases.

use super::layout::{INDENT, Layout, USUAL, cell, most};
use crate::text::{Line, Tone, packed, wrapped};
use crate::wording;
use crate::wording::claims::User as UserName;
use gpu_core::{
    Access, Bytes, DeviceProcess, DeviceState, FileRole, HeldFile, LeaseEntry, Snapshot, Timestamp,
};
use gpu_reaper::{FindingKind, Role, User};

impl Layout {
    /// Formats `    alice      21044 python train.py      71.0 GiB   98 %  3 h  idle holder`; a display
    /// server without a finding is marked `display`.
    pub(super) fn user(
        &self,
        snapshot: &Snapshot,
        user: &User,
        finding: Option<FindingKind>,
    ) -> Vec<Line> {
        let process = snapshot.process(user.pid);
        let name = wording::command(process, user.name.as_deref());
        let what = format_args!("{} {name}", user.pid);
        let line = Line::new().padded_to(self.indent);
        let line = line.fitted(wording::user(process), self.most(14 - self.indent));
        let line = if line.width() < 15 { line.padded_to(15) } else { line.plain(" ") };
        let memory = user.memory.ok().map(|bytes| wording::memory(bytes).into_owned());
        let room = self.process;
        let mut line =
            cell(line.fitted(what, self.most(room)).padded_to(self.amount()), memory, 10);
        let finding = finding.map(wording::short).filter(|word| !word.is_empty());
        // Without a finding, a display server is named as the reason of its memory.
        let display = (user.role == Role::Display).then(|| wording::role(user.role));
        let finding = finding
            .map(|word| Line::new().accent(word))
            .or_else(|| display.map(|word| Line::new().dim(word)));
        if !self.is_wide {
            return packed(Line::new(), [line].into_iter().chain(finding), "  ", 15, self.columns);
        }
        if let Ok(utilization) = user.utilization {
            line = line.plain(format_args!("{:>6}", utilization.to_string()));
        }
        if let Some(at) = process.ok().and_then(|info| info.started_at.ok()) {
            let column = self.amount() + 17;
            // In a pipe, a long command shifts the following columns.
            line = if line.width() < column { line.padded_to(column) } else { line.plain("  ") };
            line = line.dim(wording::age(snapshot.taken_at.since(at)));
        }
        vec![match finding {
            Some(finding) => line.plain("  ").line(finding),
            None => line,
        }]
    }

    /// Returns the start column of a user's amount of memory.
    fn amount(&self) -> usize {
        15 + self.process + usize::from(self.is_wide)
    }

    /// Formats `    no listed process       15.4 GiB   ← unexplained`.
    pub(super) fn unexplained(&self, bytes: Bytes) -> Vec<Line> {
        let amount = format!("{:>10}", wording::memory(bytes));
        self.remark(Line::new().accent("no listed process"), &amount, Tone::Accent, "← unexplained")
    }

    /// Formats `    listed as host PID 48210       30.0 GiB   not visible`.
    pub(super) fn foreign(&self, process: &DeviceProcess) -> Vec<Line> {
        let who = Line::new().plain(format_args!("listed as host PID {}", process.pid));
        let amount = process.memory.map_or("–".into(), wording::memory);
        self.remark(who, &format!("{amount:>10}"), Tone::Dim, "not visible")
    }

    /// Formats an amount of memory without a visible process, and a remark.
    fn remark(&self, who: Line, amount: &str, tone: Tone, remark: &str) -> Vec<Line> {
        let line = Line::new().padded_to(self.indent).line(who);
        let line = line.padded_to(self.amount()).plain(amount);
        let mark = Line::new().add(tone, remark);
        if self.is_wide {
            vec![line.padded_to(self.amount() + 17).line(mark)]
        } else {
            packed(Line::new(), [line, mark], "   ", self.indent, self.columns)
        }
    }

    /// Describes how a user was found that NVML does not list, or may not list: by its open device
    /// files.
    pub(super) fn unlisted(
        &self,
        snapshot: &Snapshot,
        device: &DeviceState,
        user: &User,
    ) -> Vec<Line> {
        let text = found_by(snapshot, device, user);
        let lines =
            text.map(|text| wrapped(Line::new().padded_to(15), Tone::Dim, &text, self.columns));
        lines.unwrap_or_default()
    }
}

/// The maximum number of leases shown for a device.
const CLAIMS: usize = 4;

/// Formats `    claimed by bob · 12 min · 6.0 GiB · python train.py` for the first leases of a
/// device, within `columns`.
pub(super) fn claims(
    leases: &[&LeaseEntry],
    now: Timestamp,
    name: UserName<'_>,
    columns: usize,
) -> Vec<Line> {
    let line = |lease: &&LeaseEntry| {
        let age = wording::age(now.since(lease.since));
        let share = lease.claim.memory();
        let share = share.map_or(String::new(), |bytes| format!(" · {}", wording::memory(bytes)));
        let owner = name(lease.owner);
        let line = Line::new().plain(INDENT).plain("claimed by ").fitted(owner, most(20, columns));
        let line = line.dim(format_args!(" · {age}{share}"));
        if lease.command.is_empty() {
            return line;
        }
        let line = line.dim(" · ");
        let room = columns.max(USUAL).saturating_sub(line.width());
        line.fitted(&lease.command, room)
    };
    let mut lines: Vec<Line> = leases.iter().take(CLAIMS).map(line).collect();
    let more = leases.len().saturating_sub(CLAIMS);
    if more > 0 {
        let text = wording::count(more, "more claim", "more claims");
        let line = Line::new().plain(INDENT).dim(format_args!("and {text}: "));
        lines.push(line.plain("gpuws leases"));
    }
    lines
}

/// Formats `not listed; nvidia0 nvidiactl nvidia-uvm mapped`; `None` for a user that NVML lists.
fn found_by(snapshot: &Snapshot, device: &DeviceState, user: &User) -> Option<String> {
    let list = match user.listed {
        Ok(true) => return None,
        Ok(false) => "not listed; ",
        Err(_) => "",
    };
    let holder = snapshot.holders().iter().find(|holder| holder.process.pid == user.pid)?;
    let used = |held: &&HeldFile| {
        matches!(held.role, FileRole::Control | FileRole::Memory) || held.opens(device.id())
    };
    let (mapped, open): (Vec<&HeldFile>, Vec<_>) =
        holder.held.iter().filter(used).partition(|held| held.access.contains(Access::MAPPED));
    let names = |files: &[&HeldFile], how: &str| {
        let names = files.iter().map(|held| held.path.rsplit('/').next().unwrap_or_default());
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| format!("{} {how}", names.join(" ")))
    };
    let ways: Vec<String> =
        [names(&mapped, "mapped"), names(&open, "open")].into_iter().flatten().collect();
    Some(format!("{list}{}", ways.join(", ")))
}
