//! `gpuws run`: a program on devices of its own, of which nothing is left.
//!
//! This is the supervisor's part, for which the [frontend](super::frontend) stands: it claims, starts the
//! program, and cleans up, also when the front is killed.

mod report;

use super::frontend::FrontendArgs;
use super::mem::{bounding as bounding_of, told as bounded};
use super::shim::Shim;
use crate::args::{Global, RunArgs};
use crate::claim_request::{self, failure};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::queue_status::Teller;
use crate::source::{self, CLAIMS, roots};
use crate::terminal::{Line, one_line};
use crate::wording;
use gpu_core::{ActToken, Bytes, ErrorKind, JobExit, Launch, Origin, ProcessFault};
use gpu_host::supervise::{LinuxLauncher, dismiss, end_as, find_program};
use gpu_machine::placeholder;
use gpu_report::json;
use gpu_report::wording::claims::{chosen, gpus};
use gpu_report::wording::run::{above, still_there, summary};
use gpu_steward::{Event, Grant, HandOff, NotGranted, NotRun, OnDeath, Ports, RunOrder, RunReport};
use report::{ReportFile, exit};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

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
    let claims = claims.map(|folder| (OsString::from(CLAIMS), folder.into_os_string()));
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
        told: None,
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
    if let Some(told) = watch.told {
        return Ok(told);
    }
    match ran {
        Ok(report) => Ok(watch.end(&report)),
        Err(NotRun::NotGranted(NotGranted::Stopped) | NotRun::Stopped) => Ok(watch.stopped()),
        Err(NotRun::NotGranted(why)) => Err(own(failure(&wanted, why))),
        Err(NotRun::NotStarted(error)) => Err(not_started(&error)),
        Err(NotRun::Lost(error, _)) => Err(own(error.into())),
    }
}

/// Tells on standard error what happens around the program; standard output is the program's.
struct Watch<'a> {
    global: &'a Global,
    front: &'a FrontendArgs,
    file: Option<ReportFile>,
    /// How to end, once the front was told what it came to.
    told: Option<Exit>,
    quiet: bool,
    queue: Teller,
    launcher: &'a LinuxLauncher,
    origin: Origin,
    on_death: OnDeath,
    /// The memory that it has of each device; `None` for whole ones.
    share: Option<Bytes>,
    /// All of it is to end, the program itself too.
    is_over: bool,
    /// The signal by which somebody asked to end before the program ran.
    asked: Option<i32>,
    has_waited: bool,
    told_waiting: bool,
}

