//! An `[[event]]` of `machine.toml`.

use crate::device_entry::fault_of;
use crate::file::EventEntry;
use crate::machine::{Event, Machine, Scheduled, When};
use crate::process_entry;
use crate::toml_source::TomlSource;
use gpu_core::{Bytes, DeviceEventKind, Pid, Result, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Parses one event.
///
/// # Errors
/// `Invalid` if it does not have exactly one time and one change, or if it names a device or
/// process that the machine never has.
pub(crate) fn scheduled(
    machine: &Machine,
    users: &BTreeMap<String, u32>,
    source: TomlSource<'_>,
    entry: &EventEntry,
) -> Result<Scheduled> {
    let after = Duration::from_millis(entry.after_ms);
    let (when, span) = match (&entry.at_ms, &entry.after_exit_of) {
        (Some(at), None) => {
            (When::At(Duration::from_millis(*at.get_ref()).saturating_add(after)), at.span())
        }
        (None, Some(pid)) => (When::AfterExit(Pid(*pid.get_ref()), after), pid.span()),
        _ => {
            return Err(
                source.error(None, "an event requires exactly one of 'at_ms' and 'after_exit_of'")
            );
        }
    };
    let complain = |what: &str| source.error(Some(span.clone()), what);
    let mut events = changes(machine, source, entry)?;
    let (Some(mut event), true) = (events.pop(), events.is_empty()) else {
        return Err(complain("an event requires exactly one change, such as 'exit' or 'start'"));
    };
    if entry.start.as_ref().is_some_and(|start| start.started.is_some()) {
        return Err(complain("a process started by an event must not set 'started'"));
    }
    if let Event::Start(process) = &mut event {
        let at = match when {
            When::At(at) => at,
            When::AfterExit(..) => Duration::ZERO,
        };
        let at = Timestamp(machine.clock.0.saturating_add(at.as_millis() as u64));
        process.info.started_at = Ok(at);
        process.info.cpu_time = Ok(Duration::ZERO);
        process_entry::complete(
            process,
            (&machine.devices, &machine.cards),
            users,
            at,
            machine.booted,
        );
    }
    check_gpu(machine, &event).map_err(|what| complain(&what))?;
    Ok(Scheduled { when, event })
}

fn changes(machine: &Machine, source: TomlSource<'_>, entry: &EventEntry) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    if let Some(start) = &entry.start {
        let process = process_entry::read(machine, None, source, start)?;
        events.push(Event::Start(Box::new(process)));
    }
    if let Some(pid) = entry.exit {
        events.push(Event::Exit(Pid(pid)));
    }
    if let Some(let_go) = &entry.let_go {
        events.push(Event::LetGo(Pid(let_go.pid), let_go.gpu));
    }
    if let Some(uses) = &entry.uses {
        let memory = Bytes::from_mib(uses.mib);
        let load = uses.utilization_percent.min(100);
        events.push(Event::Uses(Pid(uses.pid), uses.gpu, memory, load));
    }
    if let Some(computes) = &entry.computes {
        events.push(Event::Computes(Pid(computes.pid), computes.cpu_percent));
    }
    if let Some(joins) = &entry.joins_group {
        events.push(Event::JoinsGroup(Pid(joins.pid), Pid(joins.group)));
    }
    if let Some(joins) = &entry.joins_cgroup {
        events.push(Event::JoinsCgroup(Pid(joins.pid), joins.cgroup.clone()));
    }
    if let Some(fails) = &entry.fails {
        events.push(Event::Fails(fails.gpu, fault_of(fails.gpu, fails.fault)));
    }
    if let Some(reports) = &entry.reports {
        events.push(Event::Reports(reports.gpu, DeviceEventKind::Error(reports.xid)));
    }
    Ok(events)
}

fn check_gpu(machine: &Machine, event: &Event) -> Result<(), String> {
    let gpu = match event {
        Event::LetGo(_, Some(gpu))
        | Event::Uses(_, gpu, ..)
        | Event::Fails(gpu, _)
        | Event::Reports(gpu, _) => *gpu,
        _ => return Ok(()),
    };
    let known = machine.devices.iter().any(|device| device.info.id.index == gpu);
    if known { Ok(()) } else { Err(format!("GPU {gpu} is not in this machine")) }
}
