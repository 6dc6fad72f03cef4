//! `gpuws query`: CSV with nvidia-smi's fields and format, for existing scripts.

use crate::args::{Asked, Global, Only, Repeat};
use crate::commands::repeat;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::{Line, Screen};
use clap::Args;
use gpu_core::{DeviceState, Driver, Fault, Groups, Inventory, Selector};
use gpu_host::output::create;
use gpu_machine::Source;
use gpu_report::csv::{self, Query, Seen, Style, Subject, missing_rows};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) asked: Asked,
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
    let Some(fields) = &args.asked.fields else {
        screen.raw(args.asked.subject.help_text().as_bytes())?;
        return Ok(Exit::Done);
    };
    let file = |path: &PathBuf| -> Result<_, Failure> { Ok(Screen::file(create(path)?, path)) };
    let mut file = args.filename.as_ref().map(file).transpose()?;
    let (chosen, style) = ((args.asked.subject, fields.as_str()), args.format.unwrap_or_default());
    let screen = file.as_mut().unwrap_or(screen);
    rows(chosen, style, &args.only.devices, &args.repeat, global, screen)
}

/// Prints the selected rows, once or repeatedly.
///
/// # Errors
/// When a field does not exist, or no device can be queried.
pub(super) fn rows(
    (subject, names): (Subject, &str),
    style: Style,
    selectors: &[Selector],
    repeat: &Repeat,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let query = match Query::parse(subject, names) {
        Ok(query) => query,
        Err(name) => return no_such_field(screen, subject, &name),
    };
    let source = source::open_for_query(global, query.groups(), repeat.is_once())?;
    repeat::name_origin(&source);
    let mut is_first = true;
    repeat::show(repeat, &source, screen, |screen| {
        let at = source.clock.wall();
        let machine = inventory(subject, &source, query.groups());
        let devices = shown(&machine.driver, &machine.devices, selectors)?;
        if devices.is_empty() {
            return none_found(screen);
        }
        if std::mem::take(&mut is_first) && !style.noheader {
            screen.print(&Line::new().plain(query.head()))?;
        }
        let process = |pid| source.listed_process(pid);
        let zone = crate::local_time::zone();
        let seen =
            Seen { machine: &machine, devices: &devices, zone: &zone, at, process: &process };
        for row in query.rows(&seen, style) {
            screen.print(&Line::new().plain(row))?;
        }
        Ok(unanswered(&devices, subject).unwrap_or(Exit::Done))
    })
}

/// Reads the devices, and their processes if rows are about them.
pub(super) fn inventory(subject: Subject, source: &Source, groups: Groups) -> Inventory {
    let take = match subject {
        Subject::ComputeApp => gpu_core::take_inventory_with_users,
        _ => gpu_core::take_inventory,
    };
    take(&*source.backend, &*source.host, groups)
}

/// Reports on standard error the devices that did not answer, whose rows are missing; returns the
/// exit code for this case.
pub(super) fn unanswered(devices: &[gpu_core::DeviceState], subject: Subject) -> Option<Exit> {
    let (lines, is_late) = missing_rows(devices, subject);
    for line in &lines {
        crate::terminal::report(format_args!("gpuws: {line}"));
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
    driver: &Result<Driver, Fault>,
    devices: &[DeviceState],
    selectors: &[Selector],
) -> Result<Vec<DeviceState>, Failure> {
    match driver {
        Err(fault) if devices.is_empty() => {
            Err(Failure::from(gpu_core::Error::new(fault.kind, fault.text.clone())))
        }
        _ => {
            let is_selected = |device: &&DeviceState| {
                selectors.is_empty() || selectors.iter().any(|one| one.names(device.id()))
            };
            Ok(devices.iter().filter(is_selected).cloned().collect())
        }
    }
}

/// Reports an unknown field as nvidia-smi does, on standard output and with the same exit code.
fn no_such_field(screen: &mut Screen, subject: Subject, name: &str) -> Result<Exit, Failure> {
    screen.print(&Line::new().plain(format!("Field \"{name}\" is not a valid field to query.")))?;
    screen.print(&Line::new())?;
    let [_, help, _] = subject.options();
    crate::terminal::report(format_args!("hint: gpuws query --{help} lists the fields"));
    Ok(Exit::Usage)
}
