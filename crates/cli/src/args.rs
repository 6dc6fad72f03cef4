//! The command line, as clap reads it.

mod bounds;
mod claims;
mod memory;
mod parse;
mod reap;
mod sim;
mod views;

pub(crate) use bounds::{EnvArgs, KeepArgs};
pub(crate) use claims::{ClaimArgs, LeasesArgs, RunArgs, Wanted};
pub(crate) use memory::{
    ConvertArgs, ExplainArgs, FitArgs, MemArgs, MemCommand, PolicyArgs, ReadingArgs, ReplayArgs,
};
pub(crate) use parse::ParseArgs;
pub(crate) use reap::{Reach, ReapArgs};
pub(crate) use sim::SimArgs;
pub(crate) use views::{Fields, Format, QueryArgs, Repeat, ResetArgs, StatusArgs, usual_spelling};

use crate::exit::Exit;
use crate::selector::Selector;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use gpu_core::Pid;
use std::path::PathBuf;
use std::time::Duration;

/// Shows who uses the GPUs of this machine, explains memory that nobody seems to own, and frees it
/// safely.
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
    /// What to do; `status` without a word.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What every command takes.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Print one JSON object instead of a table.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Leave out headings and advice.
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour; `auto` asks the terminal, NO_COLOR and CLICOLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Look at a simulated machine: a name, a folder, or a file written by `record`.
    #[arg(long, global = true, value_name = "NAME|DIR|FILE")]
    pub(crate) sim: Option<PathBuf>,
    /// Seconds that the driver is given to answer a look.
    #[arg(long, global = true, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) deadline: Duration,
    /// Ask this NVML instead of the installed libnvidia-ml.so.1.
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

// Of one command alone the options are laid out. What several share has no doc comment, which
// would then take the place of what is said here of the command.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Show the devices and who uses them.
    #[command(after_help = "Example: gpuws --sim gtx1080ti-x8-hoarder status\n         \
                            gpuws --sim labbox status -i 3 -q\n         \
                            gpuws --sim labbox status --format gpustat-json")]
    Status(StatusArgs),
    /// Print rows of CSV as nvidia-smi does, for scripts: its words behind this program's name.
    #[command(after_help = "Example: gpuws --sim labbox query --query-gpu=index,name,memory.used \
                            --format=csv,noheader,nounits")]
    Query(QueryArgs),
    /// Explain what is wrong, with evidence and the next command to type.
    #[command(after_help = "Example: nvidia-smi 2>&1 | gpuws doctor --paste\n\
                            Ends with 1 when there are findings.")]
    Doctor(DoctorArgs),
    /// Free memory that nobody accounts for; shows the plan unless --yes.
    #[command(after_help = "Example: gpuws --sim p100-ghost reap --gpu 0 --yes\n\
                            Ends with 1 when not all of it came back.")]
    Reap(ReapArgs),
    /// Reset a device that nobody uses; shows who is in the way unless --yes.
    #[command(after_help = "Example: gpuws --sim blocked-reset reset 0\n\
                            Ends with 1 when something is in the way.")]
    Reset(ResetArgs),
    /// Run a command on devices of its own, and leave nothing of it behind.
    #[command(after_help = "Examples: gpuws run -n 2 -- python train.py\n          \
                            gpuws run --mem 6GiB --timeout 10m -- ./job\n\
                            Ends as the command does.")]
    Run(RunArgs),
    /// Show which devices would be had now; take them for a script or a shell with --hold or
    /// --export.
    #[command(after_help = "Examples: gpuws claim -n 2\n          \
                            eval \"$(gpuws claim -n 2 --export)\"")]
    Claim(ClaimArgs),
    /// List the leases and who waits for one.
    #[command(after_help = "Example: gpuws leases --json")]
    Leases(LeasesArgs),
    /// Show how the devices are connected, as nvidia-smi topo -m does, or draw it.
    #[command(after_help = "Example: gpuws --sim dgx1-v100 topo --svg dgx1.svg")]
    Topo(TopoArgs),
    /// Explain what a job takes of a device's memory, and why that was not enough.
    #[command(after_help = "Example: gpuws mem explain train.log")]
    Mem(MemArgs),
    /// List the processes that have a file open or mapped.
    #[command(after_help = "Example: gpuws holders /dev/nvidia0 /dev/nvidia-uvm")]
    Holders(HoldersArgs),
    /// Turn what nvidia-smi, fuser or lsof printed into JSON.
    #[command(after_help = "Example: nvidia-smi -q | gpuws parse -")]
    Parse(ParseArgs),
    /// Keep this machine as one file that --sim replays.
    #[command(
        after_help = "Example: gpuws record machine.gpuws && gpuws --sim machine.gpuws doctor"
    )]
    Record(RecordArgs),
    /// Tell the whole story on a simulated machine: see, explain, free, prove.
    #[command(after_help = "Example: gpuws demo p100-ghost")]
    Demo(DemoArgs),
    /// Run any program on a simulated NVML: gpustat, nvtop, nvidia-smi, gpuws itself.
    #[command(after_help = "Examples: gpuws sim labbox -- gpustat\n          \
                            gpuws sim p100-ghost --live -- gpuws reap --gpu 0 --yes\n\
                            Ends as the command does.")]
    Sim(SimArgs),
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
    /// Only these devices, by index, UUID or PCI address; may be given again.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// Explain somebody else's machine: read pasted output of nvidia-smi and fuser from standard
    /// input.
    #[arg(long, conflicts_with = "sim")]
    pub(crate) paste: bool,
    #[command(flatten)]
    pub(crate) looks: Looks,
}

// How often to look.
#[derive(Debug, Args)]
pub(crate) struct Looks {
    /// How often to look; several looks tell an idle process from one that pauses.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) looks: u16,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) every: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TopoArgs {
    /// Show the matrix; this is what happens without a word.
    #[arg(short = 'm', long, conflicts_with = "svg")]
    matrix: bool,
    /// Draw a picture into this file instead; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct HoldersArgs {
    /// The files; the GPU device files when none is named.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The file to write; it must not exist.
    pub(crate) file: PathBuf,
    /// Keep the names and command lines of processes too.
    #[arg(long)]
    pub(crate) names: bool,
    #[command(flatten)]
    pub(crate) looks: Looks,
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
    /// The command whose page is wanted; gpuws itself when none is named.
    pub(crate) command: Option<String>,
}

/// Quotes a word for a shell where it needs that.
pub(crate) fn shell_word(word: &str) -> String {
    let harmless = |c: char| c.is_alphanumeric() || "/._:,-".contains(c);
    if !word.is_empty() && word.chars().all(harmless) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn pid(text: &str) -> Result<Pid, std::num::ParseIntError> {
    text.parse().map(Pid)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && seconds <= 86_400.0 => Ok(time),
        _ => Err("more than 0 and at most 86400 seconds".to_owned()),
    }
}

/// Reads one of a few names as what it stands for.
fn named<T: Copy + Send + Sync + 'static>(
    names: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names.iter().map(|(name, _)| *name)).try_map(|given| {
        let known = names.iter().find(|(name, _)| *name == given);
        known.map(|(_, value)| *value).ok_or("not one of the names")
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
    fn the_command_line_is_consistent_and_each_help_has_an_example() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        assert!(command.render_long_help().to_string().contains("75  try later"));
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            let help = sub.render_help().to_string();
            assert!(help.contains("\nExample"), "{}", sub.get_name());
        }
    }

    #[test]
    fn a_deadline_is_a_span_of_time() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
