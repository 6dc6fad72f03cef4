//! The command line, as clap reads it.

mod claims;
mod env;
mod export;
mod history;
mod hosts;
mod memory;
mod monitor;
mod parse;
mod place;
mod reap;
mod report;
mod request;
mod run;
mod sim;
mod slurm;
mod time;
mod top;
mod views;
mod watch;

pub(crate) use claims::{ClaimArgs, ClaimFormat, LeasesArgs};
pub(crate) use env::{EnvArgs, KeepArgs};
pub(crate) use export::ExportArgs;
pub(crate) use history::{HistoryArgs, RecordArgs};
pub(crate) use hosts::HostArgs;
pub(crate) use memory::{
    ConvertArgs, ExplainArgs, FitArgs, MemArgs, MemCommand, PolicyArgs, ReadingArgs, ReplayArgs,
};
pub(crate) use monitor::{DmonArgs, PmonArgs, Stream};
pub(crate) use parse::ParseArgs;
pub(crate) use place::{
    EngineName, Goal, PlaceArgs, PlaceCommand, PlaceGraphArgs, PlaceModelArgs, SplitForm,
};
pub(crate) use reap::{Reach, ReapArgs};
pub(crate) use report::ReportArgs;
pub(crate) use request::RequestArgs;
pub(crate) use run::RunArgs;
pub(crate) use sim::SimArgs;
pub(crate) use slurm::{Script, SlurmArgs};
pub(crate) use top::TopArgs;
use views::usual_spelling;
pub(crate) use views::{Fields, Format, QueryArgs, Repeat, ResetArgs, Shown, StatusArgs};
pub(crate) use watch::WatchArgs;

use self::time::time;
use crate::exit::Exit;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use gpu_core::{PeerCapability, Pid, Selector};
use gpu_reaper::{Confidence, Ignored};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Shows who uses the GPUs of this machine, explains unaccounted memory, and frees it safely.
#[derive(Debug, Parser)]
#[command(
    name = "gpuws",
    version,
    about,
    after_help = "Example: gpuws --sim p100-ghost doctor",
    after_long_help = exit_codes(),
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    /// The command; default: `status`.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Options of every command.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Print one JSON object instead of a table.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Leave out headings and advice.
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour; `auto` honours the terminal, NO_COLOR and CLICOLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Use a simulated machine: its name, a directory, or a file written by `record`.
    #[arg(long, global = true, value_name = "NAME|DIR|FILE")]
    pub(crate) sim: Option<PathBuf>,
    /// Time to wait for the driver to answer.
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) deadline: Duration,
    /// Path of the NVML library to use instead of the installed libnvidia-ml.so.1.
    #[arg(long, global = true, value_name = "LIBRARY")]
    pub(crate) nvml: Option<PathBuf>,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
    }
}

