//! The text of a plan that ends processes, of its steps and of its result.

use super::{count, doctor, process, started, user};
use crate::text::Line;
use gpu_core::{DeviceId, ErrorKind, Pid, ProcessState, Snapshot};
use gpu_reaper::{
    Advice, Diagnosis, Event, Finding, FindingKind, Freed, Membership, Outcome, Plan, Report, Role,
    Target, Why,
};
use std::sync::Arc;
use std::time::Duration;

/// A head, followed by a text that is wrapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paragraph {
    /// The head, in its tones.
    pub head: Line,
    /// The text; empty if the head is sufficient.
    pub text: String,
}

impl Paragraph {
    fn new(head: Line, text: impl Into<String>) -> Self {
        Paragraph { head, text: text.into() }
    }
}

impl From<Line> for Paragraph {
    fn from(head: Line) -> Self {
        Paragraph::new(head, "")
    }
}

/// Describes a plan: its targets, when they are killed, the memory that it frees, and the processes
/// that it spares, with the reasons. `certain`: the plan will be executed. [`untouched`] describes
/// what the choice of devices or users leaves untouched.
pub fn plan(now: &Snapshot, diagnosis: &Diagnosis, plan: &Plan, certain: bool) -> Vec<Paragraph> {
    let mut paragraphs = targets(now, plan, certain);
    for expected in &plan.expected {
        let device = format!("GPU {}", expected.device.index);
        paragraphs.push(Paragraph::from(Line::new().plain(match expected.memory {
            Some(bytes) => format!("frees up to {bytes} on {device}"),
            None => format!("frees an unknown amount of memory on {device}"),
        })));
    }
    for refused in &plan.refused {
        let who = process(refused.pid, refused.name.as_deref().unwrap_or(""));
        let head = Line::new().accent("refused ").plain(who.trim_end()).plain(": ");
        paragraphs.push(Paragraph::new(head, refused.why.to_string()));
    }
    let suspects = || diagnosis.findings.iter().flat_map(|finding| &finding.suspects);
    // Members of a scope; the user did not ask about a suspect on another device.
    let is_member = |pid: Pid| !suspects().any(|suspect| suspect.process.pid == pid);
    for left_out in plan.left_out.iter().filter(|left_out| is_member(left_out.pid)) {
        let who = process(left_out.pid, left_out.name.as_deref().unwrap_or("?"));
        let head = Line::new().dim("skipped ").plain(who).plain(": ");
        paragraphs.push(Paragraph::new(head, left_out.why.to_string()));
    }
    if paragraphs.is_empty() && plan.devices.is_empty() && plan.users.is_empty() {
        paragraphs.push(Paragraph::new(
            Line::new(),
            match &doctor::unmeasured(now)[..] {
                [] if diagnosis.findings.is_empty() => {
                    "nothing to reap: no unaccounted memory".to_owned()
                }
                unknown if diagnosis.findings.is_empty() => {
                    format!("nothing to reap: no suspect found. {}", unknown.join(". "))
                }
                _ => "nothing to reap automatically: no high-confidence finding; to end a process \
                      anyway, pass --pid"
                    .to_owned(),
            },
        ));
    }
    paragraphs
}

/// The maximum number of idle processes that are named on a device.
const IDLE: usize = 4;

/// Describes each requested device, or the requested users, for which the plan ends no process:
/// whether memory is unaccounted there, and which processes are idle, with the next command. `sim`
/// is the option that selects a simulated machine.
pub fn untouched(now: &Snapshot, diagnosis: &Diagnosis, plan: &Plan, sim: &str) -> Vec<Paragraph> {
    let by_device = plan.devices.iter().map(Some);
    let by_user = (plan.devices.is_empty() && !plan.users.is_empty()).then_some(None);
    let is_touched = |device: Option<&DeviceId>| match device {
        Some(id) => plan.expected.iter().any(|expected| expected.device.same_device(id)),
        None => !plan.targets.is_empty(),
    };
    let untouched = by_device.chain(by_user).filter(|device| !is_touched(*device));
    let paragraphs = untouched.flat_map(|device| untouched_on(now, diagnosis, plan, device, sim));
    paragraphs.map(Paragraph::from).collect()
}

