//! The child's end: one thread asks NVML, the other listens.
//!
//! The listener never calls NVML and never waits for the thread that does, so that it can end the
//! process whatever that thread is in: when its input ends, as it does when the program ends in
//! any way, or when the program says that the deadline has passed. It ends the process by
//! `_exit`: `exit` would run what C libraries have registered, NVML's among them, and that may
//! wait for the driver again.

use super::mark::Mark;
use super::stuck::NAME;
use super::wire::{
    self, Greeting, Lines, ORDER_LIMIT, Order, PROTOCOL, Question, Said, Simulated, Then,
};
use crate::Nvml;
use gpu_core::{Fault, GpuBackend, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{c_int, c_long, c_uint};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::Builder;
use std::time::Duration;

/// Answers questions on standard output that come on standard input, until that ends; what
/// [`NvmlChild`](crate::NvmlChild) starts.
///
/// To be called before the program does anything else: it closes every descriptor but the
/// standard ones, whoever has opened it, uses their numbers for others, and ends the process.
pub fn serve(library: Option<&Path>) -> ! {
    close_inherited();
    run(library)
}

/// What both threads know.
struct Shared {
    library: OnceLock<Nvml>,
    /// How many things there are to do that are not done: the greeting, and each question.
    pending: AtomicUsize,
    /// Held while a part is written.
    output: Mutex<()>,
    /// Where both meet before the library is loaded.
    listens: Barrier,
    /// The file that holds the name of this process: opened beforehand, since in the end there
    /// may be no memory to open anything.
    name: Option<OwnedFd>,
    /// Opened beforehand for the same reason.
    mark: Option<Mark>,
}

fn run(library: Option<&Path>) -> ! {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let name = rustix::fs::open("/proc/self/comm", flags, Mode::empty()).ok();
    // It lives as long as the process.
    let shared: &'static Shared = Box::leak(Box::new(Shared {
        library: OnceLock::new(),
        pending: AtomicUsize::new(1),
        output: Mutex::new(()),
        listens: Barrier::new(2),
        name,
        mark: Mark::on(Path::new("/proc/self/exe")).ok(),
    }));
    let (hand_over, questions) = channel();
    if Builder::new().spawn(move || listen(shared, &hand_over)).is_err() {
        _exit(1);
    }
    // A thread that begins registers with the loader, which is locked while it loads: one that
    // began during a load that hangs would never listen.
    shared.listens.wait();
    ask(shared, library, &questions);
    _exit(0);
}

/// Asks NVML what is handed over.
fn ask(shared: &Shared, path: Option<&Path>, questions: &Receiver<(Question, Then)>) {
    let mut line = Vec::new();
    let mut say = |said: &Said| shared.say(&mut line, said);
    let library = Nvml::open(path).map(|library| shared.library.get_or_init(|| library));
    let library = library.map_err(|error| error.fault());
    let simulated = library.as_ref().ok().and_then(|library| library.simulated());
    let simulated = simulated.map(|simulated| Simulated {
        machine: simulated.machine.clone(),
        session: simulated.session.clone(),
    });
    say(&Said::Greeting(Greeting { protocol: PROTOCOL, simulated }));
    shared.pending.fetch_sub(1, Ordering::AcqRel);
    while let Ok((question, then)) = questions.recv() {
        match &library {
            Ok(library) => {
                let closes = matches!(question, Question::Close);
                answer(library, question, &mut say);
                if closes || then != Then::StayOpen {
                    library.close();
                }
            }
            Err(fault) => say(&Said::Refused(fault.clone())),
        }
        // First, since who hears that it is done may hang up, and nothing hangs any more.
        shared.pending.fetch_sub(1, Ordering::AcqRel);
        say(&Said::Done);
        if then == Then::End {
            return;
        }
    }
}

/// Puts a question to NVML and says the answer, each part as soon as it is known.
fn answer(nvml: &Nvml, question: Question, say: &mut impl FnMut(&Said)) {
    fn fault<T>(answer: Result<T>) -> Result<T, Fault> {
        answer.map_err(|error| error.fault())
    }
    let said = match question {
        Question::Driver => Said::Driver(fault(nvml.driver())),
        Question::Devices => Said::Devices(fault(nvml.devices())),
        Question::Sample(device) => Said::Sample(fault(nvml.sample(&device))),
        Question::Processes(device) => Said::Processes(fault(nvml.processes(&device))),
        Question::MigInstances(device) => Said::MigInstances(fault(nvml.mig_instances(&device))),
        Question::Details(device, groups) => {
            Said::Details(fault(nvml.details(&device, groups)).map(Box::new))
        }
        Question::Topology => Said::Topology(fault(nvml.topology())),
        Question::Events { wait_ms } => {
            Said::Events(fault(nvml.events(Duration::from_millis(wait_ms))))
        }
        Question::Look(groups) => {
            let (driver, count) = nvml.begin_look();
            say(&Said::Begun { driver, count });
            for index in 0..count {
                say(&Said::Device(Box::new(nvml.look_at(index, groups))));
            }
            return;
        }
        Question::Close => return,
    };
    say(&said);
}

