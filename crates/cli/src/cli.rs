//! The command line, as clap reads it.

use crate::args::Global;
#[cfg(feature = "export")]
use crate::commands::export::ExportArgs;
#[cfg(feature = "place")]
use crate::commands::place::PlaceArgs;
#[cfg(feature = "history")]
use crate::commands::report::ReportArgs;
use crate::commands::{
    claim::ClaimArgs, completions::CompletionsArgs, demo::DemoArgs, doctor::DoctorArgs,
    holders::HoldersArgs, leases::LeasesArgs, man::ManArgs, mem::MemArgs, monitor::DmonArgs,
    monitor::PmonArgs, parse::ParseArgs, query::QueryArgs, reap::ReapArgs, record::RecordArgs,
    reset::ResetArgs, run::RunArgs, sim::SimArgs, slurm::SlurmArgs, status::StatusArgs,
    top::TopArgs, topo::TopoArgs, watch::WatchArgs,
};
use crate::exit::Exit;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use gpu_report::smi::{SETTERS, usual_spelling};
use std::ffi::OsString;

/// Shows the users of this machine's GPUs, explains unaccounted memory, and frees it safely.
#[derive(Debug, Parser)]
#[command(
    name = "gpuws",
    version,
    about,
    after_help = after_help(),
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
    /// Monitor the devices and their users, full screen.
    #[command(after_help = "Example: gpuws --sim labbox top\n? shows the keys, q quits.")]
    Top(TopArgs),
    /// Watch for problems: report each once, notify users, and reap by policy.
    #[command(
        after_help = "Examples: gpuws watch --policy /etc/gpuws/watch.toml --json\n          \
                            gpuws --sim labbox watch --for 1h"
    )]
    Watch(WatchArgs),
    #[cfg(feature = "export")]
    /// Serve metrics to Prometheus: unexplained memory, findings, leases, and the GPUs.
    #[command(after_help = "Examples: gpuws export --listen 127.0.0.1:9836\n          \
                            gpuws --sim labbox export --textfile -")]
    Export(ExportArgs),
    /// Print CSV like nvidia-smi, with the same options, for scripts.
    #[command(
        override_usage = "gpuws query --query-gpu <FIELD,…> --format <FORM> [OPTIONS]\n       \
                          gpuws query --help-query-gpu",
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
    #[cfg(feature = "place")]
    /// Show where the operations of a graph or the layers of a model would go.
    #[command(after_help = "Example: gpuws place model ./Llama-3-8B --context 8k")]
    Place(PlaceArgs),
    /// Analyse a job's GPU memory use and out-of-memory errors.
    #[command(after_help = "Example: gpuws mem explain train.log")]
    Mem(MemArgs),
    /// List the processes that have a file open or mapped.
    #[command(after_help = "Example: gpuws holders /dev/nvidia0 /dev/nvidia-uvm")]
    Holders(HoldersArgs),
    /// Convert output of nvidia-smi, rocm-smi, amd-smi, xpu-smi, fuser or lsof to JSON.
    #[command(after_help = "Example: nvidia-smi -q | gpuws parse -")]
    Parse(ParseArgs),
    /// Save the state of this machine to a file for --sim, or its history for --replay.
    #[command(
        after_help = "Examples: gpuws record machine.gpuws && gpuws --sim machine.gpuws doctor\n          \
                            gpuws record --for 8h --names night && gpuws doctor --replay night"
    )]
    Record(RecordArgs),
    #[cfg(feature = "history")]
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
    /// Clean up the GPUs of a Slurm job, as Prolog, Epilog or HealthCheckProgram of slurmd.
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

/// Parses the arguments. The default command has its options without its name too: `gpuws -l`.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut words = usual_spelling(words.into_iter());
    let cli = Cli::try_parse_from(&words).map_err(named);
    if !cli.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnknownArgument) {
        return cli;
    }
    words.insert(1, "status".into());
    let status = Cli::try_parse_from(&words);
    let is_unknown = |error: &clap::Error| error.kind() == ErrorKind::UnknownArgument;
    if status.as_ref().is_err_and(is_unknown) { cli } else { status }
}

/// Names what to type instead of an option of nvidia-smi, and the feature of a command that was not
/// built into this program.
fn named(error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) {
        let instead = SETTERS.iter().find(|(setter, _)| option.split('=').next() == Some(setter));
        if let Some((setter, instead)) = instead {
            let text = format!("gpuws has no option '{setter}'\nhint: {instead}\n");
            return clap::Error::raw(ErrorKind::UnknownArgument, text);
        }
    }
    let missing = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => gpuws_features::check_command(word).err(),
        _ => None,
    };
    missing.map_or(error, |why| clap::Error::raw(ErrorKind::InvalidSubcommand, why + "\n"))
}

fn exit_codes() -> String {
    let codes = Exit::ALL.map(|(exit, meaning)| format!("  {:>3}  {meaning}", exit.code()));
    format!("{}\n\nExit codes:\n{}", after_help(), codes.join("\n"))
}

fn after_help() -> String {
    let example = Some("Example: gpuws --sim p100-ghost doctor".to_owned());
    example.into_iter().chain(gpuws_features::missing()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::time::Duration;

    #[test]
    fn setters_of_nvidia_smi_have_a_hint() {
        for (setter, instead) in SETTERS {
            for words in [&["gpuws", setter, "-i", "0"][..], &["gpuws", "status", setter]] {
                let words = words.iter().map(OsString::from).collect();
                let Err(error) = parse(words) else { panic!("{setter} is an option") };
                let error = error.to_string();
                assert!(error.contains(&format!("hint: {instead}")), "{error}");
            }
        }
    }

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

    /// The commands between backticks in the README and in the tour exist, and so do their options.
    #[test]
    fn documented_commands_are_accepted() {
        let pages = [include_str!("../../../README.md"), include_str!("../../../docs/tour.md")];
        let lines = pages.iter().flat_map(|page| page.lines()).filter(|line| !line.contains("```"));
        let codes = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
        let commands: Vec<&str> =
            codes.filter(|code| *code == "gpuws" || code.starts_with("gpuws ")).collect();
        // ID is no value, and an ellipsis stands for arguments.
        let may_fail = [
            ErrorKind::DisplayHelp,
            ErrorKind::MissingRequiredArgument,
            ErrorKind::ValueValidation,
        ];
        let is_unknown = |command: &&&str| {
            let redirected = command.find(['|', '<', '>']).unwrap_or(command.len());
            read(command[..redirected].trim()).is_err_and(|why| !may_fail.contains(&why.kind()))
        };
        let unknown: Vec<_> = commands.iter().filter(is_unknown).collect();
        assert!(unknown.is_empty() && commands.len() > 50, "{unknown:?}");
    }

    fn read(line: &str) -> Result<Cli, clap::Error> {
        parse(line.split(' ').map(OsString::from).collect())
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
            assert!(query.format.is_some() && query.asked.fields.is_some(), "{line}");
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
