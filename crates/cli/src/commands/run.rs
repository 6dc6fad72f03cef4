//! `gpuws run`: a program on devices of its own, of which nothing is left.
//!
//! This is the supervisor's part, for which the [frontend](super::frontend) stands: it claims, starts the
//! program, and cleans up, also when the front is killed.

mod ending;
mod report;
mod watch;

use super::frontend::FrontendArgs;
use super::mem::bounding as bounding_of;
use super::shim::Shim;
use crate::args::{Global, RunArgs};
use crate::claim_request::{self, failure};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::queue_status::Teller;
use crate::source::{self, CLAIMS, roots};
use gpu_core::{ActToken, ErrorKind, Launch, Origin, ProcessFault};
use gpu_host::supervise::{LinuxLauncher, find_program};
use gpu_machine::placeholder;
use gpu_steward::{NotGranted, NotRun, Ports, RunOrder};
use report::ReportFile;
use std::ffi::{OsStr, OsString};
use watch::Watch;

/// Makes sure, before anything is claimed for it, that the program is there.
pub(super) fn is_there(args: &RunArgs) -> Result<(), Failure> {
    let program = args.command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let found = find_program(program, std::env::var_os("PATH").as_deref());
    found.map(drop).map_err(|error| not_started(&error))
}

fn not_started(error: &gpu_core::Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::Process(ProcessFault::Gone) => Exit::CommandNotFound,
        ErrorKind::Process(ProcessFault::NotPermitted) => Exit::CommandNotRun,
        _ => Exit::Own,
    };
    let failure = Failure::from(error.clone()).ending(exit);
    match exit {
        Exit::CommandNotRun => failure.with_hint("not executable; try: chmod +x"),
        _ => failure,
    }
}

/// Does what the front stands for.
pub(crate) fn supervise(
    args: &RunArgs,
    global: &Global,
    front: &FrontendArgs,
) -> Result<Exit, Failure> {
    let own = |failure: Failure| match failure.exit() {
        Exit::Usage | Exit::TryLater => failure,
        _ => failure.ending(Exit::Own),
    };
    let source = source::open(global).map_err(|error| own(error.into()))?;
    let locks = source.locks(args.wanted.claims.as_deref()).map_err(|error| own(error.into()))?;
    let journal = source.journal().map_err(|error| own(error.into()))?;
    let launcher =
        LinuxLauncher::new(&roots(), Some(front.key)).map_err(|error| own(error.into()))?;
    let root = *source
        .host
        .own_ancestry()
        .map_err(|error| own(error.into()))?
        .first()
        .ok_or_else(|| Failure::new(Exit::Own, "find the own process"))?;
    let command = claim_request::described(&args.command);
    let wanted =
        claim_request::request(&args.wanted, &source, root, command, global.quiet).map_err(own)?;
    // Without it the command still runs; only a safe-gpu within finds other devices than its own.
    let shim = (!args.no_nvidia_smi).then(Shim::make).transpose();
    // Who claims within is to find the same leases.
    let claims = args.wanted.claims.as_ref().map(std::path::absolute).transpose();
    let claims =
        claims.map_err(|error| Failure::io("find the lease directory", error).ending(Exit::Own))?;
    let claims = claims.map(|dir| (OsString::from(CLAIMS), dir.into_os_string()));
    let (program, arguments) = args.command.split_first().ok_or_else(|| {
        Failure::new(Exit::Usage, "run a command").with_hint(
            "pass the command \
            after --",
        )
    })?;
    let bounding = args.wanted.mem.filter(|_| !args.keep_env);
    let bounding = bounding.map(|_| bounding_of(&args.keep, Some(program)));
    let order = RunOrder {
        request: wanted.request.clone(),
        launch: Launch {
            program: program.clone(),
            arguments: arguments.to_vec(),
            set: shim.iter().flatten().map(Shim::path).chain(claims).collect(),
            unset: Vec::new(),
        },
        visible: args.wanted.visible.into(),
        bounding,
        time_limit: args.time_limit,
        grace: args.grace,
        on_death: args.on_death(),
        handoff: args.handoff_timeout,
        placeholder: Some(placeholder(root, source.session())),
    };
    let ports = Ports {
        backend: &*source.backend,
        host: &*source.host,
        clock: &*source.clock,
        journal: &*journal,
        locks: &locks,
    };
    let file = args.report.as_deref().map(ReportFile::create).transpose().map_err(own)?;
    let mut watch = Watch {
        global,
        front,
        file,
        reported: None,
        quiet: global.quiet || global.json,
        // The front's: this one is behind it.
        queue: Teller::new(&wanted.request.claim, launcher.group(), global.quiet),
        launcher: &launcher,
        origin: source.host.origin(),
        on_death: order.on_death,
        share: wanted.request.claim.memory(),
        is_over: false,
        asked: None,
        has_waited: false,
        told_waiting: false,
    };
    if watch.origin != Origin::Live {
        watch.tell(&watch.origin.to_string());
    }
    wanted.notes.iter().for_each(|note| watch.tell(note));
    if let Err(why) = &shim {
        let why = why.reason();
        watch.tell(&format!(
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
        Err(NotRun::NotGranted(why)) => Err(own(failure(&wanted, why))),
        Err(NotRun::NotStarted(error)) => Err(not_started(&error)),
        Err(NotRun::Lost(error, _)) => Err(own(error.into())),
    }
}
