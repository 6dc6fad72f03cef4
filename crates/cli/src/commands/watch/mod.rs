//! `gpuws watch`: raises findings that last, notifies users, and reaps by a policy.

mod args;
mod notifier;

pub(crate) use args::WatchArgs;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::{self, Source};
use crate::terminal::{Line, Screen, warn};
use gpu_core::{ActToken, Clock, Error, ErrorKind, Groups, Host, NoJournal, Observer};
use gpu_host::{SystemClock, TrustedFile};
use gpu_machine::{LeaseReader, Messengers, Next, Recorder, Requests};
use gpu_reaper::{Past, full_observation};
use gpu_report::watch::reaps;
use gpu_watch::{Machine, Policy, Purpose, Scan, Watch};
use notifier::{EventNotifier, failed, start_for_events};
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// The largest policy file, in bytes.
const MOST: u64 = 1 << 20;

pub(crate) fn run(args: &WatchArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    if let Some(path) = &args.check_policy {
        return check(path, global, screen);
    }
    let requests = Requests::take()?;
    let source = source::open_to_watch(global, false, warn)?;
    let policy = args.policy.as_deref().map(|path| read_policy(path, &*source.host));
    let policy = policy.transpose()?.unwrap_or_default();
    if args.reap && policy.reap.as_ref().is_none_or(|reap| reap.dry_run) {
        return Err(Failure::new(Exit::Usage, "reap by this policy")
            .with_source("it has no section [reap] with dry_run = false")
            .with_hint("without --reap the plans are printed"));
    }
    let journal = if args.reap {
        source.journal()?
    } else {
        Box::new(NoJournal::new(Error::new(ErrorKind::Invalid, "log in a dry run")))
    };
    let token = args.reap.then(ActToken::user_confirmed);
    let notifier = RefCell::new(EventNotifier::new(args, global, &source, &policy)?);
    let history = args.history.as_deref();
    history.map_or(Ok(()), |_| Failure::unless_built("gpuws watch --history"))?;
    let mut recorder = history.map(|dir| Recorder::open(dir, &source, args.keep)).transpose()?;
    if !global.json && !global.quiet {
        let every = args.every.as_secs_f64();
        let line = format!("{}: watched every {every} s; ", source.backend.origin());
        screen.print(&Line::new().plain(line).plain(reaps(&policy, args.reap)))?;
    }
    let mut watch = Watch::new(policy, args.every);
    let mut past = Past::every(args.every);
    let (mut observer, mut leases) = (Observer::new(), LeaseReader::default());
    let mut scan = |purpose| {
        let snapshot = match purpose {
            Purpose::Report => source.observe(&mut observer, full_observation()),
            Purpose::Plan => source.detailed_snapshot(full_observation()),
        };
        let snapshot = match &mut recorder {
            Some(recorder) => {
                let (snapshot, added) = recorder.add(&source, snapshot);
                failed(added.err());
                snapshot
            }
            None => snapshot,
        };
        let mut scan = Scan::after(&mut past, snapshot);
        leases.read(&source).excuse(&scan.snapshot, &mut scan.diagnosis);
        scan
    };
    let end = args.time.map(|time| source.clock.monotonic().saturating_add(time));
    loop {
        let mut machine = Machine {
            ports: source.ports(&*journal),
            scan: &mut scan,
            token: token.as_ref(),
            // Programs for events are served while a plan is executed.
            go_on: &|| {
                notifier.borrow_mut().attend();
                requests.go_on()
            },
        };
        watch.round(&mut machine, &mut |event| notifier.borrow_mut().notify(&event, screen));
        notifier.borrow_mut().outcome()?;
        let left = end.map(|end| end.saturating_sub(source.clock.monotonic()));
        if screen.is_closed() || left.is_some_and(|left| left.is_zero()) {
            break;
        }
        let pause = left.map_or(args.every, |left| left.min(args.every));
        let next =
            wait(&source, &requests, &mut notifier.borrow_mut(), pause, args.time.is_some())?;
        match next {
            Next::GoOn => {}
            Next::End => break,
            Next::Reload => reload(&mut watch, args, &*source.host, &mut notifier.borrow_mut()),
        }
    }
    notifier.into_inner().finish(&requests, &SystemClock::new())?;
    let (missing, synced) = recorder.map_or((0, Ok(())), Recorder::finish);
    let exit = super::record::missing(missing);
    synced.map(|()| exit).map_err(Failure::from)
}

