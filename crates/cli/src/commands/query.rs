//! `gpuws query`: CSV with nvidia-smi's fields and format, for existing scripts.

use crate::args::{Fields, Global, Only, Repeat};
use crate::commands::repeat;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source};
use crate::terminal::{Line, Screen};
use crate::wording;
use clap::{ArgGroup, Args};
use gpu_core::{Absent, ErrorKind, Inventory, Pid, Selector};
use gpu_host::output::create;
use gpu_report::csv::{self, Query, Seen, Style, Subject, missing_rows};
use std::io::Write;
use std::path::PathBuf;

/// The options of `gpuws query`; exactly one is required.
const WHAT: [&str; 4] =
    ["query_gpu", "query_compute_apps", "help_query_gpu", "help_query_compute_apps"];

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(WHAT))]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) fields: Fields,
    /// List the fields of --query-gpu.
    #[arg(long)]
    pub(crate) help_query_gpu: bool,
    /// List the fields of --query-compute-apps.
    #[arg(long)]
    pub(crate) help_query_compute_apps: bool,
    /// Output format: `csv`, `csv,noheader`, `csv,nounits` or `csv,noheader,nounits`.
    #[arg(long, value_name = "FORM", value_parser = csv::Style::parse)]
    pub(crate) format: Option<csv::Style>,
    #[command(flatten)]
    pub(crate) only: Only,
    /// Write to this file instead of standard output.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) filename: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) repeat: Repeat,
}

pub(crate) fn run(args: &QueryArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    for (is_requested, subject) in
        [(args.help_query_gpu, Subject::Gpu), (args.help_query_compute_apps, Subject::ComputeApp)]
    {
        if is_requested {
            return help(screen, subject);
        }
    }
    let Some(style) = args.format else {
        return Err(Failure::new(Exit::Usage, "select an output format")
            .with_source("--format=csv is mandatory")
            .with_hint("--format=csv, csv,noheader or csv,noheader,nounits"));
    };
    match &args.filename {
        Some(path) => rows(
            &args.fields,
            style,
            &args.only.devices,
            &args.repeat,
            global,
            &mut Screen::file(create(path)?, path),
        ),
        None => rows(&args.fields, style, &args.only.devices, &args.repeat, global, screen),
    }
}

/// Prints the selected rows, once or repeatedly.
///
/// # Errors
/// When a field does not exist, or no device can be queried.
pub(super) fn rows(
    fields: &Fields,
    style: Style,
    selectors: &[Selector],
    repeat: &Repeat,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let (subject, names) = match (&fields.query_gpu, &fields.query_compute_apps) {
        (Some(names), _) => (Subject::Gpu, names),
        (None, Some(names)) => (Subject::ComputeApp, names),
        (None, None) => {
            return Err(Failure::new(Exit::Usage, "select fields")
                .with_hint("--query-gpu=index,name,memory.used, or --query-compute-apps=pid"));
        }
    };
    let query = match Query::parse(subject, names) {
        Ok(query) => query,
        Err(name) => return no_such_field(screen, subject, &name),
    };
    let source = source::open_for_query(global, query.groups(), repeat.is_once())?;
    repeat::name_origin(&source);
    let mut is_first = true;
    repeat::show(repeat, &source, screen, |screen| {
        let at = source.clock.wall();
        let machine = gpu_core::look_at_devices(&*source.backend, &*source.host, query.groups());
        let devices = shown(&machine, selectors)?;
        if devices.is_empty() {
            return none_found(screen);
        }
        if std::mem::take(&mut is_first) && !style.noheader {
            screen.print(&Line::new().plain(query.head()))?;
        }
        let process = |pid| look_up(&source, pid);
        let zone = crate::local_time::zone();
        let seen =
            Seen { machine: &machine, devices: &devices, zone: &zone, at, process: &process };
        for row in query.rows(&seen, style) {
            screen.print(&Line::new().plain(row))?;
        }
        Ok(unanswered(&devices, subject).unwrap_or(Exit::Done))
    })
}

/// Reports on standard error the devices that did not answer, whose rows are missing; returns the
/// exit code for this case.
pub(super) fn unanswered(devices: &[gpu_core::DeviceState], subject: Subject) -> Option<Exit> {
    let (lines, is_late) = missing_rows(devices, subject);
    for line in &lines {
        // If standard error is closed, the exit code still reports the failure.
        let _ = writeln!(std::io::stderr(), "gpuws: {line}");
    }
    let exit = if is_late { Exit::Deadline } else { Exit::CannotObserve };
    (!lines.is_empty()).then_some(exit)
}

/// Reports that there are no devices, or none of the named ones.
pub(super) fn none_found(screen: &mut Screen) -> Result<Exit, Failure> {
    screen.print(&Line::new().plain("No devices were found"))?;
    Ok(Exit::CannotObserve)
}

/// Returns the selected devices; empty if the machine has none of them.
///
/// # Errors
/// When no driver answers.
pub(super) fn shown(
    machine: &Inventory,
    selectors: &[Selector],
) -> Result<Vec<gpu_core::DeviceState>, Failure> {
    match &machine.driver {
        Err(fault) if machine.devices.is_empty() => {
            Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone())))
        }
        _ => {
            let is_selected = |device: &&gpu_core::DeviceState| {
                selectors.is_empty() || selectors.iter().any(|one| one.names(device.id()))
            };
            Ok(machine.devices.iter().filter(is_selected).cloned().collect())
        }
    }
}

/// Returns a process that the driver lists. The driver reports PIDs of the host; in another PID
/// namespace they would belong to unrelated processes.
pub(super) fn look_up(source: &Source, pid: Pid) -> gpu_core::Reading<gpu_core::ProcessInfo> {
    if source.host.sees_host_pids() == Ok(false) {
        return Err(Absent::NotFound);
    }
    source.host.process(pid).map_err(|error| match error.kind() {
        ErrorKind::Process(gpu_core::ProcessFault::Gone) => Absent::NotFound,
        kind => kind.absent(),
    })
}

/// Reports an unknown field as nvidia-smi does, on standard output and with the same exit code.
fn no_such_field(screen: &mut Screen, subject: Subject, name: &str) -> Result<Exit, Failure> {
    screen.print(&Line::new().plain(format!("Field \"{name}\" is not a valid field to query.")))?;
    screen.print(&Line::new())?;
    let option = match subject {
        Subject::Gpu => "--help-query-gpu",
        Subject::ComputeApp => "--help-query-compute-apps",
    };
    // If standard error is closed, standard output still has the message.
    let _ = writeln!(std::io::stderr(), "hint: gpuws query {option} lists the fields");
    Ok(Exit::Usage)
}

fn help(screen: &mut Screen, subject: Subject) -> Result<Exit, Failure> {
    for (names, about) in subject.help() {
        let head = Line::new().accent(names);
        wording::print_wrapped(screen, head.plain("  "), about)?;
    }
    Ok(Exit::Done)
}
