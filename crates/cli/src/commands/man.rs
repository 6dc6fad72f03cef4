//! `gpuws man`: prints the manual page of the program or of one of its commands.

use crate::args::{Cli, ManArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;
use clap::CommandFactory;
use clap_mangen::Man;

pub(crate) fn run(args: &ManArgs, screen: &mut Screen) -> Result<Exit, Failure> {
    let mut program = Cli::command();
    program.build();
    let page = match &args.command {
        None => program,
        Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
            let names: Vec<_> = program.get_subcommands().map(clap::Command::get_name).collect();
            Failure::new(Exit::Usage, format!("find the command '{name}'"))
                .with_hint(format!("the commands are {}", names.join(", ")))
        })?,
    };
    let mut text = Vec::new();
    Man::new(page)
        .render(&mut text)
        .map_err(|error| Failure::io("write the manual page", error))?;
    screen.raw(&text)?;
    Ok(Exit::Done)
}
