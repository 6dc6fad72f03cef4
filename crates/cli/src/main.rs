//! `gpuws`: steward for the GPUs of a machine that people share.
//!
//! The main decision is that this crate decides nothing about GPUs. It reads the command line,
//! chooses the adapters, walks observe → decide → act → verify through the libraries below, prints
//! what they say, and ends with a documented exit code. It alone touches the terminal, and it
//! alone asks for the token to act.

mod args;
mod claim_request;
mod commands;
mod details;
mod exit;
mod failure;
mod lease_keepers;
mod local_time;
mod queue_status;
mod selector;
mod source;
mod terminal;
mod wording;

use args::{Cli, Command, StatusArgs};
use clap::Parser;
use commands::frontend::Part;
use exit::Exit;
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;
use terminal::Screen;

fn main() -> ExitCode {
    let served = gpu_machine::serve_where_asked().map(exit::served);
    let other = served.or_else(commands::shim::run_where_called);
    if let Some(exit) = other {
        return exit.into();
    }
    let (part, words) = match commands::frontend::part(std::env::args_os().collect()) {
        Ok(found) => found,
        Err(failure) => return fail(&failure),
    };
    let cli = match Cli::try_parse_from(args::usual_spelling(words.into_iter())) {
        Ok(cli) => cli,
        Err(reported) => {
            let code = if reported.use_stderr() { Exit::Usage } else { Exit::Done };
            return reported.print().map_or(Exit::NotWritten, |()| code).into();
        }
    };
    prepare(&cli);
    match fits(&cli).and_then(|()| run(&cli, part)) {
        Ok(exit) => exit.into(),
        Err(failure) => fail(&failure),
    }
}

/// Keeps the limits of the shell from ending what is to be cleaned up.
fn prepare(cli: &Cli) {
    // Without it, a file that grows too long ends this program as it would end any other.
    let _ = gpu_host::ignore_file_size_signal(&source::roots().proc);
    // What these start is to have the limit as it was; the supervisor of a run sees to that.
    if !matches!(cli.command, Some(Command::Run(_) | Command::Sim(_))) {
        gpu_host::raise_open_file_limit();
    }
}

fn fail(failure: &Failure) -> ExitCode {
    // Where standard error is closed, only the code is left to tell it.
    let _ = writeln!(std::io::stderr(), "{failure}");
    failure.exit().into()
}

/// Makes sure that a global option means something to the command: one that is passed over in
/// silence misleads.
fn fits(cli: &Cli) -> Result<(), Failure> {
    let refused = |option: &str, why: &str| {
        Err(Failure::new(Exit::Usage, format!("use {option} here")).with_source(why.to_owned()))
    };
    match &cli.command {
        Some(Command::Demo(_)) if cli.global.sim.is_some() => {
            refused("--sim", "demo takes the machine as an argument: gpuws demo NAME")
        }
        Some(Command::Parse(_) | Command::Completions(_) | Command::Man(_))
            if cli.global.sim.is_some() =>
        {
            refused("--sim", "this command queries no machine")
        }
        Some(Command::Sim(_)) if cli.global.sim.is_some() => {
            refused("--sim", "sim takes the machine as an argument: gpuws sim NAME -- COMMAND")
        }
        Some(Command::Sim(_)) if cli.global.json => {
            refused("--json", "the output is the command's; pass the option to gpuws after --")
        }
        Some(Command::Query(_)) if cli.global.json => {
            refused("--json", "query prints CSV; gpuws status --json has the same figures")
        }
        Some(Command::Status(args)) if cli.global.json && args.format.is_some() => {
            refused("--json", "--format selects another format")
        }
        Some(Command::Demo(_) | Command::Completions(_) | Command::Man(_)) if cli.global.json => {
            refused("--json", "the output of this command is not data")
        }
        _ => Ok(()),
    }
}

/// Runs a command; `part` is what this program is to a run.
fn run(cli: &Cli, part: Part) -> Result<Exit, Failure> {
    let mut screen = Screen::stdout(cli.global.color.into());
    let global = &cli.global;
    match &cli.command {
        None => commands::status::run(&StatusArgs::default(), global, &mut screen),
        Some(Command::Status(args)) => commands::status::run(args, global, &mut screen),
        Some(Command::Query(args)) => commands::query::run(args, global, &mut screen),
        Some(Command::Reset(args)) => commands::reset::run(args, global, &mut screen),
        Some(Command::Doctor(args)) => commands::doctor::run(args, global, &mut screen),
        Some(Command::Reap(args)) => commands::reap::run(args, global, &mut screen),
        Some(Command::Run(args)) => match part {
            Part::Typed => commands::frontend::run(args, global, None),
            Part::Beside(first) => commands::frontend::run(args, global, Some(first)),
            Part::Supervisor(front) => commands::run::supervise(args, global, &front),
        },
        Some(Command::Claim(args)) => commands::claim::run(args, global, &mut screen),
        Some(Command::Leases(args)) => commands::leases::run(args, global, &mut screen),
        Some(Command::Topo(args)) => commands::topo::run(args, global, &mut screen),
        Some(Command::Mem(args)) => commands::mem::run(args, global, &mut screen),
        Some(Command::Holders(args)) => commands::holders::run(args, global, &mut screen),
        Some(Command::Parse(args)) => commands::parse::run(args, &mut screen),
        Some(Command::Record(args)) => commands::record::run(args, global, &mut screen),
        Some(Command::Demo(args)) => commands::demo::run(args, global, &mut screen),
        Some(Command::Sim(args)) => commands::sim::run(args, global),
        Some(Command::Completions(args)) => commands::completions::run(args, &mut screen),
        Some(Command::Man(args)) => commands::man::run(args, &mut screen),
    }
}
