//! `gpuws man`: prints the manual page of the program or of one of its commands.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;
use clap::{Args, Command};
use clap_mangen::Man;

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command to document, such as `reap` or `mem fit`; default: gpuws itself.
    pub(crate) command: Vec<String>,
}

/// Prints the page of a command of `program`.
pub(crate) fn run(
    args: &ManArgs,
    mut program: Command,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    program.build();
    let mut page = &program;
    for name in &args.command {
        page = page.find_subcommand(name).ok_or_else(|| {
            let names: Vec<_> = page.get_subcommands().map(Command::get_name).collect();
            let failure = Failure::new(Exit::Usage, format!("find the command '{name}'"));
            if names.is_empty() {
                failure.with_hint(format!("{} has no commands", page.get_name()))
            } else {
                failure.with_hint(format!("the commands are {}", names.join(", ")))
            }
        })?;
    }
    let mut text = Vec::new();
    Man::new(page.clone())
        .source(concat!("gpuws ", env!("CARGO_PKG_VERSION")))
        .render(&mut text)
        .map_err(|error| Failure::io("write the manual page", error))?;
    screen.raw(&text)?;
    Ok(Exit::Done)
}
