//! What is typed for `gpuws run`: it stands for another gpuws, the supervisor, and ends as that does.
//!
//! Neither the supervisor's name nor its command line has the words in it by which people look for
//! what they have started: who ends all that is called `gpuws`, or has `train.py` in its command
//! line, ends the front, and the supervisor is there to end the rest.
//!
//! Where the one that was typed has children already, a second front stands between: it watches
//! the first, and ends when that one is gone.

use super::run::is_there;
use crate::args::{Global, RunArgs};
use crate::claim_request;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source, roots};
use crate::terminal::Line;
use crate::wording;
use gpu_core::{ActToken, ErrorKind, Job, JobExit, Journal, NoJournal, ProcessKey};
use gpu_host::supervise::{DetachPipe, Front, Relation, parse_words};
use gpu_reaper::Outcome;
use gpu_steward::{OnDeath, TakenOver, take_over};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

/// What the supervisor of a run is called; nobody types it.
const SUPERVISOR: &str = "run-supervisor";

/// The word that makes a program the second front of a run; nobody types it.
const BESIDE: &str = "run-beside";

/// What a program is to a run, and for whom.
#[derive(Clone)]
pub(crate) enum Part {
    /// It was typed.
    Typed,
    /// It is the front of a run in the place of another one, which has children of its own.
    Beside(ProcessKey),
    /// It is the supervisor, for a front.
    Supervisor(FrontendArgs),
}

/// The front that a supervisor works for.
#[derive(Clone)]
pub(crate) struct FrontendArgs {
    pub(crate) key: ProcessKey,
    /// The word by which it can be dismissed.
    pub(crate) dismissal: OsString,
}

/// Starts the supervisor, and ends as it does; where it is killed, what it leaves is ended here.
/// `first` is the front in whose place this one is.
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
    is_there(args)?;
    claim_request::real_processes(global)?;
    let roots = roots();
    let program = std::env::current_exe()
        .map_err(|error| Failure::io("find this program", error).ending(Exit::Own))?;
    let typed: Vec<OsString> = std::env::args_os().collect();
    let keeps = args.on_death() == OnDeath::Keep;
    let beside = !keeps && first.is_none() && Front::has_children(&roots).map_err(failed)?;
    let front = if beside {
        // Whoever comes to the other has come from the supervisor.
        let (name, words) = typed
            .split_first()
            .map_or((OsStr::new(""), &[][..]), |(name, words)| (name.as_os_str(), words));
        let own = Front::words(&roots).map_err(failed)?;
        let words = [&[BESIDE.into()], &own[..], words].concat();
        Front::start(&roots, &program, name, &words, Relation::Beside)
    } else {
        let count = OsString::from(typed.len().to_string());
        let dismissal = DetachPipe::new().map_err(failed)?;
        let words = [&Front::words(&roots).map_err(failed)?[..], &[count, dismissal.word()]];
        let stands = if keeps { Relation::Apart } else { Relation::Guarded };
        Front::start(&roots, &program, SUPERVISOR.as_ref(), &words.concat(), stands)
            .map(|front| front.detached_by(dismissal))
    };
    let mut front = front.map_err(failed)?;
    let ending = match first {
        None => Some(front.wait().map_err(failed)?),
        Some(first) => front.wait_for(&roots, first).map_err(failed)?,
    };
    // Who could be told of it is gone; the supervisor sees this one's end.
    let Some(ending) = ending else { return Ok(Exit::Own) };
    match (front.orphans(&roots, ending).map_err(failed)?, ending) {
        (Some(mut orphans), _) => end(&mut orphans, args.grace, global).map_err(own)?,
        (None, JobExit::Signal(signal)) if keeps && Front::was_killed(ending) => {
            tell(
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

/// Returns what stands for an audit log that cannot be opened.
fn no_journal(why: impl Into<Failure>) -> Box<dyn Journal> {
    Box::new(NoJournal::new(gpu_core::Error::new(ErrorKind::Io, why.into().reason())))
}

/// Ends what a killed supervisor has left.
fn end(orphans: &mut dyn Job, grace: Duration, global: &Global) -> Result<(), Failure> {
    if orphans.members()?.is_empty() {
        tell(global, "supervisor was killed; no job process is left");
        return Ok(());
    }
    tell(global, "supervisor was killed; ending the job");
    // Who started a job ends it, whatever can be asked of its devices and written about that.
    let (source, journal) = match source::open(global) {
        Ok(source) => {
            let journal = source.journal().unwrap_or_else(|why| no_journal(why));
            (source, journal)
        }
        Err(why) => (Source::bare(), no_journal(why)),
    };
    let ports = source.ports(&*journal);
    let root = source.host.own_ancestry()?.first().copied();
    let root = root.ok_or_else(|| Failure::new(Exit::Own, "find the own process"))?;
    let token = ActToken::user_confirmed();
    let TakenOver { actions, still_there, stopped, unwritten, remains } =
        take_over(orphans, root, ports, &token, grace, &mut |_| ControlFlow::Continue(()));
    let ended = actions.iter().filter(|action| matches!(action.outcome, Outcome::Ended { .. }));
    let ended = wording::count(ended.count(), "process", "processes");
    tell(global, &format!("{ended} ended"));
    for left in still_there {
        let who = wording::process(left.key.pid, &left.name);
        tell(global, &format!("warning: {who} is still running"));
    }
    if let Some(fault) = stopped {
        tell(global, &format!("warning: failed to {fault}"));
    }
    if let Some(fault) = unwritten {
        tell(global, &format!("warning: the audit log is incomplete: failed to {fault}"));
    }
    if remains {
        tell(
            global,
            "warning: the GPUs stay leased while a process that inherited the lease is \
            alive",
        );
    }
    Ok(())
}

/// Says something in a line of its own; nobody is helped by a failure to say it.
fn tell(global: &Global, text: &str) {
    if !global.quiet && !global.json {
        let line = Line::new().plain("gpuws: ").plain(text);
        let _ = writeln!(std::io::stderr(), "{}", line.text());
    }
}

/// Tells what this program is to a run, and the command line that was typed for it; any other
/// program's is its own.
///
/// # Errors
/// When whom it works for is gone.
pub(crate) fn part(words: Vec<OsString>) -> Result<(Part, Vec<OsString>), Failure> {
    let failed = |error: gpu_core::Error| Failure::from(error).ending(Exit::Own);
    match &words[..] {
        [name, pid, start, count, dismissal] if name == SUPERVISOR => {
            let dismissal = dismissal.clone();
            let front = parse_words(pid, start).map_err(failed)?;
            let count = count.to_str().and_then(|count| count.parse().ok()).unwrap_or_default();
            let words = Front::arguments(&roots(), front, count).map_err(failed)?;
            // As it is called where people look for gpuws, too; that it has no other name harms
            // nobody.
            let _ = rustix::thread::set_name(c"run-supervisor");
            Ok((Part::Supervisor(FrontendArgs { key: front, dismissal }), typed(words)))
        }
        [_, word, pid, start, ..] if word == BESIDE => {
            let first = parse_words(pid, start).map_err(failed)?;
            Ok((Part::Beside(first), typed(words)))
        }
        _ => Ok((Part::Typed, words)),
    }
}

/// Returns what was typed, of the command line of a front.
fn typed(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == BESIDE) {
        words.drain(1..words.len().min(4));
    }
    words
}
