//! `gpuws export`: serves metrics to Prometheus, or writes them to a file.

use crate::args::{Global, time};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{opening, options};
use crate::terminal::{Line, Screen, warn};
use clap::Args;
use gpu_core::Bytes;
use gpu_export::{Format, Limits, Sampler, Server, Shown};
use gpu_host::{SystemClock, output};
use gpu_machine::{ExportOptions, ExportedMachine, Next, Options, Requests, driver_deadline};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ADDRESS: &str = "expected an IP address and a port, such as 127.0.0.1:9836";

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Address to serve on. Any client that can reach it can read the metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9836",
          value_parser = |text: &str| text.parse::<SocketAddr>().map_err(|_| ADDRESS))]
    pub(crate) listen: SocketAddr,
    /// Write the metrics once to this file, for the textfile collector of node_exporter, and exit;
    /// `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "reuse"])]
    pub(crate) textfile: Option<PathBuf>,
    /// Omit the figures that other exporters also have: memory, utilization, temperature, power,
    /// energy.
    #[arg(long)]
    pub(crate) no_gpu_figures: bool,
    /// Also export each process that uses at least this much GPU memory.
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "256MiB",
          require_equals = true)]
    pub(crate) processes: Option<Bytes>,
    /// Write the jobs on each GPU to files in this directory, for dcgm-exporter's option of the
    /// same name.
    #[arg(long, value_name = "DIR")]
    pub(crate) hpc_job_mapping_dir: Option<PathBuf>,
    /// Reuse a snapshot this recent for further scrapes.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) reuse: Duration,
}

pub(crate) fn run(
    args: &ExportArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let shown = Shown {
        figures: !args.no_gpu_figures,
        processes: args.processes,
        waits: args.textfile.is_none(),
    };
    let mut machine = ExportedMachine::open(&ExportOptions {
        // A scrape is answered in time even if a wait is long, and each scrape would report the
        // wait.
        machine: Options { progress: |_| {}, ..options(global) },
        warn,
        shown,
        jobs: args.hpc_job_mapping_dir.as_deref(),
    })
    .map_err(|error| opening(global.sim.as_deref(), error))?;
    if let Some(path) = &args.textfile {
        let page = Arc::new(machine.sample(global.deadline)).page(Format::Text);
        return write(path, &page, screen);
    }
    let requests = Requests::take()?;
    let listening = || format!("listen on {}", args.listen);
    let listener = TcpListener::bind(args.listen).map_err(|error| {
        Failure::io(listening(), error).with_hint("choose another address with --listen")
    })?;
    let address = listener.local_addr().map_err(|error| Failure::io(listening(), error))?;
    if !global.quiet {
        screen.print(&Line::new().plain(format!("metrics at http://{address}/metrics")))?;
    }
    let sampler = Sampler::start(move |left| machine.sample(driver_deadline(left)))
        .map_err(|error| Failure::io("start a thread", error))?;
    let limits = Limits { reuse: args.reuse, ..Limits::default() };
    let failed = |error| Failure::io(listening(), error);
    let mut server = Server::new(listener, sampler, limits).map_err(failed)?;
    let clock = SystemClock::new();
    loop {
        server.run(&clock, requests.arrival()).map_err(failed)?;
        if requests.wait(std::time::Duration::ZERO)? == Next::End {
            return Ok(Exit::Done);
        }
    }
}

/// Writes the page in one step, so that a reader sees either all of it or the previous page.
fn write(path: &Path, page: &str, screen: &mut Screen) -> Result<Exit, Failure> {
    if path == Path::new("-") {
        screen.raw(page.as_bytes())?;
    } else {
        output::replace(path, page.as_bytes())?;
    }
    Ok(Exit::Done)
}
