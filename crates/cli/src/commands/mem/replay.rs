//! `gpuws mem replay`: replays a recorded job.

mod show;
mod timeline_file;

pub(super) use show::show_refused;

use super::ReplayArgs;
use super::jobs::{self, announce, policies};
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Line, Screen};
use gpu_allocator_policy::PolicyConfig;
use gpu_core::Bytes;
use gpu_memory_trace::{
    Agreement, Job, OnDevice, Replays, Run, Sparkline, compare, helpful_settings, trial,
};
use gpu_report::json::{Recorded, Replayed};
use show::show;
use timeline_file::Drawing;

/// Progress is shown for jobs with more events.
const MANY: usize = 500_000;

pub(crate) fn run(
    args: &ReplayArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    super::note_decimal(args.device_memory);
    let drawing = args.timeline.as_deref().map(Drawing::begin).transpose()?;
    let job = jobs::read(&args.file, &args.reading)?;
    let policies = policies(&args.policies, &job)?;
    let mut all = Vec::new();
    for on_device in jobs::devices(&job, &args.file, args.device)? {
        announce("replaying", &on_device, &args.file, MANY);
        let agreement = agreement(&job, &on_device)?;
        let runs = policies
            .iter()
            .map(|(title, policy)| replay(&on_device, title, policy, args))
            .collect::<Result<_, _>>()?;
        all.push(Replays { job: on_device, agreement, runs });
    }
    if let Some(drawing) = drawing {
        drawing.finish(&job, &all, &policies, args)?;
    }
    let file = args.file.display().to_string();
    if global.json {
        let recorded: Vec<_> = all.iter().map(Recorded::of).collect();
        screen.json(&Replayed::of(&file, job.recording.format, recorded))?;
    } else {
        screen.together(|screen| {
            for (number, replays) in all.iter().enumerate() {
                if number > 0 {
                    screen.print(&Line::new())?;
                }
                show(screen, global, args, replays)?;
            }
            match &args.timeline {
                Some(path) if !global.quiet => {
                    let path = path.display();
                    screen.print(&Line::new().dim("drawn: ").plain(path))
                }
                _ => Ok(()),
            }
        })?;
    }
    let is_done = |run: &Run| run.trial.outcome.survived();
    let all_done = all.iter().all(|replays| replays.runs.first().is_none_or(is_done));
    Ok(if all_done { Exit::Done } else { Exit::Remains })
}

/// Compares the replay with the recording if PyTorch's allocator recorded it with its segments.
fn agreement(job: &Job, on_device: &OnDevice<'_>) -> Result<Option<Agreement>, Failure> {
    let Some(settings) = job.settings.as_ref().filter(|_| on_device.trace.segments.is_some())
    else {
        return Ok(None);
    };
    compare(on_device.trace, &on_device.workload, settings).map(Some).map_err(|error| {
        Failure::new(Exit::Usage, "compare the replay with the recording").with_source(error)
    })
}

/// Returns an allocator with the limit of `--limit`, and the memory of its device.
pub(super) fn bounded(policy: &PolicyConfig, args: &ReplayArgs) -> (PolicyConfig, Option<Bytes>) {
    let limited = args.limit.map_or_else(|| policy.clone(), |limit| policy.limited(limit));
    (limited, args.limit.into_iter().chain(args.device_memory).min())
}

fn replay(
    job: &OnDevice<'_>,
    title: &str,
    policy: &PolicyConfig,
    args: &ReplayArgs,
) -> Result<Run, Failure> {
    let (limited, device) = bounded(policy, args);
    if device.is_none() && policy.takes_all() {
        let failure = Failure::new(Exit::Usage, format!("replay under {title}"));
        let failure = failure.with_source("it allocates the whole device up front");
        return Err(failure.with_hint("set the device size, e.g. --device-memory 80GiB"));
    }
    let failed =
        |error| Failure::new(Exit::Usage, format!("replay under {title}")).with_source(error);
    let mut spark = Sparkline::new(job.granted.steps.len());
    let trial = trial(&job.granted, &limited, device, &mut spark).map_err(failed)?;
    let helpful_settings = match trial.outcome.survived() {
        true => Vec::new(),
        false => helpful_settings(&job.granted, &limited, device).map_err(failed)?,
    };
    Ok(Run { title: title.to_owned(), trial, spark, helpful_settings })
}
