//! `gpuws dmon` and `gpuws pmon`: streams of rows in nvidia-smi's format.

use crate::args::{Global, Only, time};
use crate::commands::{query, repeat};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::Screen;
use clap::Args;
use gpu_report::csv::Subject;
use gpu_report::monitor::{Dmon, Page, Pmon, Release, Rows, Sample};
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct DmonArgs {
    /// Groups of columns: p power and temperature, u utilization, c clocks, v violations (always -),
    /// m memory, e errors, t PCIe throughput.
    #[arg(short, long, value_name = "LETTERS", default_value = "puc", value_parser = Dmon::parse)]
    pub(crate) select: Dmon,
    #[command(flatten)]
    pub(crate) stream: Stream,
}

#[derive(Debug, Args)]
pub(crate) struct PmonArgs {
    /// Groups of columns: u utilization (sm only, others -), m memory.
    #[arg(short, long, value_name = "LETTERS", default_value = "u", value_parser = Pmon::parse)]
    pub(crate) select: Pmon,
    #[command(flatten)]
    pub(crate) stream: Stream,
}

#[derive(Debug, Args)]
pub(crate) struct Stream {
    /// Stop after this many samples; default: on Ctrl-C.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,
    /// Time between samples.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) delay: Duration,
    #[command(flatten)]
    pub(crate) only: Only,
}

/// Prints rows about the devices or their processes until the stream ends.
pub(crate) fn run(
    rows: &dyn Rows,
    subject: Subject,
    stream: &Stream,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let source = source::open_for_query(global, rows.groups(), stream.count == Some(1))?;
    repeat::name_origin(&source);
    let (mut page, mut is_first) = (Page::default(), true);
    repeat::times(Some(stream.delay), stream.count, &source, screen, |screen| {
        let machine = query::inventory(subject, &source, rows.groups());
        let devices = query::shown(&machine.driver, &machine.devices, &stream.only.devices)?;
        if devices.is_empty() {
            return query::none_found(screen);
        }
        let (process, release) = (|pid| source.listed_process(pid), Release::of(&machine.driver));
        let sample = Sample { devices: &devices, process: &process, release };
        let text: String = page.lines(rows, &sample).iter().flat_map(|line| [line, "\n"]).collect();
        screen.raw(text.as_bytes())?;
        // Only once: the rows of all samples show it.
        let is_first = std::mem::take(&mut is_first);
        let unanswered = || query::unanswered(&devices, subject);
        Ok(is_first.then(unanswered).flatten().unwrap_or(Exit::Done))
    })
}
