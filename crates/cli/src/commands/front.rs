//! What is typed for `gpuws run`: it stands for another gpuws, the supervisor, and ends as that does.
//!
//! Neither the supervisor's name nor its command line has the words in it by which people look for
//! what they have started: who ends all that is called `gpuws`, or has `train.py` in its command
//! line, ends the front, and the supervisor is there to end the rest.

use super::run::is_there;
use crate::args::{Global, RunArgs};
use crate::claiming;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{Source, roots};
use crate::terminal::Line;
use crate::words;
use gpu_core::{ActToken, Ending, Job, ProcessKey};
use gpu_host::supervise::{Front, Stands, parse_words};
use gpu_reaper::Outcome;
use gpu_steward::{OnDeath, Ports, TakenOver, take_over};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;

/// What the supervisor of a run is called; nobody types it.
const SUPERVISOR: &str = "run-supervisor";

/// Starts the supervisor, and ends as it does; where it is killed, what it leaves is ended here.
pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<Exit, Failure> {
    let own = |failure: Failure| match failure.exit() {
        Exit::Usage => failure,
        _ => failure.ending(Exit::Own),
    };
    let failed = |error: gpu_core::Error| own(error.into());
    is_there(args)?;
    claiming::real_processes(global)?;
    let roots = roots();
    let program = std::env::current_exe()
        .map_err(|error| Failure::io("find this program", error).ending(Exit::Own))?;
    let typed: Vec<OsString> = std::env::args_os().collect();
    let keeps = args.on_death() == OnDeath::Keep;
    let front = if !keeps && Front::has_children(&roots).map_err(failed)? {
        // Whoever comes to the other has come from the supervisor.
        let (name, words) = typed
            .split_first()
            .map_or((OsStr::new(""), &[][..]), |(name, words)| (name.as_os_str(), words));
        Front::start(&roots, &program, name, words, Stands::Beside)
    } else {
        let count = OsString::from(typed.len().to_string());
        let words = [&Front::words(&roots).map_err(failed)?[..], &[count]].concat();
        let stands = if keeps { Stands::Apart } else { Stands::Guarded };
        Front::start(&roots, &program, SUPERVISOR.as_ref(), &words, stands)
    };
    let mut front = front.map_err(failed)?;
    let ending = front.wait().map_err(failed)?;
    match (front.orphans(&roots, ending).map_err(failed)?, ending) {
        (Some(mut orphans), _) => end(&mut orphans, args, global).map_err(own)?,
        (None, Ending::Signal(signal)) if keeps && Front::was_killed(ending) => {
            tell(
                global,
                &format!(
                    "the supervisor was ended by signal {signal}; the program goes on with its lease"
                ),
            );
        }
        (None, _) => {}
    }
    Ok(Exit::Passed(u8::try_from(front.end_as(ending)).unwrap_or(u8::MAX)))
}

/// Ends what a killed supervisor has left.
fn end(orphans: &mut dyn Job, args: &RunArgs, global: &Global) -> Result<(), Failure> {
    if orphans.members()?.is_empty() {
        tell(global, "the supervisor was killed; nothing of the program is left");
        return Ok(());
    }
    tell(global, "the supervisor was killed; what it ran is ended");
    let source = Source::open(global)?;
    let journal = source.journal()?;
    let locks = source.locks(args.wanted.claims.as_deref())?;
    let ports = Ports {
        backend: &*source.backend,
        host: &*source.host,
        clock: &*source.clock,
        journal: &*journal,
        locks: &locks,
    };
    let root = source.host.own_line()?.first().copied();
    let root = root.ok_or_else(|| Failure::new(Exit::Own, "find this very process"))?;
    let token = ActToken::the_user_asked();
    let TakenOver { actions, still_there, stopped, unwritten } =
        take_over(orphans, root, &ports, &token, args.grace, &mut |_| ControlFlow::Continue(()));
    let ended = actions.iter().filter(|action| matches!(action.outcome, Outcome::Ended { .. }));
    let ended = words::count(ended.count(), "process", "processes");
    tell(global, &format!("{ended} ended"));
    for left in still_there {
        let who = words::process(left.key.pid, &left.name);
        tell(global, &format!("mind: {who} is still there"));
    }
    if let Some(fault) = stopped {
        tell(global, &format!("mind: failed to {fault}"));
    }
    if let Some(fault) = unwritten {
        tell(global, &format!("mind: the audit log has not all of it: failed to {fault}"));
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

/// Tells whom this program is the supervisor for, and the command line that was typed there; for
/// nobody, its own.
///
/// # Errors
/// When whom it works for is gone.
pub(crate) fn for_whom(
    words: Vec<OsString>,
) -> Result<(Option<ProcessKey>, Vec<OsString>), Failure> {
    let [name, pid, start, count] = &words[..] else { return Ok((None, words)) };
    if name != SUPERVISOR {
        return Ok((None, words));
    }
    let failed = |error: gpu_core::Error| Failure::from(error).ending(Exit::Own);
    let front = parse_words(pid, start).map_err(failed)?;
    let count = count.to_str().and_then(|count| count.parse().ok()).unwrap_or_default();
    let typed = Front::arguments(&roots(), front, count).map_err(failed)?;
    // As it is called where people look for gpuws, too; that it has no other name harms nobody.
    let _ = rustix::thread::set_name(c"run-supervisor");
    Ok((Some(front), typed))
}
