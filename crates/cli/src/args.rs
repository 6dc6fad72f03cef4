//! The command line, as clap reads it.

mod bounds;
mod claims;
mod memory;
mod views;

pub(crate) use bounds::{EnvArgs, KeepArgs};
pub(crate) use claims::{ClaimArgs, LeasesArgs, RunArgs, Wanted};
pub(crate) use memory::{
    ConvertArgs, ExplainArgs, FitArgs, MemArgs, MemCommand, PolicyArgs, ReplayArgs,
};
pub(crate) use views::{Fields, Format, QueryArgs, Repeat, ResetArgs, StatusArgs, usual_spelling};

use crate::exit::Exit;
use crate::selector::Selector;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use gpu_core::Pid;
use gpu_reaper::{Protect, Request, Scope};
use gpu_sim::{CallEffect, CallFault};
use gpu_text::Kind;
use std::ffi::OsString;
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
pub(crate) struct ReapArgs {
    /// Only on these devices, by index, UUID or PCI address; may be given again.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// Only processes of this user, by name or number; may be given again.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Vec<String>,
    /// Exactly these processes, even if no finding names them; may be given again.
    #[arg(long, value_name = "PID,…", value_parser = pid, value_delimiter = ',')]
    pub(crate) pid: Vec<Pid>,
    /// Do it. Without this, only the plan is shown.
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) yes: bool,
    /// Seconds from SIGTERM to SIGKILL.
    #[arg(long, value_name = "SECONDS", default_value_t = Request::GRACE.as_secs(),
          value_parser = clap::value_parser!(u64).range(..=86_400))]
    grace: u64,
    /// How far the end of one process reaches.
    #[arg(long, default_value = "process", value_parser = scope())]
    pub(crate) scope: Scope,
    /// Never signal this process, name, or user (as user:NAME); may be given again.
    #[arg(long, value_name = "PID|NAME|user:NAME", value_parser = protect)]
    pub(crate) protect: Vec<Protect>,
}

impl ReapArgs {
    /// Returns the command line that does what this one planned; `sim` is the option that names a
    /// simulated machine.
    pub(crate) fn again_with_yes(&self, sim: &str) -> String {
        let mut command = format!("gpuws {sim}reap");
        let mut option = |name: &str, value: &dyn std::fmt::Display| {
            command.push_str(&format!(" --{name} {}", shell_word(&value.to_string())));
        };
        self.gpu.iter().for_each(|gpu| option("gpu", gpu));
        self.user.iter().for_each(|user| option("user", user));
        self.pid.iter().for_each(|pid| option("pid", pid));
        if self.grace() != Request::GRACE {
            option("grace", &self.grace);
        }
        match self.scope {
            Scope::Process => {}
            Scope::Group => option("scope", &"group"),
            Scope::Container => option("scope", &"container"),
        }
        for protect in &self.protect {
            match protect {
                Protect::Pid(pid) => option("protect", pid),
                Protect::Name(name) => option("protect", name),
                Protect::User(user) => option("protect", &format!("user:{user}")),
            }
        }
        command + " --yes"
    }

