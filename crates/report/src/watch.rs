//! The text of events of `gpuws watch`: lines of the log, and messages to a user.

use crate::fault::{account, driver_remedy};
use crate::text::{Line, Tone, packed, wrapped};
use crate::wording;
use gpu_core::{DeviceId, ProcessInfo, ProcessKey};
use gpu_reaper::{Confidence, Evidence, Plan, Report};
use gpu_watch::{Change, ChangeKind, Event, PendingKill, Policy};
use std::collections::BTreeMap;
use std::time::Duration;

/// The maximum number of suspects that are named.
const NAMED: usize = 4;

/// Returns the lines about an event at this time, in words. `sim` is the option that names a
/// simulated machine in the next command; evidence is wrapped to `columns`.
pub fn lines(event: &Event<'_>, time: &str, sim: &str, columns: usize) -> Vec<Line> {
    let head = |word: &str| Line::new().dim(time).plain("  ").accent(word).padded_to(33);
    match event {
        Event::Blind(fault) => {
            let remedy = driver_remedy(fault.kind).map(|remedy| format!("remedy: {remedy}"));
            let remedy = remedy.iter().map(|remedy| Line::new().padded_to(4).plain(remedy));
            std::iter::once(head("BLIND").plain(account(fault))).chain(remedy).collect()
        }
        Event::Sighted => vec![head("SIGHTED").plain("the driver answers again")],
        Event::HeldBack(count) => {
            let findings = wording::count(*count, "finding", "findings");
            let text = format!("{findings} not raised: too many of one kind and user in an hour");
            vec![head("HELD BACK").plain(text)]
        }
        Event::Change(change) => changed(change, head(word(change.kind)), sim, columns),
        Event::Warning { pending, is_dry_run } => {
            let would = if *is_dry_run { "would" } else { "will" };
            let text = format!("{} {would} be ended in {}", about(pending), age(pending.left));
            vec![head("WARNING").plain(text)]
        }
        Event::Spared { plan, .. } => spared(plan, &head("SPARED")).collect(),
        Event::Reap { plan, report: None, .. } => planned(plan, &head("DRY RUN")),
        Event::Reap { plan, report: Some(report), .. } => reaped(plan, report, &head("REAPED")),
        Event::NotPlanned(error) => {
            vec![head("NOT REAPED").plain(format!("failed to {}", error.fault()))]
        }
    }
}

