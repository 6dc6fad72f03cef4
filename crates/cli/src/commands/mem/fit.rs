//! `gpuws mem fit`: finds the minimum memory that recorded jobs need.

use super::FitArgs;
use super::jobs::{self, announce, file_name, policies, show_head, without_settings};
use super::replay::show_refused;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Align, Line, Screen, Table};
use crate::wording;
use gpu_allocator_policy::PolicyConfig;
use gpu_core::{Bytes, amount};
use gpu_memory_trace::{Need, Needs, Sparkline, need, together, trial};
use gpu_report::json::{Fit, Fitted};
use gpu_report::wording::fit::{next, verdict};
use std::path::Path;

/// Progress is shown for jobs with more events, which are replayed many times.
const MANY: usize = 5_000;

/// A threshold in GiB that no job reaches: only an allocator that reserves the whole device does.
const MAX_GIB: f64 = 1_000_000.0;

pub(crate) fn run(args: &FitArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    super::note_decimal(args.device_memory);
    let mut all = Vec::new();
    for path in &args.files {
        let job = jobs::read(path, &args.reading)?;
        let policies = policies(&args.policies, &job)?;
        for on_device in jobs::devices(&job, path, None)? {
            announce("finding the minimum memory for", &on_device, path, MANY);
            let by_policy = policies
                .iter()
                .map(|(title, policy)| needed(&on_device.granted, title, policy))
                .collect::<Result<_, _>>()?;
            all.push(Needs {
                file: path.display().to_string(),
                device: on_device.trace.device,
                events: on_device.trace.events.len(),
                live: Bytes(on_device.granted.peak_requested()),
                refused: on_device.refused,
                by_policy,
            });
        }
    }
    let fitting = |needs: &Needs| needs.fitting(args.context, args.device_memory);
    let needs: Vec<_> = all.iter().map(|needs| fitting(needs).mem).collect();
    let all_fit = all.iter().all(|needs| fitting(needs).fits);
    let exit = if all_fit { Exit::Done } else { Exit::Remains };
    let sets = args.device_memory.map(|total| together(&needs, total));
    if global.json {
        let jobs =
            all.iter().map(|needs| Fit::of(needs, args.context, args.device_memory)).collect();
        screen.json(&Fitted::of(args.context, args.device_memory, jobs, sets))?;
        return Ok(exit);
    }
    screen.together(|screen| {
        for (number, needs) in all.iter().enumerate() {
            if number > 0 {
                screen.print(&Line::new())?;
            }
            show(screen, global, args, needs)?;
        }
        match (args.device_memory, sets) {
            (Some(total), Some(sets)) if all.len() > 1 => {
                show_sets(screen, &all, &needs, total, &sets)
            }
            _ => Ok(()),
        }
    })?;
    Ok(exit)
}

fn needed(
    workload: &gpu_memory_trace::Workload,
    title: &str,
    policy: &PolicyConfig,
) -> Result<(String, Need, Sparkline), Failure> {
    let failed =
        |error| Failure::new(Exit::Usage, format!("replay under {title}")).with_source(error);
    let need = need(workload, policy).map_err(failed)?;
    let mut spark = Sparkline::new(workload.steps.len());
    trial(workload, policy, Some(need.least), &mut spark).map_err(failed)?;
    Ok((title.to_owned(), need, spark))
}

fn show(
    screen: &mut Screen,
    global: &Global,
    args: &FitArgs,
    needs: &Needs,
) -> Result<(), Failure> {
    show_head(
        screen,
        &file_name(Path::new(&needs.file)),
        (needs.events, needs.device),
        needs.live,
    )?;
    let mut table = Table::new(&[
        ("  allocator", Align::Left),
        ("needs", Align::Right),
        ("wasted", Align::Right),
        ("unlimited", Align::Right),
        ("over time", Align::Left),
    ]);
    for (title, need, spark) in &needs.by_policy {
        let least = amount(need.least);
        table.row([
            Line::new().plain(format!("  {}", without_settings(title))),
            Line::new().accent(if need.exact { least } else { format!("≤ {least}") }),
            Line::new().plain(amount(need.tight.wasted())),
            Line::new().plain(match need.unlimited.peak.reserved {
                all if all.gib() > MAX_GIB => "all".to_owned(),
                reserved => amount(reserved),
            }),
            Line::new().dim(spark.draw()),
        ]);
    }
    if !args.policies.set.is_empty() {
        let given = format!("{}:", args.policies.set.join(", "));
        wording::flow(screen, Line::new().plain("  With "), &given)?;
    }
    screen.print_all(table.lines(screen.room(0)))?;
    show_refused(screen, needs.refused)?;
    let fitting = needs.fitting(args.context, args.device_memory);
    wording::flow(screen, Line::new(), &verdict(needs, args.context, args.device_memory))?;
    if !global.quiet && fitting.fits {
        screen.print(&Line::new().dim("next: ").plain(next(fitting)))?;
    }
    Ok(())
}

fn show_sets(
    screen: &mut Screen,
    all: &[Needs],
    needs: &[Bytes],
    total: Bytes,
    sets: &[Vec<usize>],
) -> Result<(), Failure> {
    screen.print(&Line::new())?;
    let sets: Vec<_> = sets.iter().filter(|set| set.len() > 1).collect();
    if sets.is_empty() {
        let text = format!("No two of them fit together in {}.", amount(total));
        return screen.print(&Line::new().plain(text));
    }
    screen.print(&Line::new().plain(format!("Together in {}:", amount(total))))?;
    for set in sets {
        let names: Vec<_> = set.iter().map(|job| file_name(Path::new(&all[*job].file))).collect();
        let sum = set.iter().map(|job| needs[*job]).sum();
        let head = Line::new().accent(format!("  {:>10}  ", amount(sum)));
        wording::flow(screen, head, &names.join(" + "))?;
    }
    Ok(())
}
