//! The supervisor of `gpuws run`: claims devices, runs a command on them, and cleans up after it.
//!
//! It works for a [frontend], and also cleans up if that is killed.

mod args;
mod elsewhere;
mod ending;
pub(crate) mod frontend;
mod report;
mod watch;

pub(crate) use args::RunArgs;

use super::mem::bounding as bounding_of;
use super::shim::Shim;
use crate::args::Global;
use crate::commands::claim::{queue_status::QueueStatus, refused::failure, request};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, CLAIMS, roots};
use frontend::FrontendArgs;
use gpu_core::{ActToken, ErrorKind, Launch, Origin, ProcessFault};
use gpu_host::supervise::{LinuxLauncher, ProgramFault, find_program};
use gpu_machine::placeholder;
use gpu_report::wording::{claims, run::unlogged};
use gpu_steward::{NotGranted, NotRun, Ports, RunOrder};
use report::ReportFile;
use std::ffi::{OsStr, OsString};
use watch::Watch;

pub(crate) use elsewhere::run as elsewhere;

/// Returns an error if the program does not exist, before devices are claimed for it.
pub(super) fn is_there(command: &[OsString], path: Option<&OsStr>) -> Result<(), Failure> {
    let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let found = find_program(program, path);
    found.map(drop).map_err(|error| not_started(&error))
}

fn not_started(error: &gpu_core::Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::Process(ProcessFault::Gone) => Exit::CommandNotFound,
        ErrorKind::Process(ProcessFault::NotPermitted) => Exit::CommandNotRun,
        _ => Exit::Own,
    };
    // The error kind has a hint for processes, but none for programs.
    let hint = ProgramFault::behind(error).and_then(ProgramFault::hint);
    hint.into_iter().fold(Failure::new(exit, error.fault().text), Failure::with_hint)
}

/// Runs the command and cleans up after it.
pub(crate) fn supervise(
    args: &RunArgs,
    global: &Global,
    front: &FrontendArgs,
) -> Result<Exit, Failure> {
    let own = |failure: Failure| match failure.exit() {
        Exit::Usage | Exit::TryLater => failure,
        _ => failure.ending(Exit::Own),
    };
    let source = source::open(global).map_err(own)?;
    let locks = source.lease_store(args.request.claims.as_deref()).map_err(|e| own(e.into()))?;
    let (journal, no_log) = source.journal_if_any();
    let launcher =
        LinuxLauncher::new(&roots(), Some(front.key)).map_err(|error| own(error.into()))?;
    let root = *source
        .host
        .own_ancestry()
        .map_err(|error| own(error.into()))?
        .first()
        .ok_or_else(|| Failure::new(Exit::Own, "find this process"))?;
    let command = claims::command_line(&args.command);
    let prepared =
        request::request(&args.request, &source, root, command, global.quiet).map_err(own)?;
    // The command also runs without the shim; then safe-gpu in it may choose other devices.
    let shim = (!args.no_nvidia_smi).then(Shim::make).transpose();
    // Claims inside the run must find the same leases.
    let claims = args.request.claims.as_ref().map(std::path::absolute).transpose();
    let claims =
        claims.map_err(|error| Failure::io("find the lease directory", error).ending(Exit::Own))?;
    let claims = claims.map(|dir| (OsString::from(CLAIMS), dir.into_os_string()));
    let (program, arguments) = args.command.split_first().ok_or_else(|| {
        Failure::new(Exit::Usage, "run a command").with_hint("pass the command after --")
    })?;
    let bounding = args.request.mem.filter(|_| !args.keep_env);
    let bounding = bounding.map(|_| bounding_of(&args.keep, Some(program)));
    let order = RunOrder {
        request: prepared.request.clone(),
        launch: Launch {
            program: program.clone(),
            arguments: arguments.to_vec(),
            set: shim.iter().flatten().map(Shim::path).chain(claims).collect(),
            unset: Vec::new(),
        },
        visible: args.request.visible.into(),
        inherited: gpu_machine::own_variable,
        bounding,
        time_limit: args.time_limit,
        grace: args.grace,
        on_death: args.on_death(),
        handoff: args.handoff_timeout,
        placeholder: Some(placeholder(root, source.session())),
    };
    let ports = Ports { journal: &*journal, ..source.claim_ports(&locks) };
    let file = args.report.as_deref().map(ReportFile::create).transpose().map_err(own)?;
    let claim = &prepared.request.claim;
    let mut watch = Watch {
        global,
        front,
        file,
        reported: None,
        quiet: global.quiet || global.json,
        announce: args.announce,
        // The frontend's process group: the supervisor has its own.
        queue: QueueStatus::new(claim, args.request.preview(), launcher.group(), global.quiet),
        launcher: &launcher,
        origin: source.host.origin(),
        on_death: order.on_death,
        share: claim.memory(),
        is_over: false,
        end_signal: None,
        waiting_printed: false,
    };
    if watch.origin != Origin::Live {
        watch.print(&watch.origin.to_string());
    }
    prepared.notes.iter().for_each(|note| watch.print(note));
    if let Some(why) = no_log {
        watch.print(&unlogged(&why.into_error().fault(), source.host.is_root() == Ok(true)));
    }
    if let Err(why) = &shim {
        let why = why.reason();
        watch.print(&format!(
            "warning: no nvidia-smi shim: failed to {why}; a command using safe_gpu may pick \
                other GPUs (pass --no-nvidia-smi if it does not)"
        ));
    }
    let token = ActToken::user_confirmed();
    let ran = gpu_steward::run(&order, &ports, &launcher, &token, &mut |event| watch.see(event));
    if let Some(reported) = watch.reported {
        return Ok(reported);
    }
    match ran {
        Ok(report) => Ok(watch.end(&report)),
        Err(NotRun::NotGranted(NotGranted::Stopped) | NotRun::Stopped) => Ok(watch.stopped()),
        Err(NotRun::NotGranted(why)) => Err(own(failure(&prepared, why))),
        Err(NotRun::NotStarted(error)) => Err(not_started(&error)),
        Err(NotRun::Lost(error, _)) => Err(own(error.into())),
    }
}