fn untouched_on(
    now: &Snapshot,
    diagnosis: &Diagnosis,
    plan: &Plan,
    device: Option<&DeviceId>,
    sim: &str,
) -> Vec<Line> {
    let is_of = |pid: Pid| {
        let is_user = |user: &String| now.process(pid).is_ok_and(|info| info.is_of(user));
        plan.users.is_empty() || plan.users.iter().any(is_user)
    };
    let here = |finding: &&Finding| {
        device.is_none_or(|id| finding.devices.iter().any(|other| other.same_device(id)))
    };
    let findings = || diagnosis.findings.iter().filter(here);
    let on = device.map_or(String::new(), |id| format!(" on GPU {}", id.index));
    let of = match &plan.users[..] {
        [] => String::new(),
        users => format!(" of {}", users.join(" or ")),
    };
    let gpu = device.map_or(String::new(), |id| format!(" --gpu {}", id.index));
    let doctor = format!("gpuws {sim}doctor{gpu}");
    // Memory that some process may hold; if users are named, one of their processes.
    let unaccounted = findings().find(|finding| {
        let suspects = &finding.suspects;
        let is_theirs = suspects.iter().any(|suspect| is_of(suspect.process.pid));
        let is_unaccounted = finding.kind.reap_reason().is_some()
            || matches!(finding.kind, FindingKind::DriverLeak | FindingKind::NotPermitted);
        is_unaccounted && (is_theirs || suspects.is_empty() && plan.users.is_empty())
    });
    let mut asked = now.devices.iter().filter(|d| device.is_none_or(|id| d.id().same_device(id)));
    let is_unknown = asked.any(|device| doctor::why_unmeasured(device).is_some());
    let first = match unaccounted {
        Some(finding) => {
            let what = format!(
                "{}{of}{on}: reap ends no process for it without --pid: ",
                super::finding(finding)
            );
            return vec![Line::new().plain(what).accent(doctor)];
        }
        None if is_unknown => {
            Line::new().plain(format!("unaccounted memory{of}{on} cannot be measured"))
        }
        None => Line::new().plain(format!("no unaccounted memory{of}{on}")),
    };
    let idle = findings().flat_map(|finding| {
        let suspects = finding.suspects.iter().map(|suspect| suspect.process.pid);
        suspects.filter(|pid| is_of(*pid)).map(move |pid| (finding, pid))
    });
    let idle = idle.filter_map(|(finding, pid)| {
        let is = match finding.kind {
            FindingKind::Hoarder => "is idle",
            FindingKind::Orphan => "is an idle orphan",
            FindingKind::StuckHolder => "is in state D",
            _ => return None,
        };
        let (command, _) =
            ending(finding).map_or((doctor.clone(), ""), |advice| super::advice(advice, sim));
        let indexes: Vec<u32> = finding.devices.iter().map(|id| id.index).collect();
        let devices = match (device, indexes.len()) {
            (Some(_), _) => String::new(),
            (None, 1) => format!(" on GPU {}", super::ranges(&indexes)),
            (None, _) => format!(" on GPUs {}", super::ranges(&indexes)),
        };
        let text = format!("{pid} ({}){devices} {is}: ", user(now.process(pid)));
        Some(Line::new().plain(text).accent(command))
    });
    let idle: Vec<Line> = idle.collect();
    let more = idle.len().saturating_sub(IDLE);
    let mut lines = match &idle[..] {
        [only] => return vec![first.plain("; ").line(only.clone())],
        _ => vec![first],
    };
    lines.extend(idle.into_iter().take(IDLE).map(|line| Line::new().plain("  ").line(line)));
    if more > 0 {
        lines.push(Line::new().plain("  ").dim(format!("and {more} more: ")).accent(doctor));
    }
    lines
}

/// Returns the advice that ends the process of a finding; `None` if there is none.
fn ending(finding: &Finding) -> Option<&Advice> {
    finding.advice.iter().find(|advice| {
        matches!(
            advice,
            Advice::ReapProcess(_)
                | Advice::StopUnit { .. }
                | Advice::CancelJob(_)
                | Advice::StopContainer { .. }
                | Advice::DeletePod(_)
                | Advice::DeleteNamedPod { .. }
        )
    })
}

fn targets(now: &Snapshot, plan: &Plan, certain: bool) -> Vec<Paragraph> {
    let verb = if certain { "will send SIGTERM to " } else { "would send SIGTERM to " };
    let mut paragraphs = Vec::new();
    for target in &plan.targets {
        let who = process(target.key.pid, &target.process.name);
        let head = Line::new().plain(verb).accent(who).plain(" ");
        paragraphs.push(Paragraph::new(head, format!("({})", about(now, target))));
        for warning in &target.warnings {
            paragraphs
                .push(Paragraph::new(Line::new().plain("  ").accent("note: "), warning.as_str()));
        }
    }
    if !plan.targets.is_empty() {
        let they = if plan.targets.len() == 1 { "it is" } else { "they are" };
        let grace = plan.grace.as_secs();
        let kill = format!("  SIGKILL after {grace} s if {they} still running");
        paragraphs.push(Line::new().plain(kill).into());
    }
    paragraphs
}

