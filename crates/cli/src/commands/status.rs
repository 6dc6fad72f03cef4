//! `gpuws status`: the devices and who uses them.

use crate::args::{Format, Global, StatusArgs};
use crate::commands::device_lines::{Layout, claims};
use crate::commands::{query, repeat};
use crate::details;
use crate::exit::Exit;
use crate::failure::{Failure, account, remedy};
use crate::queue_status::user;
use crate::source::{self, sim_option};
use crate::terminal::{Line, Screen, Tone, packed, wrapped};
use crate::wording;
use gpu_core::Selector;
use gpu_core::selector::select;
use gpu_core::{DeviceInfo, Driver, Groups, Holder, Origin, Snapshot};
use gpu_reaper::{Diagnosis, FindingKind, Usage, silence};
use gpu_report::gpustat;
use gpu_report::json;
use gpu_steward::DeviceLeases;
use rustix::process::geteuid;
use std::borrow::Cow;

pub(crate) fn run(
    args: &StatusArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    match args.format {
        Some(Format::Csv(style)) => {
            return query::rows(&args.fields, style, &args.devices, &args.repeat, global, screen);
        }
        Some(Format::GpustatJson) => return as_gpustat(args, global, screen),
        None => {}
    }
    let groups = if args.details { Groups::all() } else { Groups::NONE };
    let source = source::open_to_look(global, groups, args.repeat.is_once())?;
    let exit = repeat::show(&args.repeat, &source, screen, |screen| {
        // The driver is asked meanwhile.
        let leased = source.leases();
        let whole = source.look_in_detail(groups);
        let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&whole));
        let snapshot = only(&whole, &args.devices)?;
        match (args.details, global.json) {
            (_, true) => screen.json(&json::Status::of(&snapshot, &diagnosis, &leased, &user))?,
            (true, false) => details::show(screen, &snapshot)?,
            (false, false) => screen.together(|screen| {
                show_some(screen, global, &whole, &snapshot, &diagnosis, &leased)
            })?,
        }
        drop(snapshot);
        if args.repeat.is_once() {
            std::mem::forget((whole, diagnosis));
        }
        Ok(Exit::Done)
    });
    source.leave();
    exit
}

/// Leaves the devices that are asked for.
fn only<'a>(whole: &'a Snapshot, asked: &[Selector]) -> Result<Cow<'a, Snapshot>, Failure> {
    if asked.is_empty() {
        return Ok(Cow::Borrowed(whole));
    }
    let devices = select(whole.devices.clone(), asked)?;
    Ok(Cow::Owned(Snapshot { devices, ..whole.clone() }))
}

fn as_gpustat(args: &StatusArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let source = source::open_to_look(global, gpustat::groups(), args.repeat.is_once())?;
    repeat::name_origin(&source);
    repeat::show(&args.repeat, &source, screen, |screen| {
        let at = source.clock.wall();
        let machine = gpu_core::look_at_devices(&*source.backend, &*source.host, gpustat::groups());
        let devices = match query::shown(&machine, &args.devices)? {
            devices if devices.is_empty() && !args.devices.is_empty() => {
                select(machine.devices.clone(), &args.devices)?
            }
            devices => devices,
        };
        let processes = gpustat::Processes::look_up(
            &devices,
            |pid| query::look_up(&source, pid),
            || source.clock.sleep(gpustat::CPU_WINDOW),
        );
        let hostname = source.host.hostname();
        let view = gpustat::Machine::of(
            hostname,
            &machine,
            &devices,
            &processes,
            at,
            &crate::local_time::zone(),
        );
        screen.json_as_python(&view)?;
        Ok(Exit::Done)
    })
}

/// Prints the whole view of a machine without leases.
pub(crate) fn show(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    show_some(screen, global, snapshot, snapshot, diagnosis, &DeviceLeases::none())
}

