//! Arguments of `gpuws status`.

use crate::args::{Fields, HistoryArgs, HostArgs, Only, Repeat, pid};
use clap::Args;
use gpu_core::Pid;
use gpu_report::{Columns, csv};

/// An output format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The output of `gpustat --json`.
    GpustatJson,
    /// The output of `nvidia-smi --query-gpu=… --format=csv`.
    Csv(csv::Style),
    /// The output of `nvidia-smi`.
    Smi,
}

#[derive(Debug, Default, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) only: Only,
    /// List the GPUs and MIG devices with their UUIDs, as nvidia-smi -L does.
    #[arg(short = 'L', long, conflicts_with_all = ["details", "format", "columns", "user", "mine",
          "pid", "holders", "every", "millis", "replay"])]
    pub(crate) list_gpus: bool,
    /// Show all details of each GPU, in the order of `nvidia-smi -q`.
    #[arg(short = 'q', long, conflicts_with = "replay")]
    pub(crate) details: bool,
    /// With -q: as XML, as nvidia-smi -q -x does.
    #[arg(short = 'x', long = "xml-format", requires = "details",
          conflicts_with_all = ["user", "mine", "pid", "holders"])]
    pub(crate) xml: bool,
    /// Search all processes for holders of the device files even if no memory is unexplained.
    #[arg(long, conflicts_with_all = ["format", "replay"])]
    pub(crate) holders: bool,
    /// Output in another tool's format: `nvidia-smi`, `gpustat-json`, or `csv[,noheader][,nounits]`
    /// with --query-gpu or --query-compute-apps.
    #[arg(long, value_name = "FORM", value_parser = format, conflicts_with_all = ["details", "replay"])]
    pub(crate) format: Option<Format>,
    #[arg(long, value_name = "COLUMN,…", value_parser = Columns::parse, help = columns_help(),
          conflicts_with_all = ["format", "details"])]
    pub(crate) columns: Option<Columns>,
    #[command(flatten)]
    pub(crate) shown: Shown,
    #[command(flatten)]
    pub(crate) fields: Fields,
    #[command(flatten)]
    pub(crate) repeat: Repeat,
    #[command(flatten)]
    pub(crate) replay: HistoryArgs,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

// The processes that are shown.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Shown {
    /// Show only processes of these users (name or UID); all GPUs are still shown.
    #[arg(long, value_name = "USER,…", value_delimiter = ',', conflicts_with = "format")]
    pub(crate) user: Vec<String>,
    /// Show only your own processes.
    #[arg(long, conflicts_with = "format")]
    pub(crate) mine: bool,
    /// Show only these processes.
    #[arg(long, value_name = "PID,…", value_parser = pid, value_delimiter = ',',
          conflicts_with = "format")]
    pub(crate) pid: Vec<Pid>,
}

/// Returns the help of `--columns`.
fn columns_help() -> String {
    let names = Columns::names();
    format!(
        "Show tables with these columns; {names}. `cpu` is the average since the start of the \
         process, with -l since the last sample"
    )
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "gpustat-json" => Ok(Format::GpustatJson),
        "nvidia-smi" => Ok(Format::Smi),
        _ => csv::Style::parse(text)
            .map(Format::Csv)
            .map_err(|why| format!("{why}, gpustat-json, nvidia-smi")),
    }
}