// `defer`: clap builds the options of the selected command only. The flattened structs have no doc
// comments, which clap would print instead of the descriptions of the commands.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Show the devices and who uses them.
    #[command(after_help = "Example: gpuws --sim gtx1080ti-x8-hoarder status\n         \
                            gpuws --sim labbox status -i 3 -q\n         \
                            gpuws --sim labbox status --format gpustat-json\n         \
                            gpuws status --host gpu01,gpu02")]
    Status(StatusArgs),
    /// Watch the devices and who uses them on the whole screen.
    #[command(after_help = "Example: gpuws --sim labbox top\n? shows the keys, q quits.")]
    Top(TopArgs),
    /// Watch for problems: report each once, tell users, and reap where a policy says so.
    #[command(
        after_help = "Examples: gpuws watch --policy /etc/gpuws/watch.toml --json\n          \
                            gpuws --sim labbox watch --for 1h"
    )]
    Watch(WatchArgs),
    /// Serve metrics to Prometheus: unexplained memory, findings, leases, and the GPUs.
    #[command(after_help = "Examples: gpuws export --listen 127.0.0.1:9836\n          \
                            gpuws --sim labbox export --textfile -")]
    Export(ExportArgs),
    /// Print CSV like nvidia-smi, with the same options, for scripts.
    #[command(
        override_usage = "gpuws query --query-gpu <FIELD,…> --format <FORM> [OPTIONS]\n       \
                          gpuws query --query-compute-apps <FIELD,…> --format <FORM> [OPTIONS]\n       \
                          gpuws query --help-query-gpu | --help-query-compute-apps",
        after_help = "Example: gpuws --sim labbox query --query-gpu=index,name,memory.used \
                            --format=csv,noheader,nounits"
    )]
    Query(QueryArgs),
    /// Print a row per GPU each second, like nvidia-smi dmon.
    #[command(after_help = "Example: gpuws --sim labbox dmon -s pucm -c 3")]
    Dmon(DmonArgs),
    /// Print a row per process each second, like nvidia-smi pmon.
    #[command(after_help = "Example: gpuws --sim labbox pmon -s um -c 3")]
    Pmon(PmonArgs),
    /// Diagnose problems, with evidence and the next command to run.
    #[command(after_help = "Example: nvidia-smi 2>&1 | gpuws doctor --paste\nExits with 1 if \
        there are findings.")]
    Doctor(DoctorArgs),
    /// Free unaccounted GPU memory; without --yes only prints the plan.
    #[command(after_help = "Example: gpuws --sim p100-ghost reap --gpu 0 --yes\nExits with 1 if \
        not all memory was freed.")]
    Reap(ReapArgs),
    /// Reset an unused GPU; without --yes only lists what blocks the reset.
    #[command(after_help = "Example: gpuws --sim blocked-reset reset 0\nExits with 1 if \
        something blocks the reset.")]
    Reset(ResetArgs),
    /// Run a command on GPUs reserved for it and clean up after it.
    #[command(after_help = "Examples: gpuws run -n 2 -- python train.py\n          \
                            gpuws run --mem 6GiB --timeout 10m -- ./job\n          \
                            gpuws run --host gpu01,gpu02 -- ./job\nExits with the \
                                command's exit status.")]
    Run(RunArgs),
    /// Show which GPUs a claim would get now; --hold or --export claims them for a script or shell.
    #[command(after_help = "Examples: gpuws claim -n 2\n          \
                            eval \"$(gpuws claim -n 2 --export)\"\n          \
                            podman run --device \"$(gpuws claim --export --format cdi)\" IMAGE")]
    Claim(ClaimArgs),
    /// List leases and waiting claims.
    #[command(after_help = "Example: gpuws leases --json")]
    Leases(LeasesArgs),
    /// Show the GPU topology like nvidia-smi topo -m, or draw it as SVG.
    #[command(after_help = "Example: gpuws --sim dgx1-v100 topo --svg dgx1.svg")]
    Topo(TopoArgs),
    /// Show where the operations of a graph or the layers of a model would go.
    #[command(after_help = "Example: gpuws place model ./Llama-3-8B --context 8k")]
    Place(PlaceArgs),
    /// Analyse a job's GPU memory use and out-of-memory errors.
    #[command(after_help = "Example: gpuws mem explain train.log")]
    Mem(MemArgs),
    /// List the processes that have a file open or mapped.
    #[command(after_help = "Example: gpuws holders /dev/nvidia0 /dev/nvidia-uvm")]
    Holders(HoldersArgs),
    /// Convert output of nvidia-smi, fuser or lsof to JSON.
    #[command(after_help = "Example: nvidia-smi -q | gpuws parse -")]
    Parse(ParseArgs),
    /// Save the state of this machine to a file for --sim, or its history for --replay.
    #[command(
        after_help = "Examples: gpuws record machine.gpuws && gpuws --sim machine.gpuws doctor\n          \
                            gpuws record --for 8h --names night && gpuws doctor --replay night"
    )]
    Record(RecordArgs),
    /// Show who held and used the GPUs over time: hours, memory and energy.
    #[command(after_help = "Examples: gpuws report /var/lib/gpuws/history --by job\n          \
                            gpuws report DIR --since 2026-11-01 --format html -o usage.html")]
    Report(ReportArgs),
    /// Walk through status, doctor and reap on a simulated machine.
    #[command(after_help = "Example: gpuws demo p100-ghost")]
    Demo(DemoArgs),
    /// Run a program (gpustat, nvtop, nvidia-smi, gpuws) against a simulated NVML.
    #[command(after_help = "Examples: gpuws sim labbox --live -- gpustat\n          \
                            gpuws sim p100-ghost --live -- gpuws reap --gpu 0 --yes\nExits with \
                                the command's exit status.")]
    Sim(SimArgs),
    /// Clean the GPUs of a Slurm job, as Prolog, Epilog or HealthCheckProgram of slurmd.
    #[command(after_help = "Example: in slurm.conf, a script with: exec /usr/bin/gpuws slurm \
        epilog\nExits with 1 if something still holds a GPU: the node is drained, and the reason \
        names it.")]
    Slurm(SlurmArgs),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example: gpuws completions bash > ~/.local/share/bash-completion/completions/gpuws"
    )]
    Completions(CompletionsArgs),
    /// Print the manual page.
    #[command(after_help = "Example: gpuws man reap | man -l -")]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Only these GPUs, by index (0,2-3), UUID or PCI bus ID, or all; repeatable.
    #[arg(short = 'i', long, visible_alias = "id", value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// Diagnose another machine from nvidia-smi and fuser output on standard input.
    #[arg(long, conflicts_with_all = ["sim", "replay"])]
    pub(crate) paste: bool,
    /// Report only findings of this confidence or more: possible, likely or high.
    #[arg(long, value_name = "LEVEL", default_value = "possible")]
    pub(crate) min_confidence: Confidence,
    /// Do not report findings of this kind, such as hoarder (idle holder), or nvlink-down:3 for GPU 3 only.
    #[arg(long, value_name = "KIND[:GPU],…", value_delimiter = ',')]
    pub(crate) ignore: Vec<Ignored>,
    #[command(flatten)]
    pub(crate) sampling: Sampling,
    #[command(flatten)]
    pub(crate) replay: HistoryArgs,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

