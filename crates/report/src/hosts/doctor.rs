//! `gpuws doctor --host`: the findings of each host.

use super::few::Few;
use super::{Hosts, PARTS, ROWS, What};
use crate::text::{Line, Tone, wrapped};
use crate::{Exit, wording};
use gpu_core::Bytes;
use gpu_reaper::FindingKind;
use serde::Deserialize;

/// The displayed fields of an object of `doctor --json`.
#[derive(Debug, Deserialize)]
pub struct Diagnosed {
    findings: Few<Finding, ROWS>,
    unknown_users: Few<UnknownUsers, ROWS>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    kind: String,
    confidence: String,
    gpus: Few<Gpu, PARTS>,
    memory_bytes: Option<u64>,
    suspects: Few<Suspect, PARTS>,
    evidence: Few<String, PARTS>,
    next: Few<Next, PARTS>,
}

#[derive(Debug, Deserialize)]
struct Gpu {
    index: u32,
}

#[derive(Debug, Deserialize)]
struct Suspect {
    pid: u32,
    name: Option<String>,
    user: Option<String>,
    evidence: Few<String, PARTS>,
}

#[derive(Debug, Deserialize)]
struct Next {
    command: String,
}

#[derive(Debug, Deserialize)]
struct UnknownUsers {
    gpu: Gpu,
    error: What,
}

impl Hosts<Diagnosed> {
    /// Returns the exit code: a failure if a host did not answer or could not observe its GPUs,
    /// otherwise whether there are findings.
    pub fn exit(&self) -> Exit {
        let any = self.answered().any(|(_, said)| !said.shown.findings.is_empty());
        self.failure().unwrap_or(if any { Exit::Remains } else { Exit::Done })
    }

    /// Returns the findings by host, the hosts without an answer, and a summary, within `room`
    /// columns.
    pub fn lines(&self, room: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut fine = Vec::new();
        for (host, said) in self.answered() {
            let (head, Diagnosed { findings, unknown_users }) = (&said.head, &said.shown);
            if findings.is_empty() && unknown_users.is_empty() && head.driver_error.is_none() {
                fine.push(host.to_string());
            }
            lines.extend(head.label(host));
            if let Some(error) = &head.driver_error {
                let start = Line::new().accent(host).plain("  ");
                lines.extend(wrapped(start, Tone::Plain, &error.what, room));
            }
            for UnknownUsers { gpu, error } in unknown_users {
                let start = Line::new().accent(host).plain(format!("  GPU {}: ", gpu.index));
                lines.extend(wrapped(start, Tone::Plain, &error.what, room));
            }
            let (possible, certain): (Vec<_>, Vec<_>) =
                findings.iter().partition(|finding| finding.confidence == "possible");
            for finding in certain {
                lines.extend(finding.lines(host.as_str(), room));
            }
            lines.extend(of_kinds(&possible, host.as_str(), room));
        }
        if !fine.is_empty() {
            let head = Line::new().dim("no findings: ");
            lines.extend(wrapped(head, Tone::Plain, &fine.join(", "), room));
        }
        let left_out = |seen: &Diagnosed| seen.findings.left_out + seen.unknown_users.left_out;
        lines.extend(self.left_out(left_out, room));
        lines.extend(self.unanswered(room));
        let all = self.answered().map(|(_, said)| said.shown.findings.len()).sum();
        let count = wording::count(all, "finding", "findings");
        let summary = self.summary().plain("  ·  ");
        lines.push(if all > 0 { summary.accent(count) } else { summary.plain(count) });
        lines
    }
}

/// Returns the findings that are only possible: all of one kind together, with a bound.
fn of_kinds(possible: &[&Finding], host: &str, room: usize) -> Vec<Line> {
    let mut kinds: Vec<(&str, Vec<&Finding>)> = Vec::new();
    for finding in possible {
        match kinds.iter_mut().find(|(kind, _)| *kind == finding.kind) {
            Some((_, known)) => known.push(finding),
            None => kinds.push((&finding.kind, vec![finding])),
        }
    }
    let lines = kinds.into_iter().flat_map(|(_, findings)| match findings[..] {
        [finding] => finding.lines(host, room),
        _ => several(&findings, host, room),
    });
    lines.collect()
}

/// The maximum number of findings of one kind that are shown; the others are counted.
const SHOWN: usize = 8;

fn several(findings: &[&Finding], host: &str, room: usize) -> Vec<Line> {
    let Some(first) = findings.first() else { return Vec::new() };
    let mut gpus: Vec<u32> =
        findings.iter().flat_map(|finding| &finding.gpus).map(|gpu| gpu.index).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let head = first.head(host, &gpus).plain("  ").plain(wording::count(
        findings.len(),
        "finding",
        "findings",
    ));
    let mut lines = vec![head.cut(room)];
    for finding in findings.iter().take(SHOWN) {
        lines.extend(finding.suspects.iter().flat_map(|suspect| suspect.lines(room)));
    }
    if findings.len() > SHOWN {
        lines.push(Line::new().plain("  ").dim(format!("and {} more", findings.len() - SHOWN)));
    }
    lines.extend(first.next(host));
    lines
}

impl Finding {
    /// Formats `node1  IDLE HOLDER  GPU 2, 6  confidence: possible`.
    fn head(&self, host: &str, gpus: &[u32]) -> Line {
        let known = FindingKind::ALL.into_iter().find(|kind| kind.name() == self.kind);
        let kind = match known {
            Some(kind) => wording::kind(kind),
            None => &self.kind,
        };
        let kind = kind.to_uppercase();
        let mut head = Line::new().accent(host).plain("  ").accent(kind);
        if !gpus.is_empty() {
            let word = if gpus.len() == 1 { "  GPU " } else { "  GPUs " };
            head = head.plain(word).plain(wording::ranges(gpus));
        }
        head.plain("  confidence: ").plain(&self.confidence)
    }

    fn lines(&self, host: &str, room: usize) -> Vec<Line> {
        let gpus: Vec<u32> = self.gpus.iter().map(|gpu| gpu.index).collect();
        let mut head = self.head(host, &gpus);
        if let Some(bytes) = self.memory_bytes {
            head = head.plain("  ").plain(Bytes(bytes));
        }
        let mut lines = vec![head.cut(room)];
        let indent = || Line::new().plain("  ");
        if !self.evidence.is_empty() {
            lines.extend(wrapped(indent(), Tone::Plain, &self.evidence.join("; "), room));
        }
        lines.extend(self.suspects.iter().flat_map(|suspect| suspect.lines(room)));
        lines.extend(self.next(host));
        lines
    }

    fn next(&self, host: &str) -> Option<Line> {
        let next = self.next.first()?;
        // One quoted word, so that commands from the host run there and not here.
        let (host, command) = (wording::shell_word(host), wording::shell_word(&next.command));
        Some(Line::new().plain("  ").dim("next ").accent(format!("ssh {host} {command}")))
    }
}

impl Suspect {
    fn lines(&self, room: usize) -> Vec<Line> {
        let name = self.name.as_deref().unwrap_or("unknown");
        let user = self.user.as_deref().unwrap_or("unknown");
        let text = format!("{} {name} ({user})  {}", self.pid, self.evidence.join("; "));
        wrapped(Line::new().plain("  ").dim("by "), Tone::Plain, &text, room)
    }
}