fn about(now: &Snapshot, target: &Target) -> String {
    let mut parts = vec![user(Ok(&target.process)).into_owned()];
    if let Ok(at) = target.process.started_at {
        parts.push(format!("started {}", started(at, now.taken_at)));
    }
    parts.push(match &target.membership {
        Membership::Holds(files) => {
            let name = |path: &Arc<str>| path.rsplit('/').next().unwrap_or_default().to_owned();
            let names: Vec<String> = files.iter().map(name).collect();
            format!("holds {}", names.join(" "))
        }
        Membership::Group(group) => format!("in process group {group}"),
        Membership::Cgroup(cgroup) => format!("in {cgroup}"),
        Membership::Descends(root) => format!("descends from {root}"),
        Membership::Job(mark) => format!("left over from job {}", mark.id),
    });
    parts.push(target.why.clone());
    parts.join(", ")
}

/// The steps of an execution, as lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// A long wait was reported since the last signal.
    wait_is_reported: bool,
}

impl Steps {
    /// Returns the line for an event; `None` for an event without a line, such as a short wait.
    pub fn line(&mut self, event: &Event<'_>) -> Option<Line> {
        let name = |target: &Target| process(target.key.pid, &target.process.name);
        Some(match event {
            Event::Signalled(target, signal) => {
                self.wait_is_reported = false;
                Line::new().accent(signal).plain(format!("  {}", name(target)))
            }
            Event::Settled(target, outcome) => {
                Line::new().plain(format!("         {} ", name(target))).line(became(outcome))
            }
            Event::StillThere(target, after) => Line::new()
                .plain(format!("         {} ", name(target)))
                .accent(format!("still running after {:.1} s", after.as_secs_f64())),
            Event::WaitingForEnd(left, waited) if self.is_late(*waited) => {
                let left = count(*left, "process", "processes");
                Line::new().dim(format!("         … waiting for {left} to end"))
            }
            Event::WaitingForMemory(waited) if self.is_late(*waited) => {
                Line::new().dim("         … waiting for memory to be freed")
            }
            Event::Signalling(..) | Event::WaitingForEnd(..) | Event::WaitingForMemory(_) => {
                return None;
            }
        })
    }

    /// Returns `true` once for a wait of more than a second.
    fn is_late(&mut self, waited: Duration) -> bool {
        waited >= Duration::from_secs(1) && !std::mem::replace(&mut self.wait_is_reported, true)
    }
}

fn became(outcome: &Outcome) -> Line {
    let line = Line::new();
    match outcome {
        Outcome::NotReached => line.accent("was not reached"),
        Outcome::Unsettled => line.accent("did not finish exiting while watched"),
        Outcome::AlreadyGone => line.plain("had already exited"),
        Outcome::Ended { after_ms } => {
            line.plain(format!("exited after {:.1} s", *after_ms as f64 / 1000.0))
        }
        Outcome::LetGo => line.plain("released the device itself; no further signal sent"),
        Outcome::NotTheSame => {
            line.accent("is a different process now (PID reused); no signal sent")
        }
        Outcome::AnotherProgram => {
            line.accent("executes another program now; no further signal sent")
        }
        Outcome::RoleForbids { role: Role::Monitor } => {
            line.plain("no longer uses device memory; no further signal sent")
        }
        Outcome::RoleForbids { role: Role::Display } => {
            line.accent("is a display server; no further signal sent")
        }
        Outcome::RoleForbids { .. } => {
            line.accent("is a system daemon for the GPU; no further signal sent")
        }
        Outcome::LoginSession => line.accent("belongs to a login session; no further signal sent"),
        Outcome::Protected => line.accent("is protected; no signal sent"),
        Outcome::Spared => line.plain("spared because its target was spared"),
        Outcome::Survived { state: Ok(ProcessState::Uninterruptible) } => line
            .accent("survived SIGKILL: state D (uninterruptible sleep); exits when the wait ends"),
        Outcome::Survived { .. } => line.accent("survived SIGKILL"),
        Outcome::Failed { why } => line.accent(format!("could not be ended: {why}")),
    }
}