impl Watch<'_> {
    fn see(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Waiting(waiting) => {
                self.has_waited = true;
                self.queue.tell(waiting);
                return self.go_on();
            }
            Event::Granted(grant) => {
                self.queue.clear();
                self.granted(grant);
                return self.go_on();
            }
            Event::Bounded(advice) => {
                self.tell(&bounded(advice, self.share.unwrap_or_default()));
                return self.go_on();
            }
            Event::HandedOff(HandOff::TimedOut) => {
                self.tell("the job is not using its GPUs yet; safe-gpu may consider them free")
            }
            Event::HandedOff(HandOff::Seen | HandOff::Wanted | HandOff::Covered) => {}
            Event::NotCovered(error) => {
                let fault = error.fault();
                self.tell(&format!("warning: no placeholder for the job: failed to {fault}"));
            }
            Event::Contended(others) => {
                let who = match others.first() {
                    Some(pid) if pid.0 > 0 => format!("process {pid}"),
                    _ => "another process".to_owned(),
                };
                self.tell(&format!(
                    "the job waits for safe-gpu's lock, and so does {who}, which might take the \
                        job's GPUs; holding the lock until only the job waits"
                ));
            }
            Event::Unseen(error) => {
                let fault = error.fault();
                self.tell(&format!(
                    "warning: the lease may be invisible to others: failed to {fault}"
                ));
            }
            Event::NotPassed(_, error) => {
                self.tell(&format!("could not forward the signal: failed to {}", error.fault()));
            }
            Event::LimitReached => {
                self.is_over = true;
                self.tell("time limit reached; ending the job");
            }
            Event::Abandoned if self.on_death == OnDeath::End => {
                self.is_over = true;
                self.tell("front end was killed; ending the job");
            }
            Event::Abandoned => {}
            Event::CleaningUp(event) => self.cleaning_up(&event),
            Event::WaitingForMemory(waited) if waited >= Duration::from_secs(1) => {
                if !std::mem::replace(&mut self.told_waiting, true) {
                    self.tell("waiting for GPU memory to be freed …");
                }
            }
            Event::WaitingForMemory(_) => {}
            Event::Keeping(ran) => return self.keep(ran),
        }
        ControlFlow::Continue(())
    }

    /// Before the program runs, who asks gpuws to end asks for no more than that.
    fn go_on(&mut self) -> ControlFlow<()> {
        let abandoned =
            self.on_death == OnDeath::End && self.launcher.is_abandoned().unwrap_or(false);
        self.asked = self.asked.or_else(|| self.launcher.asked());
        match self.asked.is_some() || abandoned {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn stopped(&mut self) -> Exit {
        self.queue.clear();
        self.tell("interrupted; nothing was claimed");
        let signal = JobExit::Signal(self.asked.unwrap_or(signal_hook::consts::SIGTERM));
        Exit::Passed(u8::try_from(end_as(signal)).unwrap_or(u8::MAX))
    }

    fn granted(&self, grant: &Grant) {
        let indexes: Vec<u32> = grant.devices.iter().map(|id| id.index).collect();
        let tells_more = grant.decision.as_ref().map(chosen).filter(|text| *text != gpus(&indexes));
        // Who got what there was need not read it; who waited, or had a choice, does.
        if self.has_waited || tells_more.is_some() || indexes.len() > 1 {
            self.tell(&tells_more.unwrap_or_else(|| gpus(&indexes)));
        }
        for (device, bar) in &grant.accepted {
            let bar = claim_request::barred(bar);
            self.tell(&format!("warning: GPU {}: {bar}", device.index));
        }
        if let Some(Err(error)) = &grant.held_back {
            let fault = error.fault();
            self.tell(&format!(
                "warning: safe-gpu users will not see the lease: failed to {fault}"
            ));
        }
    }

    fn cleaning_up(&self, event: &gpu_reaper::Event<'_>) {
        if let gpu_reaper::Event::Signalled(target, signal) = event {
            let who = wording::process(target.key.pid, &target.process.name);
            let why = if self.is_over { "" } else { " (left behind)" };
            self.tell(&format!("{signal} to {who}{why}"));
        }
    }

    /// Tells what the run came to, and lets the front go: from here on this process is there to
    /// keep the lease, and nobody waits for it.
    fn keep(&mut self, ran: Result<&RunReport, &gpu_core::Error>) -> ControlFlow<()> {
        let ending = match ran {
            Ok(report) => {
                self.tell_end(report);
                ending(report)
            }
            Err(error) => {
                let failure = Failure::from(error.clone()).ending(Exit::Own);
                let _ = writeln!(std::io::stderr(), "{failure}");
                JobExit::Code(Exit::Own.code().into())
            }
        };
        self.told = Some(Exit::Passed(u8::try_from(ending.code()).unwrap_or(u8::MAX)));
        match dismiss(&roots(), self.front.key, &self.front.dismissal, ending) {
            Ok(_) => {
                leave_the_terminal();
                ControlFlow::Continue(())
            }
            Err(error) => {
                let fault = error.fault();
                self.tell(&format!(
                    "warning: the lease stays with processes that inherited it: failed to {fault}"
                ));
                ControlFlow::Break(())
            }
        }
    }

    /// Tells the last line, and returns how to end.
    fn end(&mut self, report: &RunReport) -> Exit {
        self.tell_end(report);
        Exit::Passed(u8::try_from(end_as(ending(report))).unwrap_or(u8::MAX))
    }

    fn tell_end(&mut self, report: &RunReport) {
        let view = json::Run::of(report, exit(report).code(), self.share, &self.origin);
        if self.global.json {
            if let Ok(text) = one_line(&view) {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        } else {
            self.tell(&summary(report, self.share));
            for above in above(report, self.share) {
                self.tell(&format!("warning: {above}; the excess may belong to another job"));
            }
            for left in &report.still_there {
                self.tell(&format!("mind: {}", still_there(left, report)));
            }
            if report.lease_stays {
                let indexes: Vec<u32> =
                    report.devices.iter().map(|used| used.device.index).collect();
                let (gpus, own) = (gpus(&indexes), std::process::id());
                let verb = if indexes.len() == 1 { "stays" } else { "stay" };
                let who = match &report.remaining[..] {
                    [] => "that can be confirmed".to_owned(),
                    [one] => format!("{} exits", wording::process(one.key.pid, &one.name)),
                    _ => "they exit".to_owned(),
                };
                self.tell(&format!(
                    "warning: {gpus} {verb} leased until {who}; release now with: kill {own}"
                ));
            }
            match &report.stopped {
                Some(fault) => self.tell(&format!("warning: failed to {fault}")),
                None if report.memory_back == Ok(false) => {
                    self.tell("warning: memory was not freed; for details: gpuws doctor");
                }
                None => {}
            }
            if let Some(fault) = &report.unwritten {
                self.tell(&format!("warning: the audit log is incomplete: failed to {fault}"));
            }
        }
        // The program's code is what a script waits for; a file is not to take its place.
        if let Some(lacks) = self.file.take().and_then(|file| file.write(&view)) {
            self.tell(&format!("warning: {lacks}"));
        }
    }

    /// Says something in a line of its own; nobody is helped by a failure to say it.
    fn tell(&self, text: &str) {
        if !self.quiet {
            let line = Line::new().plain("gpuws: ").plain(text);
            let _ = writeln!(std::io::stderr(), "{}", line.text());
        }
    }
}

/// Returns how gpuws ends for a run that came to this.
fn ending(report: &RunReport) -> JobExit {
    match exit(report) {
        Exit::Passed(_) => report.ending,
        exit => JobExit::Code(exit.code().into()),
    }
}

/// Closes standard input, output and error, so that whoever reads them sees their end, and leaves
/// the current folder. What fails here keeps a pipe or a mount busy, no more.
fn leave_the_terminal() {
    let nowhere = std::fs::File::options().read(true).write(true).open("/dev/null");
    if let Ok(nowhere) = nowhere {
        let _ = rustix::stdio::dup2_stdin(&nowhere);
        let _ = rustix::stdio::dup2_stdout(&nowhere);
        let _ = rustix::stdio::dup2_stderr(&nowhere);
    }
    let _ = std::env::set_current_dir("/");
}
