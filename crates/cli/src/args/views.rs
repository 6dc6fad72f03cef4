//! Arguments of the commands that show devices, some with the option names of other tools.

use super::{HistoryArgs, HostArgs};
use clap::{ArgGroup, Args};
use gpu_core::{Pid, Selector};
use gpu_report::{Columns, csv};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// An output format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The output of `gpustat --json`.
    GpustatJson,
    /// The output of `nvidia-smi --query-gpu=… --format=csv`.
    Csv(csv::Style),
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
    /// Search all processes for holders of the device files even if no memory is unexplained.
    #[arg(long, conflicts_with_all = ["format", "replay"])]
    pub(crate) holders: bool,
    /// Output in another tool's format: `gpustat-json`, or `csv[,noheader][,nounits]` with
    /// --query-gpu or --query-compute-apps.
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

// Which devices are shown; all without a selector.
#[derive(Debug, Default, Args)]
pub(crate) struct Only {
    /// Only these GPUs, by index (0,2-3), UUID or PCI bus ID, or all.
    #[arg(
        short = 'i',
        long = "gpu",
        visible_alias = "id",
        value_name = "GPU,…",
        value_delimiter = ','
    )]
    pub(crate) devices: Vec<Selector>,
}

// Which processes are shown.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Shown {
    /// Show only processes of these users (name or UID); all GPUs are still shown.
    #[arg(long, value_name = "USER,…", value_delimiter = ',', conflicts_with = "format")]
    pub(crate) user: Vec<String>,
    /// Show only your own processes.
    #[arg(long, conflicts_with = "format")]
    pub(crate) mine: bool,
    /// Show only these processes.
    #[arg(long, value_name = "PID,…", value_parser = super::pid, value_delimiter = ',',
          conflicts_with = "format")]
    pub(crate) pid: Vec<Pid>,
}

/// Returns the help of `--columns`.
fn columns_help() -> String {
    let names = Columns::names();
    format!(
        "Show tables with these columns; {names}. `cpu` is the average since the start of the \
         process, with -l since the last look"
    )
}

// The fields of a CSV row, by their names in nvidia-smi.
#[derive(Debug, Default, Args)]
pub(crate) struct Fields {
    /// Fields per GPU; `gpuws query --help-query-gpu` lists them.
    #[arg(long, value_name = "FIELD,…", requires = "format")]
    pub(crate) query_gpu: Option<String>,
    /// Fields per compute process.
    #[arg(long, value_name = "FIELD,…", requires = "format", conflicts_with = "query_gpu")]
    pub(crate) query_compute_apps: Option<String>,
}

// Whether and how often a view is repeated.
#[derive(Debug, Default, Args)]
pub(crate) struct Repeat {
    /// Repeat after this time until Ctrl-C.
    #[arg(short = 'l', long = "loop", value_name = "TIME", num_args = 0..=1,
          default_missing_value = "5s", value_parser = super::time::time)]
    every: Option<Duration>,
    /// Repeat interval in milliseconds; also -lms.
    #[arg(long = "loop-ms", value_name = "MS", conflicts_with = "every",
          value_parser = clap::value_parser!(u32).range(1..))]
    millis: Option<u32>,
}

impl Repeat {
    /// Returns whether the view is shown only once.
    pub(crate) fn is_once(&self) -> bool {
        self.pause().is_none()
    }

    /// Returns the time between two views; `None` for a single one.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.every.or(self.millis.map(|millis| Duration::from_millis(millis.into())))
    }
}

/// The options of `gpuws query` of which exactly one is required.
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

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// The device, by index, UUID or PCI bus ID.
    #[arg(value_parser = Selector::single)]
    pub(crate) gpu: Selector,
    /// Perform the reset; without it blockers are only listed.
    #[arg(long)]
    pub(crate) yes: bool,
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "gpustat-json" => Ok(Format::GpustatJson),
        _ => csv::Style::parse(text).map(Format::Csv).map_err(|why| format!("{why}, gpustat-json")),
    }
}

/// Replaces nvidia-smi's `-lms` and `-p2p`, long options with a single dash, with `--loop-ms` and
/// `--p2p`.
pub(super) fn usual_spelling(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let usual = |word: OsString| match word.to_str() {
        Some("-lms") => OsStr::new("--loop-ms").to_owned(),
        Some("-p2p") => OsStr::new("--p2p").to_owned(),
        Some(text) => match text.strip_prefix("-lms=") {
            Some(value) => format!("--loop-ms={value}").into(),
            None => word,
        },
        None => word,
    };
    // Only for the commands that have this option, and never in the arguments of a wrapped command.
    let (mut views, mut ours) = (false, true);
    words
        .map(|word| {
            views |= word == "query" || word == "status" || word == "topo";
            ours &= word != "--";
            if views && ours { usual(word) } else { word }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};

    fn read(line: &str) -> Result<Cli, clap::Error> {
        crate::args::parse(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn nvidia_smi_options_are_accepted() {
        for (line, millis, devices) in [
            ("gpuws query --query-gpu=index --format=csv", None, 0),
            ("gpuws query --query-gpu=index --format=csv,noheader,nounits -i 0", None, 1),
            ("gpuws query --id=0,GPU-1,04:00.0 --format=csv --query-gpu=index -l 2", Some(2000), 3),
            ("gpuws query --query-gpu=a,b --format=csv --loop=2", Some(2000), 0),
            ("gpuws query --query-gpu=index --format=csv -l", Some(5000), 0),
            ("gpuws query --query-gpu=index --format=csv -lms 500", Some(500), 0),
            ("gpuws query --query-gpu=index --format=csv -lms=500 -f out", Some(500), 0),
            ("gpuws query --query-gpu index --format csv --loop-ms=7 --filename=out", Some(7), 0),
        ] {
            let Ok(Cli { command: Some(Command::Query(query)), .. }) = read(line) else {
                panic!("{line}: {:?}", read(line).err())
            };
            assert_eq!(query.repeat.pause(), millis.map(Duration::from_millis), "{line}");
            assert_eq!(query.only.devices.len(), devices, "{line}");
            assert!(query.format.is_some() && query.fields.query_gpu.is_some(), "{line}");
        }
    }

    #[test]
    fn default_command_has_its_options_without_its_name() {
        for line in ["gpuws -l", "gpuws -i 0", "gpuws --json -q", "gpuws --sim x -i 0 --holders"] {
            let parsed = read(line);
            assert!(matches!(parsed, Ok(Cli { command: Some(Command::Status(_)), .. })), "{line}");
        }
        let unknown = read("gpuws --nope").unwrap_err().to_string();
        assert!(unknown.contains("'--nope'") && !unknown.contains("status"), "{unknown}");
        assert!(read("gpuws topo -l").is_err());
    }

    #[test]
    fn invalid_option_combinations_are_rejected() {
        for line in [
            "gpuws query",
            "gpuws query --query-gpu=index --format=xml",
            "gpuws query --query-gpu=index --query-compute-apps=pid --format=csv",
            "gpuws query --query-gpu=index --format=csv -l 0",
            "gpuws query --query-gpu=index --format=csv -l 1 -lms 5",
            "gpuws status --query-gpu=index",
            "gpuws status -q --format gpustat-json",
            "gpuws status -i x",
            "gpuws reset",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn arguments_of_wrapped_commands_are_not_rewritten() {
        for line in ["gpuws parse -lms", "gpuws sim labbox -- gpuws query -lms"] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(usual_spelling(words.clone().into_iter()), words);
        }
    }
}
