//! `gpuws`: manages the GPUs of a shared machine.
//!
//! This crate decides nothing about GPUs. It parses the command line, selects the adapters, calls
//! the libraries (observe, decide, act, verify), prints their results, and ends with a documented
//! exit code. No other crate writes to the terminal or creates the token that permits an action.

mod args;
mod cli;
mod commands;
mod exit;
mod failure;
mod local_time;
mod selector;
mod source;
mod terminal;
mod users;
mod wording;

use clap::CommandFactory;
use cli::{Cli, Command};
use commands::completions::Printed;
use commands::run::frontend::Role;
use commands::status::StatusArgs;
use exit::Exit;
use failure::Failure;
use gpu_core::ActToken;
use gpu_report::csv::Subject;
use std::process::ExitCode;
use terminal::Screen;

fn main() -> ExitCode {
    let served = gpu_machine::serve_if_requested()
        .or_else(|| gpu_machine::supervise_if_requested(ActToken::user_confirmed))
        .map(exit::served);
    if let Some(exit) = served {
        return exit.into();
    }
    let words = match commands::shim::words() {
        Ok(words) => words,
        Err(exit) => return exit.into(),
    };
    let (role, words) = match commands::run::frontend::role(words) {
        Ok(found) => found,
        Err(failure) => return fail(&failure),
    };
    let cli = match cli::parse(words) {
        Ok(cli) => cli,
        Err(reported) => {
            return Exit::of_parser(reported.use_stderr(), reported.print()).into();
        }
    };
    prepare(&cli);
    match check_global_options(&cli).and_then(|()| run(&cli, role)) {
        Ok(exit) => exit.into(),
        Err(failure) => fail(&failure),
    }
}

/// Adjusts resource limits that could interrupt a cleanup.
fn prepare(cli: &Cli) {
    // Otherwise SIGXFSZ ends this program when a file exceeds the size limit.
    let _ = gpu_host::ignore_file_size_signal(&source::roots().proc);
    // These commands start others, which keep the original limit; the supervisor of a run raises
    // its own.
    if !matches!(cli.command, Some(Command::Run(_) | Command::Sim(_))) {
        gpu_host::raise_open_file_limit();
    }
}

fn fail(failure: &Failure) -> ExitCode {
    terminal::report(terminal::localized(failure.to_string()));
    failure.exit().into()
}

/// Rejects global options that have no effect on the command: ignoring them would be misleading.
fn check_global_options(cli: &Cli) -> Result<(), Failure> {
    let command = cli.command.as_ref();
    for (option, is_given, why) in [
        ("--sim", cli.global.sim.is_some(), command.and_then(why_not_sim)),
        ("--json", cli.global.json, command.and_then(why_not_json)),
        ("--root", cli.global.root.is_some(), command.and_then(why_not_root)),
    ] {
        if let Some(why) = why.filter(|_| is_given) {
            let what = format!("{option} does not apply");
            return Err(Failure::new(Exit::Usage, what).with_source(why));
        }
    }
    Ok(())
}

const NO_MACHINE: &str = "this command queries no machine";

fn why_not_sim(command: &Command) -> Option<&'static str> {
    Some(match command {
        Command::Demo(_) => "demo takes the machine as an argument: gpuws demo NAME",
        Command::Sim(_) => "sim takes the machine as an argument: gpuws sim NAME -- COMMAND",
        Command::Slurm(_) => "slurmd's jobs are on this machine",
        #[cfg(feature = "history")]
        Command::Report(_) => NO_MACHINE,
        Command::Completions(args) if matches!(args.shell, Printed::Values(_)) => return None,
        Command::Parse(_) | Command::Completions(_) | Command::Man(_) => NO_MACHINE,
        _ => return None,
    })
}

fn why_not_root(command: &Command) -> Option<&'static str> {
    Some(match command {
        Command::Status(_)
        | Command::Top(_)
        | Command::Query(_)
        | Command::Dmon(_)
        | Command::Pmon(_)
        | Command::Doctor(_)
        | Command::Topo(_)
        | Command::Holders(_)
        | Command::Record(_) => return None,
        #[cfg(feature = "place")]
        Command::Place(_) => return None,
        #[cfg(feature = "export")]
        Command::Export(_) => return None,
        Command::Reap(_) | Command::Reset(_) | Command::Watch(_) | Command::Slurm(_) => {
            "the files of a copied tree describe another machine, where nothing can be ended"
        }
        Command::Run(_) | Command::Claim(_) | Command::Leases(_) => {
            "leases and jobs are of this machine, and the tree is a copy of another one"
        }
        _ => NO_MACHINE,
    })
}

