//! `gpuws claim`: devices for a script or a shell.

use crate::args::{ClaimArgs, Global};
use crate::claiming::{self, NoJournal, chosen, failure, reasons, whose};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holder::{Holder, Keeps, RENEWAL, opened};
use crate::json;
use crate::source::Source;
use crate::terminal::{Line, Screen, progress};
use crate::waiting::{Teller, ordinal};
use crate::words;
use gpu_core::{Ending, EntryKind, ProcessInfo, ProcessKey};
use gpu_host::supervise::end_as;
use gpu_steward::{Grant, NotGranted, Ports, Preview, Request, environment, preview, take};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::process::geteuid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) fn run(args: &ClaimArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let done = claim(args, global, screen);
    if let (Err(failure), true, false) = (&done, args.export, global.json) {
        // `eval` of nothing succeeds, and the script would go on without devices of its own.
        let code = failure.exit().code();
        screen.print(&Line::new().plain(format_args!("(exit {code})")))?;
    }
    done
}

fn claim(args: &ClaimArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    if args.hold || args.export {
        claiming::real_processes(global)?;
    }
    let source = Source::open(global)?;
    if args.placeholder {
        placeholder_makes_sense(args, &source)?;
    }
    let locks = source.locks(args.wanted.claims.as_deref())?;
    let root = match args.owner {
        Some(pid) => owned(source.host.process(pid)?)?,
        None => asker(&source, args)?,
    };
    let (request, notes) = claiming::request(&args.wanted, &source, root.key, described(&root))?;
    if !global.quiet {
        notes.iter().for_each(|note| progress(note));
    }
    let ports = Ports {
        backend: &*source.backend,
        host: &*source.host,
        clock: &*source.clock,
        journal: &NoJournal,
        locks: &locks,
    };
    if !args.hold && !args.export {
        let seen = preview(&request, &ports).map_err(|why| failure(&request, why))?;
        show_preview(screen, global, args, &request, &seen)?;
        return Ok(Exit::Done);
    }
    let signals = Signals::watch()?;
    let mut teller = Teller::new(&request.claim, global.quiet);
    let grant = take(&request, &ports, &mut |waiting| {
        teller.tell(waiting);
        signals.told()
    });
    teller.clear();
    let mut grant = match grant {
        Ok(grant) => grant,
        Err(NotGranted::Stopped) => return Ok(signals.end()),
        Err(why) => return Err(failure(&request, why)),
    };
    let form = args.wanted.visible.into();
    let variables = environment(&grant.entry, form, &grant.scene.snapshot.devices)?;
    let keeps = Keeps { lease: args.export, contexts: args.placeholder };
    let holder = match args.export || args.placeholder {
        true => Some(Holder::start(&grant, root.key, keeps, &variables)?),
        false => None,
    };
    // There is no job to wait for: with placeholders, safe-gpu sees the devices in use by now.
    if let Some(Err(error)) = grant.held_back.take() {
        let fault = error.fault();
        progress(&format!("users of safe-gpu do not see the lease: failed to {fault}"));
    }
    for (device, bar) in &grant.accepted {
        progress(&format!("mind: GPU {} is {}", device.index, claiming::barred(bar)));
    }
    match global.json {
        true => screen.json(&json::Claimed::of(&grant))?,
        false => told(screen, args, &variables)?,
    }
    match (args.export, holder) {
        (true, holder) => {
            holder.into_iter().for_each(Holder::leave);
            // The lock is the holder's now: to let go of it here would let go of it there.
            std::mem::forget(grant);
            Ok(Exit::Done)
        }
        // What keeps the contexts ends when this does.
        (false, _holder) => hold(grant, &ports, root.key, &signals),
    }
}

/// Says what was taken, to a shell or a script.
fn told(
    screen: &mut Screen,
    args: &ClaimArgs,
    variables: &[(OsString, OsString)],
) -> Result<(), Failure> {
    for (name, value) in variables {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let value = crate::args::shell_word(&value);
        let export = if args.export { "export " } else { "" };
        screen.print(&Line::new().plain(format_args!("{export}{name}={value}")))?;
    }
    Ok(())
}

/// Refuses a placeholder that nobody would keep, or that would be on real devices for the sake of
/// simulated ones.
fn placeholder_makes_sense(args: &ClaimArgs, source: &Source) -> Result<(), Failure> {
    let refused = |why: &str| {
        Err(Failure::new(Exit::Usage, "keep a placeholder").with_source(why.to_owned()))
    };
    if !args.hold && !args.export {
        return refused("without --hold or --export nothing is taken");
    }
    if source.host.origin() != gpu_core::Origin::Live {
        return refused("a simulated machine has no CUDA; nvml-sim-process --use stands for it");
    }
    Ok(())
}