/// Describes a result: why it was stopped, the freed and the expected memory, and the processes
/// that exist although they were not planned.
pub fn report(report: &Report) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    if let Some(fault) = &report.stopped {
        let why = match fault.kind {
            ErrorKind::Interrupted => "interrupted; no further signal sent".to_owned(),
            _ => format!("failed to {fault}; no further signal sent"),
        };
        paragraphs.push(Paragraph::new(Line::new().accent("stopped: "), why));
    }
    let is_untouched = report.actions.iter().all(|action| action.signals.is_empty());
    for freed in &report.memory {
        // Without a signal, there is no effect to prove.
        if is_untouched {
            if report.stopped.is_none() {
                let used = freed.after.map(|used| format!("{used} in use"));
                let used = used.unwrap_or_else(|why| format!("memory unknown ({why})"));
                let line = format!("GPU {}: {used}; no signal was sent", freed.device.index);
                paragraphs.push(Line::new().plain(line).into());
            }
            continue;
        }
        paragraphs.push(proof(freed, report.stopped.is_some()).into());
        if let Some(doubt) = freed.doubt {
            let what = format!("unknown whether the targets freed it: {doubt}");
            paragraphs.push(Paragraph::new(Line::new().plain("  ").accent("note: "), what));
        }
    }
    for action in &report.actions {
        if matches!(action.outcome, Outcome::Survived { .. }) {
            paragraphs.extend(after_kill(action.pid));
        }
    }
    let note = || Line::new().accent("note: ");
    let newcomers = match &report.newcomers {
        Ok(newcomers) => newcomers,
        Err(absent) => {
            let what = format!("cannot determine whether the devices are in use again: {absent}");
            paragraphs.push(Paragraph::new(note(), what));
            return paragraphs;
        }
    };
    for newcomer in newcomers {
        let who = process(newcomer.pid, newcomer.name.as_deref().unwrap_or("?"));
        let what = match newcomer.why {
            Why::TookTheDevice => format!(
                "uses the device now; find its service with systemctl status {}",
                newcomer.pid
            ),
            Why::JoinedTheScope => "joined the scope meanwhile and is still running".to_owned(),
        };
        paragraphs.push(Paragraph::new(note().plain(who).plain(" "), what));
    }
    paragraphs
}

/// Returns what to do about a process that SIGKILL does not end: one of its threads waits in the
/// kernel, and the process ends only when the wait ends.
fn after_kill(pid: Pid) -> Vec<Paragraph> {
    let steps = [
        (
            format!("ps -L -o tid,stat,wchan:32,comm -p {pid}"),
            "shows its threads: those in state D wait in the kernel, also below a zombie, and \
             wchan names the function",
        ),
        (
            "sudo dmesg | tail -40".to_owned(),
            "shows hung tasks with their stacks, and errors of the driver",
        ),
        (
            "echo 1 | sudo tee /sys/fs/fuse/connections/N/abort".to_owned(),
            "ends a wait in fuse_ functions, for a mount whose server is gone; N is the minor \
             device number of the mount in /proc/self/mountinfo. For nfs_ or rpc_, umount -f -l",
        ),
        (
            "sudo reboot".to_owned(),
            "if it waits in nvidia functions: neither a signal nor a reset frees the memory",
        ),
    ];
    let paragraph = |(at, (command, what)): (usize, (String, &str))| {
        let head = Line::new().dim(if at == 0 { "next     " } else { "or       " });
        Paragraph::new(head.accent(command).plain("   "), what)
    };
    steps.into_iter().enumerate().map(paragraph).collect()
}

fn proof(freed: &Freed, is_stopped: bool) -> Line {
    let line = Line::new().plain(format!("GPU {}: ", freed.device.index));
    let (Ok(before), Ok(after), Some(bytes)) = (freed.before, freed.after, freed.freed) else {
        let reason =
            freed.after.err().or(freed.before.err()).map_or(String::new(), |why| why.to_string());
        return line.accent(format!("unknown whether memory was freed: {reason}"));
    };
    let before = before.to_string();
    let line = line.plain(format!("{} → {after}   ", before.trim_end_matches(" MiB")));
    let seen = format!("{:.1} s later", freed.seen_after.as_secs_f64());
    let others = |line: Line| match freed.by_others {
        Some(others) => line.plain(format!("; other processes freed {others} meanwhile")),
        None => line,
    };
    match (freed.came_back, bytes.0) {
        (true, _) => others(line.plain(format!("freed {bytes}, seen {seen}"))),
        (false, 0) if is_stopped => others(line.accent("not freed yet")),
        (false, 0) => others(line.accent("was not freed")),
        (false, _) if freed.doubt.is_some() => {
            others(line.accent(format!("{bytes} freed, observed {seen}")))
        }
        (false, _) => {
            let expected =
                freed.expected.map_or(String::new(), |expected| format!(" of {expected}"));
            others(line.accent(format!("freed {bytes}{expected}; the rest was not freed")))
        }
    }
}
