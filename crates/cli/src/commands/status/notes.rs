//! The notes below the devices: missing information, suggested commands, other holders.

use crate::args::Global;
use crate::failure::Failure;
use crate::source::sim_option;
use crate::terminal::{Line, Screen, Tone, packed, wrapped};
use crate::wording;
use gpu_core::{Reading, Snapshot};
use gpu_reaper::{Diagnosis, silence};
use gpu_report::rows::View;

/// Prints the first fault for all devices that did not answer, and the devices whose users are
/// unknown.
pub(super) fn unreported(screen: &mut Screen, snapshot: &Snapshot) -> Result<(), Failure> {
    let silent = snapshot.devices.iter().find_map(silence);
    let answering = snapshot.devices.iter().filter(|d| d.sample.is_ok() && silence(d).is_none());
    let mut unknown = wording::unknown_users(answering).peekable();
    if silent.is_some() || unknown.peek().is_some() {
        screen.print(&Line::new())?;
    }
    if let Some(fault) = silent {
        wording::flow(screen, Line::new().accent("no answer: "), &format!("failed to {fault}"))?;
    }
    unknown.try_for_each(|line| wording::flow(screen, Line::new(), &line))
}

/// Returns who could inspect the processes that were not readable.
pub(super) fn unseen_by(is_root: Reading<bool>) -> &'static str {
    match is_root {
        // Root lacks a capability here.
        Ok(true) => ", not even by root: is this a container?",
        _ => "; root can inspect all",
    }
}

/// Prints the processes that have a device open but use none of its memory, such as monitors.
pub(super) fn bystanders(screen: &mut Screen, view: &View<'_>) -> Result<(), Failure> {
    let View { snapshot, usage, diagnosis, .. } = view;
    let cleared = diagnosis.cleared.iter();
    let shown = cleared.filter(|cleared| view.filter.shows(snapshot, cleared.process.pid));
    let who = shown.filter_map(|cleared| {
        let pid = cleared.process.pid;
        let is_reported = |id| usage.on(id).iter().any(|user| user.pid == pid);
        let open = cleared.devices.iter().filter(|id| snapshot.device(id).is_some());
        let indexes: Vec<u32> = open.filter(|id| !is_reported(id)).map(|id| id.index).collect();
        let name = snapshot.process(pid).map_or("?", |info| info.name.as_str());
        let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
        let role = wording::role(cleared.role);
        (!indexes.is_empty())
            .then(|| format!("{pid} {name} ({role}, {word} {})", wording::ranges(&indexes)))
    });
    let who: Vec<String> = who.collect();
    match who.is_empty() {
        true => Ok(()),
        false => wording::flow(screen, Line::new().dim("also open in: "), &who.join(", ")),
    }
}

/// Returns the command that explains the findings about a machine.
pub(super) fn doctor(snapshot: &Snapshot, global: &Global) -> String {
    format!("gpuws {}doctor", sim_option(&snapshot.origin, global))
}

/// Prints a line for each device with findings: their kinds, and `doctor`, the command that explains
/// them.
pub(super) fn next_commands(
    screen: &mut Screen,
    doctor: &str,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    let room = screen.room(0);
    let mut lines: Vec<(Vec<u32>, Vec<String>)> = Vec::new();
    for finding in &diagnosis.findings {
        let memory =
            finding.memory.map_or(String::new(), |bytes| format!(" {:.1} GiB", bytes.gib()));
        let what = format!("{}{memory}", wording::kind(finding.kind));
        let shown = finding.devices.iter().filter(|id| snapshot.device(id).is_some());
        let indexes: Vec<u32> = shown.map(|id| id.index).collect();
        if indexes.is_empty() && !finding.devices.is_empty() {
            continue;
        }
        match lines.iter_mut().find(|(known, _)| *known == indexes) {
            Some((_, whats)) => whats.push(what),
            None => lines.push((indexes, vec![what])),
        }
    }
    if !lines.is_empty() {
        screen.print(&Line::new())?;
    }
    for (indexes, whats) in lines {
        let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
        let head = format!("{word} {}: ", wording::ranges(&indexes));
        let what = format!("{}.", whats.join(", "));
        let mut lines = wrapped(Line::new().plain(head), Tone::Plain, &what, room);
        let gpu = indexes.first().map_or(String::new(), |index| format!(" --gpu {index}"));
        let command = Line::new().accent(format!("{doctor}{gpu}"));
        // On one line, so that it can be copied.
        let last = lines.pop().unwrap_or_default();
        lines.extend(packed(Line::new(), [last, command], "   ", 4, room));
        screen.print_all(lines)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_gets_no_root_hint() {
        assert!(unseen_by(Ok(true)).starts_with(", not even by root"));
        assert_eq!(unseen_by(Ok(false)), "; root can inspect all");
    }
}