/// Returns the messages to the users of a machine about an event, by UID: to the owners of
/// processes that keep memory from others, and of those that will be ended. A dry run sends no
/// warning.
pub fn messages(event: &Event<'_>, hostname: &str) -> Vec<(u32, String)> {
    match event {
        Event::Change(change) if change.kind == ChangeKind::Raised => change
            .concerned()
            .filter_map(|process| Some((process.uid.ok()?, message(change, process, hostname))))
            .collect(),
        Event::Warning { pending, is_dry_run: false } => {
            let uid = pending.process.uid.ok();
            uid.map(|uid| (uid, warning(pending, hostname))).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Describes what a policy ends; `permitted`: the command line permits it, too.
pub fn reaps(policy: &Policy, permitted: bool) -> String {
    match &policy.reap {
        None => "nothing is reaped".to_owned(),
        Some(rules) if rules.dry_run || !permitted => "reap plans are only printed".to_owned(),
        Some(rules) => {
            let count = wording::count(rules.rules.len(), "rule", "rules");
            format!("reaps by {count}, at most {} processes an hour", rules.most_per_hour)
        }
    }
}

/// The message to the owner of a process that is a suspect of a raised finding.
fn message(change: &Change, process: &ProcessInfo, hostname: &str) -> String {
    let finding = &change.finding;
    let suspect = finding.suspects.iter().find(|suspect| suspect.process == process.key);
    let evidence = suspect.map(|suspect| Evidence::texts(&suspect.evidence).join("; "));
    format!(
        "gpuws on {hostname}: your process {} on {} may keep a GPU from others ({}).\n{}\n",
        wording::process(process.key.pid, &process.name),
        devices(&finding.devices),
        wording::kind(finding.kind),
        evidence.unwrap_or_default()
    )
}

/// The message to the owner of a process that will be ended.
fn warning(pending: &PendingKill, hostname: &str) -> String {
    format!(
        "gpuws on {hostname}: your process {} on {} ({}) will be ended in {}, by the policy of this \
         machine.\nTo keep it, use the GPU or end the process yourself.\n",
        wording::process(pending.process.key.pid, &pending.process.name),
        devices(&pending.devices),
        wording::kind(pending.id.kind),
        age(pending.left)
    )
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Raised => "RAISED",
        ChangeKind::Updated => "UPDATED",
        ChangeKind::Cleared => "CLEARED",
    }
}

fn changed(change: &Change, head: Line, sim: &str, columns: usize) -> Vec<Line> {
    let finding = &change.finding;
    let mut first =
        head.accent(wording::kind(finding.kind)).plain(format!("  {}", devices(&finding.devices)));
    if let Some(memory) = finding.memory {
        first = first.plain(format!("  {memory}"));
    }
    let lasted = change.last_seen.since(change.first_seen);
    if change.kind == ChangeKind::Cleared {
        return vec![first.plain(format!("  after {}", age(lasted)))];
    }
    if finding.confidence < Confidence::High {
        first = first.plain(format!("  {}", wording::confidence(finding.confidence)));
    }
    let mut lines = vec![first.plain(format!("  for {}", age(lasted)))];
    let under = || Line::new().padded_to(4);
    let paragraph = |text: &str| wrapped(under(), Tone::Plain, text, columns);
    for evidence in &finding.evidence {
        lines.extend(paragraph(&evidence.text));
    }
    for suspect in finding.suspects.iter().take(NAMED) {
        let who = who(&change.processes, suspect.process);
        let evidence = Evidence::texts(&suspect.evidence).join("; ");
        lines.extend(paragraph(&format!("{who}: {evidence}")));
    }
    if let Some(more) = finding.suspects.len().checked_sub(NAMED).filter(|more| *more > 0) {
        lines.push(under().plain(format!("and {more} more")));
    }
    if let Some(advice) = finding.advice.first() {
        let (command, what) = wording::advice(advice, sim);
        let pieces = [Line::new().accent(command), Line::new().plain(what)];
        lines.extend(packed(under().dim("next  "), pieces, "   ", 10, columns));
    }
    lines
}

fn who(processes: &BTreeMap<ProcessKey, ProcessInfo>, key: ProcessKey) -> String {
    let info = processes.get(&key);
    let name = info.map_or("?", |info| info.name.as_str());
    let user = wording::user(info.ok_or(gpu_core::Absent::NotRecorded));
    format!("{} ({user})", wording::process(key.pid, name))
}

fn about(pending: &PendingKill) -> String {
    let process = &pending.process;
    let user = wording::user(Ok(process));
    let name = wording::process(process.key.pid, &process.name);
    format!("{name} ({user}), {} on {}", wording::kind(pending.id.kind), devices(&pending.devices))
}

fn planned(plan: &Plan, head: &Line) -> Vec<Line> {
    let would = plan.targets.iter().map(|target| {
        let who = wording::process(target.key.pid, &target.process.name);
        let user = wording::user(Ok(&target.process));
        head.clone().plain(format!("would send SIGTERM to {who} ({user}): {}", target.why))
    });
    would.chain(spared(plan, head)).collect()
}

fn reaped(plan: &Plan, report: &Report, head: &Line) -> Vec<Line> {
    let ended = report.actions.iter().map(|action| {
        let signals: Vec<String> = action.signals.iter().map(ToString::to_string).collect();
        let sent = if signals.is_empty() { "no signal".to_owned() } else { signals.join(", ") };
        let who = wording::process(action.pid, &action.name);
        let word = action.outcome.name();
        head.clone().plain(format!("{who}: {sent}, {word}"))
    });
    let freed = report.memory.iter().map(|freed| {
        let device = format!("GPU {}: ", freed.device.index);
        Line::new().padded_to(4).plain(device).plain(match (freed.freed, freed.came_back) {
            (Some(bytes), true) => format!("freed {bytes}"),
            (Some(bytes), false) => format!("freed {bytes}; not all of it"),
            (None, _) => "unknown whether memory was freed".to_owned(),
        })
    });
    let stopped = report.stopped.iter().map(|fault| {
        head.clone().plain(format!("stopped: failed to {fault}; no further signal sent"))
    });
    ended.chain(freed).chain(stopped).chain(spared(plan, head)).collect()
}

fn spared<'a>(plan: &'a Plan, head: &'a Line) -> impl Iterator<Item = Line> + 'a {
    plan.refused.iter().chain(&plan.left_out).map(move |refused| {
        let who = wording::process(refused.pid, refused.name.as_deref().unwrap_or("?"));
        head.clone().plain(format!("{who} is spared: {}", refused.why))
    })
}

fn devices(ids: &[DeviceId]) -> String {
    let indexes: Vec<u32> = ids.iter().map(|id| id.index).collect();
    match indexes[..] {
        [] => "no listed GPU".to_owned(),
        [one] => format!("GPU {one}"),
        _ => format!("GPUs {}", wording::ranges(&indexes)),
    }
}

fn age(time: Duration) -> String {
    wording::age(time)
}
