//! The notes below the rows: the findings with the command that explains them, the processes that
//! have a device open and use none of its memory, and the devices that programs here see.

use super::View;
use crate::text::{Line, Tone, flowed, packed, wrapped};
use crate::wording;
use gpu_core::DeviceId;
use gpu_core::visible::SeenList;

impl View<'_> {
    /// Returns the notes below the rows: the findings, the processes that have a device open and
    /// use none of its memory, and the devices that programs started here see. Commands have `room` columns, and text is wrapped to `width`.
    pub fn notes(&self, doctor: &str, room: usize, width: usize) -> Vec<Line> {
        let mut lines = self.next_commands(doctor, room);
        if let Some(who) = self.bystanders() {
            lines.extend(flowed(Line::new().dim("also open in: "), &who, width));
        }
        for list in self.seen.iter().flat_map(|seen| &seen.lists) {
            lines.extend(flowed(Line::new().dim("visible here: "), &visible(list), width));
        }
        lines
    }

    /// Returns a line for each set of devices with findings, with `doctor`, the command that
    /// explains them; and then the number of findings that are only possible, without names.
    fn next_commands(&self, doctor: &str, room: usize) -> Vec<Line> {
        let shown = |id: &&DeviceId| self.snapshot.device(id).is_some();
        let is_shown =
            |devices: &[DeviceId]| devices.is_empty() || devices.iter().any(|id| shown(&id));
        let mut groups: Vec<(Vec<u32>, Vec<String>)> = Vec::new();
        for finding in self.diagnosis.confident().filter(|finding| is_shown(&finding.devices)) {
            let devices = finding.devices.iter().filter(shown);
            let indexes: Vec<u32> = devices.map(|id| id.index).collect();
            let what = wording::finding(finding);
            match groups.iter_mut().find(|(known, _)| *known == indexes) {
                Some((_, whats)) => whats.push(what),
                None => groups.push((indexes, vec![what])),
            }
        }
        let possible = self
            .diagnosis
            .findings
            .iter()
            .filter(|finding| !finding.is_confident() && is_shown(&finding.devices));
        let possible = possible.count();
        let mut lines = Vec::new();
        for (indexes, whats) in groups {
            let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
            let head = if indexes.is_empty() {
                String::new()
            } else {
                format!("{word} {}: ", wording::ranges(&indexes))
            };
            let what = format!("{}.", whats.join(", "));
            let mut wrapped_lines = wrapped(Line::new().plain(head), Tone::Plain, &what, room);
            let gpu = indexes.first().map_or(String::new(), |index| format!(" --gpu {index}"));
            let command = Line::new().accent(format!("{doctor}{gpu}"));
            // On one line, so that it can be copied.
            let last = wrapped_lines.pop().unwrap_or_default();
            wrapped_lines.extend(packed(Line::new(), [last, command], "   ", 4, room));
            lines.extend(wrapped_lines);
        }
        if possible > 0 {
            lines.push(Line::new().dim(wording::possible(possible, doctor)));
        }
        if !lines.is_empty() {
            lines.insert(0, Line::new());
        }
        lines
    }

    /// Names the processes that have a device open and use none of its memory, such as monitors;
    /// `None` if there are none.
    fn bystanders(&self) -> Option<String> {
        let cleared = self.diagnosis.cleared.iter();
        let shown = cleared.filter(|one| self.filter.shows(self.snapshot, one.process.pid));
        let who = shown.filter_map(|cleared| {
            let pid = cleared.process.pid;
            let is_reported = |id| self.usage.on(id).iter().any(|user| user.pid == pid);
            let open = cleared.devices.iter().filter(|id| self.snapshot.device(id).is_some());
            let indexes: Vec<u32> = open.filter(|id| !is_reported(id)).map(|id| id.index).collect();
            let name = self.snapshot.process(pid).map_or("?", |info| info.name.as_str());
            let word = if indexes.len() == 1 { "GPU" } else { "GPUs" };
            let role = wording::role(cleared.role);
            (!indexes.is_empty())
                .then(|| format!("{pid} {name} ({role}, {word} {})", wording::ranges(&indexes)))
        });
        let who: Vec<String> = who.collect();
        (!who.is_empty()).then(|| who.join(", "))
    }
}

/// The maximum length of a shown value of a variable.
const VALUE: usize = 200;

/// Formats `GPUs 0, 2 (CUDA_VISIBLE_DEVICES=0,2)`.
fn visible(list: &SeenList) -> String {
    let value: String = list.value.chars().take(VALUE).collect();
    let by = format!("{}={value}", list.variable);
    match list.devices.as_deref() {
        Ok([]) => format!("no GPU ({by})"),
        Ok([one]) => format!("GPU {one} ({by})"),
        Ok(all) => format!("GPUs {} ({by})", wording::ranges(all)),
        Err(error) => {
            let why = std::error::Error::source(error).map(|why| format!(": {why}"));
            format!("unknown ({by}){}", why.unwrap_or_default())
        }
    }
}