fn why_not_json(command: &Command) -> Option<&'static str> {
    Some(match command {
        Command::Slurm(_) => "slurmd reads the exit code, and logs the text",
        Command::Sim(_) => "the output is the command's; pass the option to gpuws after --",
        Command::Query(_) => "query prints CSV; gpuws status --json has the same figures",
        #[cfg(feature = "export")]
        Command::Export(_) => "the output has the formats of Prometheus",
        Command::Watch(args) if args.check_policy.is_some() => {
            "--check-policy only says whether the policy is valid"
        }
        Command::Top(_) | Command::Dmon(_) | Command::Pmon(_) => {
            "gpuws status -l --json prints one object per sample"
        }
        Command::Status(args) if args.list_gpus || args.xml => {
            "-L and -x are formats of nvidia-smi; --json without them has the same data"
        }
        Command::Status(args) if args.format.is_some() => "--format selects another format",
        Command::Status(args) if args.columns.is_some() => {
            "--columns selects columns of tables; --json -q has all values"
        }
        Command::Demo(_) | Command::Completions(_) | Command::Man(_) => {
            "the output of this command is not data"
        }
        _ => return None,
    })
}

/// Runs a command; `role` is the role of this process in a run.
fn run(cli: &Cli, role: Role) -> Result<Exit, Failure> {
    let mut screen = Screen::stdout(cli.global.color);
    let global = &cli.global;
    match &cli.command {
        None => commands::status::run(&StatusArgs::default(), global, &mut screen),
        Some(Command::Status(args)) => commands::status::run(args, global, &mut screen),
        Some(Command::Top(args)) => commands::top::run(args, global, &mut screen),
        Some(Command::Query(args)) => commands::query::run(args, global, &mut screen),
        Some(Command::Dmon(args)) => {
            commands::monitor::run(&args.select, Subject::Gpu, &args.stream, global, &mut screen)
        }
        Some(Command::Pmon(args)) => {
            let subject = Subject::ComputeApp;
            commands::monitor::run(&args.select, subject, &args.stream, global, &mut screen)
        }
        Some(Command::Reset(args)) => commands::reset::run(args, global, &mut screen),
        Some(Command::Doctor(args)) => commands::doctor::run(args, global, &mut screen),
        Some(Command::Reap(args)) => commands::reap::run(args, global, &mut screen),
        Some(Command::Watch(args)) => commands::watch::run(args, global, &mut screen),
        #[cfg(feature = "export")]
        Some(Command::Export(args)) => commands::export::run(args, global, &mut screen),
        Some(Command::Run(args)) => match role {
            Role::Frontend if args.hosts.are_given() => commands::run::elsewhere(args, global),
            Role::Frontend => commands::run::frontend::run(args, global, None),
            Role::SecondFrontend(first) => commands::run::frontend::run(args, global, Some(first)),
            Role::Supervisor(front) => commands::run::supervise(args, global, &front),
        },
        Some(Command::Claim(args)) => commands::claim::run(args, global, &mut screen),
        Some(Command::Leases(args)) => commands::leases::run(args, global, &mut screen),
        Some(Command::Topo(args)) => commands::topo::run(args, global, &mut screen),
        #[cfg(feature = "place")]
        Some(Command::Place(args)) => commands::place::run(args, global, &mut screen),
        Some(Command::Mem(args)) => commands::mem::run(args, global, &mut screen),
        Some(Command::Holders(args)) => commands::holders::run(args, global, &mut screen),
        Some(Command::Parse(args)) => commands::parse::run(args, &mut screen),
        Some(Command::Record(args)) => commands::record::run(args, global, &mut screen),
        #[cfg(feature = "history")]
        Some(Command::Report(args)) => commands::report::run(args, global, &mut screen),
        Some(Command::Demo(args)) => commands::demo::run(args, global, &mut screen),
        Some(Command::Sim(args)) => commands::sim::run(args, global),
        Some(Command::Slurm(args)) => commands::slurm::run(args, global),
        Some(Command::Completions(args)) => {
            commands::completions::run(args, global, Cli::command(), &mut screen)
        }
        Some(Command::Man(args)) => commands::man::run(args, Cli::command(), &mut screen),
    }
}