// The number of samples and the time between them.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Sampling {
    /// Number of samples; several tell an idle process from a pausing one (default: 1; with
    /// --replay 13, and the day before them always counts).
    #[arg(long = "samples", alias = "looks", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) count: Option<u16>,
    /// Time between samples.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) every: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct TopoArgs {
    /// Print the matrix (default).
    #[arg(short = 'm', long, conflicts_with = "svg")]
    matrix: bool,
    /// Print peer-to-peer access instead: reads, writes, NVLink, atomics or PCIe; also -p2p.
    #[arg(short = 'p', long = "p2p", visible_alias = "p2p_status", value_name = "r|w|n|a|p",
          value_parser = named(&CAPABILITIES), conflicts_with_all = ["matrix", "svg"])]
    pub(crate) p2p: Option<PeerCapability>,
    /// Write an SVG to this file instead; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

const CAPABILITIES: [(&str, PeerCapability); 5] = [
    ("r", PeerCapability::Read),
    ("w", PeerCapability::Write),
    ("n", PeerCapability::NvLink),
    ("a", PeerCapability::Atomics),
    ("p", PeerCapability::Prop),
];

#[derive(Debug, Args)]
pub(crate) struct HoldersArgs {
    /// Files to check; default: the GPU device files.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The machine.
    #[arg(default_value = "p100-ghost")]
    pub(crate) machine: String,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command to document, such as `reap` or `mem fit`; default: gpuws itself.
    pub(crate) command: Vec<String>,
}

fn pid(text: &str) -> Result<Pid, &'static str> {
    text.parse().map(Pid).map_err(|_| "not a PID; pgrep finds the PIDs of a name")
}

/// Parses the arguments. The default command has its options without its name too: `gpuws -l`.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut words = usual_spelling(words.into_iter());
    let cli = Cli::try_parse_from(&words);
    if !cli.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnknownArgument) {
        return cli;
    }
    words.insert(1, "status".into());
    let status = Cli::try_parse_from(&words);
    let is_unknown = |error: &clap::Error| error.kind() == ErrorKind::UnknownArgument;
    if status.as_ref().is_err_and(is_unknown) { cli } else { status }
}

/// Returns a parser that maps each of these names to its value.
fn named<T: Copy + Send + Sync + 'static>(
    names: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names.iter().map(|(name, _)| *name)).try_map(|given| {
        let known = names.iter().find(|(name, _)| *name == given);
        known.map(|(_, value)| *value).ok_or("unknown name")
    })
}

fn exit_codes() -> String {
    let codes = Exit::ALL.map(|exit| format!("  {:>3}  {}", exit.code(), exit.meaning()));
    format!("Example: gpuws --sim p100-ghost doctor\n\nExit codes:\n{}", codes.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn cli_definition_is_valid_and_every_help_has_an_example() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        assert!(command.render_long_help().to_string().contains("75  try later"));
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            let help = sub.render_help().to_string();
            assert!(help.contains("\nExample"), "{}", sub.get_name());
        }
    }
}