/// Waits for the next snapshot. A simulated machine has its own time; without `--for` the watch
/// would never end, so the user waits in real time.
fn wait(
    source: &Source,
    requests: &Requests,
    notifier: &mut EventNotifier,
    pause: Duration,
    ends: bool,
) -> Result<Next, Failure> {
    if source.is_simulated() {
        source.clock.sleep(pause);
    }
    let real = SystemClock::new();
    let pause = if source.is_simulated() && ends { Duration::ZERO } else { pause };
    loop {
        let patience = notifier.attend();
        let left = pause.saturating_sub(real.monotonic());
        match requests.wait(patience.map_or(left, |most| most.min(left)))? {
            Next::GoOn if left.is_zero() => return Ok(Next::GoOn),
            Next::GoOn => {}
            next => return Ok(next),
        }
    }
}

/// Reads the policy again; an invalid policy changes nothing.
fn reload(watch: &mut Watch, args: &WatchArgs, host: &dyn Host, notifier: &mut EventNotifier) {
    let Some(path) = &args.policy else { return };
    let replaced = read_policy(path, host).and_then(|policy| {
        notifier.follow(args, &policy)?;
        watch.set_policy(policy);
        Ok(())
    });
    match replaced {
        Ok(()) => warn(&format!("policy '{}' reloaded", path.display())),
        Err(failure) => warn(&format!("the policy is unchanged: failed to {}", failure.reason())),
    }
}

/// Checks a policy as the watcher does, and warns of nonexistent names in it.
fn check(path: &Path, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let source = source::open(global)?;
    let policy = read_policy(path, &*source.host)?;
    let program: Vec<OsString> =
        policy.notify.on_finding.iter().flatten().map(Into::into).collect();
    let mut messengers = Messengers::new(&source.backend.origin());
    start_for_events(&mut messengers, &program, policy.notify.time_limit)?;
    let unmatched = policy.unmatched(&source.backend.inventory(Groups::NONE).devices);
    unmatched.iter().for_each(|what| warn(what));
    let line = Line::new().plain(format!("{}: valid; ", path.display()));
    screen.print(&line.plain(reaps(&policy, true)))?;
    Ok(Exit::Done)
}

/// Reads a policy from a file that only root and the caller can change.
fn read_policy(path: &Path, host: &dyn Host) -> Result<Policy, Failure> {
    let what = || format!("read the policy '{}'", path.display());
    let absolute = std::path::absolute(path).map_err(|error| Failure::io(what(), error))?;
    let text = TrustedFile::text_of(&absolute, MOST).map_err(|error| {
        let untrusted = error.kind() == ErrorKind::Invalid;
        let failure = Failure::from(error);
        match untrusted {
            true => failure.with_hint("users who can change a policy control what it ends"),
            false => failure,
        }
    })?;
    let text = text.ok_or_else(|| {
        let missing = Failure::new(Exit::CannotObserve, what()).with_source("no such file");
        missing.with_hint("an empty policy reports every finding and ends no process")
    })?;
    let policy = Policy::parse(&text, &|name| host.account(name));
    let mut policy =
        policy.map_err(|error| Failure::new(Exit::Usage, what()).with_source(error))?;
    if policy.has_former_key {
        warn(&format!("rename [tell] to [notify] in '{}': [tell] will be removed", path.display()));
    }
    policy.locate(|path| gpu_host::resolve(Path::new(path)).ok()?.id.ok());
    Ok(policy)
}