    /// Returns the time from SIGTERM to SIGKILL.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }
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
pub(crate) struct ParseArgs {
    /// What kind of text it is; recognised from the text when not given.
    #[arg(long, value_parser = kind())]
    pub(crate) kind: Option<Kind>,
    /// The fields of CSV without a header line, in order.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub(crate) fields: Vec<String>,
    /// The file; `-` is standard input.
    pub(crate) file: PathBuf,
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
pub(crate) struct SimArgs {
    /// The machine: a name, a folder, or a file written by `record`.
    #[arg(value_name = "MACHINE")]
    pub(crate) machine: PathBuf,
    /// Let real processes stand for the simulated ones: ending one frees its memory.
    #[arg(long)]
    pub(crate) live: bool,
    /// Let the machine stand still at this time since its start.
    #[arg(long, value_name = "MILLISECONDS", conflicts_with = "live")]
    pub(crate) at: Option<u64>,
    /// The seed of what moves with time.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How long each NVML function takes.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub(crate) latency: u64,
    /// Let a function of NVML fail; may be given again. EFFECT is a return code (`15`),
    /// `delay:MS`, `hang`, `lose:GPU` or `add:GPU` (a process); `*` is every function.
    #[arg(long, value_name = "FUNCTION=EFFECT[,gpu=N][,from=N][,times=N]", value_parser = fault)]
    pub(crate) fault: Vec<CallFault>,
    /// Append how often each program called each function to this file, a line of JSON each.
    #[arg(long, value_name = "FILE")]
    pub(crate) count_calls: Option<PathBuf>,
    /// The simulated NVML; else the one beside gpuws.
    #[arg(long, value_name = "libnvml_sim.so")]
    pub(crate) library: Option<PathBuf>,
    /// The command to run, after `--`.
    #[arg(value_name = "COMMAND", trailing_var_arg = true, required = true)]
    pub(crate) command: Vec<OsString>,
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

/// Reads `FUNCTION=EFFECT`, with `,gpu=N`, `,from=N` and `,times=N` after it.
fn fault(text: &str) -> Result<CallFault, String> {
    let mut parts = text.split(',');
    let (function, effect) =
        parts.next().and_then(|part| part.split_once('=')).ok_or("no FUNCTION=EFFECT")?;
    if function != "*" && !function.starts_with("nvml") {
        return Err(format!("'{function}' is no function of NVML"));
    }
    let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no number"));
    let gpu = |text: &str| text.parse().map_err(|_| format!("'{text}' is no index of a GPU"));
    let effect = match effect.split_once(':') {
        None if effect == "hang" => CallEffect::Hangs,
        None => CallEffect::Returns(gpu(effect).map_err(|_| format!("unknown effect '{effect}'"))?),
        Some(("delay", millis)) => CallEffect::DelayMs(number(millis)?),
        Some(("lose", index)) => CallEffect::LosesGpu(gpu(index)?),
        Some(("add", index)) => CallEffect::AddsProcess(gpu(index)?),
        Some(_) => return Err(format!("unknown effect '{effect}'")),
    };
    let mut fault =
        CallFault { function: function.to_owned(), gpu: None, from: 1, times: None, effect };
    for part in parts {
        match part.split_once('=') {
            Some(("gpu", index)) => fault.gpu = Some(gpu(index)?),
            Some(("from", nth)) => fault.from = number(nth)?,
            Some(("times", count)) => fault.times = Some(number(count)?),
            _ => return Err(format!("'{part}' is none of gpu=N, from=N, times=N")),
        }
    }
    Ok(fault)
}

fn protect(text: &str) -> Result<Protect, String> {
    let user = text.strip_prefix("user:");
    if user.unwrap_or(text).is_empty() {
        return Err("names nobody".to_owned());
    }
    Ok(match (user, text.parse()) {
        (Some(user), _) => Protect::User(user.to_owned()),
        (None, Ok(pid)) => Protect::Pid(Pid(pid)),
        (None, Err(_)) => Protect::Name(text.to_owned()),
    })
}

const SCOPES: [(&str, Scope); 3] =
    [("process", Scope::Process), ("group", Scope::Group), ("container", Scope::Container)];

fn scope() -> impl TypedValueParser<Value = Scope> {
    named(&SCOPES)
}

/// The kinds of text by their names in JSON.
const KINDS: [(&str, Kind); 13] = [
    ("table", Kind::Table),
    ("q", Kind::Q),
    ("xml", Kind::Xml),
    ("query_gpu", Kind::QueryGpu),
    ("query_apps", Kind::QueryApps),
    ("list", Kind::List),
    ("pmon", Kind::Pmon),
    ("dmon", Kind::Dmon),
    ("topo", Kind::Topo),
    ("p2p", Kind::P2p),
    ("fuser", Kind::Fuser),
    ("lsof", Kind::Lsof),
    ("error", Kind::Error),
];

fn kind() -> impl TypedValueParser<Value = Kind> {
    named(&KINDS)
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
    fn whom_to_protect_is_told_by_number_name_or_user() {
        assert_eq!(protect("17"), Ok(Protect::Pid(Pid(17))));
        assert_eq!(protect("python"), Ok(Protect::Name("python".into())));
        assert_eq!(protect("user:17"), Ok(Protect::User("17".into())));
        assert!(protect("").is_err() && protect("user:").is_err());
    }

    #[test]
    fn names_are_those_of_the_json() {
        for (name, kind) in KINDS {
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
        }
        for (name, scope) in SCOPES {
            assert_eq!(serde_json::to_value(scope).unwrap(), name);
        }
    }

    #[test]
    fn faults_are_read_as_they_are_written() {
        let read = fault("nvmlDeviceGetMemoryInfo_v2=hang,gpu=2,from=3,times=1").unwrap();
        assert_eq!((read.gpu, read.from, read.times), (Some(2), 3, Some(1)));
        assert_eq!(read.effect, CallEffect::Hangs);
        assert_eq!(fault("*=15").unwrap().effect, CallEffect::Returns(15));
        assert_eq!(fault("*=delay:200").unwrap().effect, CallEffect::DelayMs(200));
        for wrong in ["", "nvmlInit_v2", "init=hang", "*=hand", "*=delay:x", "*=15,gpus=1"] {
            assert!(fault(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_deadline_is_a_span_of_time() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_a_word_nothing_destroys() {
        let cli = Cli::try_parse_from(["gpuws", "reap"]).unwrap();
        let Some(Command::Reap(reap)) = cli.command else { panic!("reap is read as reap") };
        assert!(!reap.yes && reap.pid.is_empty() && reap.scope == Scope::Process);
        assert_eq!(reap.grace(), Request::GRACE);
    }
}