/// Prints the head of the whole machine, and the devices of `snapshot`.
fn show_some(
    screen: &mut Screen,
    global: &Global,
    whole: &Snapshot,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    leased: &DeviceLeases,
) -> Result<(), Failure> {
    let usage = Usage::of(whole);
    if snapshot.origin != Origin::Live {
        screen.print(&Line::new().accent(snapshot.origin.to_string()))?;
    }
    let room = screen.room(0);
    let head = headline(whole, diagnosis, &usage, leased);
    print_all(screen, packed(Line::new(), head, "  ·  ", 4, room))?;
    if let Err(fault) = &snapshot.driver {
        without_driver(screen, snapshot, fault)?;
    }
    if !snapshot.devices.is_empty() {
        screen.print(&Line::new())?;
    }
    let any_free = snapshot.devices.iter().any(|device| leased.is_free(device, &usage));
    let layout = Layout::of(room, snapshot, any_free);
    for device in &snapshot.devices {
        let mut lines = layout.device(device, leased.is_free(device, &usage));
        lines.extend(device.mig.iter().flatten().map(|instance| layout.instance(instance)));
        lines.extend(claims(&leased.on(device).collect::<Vec<_>>(), snapshot.taken_at));
        for user in usage.on(device.id()) {
            lines.extend(layout.user(snapshot, user, suspected(diagnosis, user.pid)));
            lines.extend(layout.unlisted(snapshot, device, user));
        }
        let unexplained = usage.unexplained(device.id());
        lines.extend(unexplained.into_iter().flat_map(|bytes| layout.unexplained(bytes.gib())));
        lines.into_iter().try_for_each(|line| screen.print(&line.cut(room)))?;
    }
    untold(screen, snapshot)?;
    if !global.quiet {
        next_commands(screen, global, snapshot, diagnosis)?;
        bystanders(screen, snapshot, &usage, diagnosis)?;
        if let Some(fault) = leased.fault() {
            let head = Line::new().dim("leases unknown: ");
            wording::flow(screen, head, &format!("failed to {fault}"))?;
        }
        if snapshot.unreadable.total() > 0 {
            let unread =
                wording::count(snapshot.unreadable.total() as usize, "process", "processes");
            let by = unseen_by(&snapshot.origin, geteuid().is_root());
            let line = format!("{unread} could not be inspected{by}");
            print_all(screen, wrapped(Line::new(), Tone::Dim, &line, room))?;
        }
    }
    Ok(())
}

fn print_all(screen: &mut Screen, lines: Vec<Line>) -> Result<(), Failure> {
    lines.iter().try_for_each(|line| screen.print(line))
}

/// Says why devices did not answer, the first that the driver stopped at for all of them, and of
/// which others it is not known who uses them.
fn untold(screen: &mut Screen, snapshot: &Snapshot) -> Result<(), Failure> {
    let silent = snapshot.devices.iter().find_map(silence);
    let asked = snapshot.devices.iter().filter(|d| d.sample.is_ok() && silence(d).is_none());
    let mut unknown = wording::unknown_users(asked).peekable();
    if silent.is_some() || unknown.peek().is_some() {
        screen.print(&Line::new())?;
    }
    if let Some(fault) = silent {
        wording::flow(screen, Line::new().accent("no answer: "), &format!("failed to {fault}"))?;
    }
    unknown.try_for_each(|line| wording::flow(screen, Line::new(), &line))
}

/// Says who would see the processes that could not be looked into.
fn unseen_by(origin: &Origin, is_root: bool) -> &'static str {
    match (origin, is_root) {
        // It lacks a capability there.
        (Origin::Live, true) => ", not even by root: is this a container?",
        // Who looks at a simulated machine is not whoever runs this program.
        _ => "; root can inspect all",
    }
}

