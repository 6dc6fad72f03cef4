//! `gpuws completions`: prints a completion script, or values for one.

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source;
use crate::terminal::Screen;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::Shell;
use gpu_report::completion::{self, Kind};
use std::str::FromStr;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_parser = printed())]
    pub(crate) shell: Printed,
}

/// What is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Printed {
    /// The script for a shell.
    Script(Shell),
    /// The values that a script requests.
    Values(Kind),
}

fn printed() -> impl TypedValueParser<Value = Printed> {
    let shells = Shell::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let kinds = Kind::NAMED.iter().map(|(name, _)| PossibleValue::new(*name).hide(true));
    PossibleValuesParser::new(shells.chain(kinds)).try_map(|given| {
        match Kind::NAMED.iter().find(|(name, _)| *name == given) {
            Some((_, kind)) => Ok(Printed::Values(*kind)),
            None => <Shell as FromStr>::from_str(&given).map(Printed::Script),
        }
    })
}

/// Prints the script that completes the arguments of `command`, or values.
pub(crate) fn run(
    args: &CompletionsArgs,
    global: &Global,
    mut command: Command,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let printed = match args.shell {
        Printed::Values(kind) => completion::lines(&values(kind, global)?),
        Printed::Script(shell) => {
            // Adds the options of the commands, which are otherwise built on demand.
            command.build();
            let (mut command, mut script) = (marked(command), Vec::new());
            clap_complete::generate(shell, &mut command, "gpuws", &mut script);
            let script = String::from_utf8_lossy(&script);
            completion::script(&shell.to_string(), &script, &positionals(&command))
        }
    };
    screen.raw(printed.as_bytes())?;
    Ok(Exit::Done)
}

fn values(kind: Kind, global: &Global) -> Result<Vec<(String, String)>, Failure> {
    if kind == Kind::Machines {
        let machines = gpu_sim::machines().into_iter();
        return Ok(machines.map(|known| (known.name.to_owned(), known.description)).collect());
    }
    let source = source::open(global)?;
    if kind == Kind::Leases {
        let locks = source.lease_store(None)?;
        return Ok(completion::leases(&gpu_steward::listing(&source.claim_ports(&locks))?));
    }
    Ok(kind.on(&source.snapshot()))
}

fn kind(arg: &Arg) -> Option<Kind> {
    Kind::of_argument(arg.get_value_names()?.first()?)
}

/// Gives each argument of a kind the name of the kind as its only value.
fn marked(command: Command) -> Command {
    let command = command.mut_args(|arg| match kind(&arg) {
        Some(kind) => arg.value_parser(PossibleValuesParser::new([kind.name()])),
        None if arg.get_id() == "shell" => arg.value_parser(clap::value_parser!(Shell)),
        None => arg,
    });
    command.mut_subcommands(marked)
}

/// Returns the commands with a first argument that completes, and its kind.
fn positionals(command: &Command) -> Vec<(&str, Kind)> {
    let first = |sub: &Command| sub.get_positionals().next().and_then(kind);
    let commands = command.get_subcommands();
    commands.filter_map(|sub| Some((sub.get_name(), first(sub)?))).collect()
}
