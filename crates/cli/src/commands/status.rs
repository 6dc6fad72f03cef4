//! `gpuws status`: the devices and who uses them.

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::{Failure, brief, remedy};
use crate::json;
use crate::source::{Source, sim_option};
use crate::terminal::{Line, Screen, bar};
use crate::words;
use gpu_core::{DeviceState, Driver, Holder, MigInstance, Origin, Snapshot};
use gpu_reaper::{Diagnosis, FindingKind, Usage};

pub(crate) fn run(global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let snapshot = Source::open(global)?.look();
    let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&snapshot));
    if global.json {
        screen.json(&json::Status::of(&snapshot, &diagnosis))?;
    } else {
        show(screen, global, &snapshot, &diagnosis)?;
    }
    Ok(Exit::Done)
}

/// Prints the whole view.
pub(crate) fn show(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    let usage = Usage::of(snapshot);
    if snapshot.origin != Origin::Live {
        screen.print(&Line::new().accent(snapshot.origin.to_string()))?;
    }
    let room = screen.room(0);
    screen.print(&headline(snapshot, diagnosis, &usage).cut(room))?;
    if let Err(fault) = &snapshot.driver {
        without_driver(screen, snapshot, fault)?;
    }
    if !snapshot.devices.is_empty() {
        screen.print(&Line::new())?;
    }
    for device in &snapshot.devices {
        let line = device_line(device, usage.is_free(device.id()));
        let room = screen.room(0);
        screen.print(&line.cut(room))?;
        for instance in device.mig.iter().flatten() {
            let room = screen.room(0);
            screen.print(&instance_line(instance).cut(room))?;
        }
        for user in usage.on(device.id()) {
            print_user(screen, snapshot, user, suspected(diagnosis, user.pid))?;
        }
        if let Some(bytes) = usage.unexplained(device.id()) {
            let line = Line::new().plain("    ").accent("nobody listed").padded_to(50);
            let line = line.plain(format!("{:>6.1} GiB", bytes.gib())).padded_to(67);
            screen.print(&line.accent("← unexplained"))?;
        }
    }
    if !global.quiet {
        next_commands(screen, global, snapshot, diagnosis)?;
    }
    Ok(())
}

fn suspected(diagnosis: &Diagnosis, pid: gpu_core::Pid) -> Option<FindingKind> {
    let mut findings = diagnosis.findings.iter();
    let found = findings.find(|finding| finding.suspects.iter().any(|s| s.process.pid == pid));
    found.map(|finding| finding.kind)
}

/// `labbox · driver 535.261.03 · CUDA 12.2 · 4 GPUs, 1 free, 1 finding`.
fn headline(snapshot: &Snapshot, diagnosis: &Diagnosis, usage: &Usage) -> Line {
    let mut parts = Vec::new();
    if let Ok(hostname) = &snapshot.hostname {
        parts.push(hostname.clone());
    }
    if let Ok(Driver { version, cuda }) = &snapshot.driver {
        parts.extend(version.iter().map(|version| format!("driver {version}")));
        parts.extend(cuda.iter().map(|cuda| format!("CUDA {cuda}")));
        let free = snapshot.devices.iter().filter(|device| usage.is_free(device.id())).count();
        let gpus = words::count(snapshot.devices.len(), "GPU", "GPUs");
        parts.push(format!("{gpus}, {free} free"));
    }
    let line = Line::new().plain(parts.join("  ·  "));
    match diagnosis.findings.len() {
        0 => line,
        n => line.plain(", ").accent(words::count(n, "finding", "findings")),
    }
}

fn device_line(device: &DeviceState, free: bool) -> Line {
    let name = device.info.name.as_deref().map_or("?", words::product);
    let line = Line::new().plain(format!("{:>2}  ", device.id().index));
    let line = line.line(Line::new().plain(name).cut(20)).padded_to(24);
    let sample = match &device.sample {
        Ok(sample) => sample,
        Err(fault) => return line.accent(brief(fault)),
    };
    let cell = |text: Option<String>, width: usize| match text {
        Some(text) => Line::new().plain(format!("{text:>width$}")),
        None => Line::new().dim(format!("{:>width$}", "–")),
    };
    let line = line
        .line(cell(sample.temperature.ok().map(|t| t.to_string()), 5))
        .line(cell(sample.power_draw.ok().map(|p| p.to_string()), 6))
        .line(cell(sample.utilization.ok().map(|u| u.to_string()), 6))
        .plain("  ");
    let line = match (sample.memory.used, sample.memory.total) {
        (Ok(used), Ok(total)) => line.plain(bar(used.0, total.0)).plain(format!(
            " {:>5.1}/{:>5.1} GiB",
            used.gib(),
            total.gib()
        )),
        (Ok(used), Err(_)) => line.plain(format!("{:>5.1} GiB used", used.gib())),
        (Err(absent), _) => line.dim(format!("memory {absent}")),
    };
    if free { line.dim(" free") } else { line }
}