/// Shows what would be granted now.
fn show_preview(
    screen: &mut Screen,
    global: &Global,
    args: &ClaimArgs,
    request: &Request,
    seen: &Preview,
) -> Result<(), Failure> {
    if global.json {
        return screen.json(&json::Wanted::of(seen));
    }
    let origin = &seen.scene.snapshot.origin;
    if *origin != gpu_core::Origin::Live {
        screen.print(&Line::new().accent(origin))?;
    }
    match &seen.decision {
        Ok(decision) => {
            words::flow(screen, Line::new().plain("would take "), &chosen(decision))?;
            for reason in reasons(decision.passed()) {
                screen.print(&Line::new().dim(format_args!("  {reason}")))?;
            }
        }
        Err(refused) => {
            let asked = crate::waiting::asked(&request.claim);
            screen.print(&Line::new().accent(format_args!("{asked} cannot be had now")))?;
            for reason in reasons(refused.passed()) {
                screen.print(&Line::new().plain(format_args!("  {reason}")))?;
            }
        }
    }
    if let Some(first) = seen.ahead.first() {
        let place = ordinal(seen.ahead.len() + 1);
        let text = format!("it would be {place} in the queue; first is {}", whose(first));
        words::flow(screen, Line::new(), &text)?;
    }
    if global.quiet {
        return Ok(());
    }
    let count = match args.wanted.count {
        1 => String::new(),
        count => format!(" -n {count}"),
    };
    let line = Line::new().plain("nothing was taken.   ");
    screen.print(&line.accent(format_args!("gpuws run{count} -- COMMAND")))
}

/// Finds for whom the devices are: the process that started this one. A shell that was copied only
/// to run a part of a line, as for `$(…)` with more than one command, ends at once: there it is
/// the shell itself.
///
/// Where that is the first process of the machine, or of a user's session, everybody descends from
/// it: what is held is then for this program alone.
fn asker(source: &Source, args: &ClaimArgs) -> Result<ProcessInfo, Failure> {
    let line = source.host.own_line()?;
    let gone = || Failure::new(Exit::Own, "find the process that started gpuws");
    let mut line = line.iter();
    let own = source.host.process(line.next().ok_or_else(gone)?.pid)?;
    let first = line.next().ok_or_else(gone)?;
    let mut asker = source.host.process(first.pid)?;
    if first.pid.0 == 1 || asker.name == "systemd" {
        return match args.export {
            false => Ok(own),
            true => Err(Failure::new(Exit::Usage, "claim for the process that started gpuws")
                .with_source("everybody descends from that one")
                .with_hint("name the process: --for PID")),
        };
    }
    for next in line {
        let next = source.host.process(next.pid)?;
        let is_copy = next.command_line.is_ok()
            && next.command_line == asker.command_line
            && next.group.is_ok()
            && next.group == asker.group;
        if !is_copy {
            break;
        }
        asker = next;
    }
    Ok(asker)
}

/// Refuses a process whose descendants are not the caller's to claim for: nobody would believe such
/// a lease, or, for the ancestor of everybody, everybody would be within it.
fn owned(root: ProcessInfo) -> Result<ProcessInfo, Failure> {
    let own = root.uid == Ok(geteuid().as_raw());
    match own && root.key.pid.0 > 1 {
        true => Ok(root),
        false => Err(Failure::new(Exit::Usage, format!("claim for process {}", root.key.pid))
            .with_source("it is not yours alone")
            .with_hint("--for takes a process of your own, such as $$")),
    }
}

fn described(root: &ProcessInfo) -> String {
    let words: Vec<OsString> = match &root.command_line {
        Ok(words) if !words.is_empty() => words.iter().map(OsString::from).collect(),
        _ => vec![OsString::from(&root.name)],
    };
    claiming::described(&words)
}

/// Requests to end that reach this program.
struct Signals {
    pipe: UnixStream,
    /// The signal that came, 0 for none.
    told: Arc<AtomicUsize>,
}

impl Signals {
    fn watch() -> Result<Self, Failure> {
        let failed = |error| Failure::io("watch for Ctrl-C", error).ending(Exit::Own);
        let (pipe, sender) = UnixStream::pair().map_err(failed)?;
        let told = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let sender = sender.try_clone().map_err(failed)?;
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&told), number).map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, sender).map_err(failed)?;
        }
        Ok(Signals { pipe, told })
    }

    fn told(&self) -> ControlFlow<()> {
        match self.told.load(Ordering::Relaxed) {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Ends this program by the signal that it was told to end by.
    fn end(&self) -> Exit {
        let signal = i32::try_from(self.told.load(Ordering::Relaxed)).unwrap_or(SIGTERM);
        Exit::Passed(u8::try_from(end_as(Ending::Signal(signal))).unwrap_or(u8::MAX))
    }
}

/// Holds devices until the process that asked ends, this program is told to end, or the other end
/// of its standard input, where that is a pipe, is closed.
fn hold(
    mut grant: Grant,
    ports: &Ports<'_>,
    root: ProcessKey,
    signals: &Signals,
) -> Result<Exit, Failure> {
    let failed = |errno: Errno| Failure::io("wait for the end of the lease", errno.into());
    let Some(root) = opened(root).map_err(failed)? else { return Ok(Exit::Done) };
    let stdin = std::io::stdin();
    let mut has_pipe = fstat(&stdin).is_ok_and(|stat| {
        matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket)
    });
    loop {
        let mut files =
            vec![PollFd::new(&root, PollFlags::IN), PollFd::new(&signals.pipe, PollFlags::IN)];
        if has_pipe {
            files.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut files, Some(&RENEWAL)) {
            Ok(0) if !grant.held.renew()? => {
                // Somebody has cleared it away.
                grant.held = ports.locks.publish(EntryKind::Lease, &grant.entry)?;
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
        if ready[0] || ready[1] || signals.told().is_break() {
            return Ok(Exit::Done);
        }
        if ready.get(2) == Some(&true) {
            match stdin.lock().read(&mut [0; 4096]) {
                Ok(0) => return Ok(Exit::Done),
                Ok(_) => {}
                Err(_) => has_pipe = false,
            }
        }
    }
}
