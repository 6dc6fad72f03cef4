//! `gpuws sim`: runs a program on a simulated NVML.

mod args;

pub(crate) use args::SimArgs;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, roots};
use crate::terminal::progress;
use gpu_host::{LinuxHost, supervise::unless_ignored};
use gpu_sim::live::{Dir, PlaceholderProcesses};
use gpu_sim::{Machine, Session};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

pub(crate) fn run(args: &SimArgs, global: &Global) -> Result<Exit, Failure> {
    let own = |failure: Failure| match failure.exit() {
        Exit::Usage => failure,
        _ => failure.ending(Exit::Own),
    };
    let machine = Machine::named(&args.machine)
        .map_err(|error| own(source::opening(Some(&args.machine), error)))?;
    if !machine.cards.is_empty() && machine.devices.is_empty() {
        let what = format!("start a session of '{}'", machine.name);
        let why = "programs in a session see only NVIDIA's GPUs; use gpuws --sim for this machine";
        let error = gpu_core::Error::new(gpu_core::ErrorKind::Unsupported, what).with_source(why);
        return Err(own(error.into()));
    }
    let counts_file = args
        .count_calls
        .as_deref()
        .map(gpu_host::output::append)
        .transpose()
        .map_err(|error| own(error.into()))?;
    let dir = Dir::make(args.library.as_deref()).map_err(|error| own(error.into()))?;
    dir.check_faults(&args.fault).map_err(|error| own(error.into()))?;
    let placeholders_started = if args.live {
        let host = LinuxHost::new(roots());
        let started = PlaceholderProcesses::start(&machine, &dir, &host);
        Some(started.map_err(|error| own(error.into()))?)
    } else {
        None
    };
    let session = Session {
        seed: args.seed,
        frozen_at_ms: args.at,
        latency_us: args.latency,
        faults: args.fault.clone(),
        live: args.live,
        placeholders: placeholders_started
            .as_ref()
            .map_or(Vec::new(), |placeholders_started| placeholders_started.placeholders.clone()),
        counts_calls: args.count_calls.is_some(),
        ..Session::begun(&args.machine)
    };
    session.write(dir.path()).map_err(|error| own(error.into()))?;
    if let (Some(placeholders_started), false) = (&placeholders_started, global.quiet) {
        progress(&format!(
            "simulated machine {}; real placeholders for {}",
            machine.name,
            placeholders_started.placeholders.len()
        ));
    }
    let status = run_command(args, &dir)?;
    if let (Some(path), Some(counts_file)) = (&args.count_calls, counts_file) {
        append_counts(&dir.path().join(Session::CALLS), counts_file, path).map_err(own)?;
    }
    Ok(Exit::Passed(code_of(status)))
}

/// Runs the command and waits for it. Ctrl-C on the terminal reaches the command directly; other
/// requests to end are forwarded, because gpuws must clean up afterwards.
fn run_command(args: &SimArgs, dir: &Dir) -> Result<ExitStatus, Failure> {
    let (program, rest) = args.command.split_first().ok_or_else(|| {
        Failure::new(Exit::Usage, "run a command").with_hint("pass the command after --")
    })?;
    let path = super::shim::in_session(dir.path())?;
    super::run::is_there(&args.command, Some(&path.1))?;
    let watch = |error| Failure::io("watch for Ctrl-C", error).ending(Exit::Own);
    let (mut ended, ends) = UnixStream::pair().map_err(watch)?;
    for signal in [SIGTERM].into_iter().chain(unless_ignored([SIGHUP])) {
        let ends = ends.try_clone().map_err(watch)?;
        signal_hook::low_level::pipe::register(signal, ends).map_err(watch)?;
    }
    for signal in unless_ignored([SIGINT, SIGQUIT]) {
        signal_hook::flag::register(signal, Arc::default()).map_err(watch)?;
    }
    let mut command = Command::new(program);
    let mut child =
        command.args(rest).envs(dir.environment()).env(path.0, path.1).spawn().map_err(
            |error| {
                let what = format!("run '{}'", Path::new(program).display());
                Failure::io(what, error).ending(Exit::CommandNotRun)
            },
        )?;
    wait(&mut child, &mut ended)
        .map_err(|error| Failure::io("wait for the command", error).ending(Exit::Own))
}

fn wait(child: &mut Child, end_requests: &mut UnixStream) -> io::Result<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let mut ends =
            [PollFd::new(&process, PollFlags::IN), PollFd::new(&*end_requests, PollFlags::IN)];
        match poll(&mut ends, None) {
            Err(Errno::INTR) => continue,
            waited => waited?,
        };
        let (has_ended, is_end_requested) =
            (!ends[0].revents().is_empty(), !ends[1].revents().is_empty());
        if has_ended {
            return child.wait();
        }
        if is_end_requested {
            let _ = end_requests.read(&mut [0; 64])?;
            match pidfd_send_signal(&process, Signal::TERM) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Returns the exit code that a shell would return for the command.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Appends the counts to the file that the user named; there are none if no program called NVML.
fn append_counts(counted: &Path, mut counts_file: File, path: &Path) -> Result<(), Failure> {
    let what = |error| Failure::io(format!("write '{}'", path.display()), error);
    match File::open(counted) {
        Ok(mut from) => io::copy(&mut from, &mut counts_file).map(drop).map_err(what),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::io("read the call counts", error)),
    }
}
