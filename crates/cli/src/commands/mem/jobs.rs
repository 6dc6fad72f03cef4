//! Recorded jobs, and the allocators for their replay.

use super::{PolicyArgs, ReadingArgs, recording};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen, progress};
use crate::wording;
use gpu_allocator_policy::{PolicyConfig, PolicyConfigError};
use gpu_core::{Bytes, amount};
use gpu_memory_trace::trace::Format;
use gpu_memory_trace::{Job, JobError, OnDevice};
use std::path::Path;

/// Reads the recording of a job.
///
/// # Errors
/// When it is not a recording, or its PyTorch allocator settings are invalid.
pub(crate) fn read(path: &Path, args: &ReadingArgs) -> Result<Job, Failure> {
    Job::of(recording::read(path, args)?).map_err(|error| {
        let what = format!("read the allocator's settings in '{}'", path.display());
        Failure::new(Exit::Usage, what).with_source(error)
    })
}

/// Returns the recorded jobs per device, or only that of one device.
///
/// # Errors
/// When nothing was recorded, or the recording contradicts itself.
pub(crate) fn devices<'a>(
    job: &'a Job,
    path: &Path,
    only: Option<u32>,
) -> Result<Vec<OnDevice<'a>>, Failure> {
    job.devices(only).map_err(|error| {
        let find = || Failure::new(Exit::Usage, format!("find a job in '{}'", path.display()));
        match error {
            JobError::Contradiction(error) => {
                Failure::new(Exit::Usage, format!("replay '{}'", path.display())).with_source(error)
            }
            JobError::NotOnDevice { device, has } => {
                let has = wording::ranges(&has);
                find().with_source(format!("it has none on device {device}, but on {has}"))
            }
            JobError::NoHistory => {
                find().with_source(error).with_hint(match job.recording.format {
                    Format::BfcDump => "for the cause of the failure: gpuws mem explain",
                    _ => {
                        "call torch.cuda.memory._record_memory_history() before the job and \
                        _dump_snapshot() after it"
                    }
                })
            }
        }
    })
}

/// Prints a progress message for a job of more than `many` events.
pub(super) fn announce(doing: &str, job: &OnDevice<'_>, path: &Path, many: usize) {
    let events = job.trace.events.len();
    if events > many {
        progress(&format!("{doing} {events} events of {}", file_name(path)));
    }
}

/// Returns the title of an allocator without the settings of `--set`.
pub(super) fn without_settings(title: &str) -> String {
    let parts: Vec<_> = title.split(", ").filter(|part| !part.contains(['=', ':'])).collect();
    parts.join(", ")
}

type Policies = Vec<(String, PolicyConfig)>;

/// Returns the policies of `--policy`, or the default ones.
///
/// # Errors
/// When there is no such policy or setting.
pub(crate) fn policies(args: &PolicyArgs, job: &Job) -> Result<Policies, Failure> {
    let refuse =
        |error: PolicyConfigError| Failure::new(Exit::Usage, "choose a policy").with_source(error);
    let names: Vec<&str> = match (args.policy.is_empty(), args.set.is_empty()) {
        (false, _) => args.policy.iter().map(String::as_str).collect(),
        (true, false) => vec!["caching"],
        (true, true) => vec!["caching", "expandable"],
    };
    let mut policies = Vec::new();
    for name in names {
        // The caching allocator starts with the recorded settings.
        let recorded = job.settings.is_some() && name == "caching";
        let mut policy = match recorded {
            true => job.recorded_policy(),
            false => PolicyConfig::named(name).map_err(refuse)?,
        };
        let mut title = policy.title().to_owned();
        if recorded && args.set.is_empty() {
            title.push_str(" (as recorded)");
        }
        for setting in &args.set {
            let (key, value) = setting.split_once(['=', ':']).ok_or_else(|| {
                Failure::new(Exit::Usage, format!("read the setting '{setting}'"))
                    .with_source("expected key=value")
            })?;
            policy.set(key.trim(), value.trim()).map_err(refuse)?;
            title.push_str(&format!(", {key}={value}"));
        }
        policies.push((title, policy));
    }
    Ok(policies)
}

/// Prints the title of a job on a device and its peak of live memory.
pub(super) fn show_head(
    screen: &mut Screen,
    name: &str,
    trace: (usize, u32),
    live: Bytes,
) -> Result<(), Failure> {
    let (events, device) = trace;
    let events = wording::count(events, "event", "events");
    let head = Line::new().accent(name).plain(format!("  {events}, device {device}  "));
    let live = format!("{} live at once", amount(live));
    if head.width() + live.len() <= screen.width() {
        return screen.print(&head.dim(live));
    }
    screen.print(&head)?;
    screen.print(&Line::new().dim(format!("  {live}")))
}

/// Returns the name of a file without its directories.
pub(super) fn file_name(path: &Path) -> String {
    match path.file_name() {
        _ if path.as_os_str() == "-" => "standard input".to_owned(),
        Some(name) => name.to_string_lossy().into_owned(),
        None => path.display().to_string(),
    }
}
