//! `gpuws doctor --host`: the findings of each host.

use super::{Hosts, What};
use crate::text::{Line, Tone, wrapped};
use crate::{Exit, wording};
use gpu_core::Bytes;
use serde::Deserialize;

/// What is shown of an object of `doctor --json`.
#[derive(Debug, Deserialize)]
pub struct Diagnosed {
    findings: Vec<Finding>,
    unknown_users: Vec<UnknownUsers>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    kind: String,
    confidence: String,
    gpus: Vec<Gpu>,
    memory_bytes: Option<u64>,
    suspects: Vec<Suspect>,
    evidence: Vec<String>,
    next: Vec<Next>,
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
    evidence: Vec<String>,
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
            for finding in findings {
                lines.extend(finding.lines(host.as_str(), room));
            }
        }
        if !fine.is_empty() {
            let head = Line::new().dim("no findings: ");
            lines.extend(wrapped(head, Tone::Plain, &fine.join(", "), room));
        }
        lines.extend(self.unanswered(room));
        let all = self.answered().map(|(_, said)| said.shown.findings.len()).sum();
        let count = wording::count(all, "finding", "findings");
        let summary = self.summary().plain("  ·  ");
        lines.push(if all > 0 { summary.accent(count) } else { summary.plain(count) });
        lines
    }
}

impl Finding {
    fn lines(&self, host: &str, room: usize) -> Vec<Line> {
        let gpus: Vec<u32> = self.gpus.iter().map(|gpu| gpu.index).collect();
        let mut head = Line::new().accent(host).plain("  ").accent(self.kind.to_uppercase());
        if !gpus.is_empty() {
            head = head.plain("  GPU ").plain(wording::ranges(&gpus));
        }
        head = head.plain("  confidence: ").plain(&self.confidence);
        if let Some(bytes) = self.memory_bytes {
            head = head.plain("  ").plain(Bytes(bytes));
        }
        let mut lines = vec![head.cut(room)];
        let indent = || Line::new().plain("  ");
        if !self.evidence.is_empty() {
            lines.extend(wrapped(indent(), Tone::Plain, &self.evidence.join("; "), room));
        }
        for suspect in &self.suspects {
            let name = suspect.name.as_deref().unwrap_or("unknown");
            let user = suspect.user.as_deref().unwrap_or("unknown");
            let text = format!("{} {name} ({user})  {}", suspect.pid, suspect.evidence.join("; "));
            lines.extend(wrapped(indent().dim("by "), Tone::Plain, &text, room));
        }
        if let Some(next) = self.next.first() {
            // One quoted word: whatever the host says to run is run there and not here.
            let (host, command) = (wording::shell_word(host), wording::shell_word(&next.command));
            lines.push(indent().dim("next ").accent(format!("ssh {host} {command}")));
        }
        lines
    }
}
