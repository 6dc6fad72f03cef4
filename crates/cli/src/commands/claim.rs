//! `gpuws claim`: devices for a script or a shell.

use crate::args::{ClaimArgs, Global};
use crate::claiming::{self, NoJournal, chosen, failure, reasons, whose};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json;
use crate::source::{Source, roots};
use crate::terminal::{Line, Screen, progress};
use crate::waiting::{Teller, ordinal};
use crate::words;
use gpu_core::{DeviceUuid, Host, ProcessInfo, ProcessKey};
use gpu_host::LinuxHost;
use gpu_host::supervise::parse_words;
use gpu_nvidia::CudaContexts;
use gpu_steward::{Grant, Ports, Preview, Request, environment, preview, take};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The word that makes this program keep a lease for somebody; nobody types it.
pub(crate) const HOLDER: &str = "lease-holder";

pub(crate) fn run(args: &ClaimArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    let source = Source::open(global)?;
    if args.placeholder {
        placeholder_makes_sense(args, &source)?;
    }
    let locks = source.locks(args.wanted.claims.as_deref())?;
    let root = match args.owner {
        Some(pid) => source.host.process(pid).map_err(Failure::from)?,
        None => asker(&source)?,
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
    let grant = grant.map_err(|why| failure(&request, why))?;
    let contexts = match args.placeholder && args.hold {
        true => Some(CudaContexts::hold(None, &grant.entry.devices)?),
        false => None,
    };
    let form = args.wanted.visible.into();
    let variables = environment(&grant.entry, form, &grant.scene.snapshot.devices)?;
    let claimed = global.json.then(|| json::Claimed::of(&grant));
    if args.export {
        leave_to_holder(&grant, root.key, args.placeholder)?;
        // The lock is the holder's now: to let go of it here would let go of it there.
        std::mem::forget(grant);
        told(screen, args, claimed, &variables)?;
        return Ok(Exit::Done);
    }
    told(screen, args, claimed, &variables)?;
    let held = hold(&grant, root.key, &signals);
    drop(contexts);
    held
}

/// Says what was taken: to a shell, a script, or as an object.
fn told(
    screen: &mut Screen,
    args: &ClaimArgs,
    claimed: Option<json::Claimed>,
    variables: &[(OsString, OsString)],
) -> Result<(), Failure> {
    if let Some(claimed) = claimed {
        return screen.json(&claimed);
    }
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
fn asker(source: &Source) -> Result<ProcessInfo, Failure> {
    let line = source.host.own_line()?;
    let mut ancestors = line.iter().skip(1);
    let gone = || Failure::new(Exit::Own, "find the process that started gpuws");
    let first = ancestors.next().ok_or_else(gone)?;
    let mut asker = source.host.process(first.pid)?;
    for next in ancestors {
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
    told: Arc<AtomicBool>,
}

impl Signals {
    fn watch() -> Result<Self, Failure> {
        let failed = |error| Failure::io("watch for Ctrl-C", error).ending(Exit::Own);
        let (pipe, sender) = UnixStream::pair().map_err(failed)?;
        let told = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let sender = sender.try_clone().map_err(failed)?;
            signal_hook::flag::register(signal, Arc::clone(&told)).map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, sender).map_err(failed)?;
        }
        Ok(Signals { pipe, told })
    }

    fn told(&self) -> ControlFlow<()> {
        match self.told.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Holds devices until the process that asked ends, this program is told to end, or the other end
/// of its standard input, where that is a pipe, is closed.
fn hold(_grant: &Grant, root: ProcessKey, signals: &Signals) -> Result<Exit, Failure> {
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
        match poll(&mut files, None) {
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

/// Opens a process; `None` when it has ended, or its number is another's by now.
fn opened(key: ProcessKey) -> Result<Option<OwnedFd>, Errno> {
    let number = i32::try_from(key.pid.0).ok().and_then(rustix::process::Pid::from_raw);
    let pidfd = match number.map(|number| pidfd_open(number, PidfdFlags::empty())) {
        Some(Ok(pidfd)) => pidfd,
        None | Some(Err(Errno::SRCH)) => return Ok(None),
        Some(Err(errno)) => return Err(errno),
    };
    // The number was somebody's when it was opened: whose it is is asked next.
    let host = LinuxHost::new(roots());
    let same = host.process(key.pid).is_ok_and(|info| info.key.surely_same(&key));
    Ok(same.then_some(pidfd))
}

/// Starts the program that keeps the lease until `root` ends, and waits until it does.
fn leave_to_holder(grant: &Grant, root: ProcessKey, placeholder: bool) -> Result<(), Failure> {
    let failed =
        |error| Failure::io("start the program that keeps the lease", error).ending(Exit::Own);
    let own = std::env::current_exe().map_err(failed)?;
    let start = root.start.map_or(0, |start| start.0);
    let devices = grant.entry.devices.iter().filter(|_| placeholder).map(ToString::to_string);
    grant.held.inherit(true)?;
    let holder = Command::new(own)
        .args([HOLDER, &root.pid.to_string(), &start.to_string()])
        .args(devices)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn();
    grant.held.inherit(false)?;
    let mut said = String::new();
    let output = holder.map_err(failed)?.stdout.take();
    output.map_or(Ok(0), |output| output.take(4096).read_to_string(&mut said)).map_err(failed)?;
    match said.strip_suffix(HOLDS) {
        Some("") => Ok(()),
        _ => Err(Failure::new(Exit::Own, "keep the lease").with_source(said)),
    }
}

/// What the holder says when it has all that it is to keep.
const HOLDS: &str = "holds";

/// Keeps the descriptors that were inherited, and contexts on the devices that are named, until a
/// process ends, where this program was started
/// for that, and does nothing else.
pub(crate) fn hold_where_asked() -> Option<Exit> {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_none_or(|word| word != *HOLDER) {
        return None;
    }
    let (Some(pid), Some(start)) = (words.next(), words.next()) else { return Some(Exit::Usage) };
    let Ok(root) = parse_words(&pid, &start) else { return Some(Exit::Usage) };
    let devices = words.map(|word| DeviceUuid(word.to_string_lossy().into_owned()));
    let devices: Vec<DeviceUuid> = devices.collect();
    let contexts = match devices.is_empty() {
        true => Ok(None),
        false => CudaContexts::hold(None, &devices).map(Some),
    };
    let mut stdout = std::io::stdout();
    let said = match &contexts {
        Ok(_) => HOLDS.to_owned(),
        Err(error) => error.fault().text,
    };
    // Who waits for this word is told by the end of the pipe that nothing follows.
    let told = stdout.write_all(said.as_bytes()).and_then(|()| stdout.flush());
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
    let hung_up = nowhere.and_then(|nowhere| Ok(rustix::stdio::dup2_stdout(nowhere)?));
    if contexts.is_err() || told.is_err() || hung_up.is_err() {
        return Some(Exit::Own);
    }
    if let Ok(Some(root)) = opened(root) {
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&root, PollFlags::IN)], None) {}
    }
    Some(Exit::Done)
}
