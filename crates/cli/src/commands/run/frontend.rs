//! The frontend of `gpuws run`: starts the supervisor, another gpuws process, and ends in the same
//! way.
//!
//! Neither the name nor the command line of the supervisor contains the words that the user typed.
//! `pkill gpuws` and `pkill -f train.py` end only the frontend, and the supervisor remains to end
//! the job.
//!
//! If the frontend already has child processes, it starts a second frontend between itself and the
//! supervisor, which ends when the first one is gone.

use super::RunArgs;
use super::is_there;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source, roots};
use crate::terminal::Line;
use crate::wording;
use gpu_core::{ActToken, ErrorKind, Job, JobExit, Journal, NoJournal, ProcessKey};
use gpu_host::supervise::{DetachPipe, EndOfInput, Front, Relation, parse_words};
use gpu_reaper::Outcome;
use gpu_steward::{OnDeath, TakenOver, take_over};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::time::Duration;

/// The hidden command name of the supervisor of a run.
const SUPERVISOR: &str = "run-supervisor";

/// The hidden command name of the second frontend of a run.
const SECOND_FRONTEND: &str = "run-beside";

/// The role of a process in a run.
#[derive(Clone)]
pub(crate) enum Role {
    /// The frontend.
    Frontend,
    /// The second frontend, for a first one that has its own child processes.
    SecondFrontend(ProcessKey),
    /// The supervisor, which works for a frontend.
    Supervisor(FrontendArgs),
}

/// The frontend of a supervisor.
#[derive(Clone)]
pub(crate) struct FrontendArgs {
    pub(crate) key: ProcessKey,
    /// The argument that identifies the pipe to detach from the frontend.
    pub(crate) detach_pipe: OsString,
}

/// Starts the supervisor and ends in the same way. If the supervisor is killed, ends the processes
/// that it left. `first` is the frontend that this one replaces.
pub(crate) fn run(
    args: &RunArgs,
    global: &Global,
    first: Option<ProcessKey>,
) -> Result<Exit, Failure> {
    let own = |failure: Failure| match failure.exit() {
        Exit::Usage => failure,
        _ => failure.ending(Exit::Own),
    };
    let failed = |error: gpu_core::Error| own(error.into());
    is_there(&args.command, std::env::var_os("PATH").as_deref())?;
    source::real_processes(global)?;
    let roots = roots();
    let takes_input = args.end_with_input && first.is_none();
    let input = takes_input.then(EndOfInput::take).transpose().map_err(failed)?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::io("find this program", error).ending(Exit::Own))?;
    let typed: Vec<OsString> = std::env::args_os().collect();
    let keeps = args.on_death() == OnDeath::Keep;
    let starts_second = !keeps && first.is_none() && Front::has_children(&roots).map_err(failed)?;
    let front = if starts_second {
        // Processes that are re-parented to the second frontend are from the supervisor.
        let (name, words) = typed
            .split_first()
            .map_or((OsStr::new(""), &[][..]), |(name, words)| (name.as_os_str(), words));
        let own = Front::words(&roots).map_err(failed)?;
        let words = [&[SECOND_FRONTEND.into()], &own[..], words].concat();
        Front::start(&roots, &program, name, &words, Relation::SameGroup)
    } else {
        let count = OsString::from(typed.len().to_string());
        let detach_pipe = DetachPipe::new().map_err(failed)?;
        let words = [&Front::words(&roots).map_err(failed)?[..], &[count, detach_pipe.word()]];
        let stands = if keeps { Relation::Apart } else { Relation::Guarded };
        Front::start(&roots, &program, SUPERVISOR.as_ref(), &words.concat(), stands)
            .map(|front| front.detached_by(detach_pipe))
    };
    let mut front = front.map_err(failed)?.ended_by(input);
    let ending = match first {
        None => Some(front.wait().map_err(failed)?),
        Some(first) => front.wait_for(&roots, first).map_err(failed)?,
    };
    // The first frontend, which would report the exit status, is gone; the supervisor sees this one
    // end.
    let Some(ending) = ending else { return Ok(Exit::Own) };
    match (front.orphans(&roots, ending).map_err(failed)?, ending) {
        (Some(mut orphans), _) => end(&mut orphans, args.grace, global).map_err(own)?,
        (None, JobExit::Signal(signal)) if keeps && Front::was_killed(ending) => {
            print(
                global,
                &format!(
                    "supervisor terminated by signal {signal}; the job continues and keeps its lease"
                ),
            );
        }
        (None, _) => {}
    }
    Ok(Exit::Passed(u8::try_from(front.end_as(ending)).unwrap_or(u8::MAX)))
}

