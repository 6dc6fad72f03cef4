//! `gpuws completions`: prints a completion script.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;
use clap::builder::PossibleValuesParser;
use clap::{Args, Command, ValueHint};
use clap_complete::Shell;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}

/// The completions of bash after an option. clap_complete generates only files for these.
const IN_BASH: [(&str, &str); 2] = [
    ("--user)", "compgen -u -- \"${cur}\""),
    (
        "--gpu)",
        "compgen -W \"$(gpuws query --query-gpu=index --format=csv,noheader 2>/dev/null)\" \
                -- \"${cur}\"",
    ),
];

/// Prints the script that completes the arguments of `command`.
pub(crate) fn run(
    args: &CompletionsArgs,
    mut command: Command,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    // Adds the options of the commands, which are otherwise built on demand.
    command.build();
    let mut command = hinted(command);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "gpuws", &mut script);
    if args.shell == Shell::Bash {
        script = in_bash(&String::from_utf8_lossy(&script)).into_bytes();
    }
    screen.raw(&script)?;
    Ok(Exit::Done)
}

/// Adds the names of machines and users. Where no name matches, the shells complete paths.
fn hinted(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "sim" | "machine" => {
            let names = gpu_sim::machines().into_iter().map(|machine| machine.name);
            arg.value_parser(PossibleValuesParser::new(names.collect::<Vec<_>>()))
        }
        "user" => arg.value_hint(ValueHint::Username),
        _ => arg,
    });
    command.mut_subcommands(hinted)
}

fn in_bash(script: &str) -> String {
    let mut generator = None;
    let lines = script.lines().map(|line| {
        let known = IN_BASH.iter().find(|(option, _)| *option == line.trim());
        match generator.take().filter(|_| line.contains("compgen -f")) {
            Some(generator) => format!("COMPREPLY=($({generator}))\n"),
            None => {
                generator = known.map(|(_, generator)| *generator);
                format!("{line}\n")
            }
        }
    });
    lines.collect()
}
