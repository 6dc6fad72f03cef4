//! `gpuws completions`: prints a completion script.

use crate::args::{Cli, CompletionsArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;
use clap::CommandFactory;

pub(crate) fn run(args: &CompletionsArgs, screen: &mut Screen) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gpuws", &mut script);
    screen.raw(&script)?;
    Ok(Exit::Done)
}