/// Says who has a device open and uses no memory of it: displays, monitors, daemons.
fn bystanders(
    screen: &mut Screen,
    snapshot: &Snapshot,
    usage: &Usage,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    let who = diagnosis.cleared.iter().filter_map(|cleared| {
        let pid = cleared.process.pid;
        let is_told = |id| usage.on(id).iter().any(|user| user.pid == pid);
        let open = cleared.devices.iter().filter(|id| snapshot.device(id).is_some());
        let indexes: Vec<u32> = open.filter(|id| !is_told(id)).map(|id| id.index).collect();
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

fn suspected(diagnosis: &Diagnosis, pid: gpu_core::Pid) -> Option<FindingKind> {
    let mut findings = diagnosis.findings.iter();
    let found = findings.find(|finding| finding.suspects.iter().any(|s| s.process.pid == pid));
    found.map(|finding| finding.kind)
}

/// `labbox · driver 535.261.03 · CUDA 12.2 · 4 GPUs, 1 free, 1 finding`, in pieces.
fn headline(
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    usage: &Usage,
    leased: &DeviceLeases,
) -> Vec<Line> {
    let mut parts = Vec::new();
    if let Ok(hostname) = &snapshot.hostname {
        parts.push(hostname.clone());
    }
    if let Ok(Driver { version, cuda }) = &snapshot.driver {
        parts.extend(version.iter().map(|version| format!("driver {version}")));
        parts.extend(cuda.iter().map(|cuda| format!("CUDA {cuda}")));
        let free = snapshot.devices.iter().filter(|device| leased.is_free(device, usage)).count();
        let gpus = wording::count(snapshot.devices.len(), "GPU", "GPUs");
        parts.push(format!("{gpus}, {free} free"));
    }
    let mut pieces: Vec<Line> = parts.into_iter().map(|part| Line::new().plain(part)).collect();
    if !diagnosis.findings.is_empty() {
        let findings = wording::count(diagnosis.findings.len(), "finding", "findings");
        let last = pieces.pop().map_or_else(Line::new, |last| last.plain(", "));
        pieces.push(last.accent(findings));
    }
    pieces
}

/// What can be told where no device can be asked: which case it is, the remedy, and what /proc
/// shows all the same.
pub(crate) fn without_driver(
    screen: &mut Screen,
    snapshot: &Snapshot,
    fault: &gpu_core::Fault,
) -> Result<(), Failure> {
    wording::flow(screen, Line::new().accent("cannot query any GPU: "), &account(fault))?;
    if let Some(remedy) = remedy(fault.kind) {
        // In one line, so that a command in it can be copied.
        wording::flow(screen, Line::new().dim("remedy: "), remedy)?;
    }
    for device in &snapshot.unasked {
        let (head, indent) = (Line::new().dim("module: "), 8);
        let lines = packed(head, unasked(device), "  ", indent, screen.room(0));
        print_all(screen, lines)?;
    }
    match &snapshot.holders {
        Err(fault) => {
            let what = format!("failed to {}", fault.text);
            wording::flow(screen, Line::new().dim("/proc:  "), &what)
        }
        Ok(_) if snapshot.files.is_empty() => {
            screen.print(&Line::new().dim("/proc:  ").plain("no GPU device files found"))
        }
        Ok(holders) => {
            let head = wording::count(holders.len(), "process has", "processes have");
            screen
                .print(&Line::new().dim("/proc:  ").plain(format!("{head} a GPU device file")))?;
            holders.iter().try_for_each(|holder| print_holder(screen, snapshot, holder))
        }
    }
}

/// `GPU 0 Tesla P100-PCIE-16GB  00000000:04:00.0  /dev/nvidia0`, in pieces.
fn unasked(device: &DeviceInfo) -> Vec<Line> {
    let name = device.name.as_deref().map_or("?", wording::product);
    let mut pieces = vec![Line::new().plain(format!("GPU {} {name}", device.id.index))];
    pieces.extend(device.id.bus.map(|bus| Line::new().plain(bus)));
    pieces.extend(device.id.minor.map(|minor| Line::new().plain(format!("/dev/nvidia{minor}"))));
    pieces
}

fn print_holder(screen: &mut Screen, snapshot: &Snapshot, holder: &Holder) -> Result<(), Failure> {
    let process = snapshot.process(holder.process.pid);
    let files: Vec<String> = holder
        .held
        .iter()
        .map(|held| format!("{} {}", held.path.rsplit('/').next().unwrap_or_default(), held.access))
        .collect();
    let head = Line::new().plain("    ").plain(wording::user(process)).padded_to(15).plain(
        wording::process(holder.process.pid, process.map_or("?", |info| info.name.as_str())),
    );
    wording::flow(screen, head.plain("  "), &files.join("  "))
}

/// A line per device with findings: what they are, and the command that explains them.
fn next_commands(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    let sim = sim_option(&snapshot.origin, global);
    let room = screen.room(0);
    let mut lines: Vec<(Vec<u32>, Vec<String>)> = Vec::new();
    for finding in &diagnosis.findings {
        let memory =
            finding.memory.map_or(String::new(), |bytes| format!(" {:.1} GiB", bytes.gib()));
        let what = format!("{}{memory}", wording::kind(finding.kind).to_lowercase());
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
        let command = Line::new().accent(format!("gpuws {sim}doctor{gpu}"));
        // In one line, so that it can be copied.
        let last = lines.pop().unwrap_or_default();
        lines.extend(packed(Line::new(), [last, command], "   ", 4, room));
        print_all(screen, lines)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_gets_no_root_hint() {
        assert!(unseen_by(&Origin::Live, true).starts_with(", not even by root"));
        assert_eq!(unseen_by(&Origin::Live, false), "; root can inspect all");
        let simulated = Origin::Simulated("other-user".into());
        assert_eq!(unseen_by(&simulated, true), "; root can inspect all");
    }
}