/// `    MIG 0  GI 2 CI 0   0.0/ 39.5 GiB`, under the memory of its device.
fn instance_line(instance: &MigInstance) -> Line {
    let number = |id: Option<u32>| id.map_or("?".to_owned(), |id| id.to_string());
    let (gi, ci) = (number(instance.gpu_instance), number(instance.compute_instance));
    let line =
        Line::new().plain(format!("    MIG {}  GI {gi} CI {ci}", instance.index)).padded_to(43);
    match (instance.memory.used, instance.memory.total) {
        (Ok(used), Ok(total)) => line.plain(bar(used.0, total.0)).plain(format!(
            " {:>5.1}/{:>5.1} GiB",
            used.gib(),
            total.gib()
        )),
        (Err(absent), _) | (_, Err(absent)) => line.dim(format!("memory {absent}")),
    }
}

fn print_user(
    screen: &mut Screen,
    snapshot: &Snapshot,
    user: &gpu_reaper::User,
    finding: Option<FindingKind>,
) -> Result<(), Failure> {
    let process = snapshot.process(user.pid);
    let name = words::command(process, user.name.as_deref());
    let who = Line::new().plain(words::user(process)).cut(10);
    let what = Line::new().plain(format!("{} ", user.pid)).plain(name);
    let line = Line::new().plain("    ").line(who).padded_to(15).line(what.cut(34)).padded_to(50);
    let memory = match user.memory {
        Ok(bytes) => Line::new().plain(format!("{:>6.1} GiB", bytes.gib())),
        Err(_) => Line::new().dim(format!("{:>10}", "–")),
    };
    let mut line = line.line(memory);
    if let Ok(utilization) = user.utilization {
        line = line.plain(format!("{:>6}", utilization.to_string()));
    }
    if let Some(at) = process.ok().and_then(|info| info.started_at.ok()) {
        line = line.padded_to(68).dim(words::age(snapshot.taken_at.since(at)));
    }
    if let Some(kind) = finding {
        line = line.plain("  ").accent(words::short(kind));
    }
    let room = screen.room(0);
    screen.print(&line.cut(room))
}

/// What can be told where no device can be asked: which case it is, the remedy, and what /proc
/// shows all the same.
pub(crate) fn without_driver(
    screen: &mut Screen,
    snapshot: &Snapshot,
    fault: &gpu_core::Fault,
) -> Result<(), Failure> {
    words::flow(screen, Line::new().accent("no GPU can be asked: "), &brief(fault))?;
    if let Some(remedy) = remedy(fault.kind) {
        // In one line, so that a command in it can be copied.
        screen.print(&Line::new().dim("remedy: ").plain(remedy))?;
    }
    match &snapshot.holders {
        Err(fault) => {
            let what = format!("failed to {}", fault.text);
            words::flow(screen, Line::new().dim("/proc:  "), &what)
        }
        Ok(_) if snapshot.files.is_empty() => {
            screen.print(&Line::new().dim("/proc:  ").plain("there are no GPU device files"))
        }
        Ok(holders) => {
            let head = words::count(holders.len(), "process has", "processes have");
            screen
                .print(&Line::new().dim("/proc:  ").plain(format!("{head} a GPU device file")))?;
            holders.iter().try_for_each(|holder| print_holder(screen, snapshot, holder))
        }
    }
}

fn print_holder(screen: &mut Screen, snapshot: &Snapshot, holder: &Holder) -> Result<(), Failure> {
    let process = snapshot.process(holder.process.pid);
    let files: Vec<String> = holder
        .held
        .iter()
        .map(|held| format!("{} {}", held.path.rsplit('/').next().unwrap_or_default(), held.access))
        .collect();
    let head = Line::new()
        .plain("    ")
        .plain(words::user(process))
        .padded_to(15)
        .plain(words::process(holder.process.pid, process.map_or("?", |info| info.name.as_str())));
    words::flow(screen, head.plain("  "), &files.join("  "))
}

/// A line per device with findings: what they are, and the command that explains them.
fn next_commands(
    screen: &mut Screen,
    global: &Global,
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
) -> Result<(), Failure> {
    let sim = sim_option(&snapshot.origin, global);
    let mut lines: Vec<(Vec<u32>, Vec<String>)> = Vec::new();
    for finding in &diagnosis.findings {
        let memory =
            finding.memory.map_or(String::new(), |bytes| format!(" {:.1} GiB", bytes.gib()));
        let what = format!("{}{memory}", words::kind(finding.kind).to_lowercase());
        let indexes: Vec<u32> = finding.devices.iter().map(|id| id.index).collect();
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
        let head = format!("{word} {}: {}.   ", words::ranges(&indexes), whats.join(", "));
        let gpu = indexes.first().map_or(String::new(), |index| format!(" --gpu {index}"));
        screen.print(&Line::new().plain(head).accent(format!("gpuws {sim}doctor{gpu}")))?;
    }
    if snapshot.unreadable.total() > 0 {
        let unread = words::count(snapshot.unreadable.total() as usize, "process", "processes");
        screen
            .print(&Line::new().dim(format!("{unread} could not be looked into; root sees all")))?;
    }
    Ok(())
}
