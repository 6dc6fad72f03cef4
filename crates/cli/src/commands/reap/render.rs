//! Output of a plan and its result.

use crate::failure::Failure;
use crate::terminal::{Line, Screen};
use crate::wording;
use gpu_core::{ErrorKind, Snapshot};
use gpu_reaper::{Diagnosis, Freed, Membership, Plan, Report, Target, Why};

pub(crate) fn show_plan(
    screen: &mut Screen,
    now: &Snapshot,
    diagnosis: &Diagnosis,
    plan: &Plan,
    yes: bool,
) -> Result<(), Failure> {
    let verb = if yes { "will send SIGTERM to " } else { "would send SIGTERM to " };
    for target in &plan.targets {
        let about = about(now, target);
        let head =
            Line::new().plain(verb).accent(wording::process(target.key.pid, &target.process.name));
        wording::flow(screen, head.plain(" "), &format!("({about})"))?;
        for warning in &target.warnings {
            wording::flow(screen, Line::new().plain("  ").accent("note: "), warning)?;
        }
    }
    if !plan.targets.is_empty() {
        let they = if plan.targets.len() == 1 { "it is" } else { "they are" };
        let grace = plan.grace.as_secs();
        screen.print(
            &Line::new().plain(format!("  SIGKILL after {grace} s if {they} still running")),
        )?;
    }
    for expected in &plan.expected {
        let device = format!("GPU {}", expected.device.index);
        let line = match expected.memory {
            Some(bytes) => format!("frees up to {bytes} on {device}"),
            None => format!("frees an unknown amount of memory on {device}"),
        };
        screen.print(&Line::new().plain(line))?;
    }
    for refused in &plan.refused {
        let who = wording::process(refused.pid, refused.name.as_deref().unwrap_or(""));
        wording::flow(
            screen,
            Line::new().accent("refused ").plain(who.trim_end()).plain(": "),
            &refused.why.to_string(),
        )?;
    }
    for left_out in &plan.left_out {
        let who = wording::process(left_out.pid, left_out.name.as_deref().unwrap_or("?"));
        wording::flow(
            screen,
            Line::new().dim("skipped ").plain(who).plain(": "),
            &left_out.why.to_string(),
        )?;
    }
    if plan.targets.is_empty() && plan.refused.is_empty() && plan.left_out.is_empty() {
        let line = if diagnosis.findings.is_empty() {
            "nothing to reap: no unaccounted memory"
        } else {
            "nothing to reap automatically: no high-confidence finding; to end a process anyway, \
                pass --pid"
        };
        wording::flow(screen, Line::new(), line)?;
    }
    Ok(())
}

fn about(now: &Snapshot, target: &Target) -> String {
    let mut parts = vec![wording::user(Ok(&target.process)).into_owned()];
    if let Ok(at) = target.process.started_at {
        parts.push(format!("started {}", wording::started(at, now.taken_at)));
    }
    parts.push(match &target.membership {
        Membership::Holds(minors) => {
            let names: Vec<String> = minors.iter().map(|minor| format!("nvidia{minor}")).collect();
            format!("holds {}", names.join(" "))
        }
        Membership::Group(group) => format!("in process group {group}"),
        Membership::Cgroup(cgroup) => format!("in {cgroup}"),
        Membership::Descends(root) => format!("descends from {root}"),
    });
    parts.push(target.why.clone());
    parts.join(", ")
}

/// Prints the result: the memory that was freed, and the memory that was expected.
pub(crate) fn show_report(screen: &mut Screen, report: &Report) -> Result<(), Failure> {
    if let Some(fault) = &report.stopped {
        let why = match fault.kind {
            ErrorKind::Interrupted => "interrupted; no further signal sent".to_owned(),
            _ => format!("failed to {fault}; no further signal sent"),
        };
        wording::flow(screen, Line::new().accent("stopped: "), &why)?;
    }
    for freed in &report.memory {
        screen.print(&proof(freed))?;
        if let Some(doubt) = freed.doubt {
            let what = format!("unknown whether the targets freed it: {doubt}");
            wording::flow(screen, Line::new().plain("  ").accent("note: "), &what)?;
        }
    }
    let note = || Line::new().accent("note: ");
    let newcomers = match &report.newcomers {
        Ok(newcomers) => newcomers,
        Err(absent) => {
            let what = format!("cannot tell whether the devices are in use again: {absent}");
            return wording::flow(screen, note(), &what);
        }
    };
    for newcomer in newcomers {
        let who = wording::process(newcomer.pid, newcomer.name.as_deref().unwrap_or("?"));
        let what = match newcomer.why {
            Why::TookTheDevice => format!(
                "uses the device now; find its service with systemctl status {}",
                newcomer.pid
            ),
            Why::JoinedTheScope => "joined the scope meanwhile and is still running".to_owned(),
        };
        wording::flow(screen, note().plain(who).plain(" "), &what)?;
    }
    Ok(())
}

fn proof(freed: &Freed) -> Line {
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