/// Hears what the program says, hands its questions over, and ends the process in the end.
fn listen(shared: &Shared, hand_over: &Sender<(Question, Then)>) {
    let input = std::io::stdin();
    let mut lines = Lines::default();
    let mut line = Vec::new();
    shared.listens.wait();
    loop {
        let mut piece = [0; 4096];
        match rustix::io::read(input.as_fd(), &mut piece) {
            Ok(0) => shared.end(),
            Ok(count) => lines.add(&piece[..count]),
            Err(Errno::INTR) => {}
            Err(_) => shared.end(),
        }
        while let Some(order) = lines.take() {
            match serde_json::from_slice(order) {
                Ok(Order::Ask { question, then }) => {
                    shared.pending.fetch_add(1, Ordering::AcqRel);
                    // Only a thread that has panicked does not take it, and that ends the process.
                    let _ = hand_over.send((question, then));
                }
                Ok(Order::Where) => shared.say_where(&mut line),
                Ok(Order::End) => {
                    shared.rename();
                    shared.say_where(&mut line);
                    shared.end();
                }
                Err(_) => shared.end(),
            }
        }
        if lines.pending() > ORDER_LIMIT {
            shared.end();
        }
    }
}

impl Shared {
    /// Says something, at once and whole.
    fn say(&self, line: &mut Vec<u8>, said: &Said) {
        let _whole = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        write(line, said);
    }

    /// Says which call has not returned, unless the other thread is saying something: then it is
    /// in no call.
    fn say_where(&self, line: &mut Vec<u8>) {
        let _whole = match self.output.try_lock() {
            Ok(whole) => whole,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        write(line, &Said::Where(self.hanging_call()));
    }

    fn hanging_call(&self) -> Option<String> {
        match self.library.get() {
            Some(library) => library.current_call().map(|call| call.to_string()),
            None => Some("loading the library".to_owned()),
        }
    }

    /// Takes the mark and the name by which others know that this process hangs, if it does. Linux
    /// lets any thread write the name of the first one, which is what `ps` shows of a process.
    fn rename(&self) {
        if self.pending.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(mark) = &self.mark {
            mark.set();
        }
        if let Some(name) = &self.name {
            // Nothing is left to do where it fails.
            let _ = rustix::io::write(name, NAME.as_bytes());
        }
    }

    /// Ends the process. A thread that hangs in the driver keeps it there under its name, with
    /// this thread gone.
    fn end(&self) -> ! {
        self.rename();
        _exit(0);
    }
}

/// Writes one line. Where nobody hears it, there is nobody to go on for.
fn write(line: &mut Vec<u8>, said: &Said) {
    if wire::write(line, said).is_err() {
        _exit(1);
    }
    let mut rest = &line[..];
    while !rest.is_empty() {
        match rustix::io::write(std::io::stdout().as_fd(), rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(_) => _exit(1),
        }
    }
}

unsafe extern "C" {
    /// Ends the process without running what was registered for its end (POSIX `_exit`).
    pub(crate) safe fn _exit(status: c_int) -> !;
    /// Makes a system call by number (glibc and musl `syscall`).
    fn syscall(number: c_long, ...) -> c_long;
}

/// `close_range` of Linux 5.9 has this number on every architecture.
const SYS_CLOSE_RANGE: c_long = 436;

/// Closes every descriptor but the standard ones. A lock or a lease that the program holds by one
/// that it has left open for its children must not live on in a child that hangs.
fn close_inherited() {
    const FIRST: c_uint = 3;
    // SAFETY: it takes three numbers and touches no memory; what it closes is used by nobody, as
    // `serve` never returns and demands to come first, or in a copy of the program in which
    // nothing else goes on.
    let done = unsafe { syscall(SYS_CLOSE_RANGE, FIRST, c_uint::MAX, 0 as c_uint) };
    if done == 0 {
        return;
    }
    // An older kernel: one by one, as many as there may be.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    for number in 3..limit.unwrap_or(1 << 16).min(1 << 16) {
        if let Ok(number) = c_int::try_from(number) {
            // SAFETY: as above.
            unsafe { rustix::io::close(number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::mark::may_be_set;
    use tempfile::NamedTempFile;

    #[test]
    fn busy_child_is_marked_and_named() {
        for (pending, is_reported) in [(0, false), (1, true), (2, true)] {
            let (name, program) = (NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap());
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let shared = Shared {
                library: OnceLock::new(),
                pending: AtomicUsize::new(pending),
                output: Mutex::new(()),
                listens: Barrier::new(2),
                name: Some(rustix::fs::open(name.path(), flags, Mode::empty()).unwrap()),
                mark: Some(Mark::on(program.path()).unwrap()),
            };
            shared.rename();
            assert_eq!(may_be_set(program.path()), is_reported, "{pending}");
            let expected = if is_reported { NAME } else { "" };
            assert_eq!(std::fs::read_to_string(name.path()).unwrap(), expected, "{pending}");
        }
    }
}