/// Ends the processes that a killed supervisor left.
fn end(orphans: &mut dyn Job, grace: Duration, global: &Global) -> Result<(), Failure> {
    if orphans.members()?.is_empty() {
        print(global, "supervisor was killed; no job process is left");
        return Ok(());
    }
    print(global, "supervisor was killed; ending the job");
    // The user who started a job may end it even without a driver and without an audit log.
    let (source, journal): (Source, Box<dyn Journal>) = match source::open(global) {
        Ok(source) => {
            let (journal, _) = source.journal_if_any();
            (source, journal)
        }
        Err(why) => {
            let why = gpu_core::Error::new(ErrorKind::Io, why.reason());
            (Source::bare(), Box::new(NoJournal::new(why)))
        }
    };
    let ports = source.ports(&*journal);
    let root = source.host.own_ancestry()?.first().copied();
    let root = root.ok_or_else(|| Failure::new(Exit::Own, "find this process"))?;
    let token = ActToken::user_confirmed();
    let TakenOver { actions, still_there, stopped, unwritten, remains } =
        take_over(orphans, root, ports, &token, grace, &mut |_| ControlFlow::Continue(()));
    let ended = actions.iter().filter(|action| matches!(action.outcome, Outcome::Ended { .. }));
    let ended = wording::count(ended.count(), "process", "processes");
    print(global, &format!("{ended} ended"));
    for left in still_there {
        let who = wording::process(left.key.pid, &left.name);
        print(global, &format!("warning: {who} is still running"));
    }
    if let Some(fault) = stopped {
        print(global, &format!("warning: failed to {fault}"));
    }
    if let Some(fault) = unwritten {
        print(global, &format!("warning: the audit log is incomplete: failed to {fault}"));
    }
    if remains {
        print(
            global,
            "warning: the GPUs stay leased while a process that inherited the lease is \
            alive",
        );
    }
    Ok(())
}

/// Prints a line on standard error. An error here must not fail the command.
fn print(global: &Global, text: &str) {
    if !global.quiet && !global.json {
        let line = Line::new().plain("gpuws: ").plain(text);
        crate::terminal::report(line.text());
    }
}

/// Returns the role of this process in a run, and the command line that the user typed. For a
/// process without a role, that is its own.
///
/// # Errors
/// When the frontend that it works for is gone.
pub(crate) fn role(words: Vec<OsString>) -> Result<(Role, Vec<OsString>), Failure> {
    let failed = |error: gpu_core::Error| Failure::from(error).ending(Exit::Own);
    match &words[..] {
        [name, pid, start, count, detach_pipe] if name == SUPERVISOR => {
            let detach_pipe = detach_pipe.clone();
            let front = parse_words(pid, start).map_err(failed)?;
            let count = count.to_str().and_then(|count| count.parse().ok()).unwrap_or_default();
            let words = Front::arguments(&roots(), front, count).map_err(failed)?;
            // `ps` and `pkill` show the thread name, too. A failure is harmless.
            let _ = rustix::thread::set_name(c"run-supervisor");
            Ok((Role::Supervisor(FrontendArgs { key: front, detach_pipe }), typed(words)))
        }
        [_, word, pid, start, ..] if word == SECOND_FRONTEND => {
            let first = parse_words(pid, start).map_err(failed)?;
            Ok((Role::SecondFrontend(first), typed(words)))
        }
        _ => Ok((Role::Frontend, words)),
    }
}

/// Returns the command line that the user typed from that of a frontend.
fn typed(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == SECOND_FRONTEND) {
        words.drain(1..words.len().min(4));
    }
    words
}
