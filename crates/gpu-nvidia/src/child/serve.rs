//! The child. One thread receives requests and calls NVML; another receives orders.
//!
//! The order thread never calls NVML and never waits for the thread that does, so it can end the
//! process in any state of that thread: at the end of its input, which always follows the end of
//! the parent, or at the parent's order after the deadline. Otherwise it sleeps: a query wakes only
//! the thread that runs it. It ends the process with `_exit`, because `exit` would run the exit
//! handlers of C libraries, including NVML's, which may wait for the driver again.

use super::mark::Mark;
use super::stuck::NAME;
use super::wire::{
    self, BATCH, Greeting, Lines, MESSAGE_LIMIT, Order, PROTOCOL, Query, Reply, Request, Simulated,
    Then,
};
use crate::Nvml;
use gpu_core::{Fault, GpuBackend, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::stdio::dup2_stderr;
use serde::de::DeserializeOwned;
use std::ffi::{c_int, c_long, c_uint};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::Builder;
use std::time::Duration;

/// Serves requests from standard input, with replies on standard output, until the input ends;
/// reads orders from standard error. [`NvmlChild`](crate::NvmlChild) starts a program that calls
/// this.
///
/// A program must call it first: it closes every descriptor except the standard ones, whoever
/// opened it, reuses the descriptor numbers, and ends the process.
pub fn serve(library: Option<&Path>) -> ! {
    close_inherited();
    run(library)
}

/// The minimum number of bytes to read at once.
const PIECE: usize = 4096;

/// No query is running.
const IDLE: u8 = 0;
/// The greeting or a query is not finished.
const BUSY: u8 = 1;
/// The process is ending, and starts no further query.
const ENDING: u8 = 2;

/// State shared by both threads.
struct Shared {
    library: OnceLock<Nvml>,
    /// [`IDLE`], [`BUSY`] or [`ENDING`].
    activity: AtomicU8,
    /// The unwritten lines; locked during writes.
    output: Mutex<Vec<u8>>,
    /// Both threads synchronise here before the library is loaded.
    started: Barrier,
    /// The `comm` file of this process, opened in advance, because a hanging process may have no
    /// memory to open it.
    name: Option<OwnedFd>,
    /// Opened in advance for the same reason.
    mark: Option<Mark>,
}

fn run(library: Option<&Path>) -> ! {
    let orders = take_orders().unwrap_or_else(|_| _exit(1));
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let name = rustix::fs::open("/proc/self/comm", flags, Mode::empty()).ok();
    // This lives as long as the process.
    let shared: &'static Shared = Box::leak(Box::new(Shared {
        library: OnceLock::new(),
        activity: AtomicU8::new(BUSY),
        output: Mutex::default(),
        started: Barrier::new(2),
        name,
        mark: Mark::on(Path::new("/proc/self/exe")).ok(),
    }));
    let Some(orders) = orders else {
        shared.send(&Reply::Greeting(Greeting { protocol: PROTOCOL, simulated: None }));
        _exit(0);
    };
    if Builder::new().spawn(move || follow_orders(shared, orders)).is_err() {
        _exit(1);
    }
    // A new thread registers with the dynamic loader, which is locked during the load of a library.
    // A thread started during a hanging load would never run.
    shared.started.wait();
    ask(shared, library);
    _exit(0);
}

/// Takes the order pipe from standard error, because a library may write to standard error and
/// programs that it starts inherit it. Returns `None` if it is not a pipe: the program then uses
/// another protocol version.
fn take_orders() -> rustix::io::Result<Option<OwnedFd>> {
    let orders = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 3)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    dup2_stderr(&rustix::fs::open("/dev/null", flags, Mode::empty())?)?;
    let is_pipe = FileType::from_raw_mode(rustix::fs::fstat(&orders)?.st_mode) == FileType::Fifo;
    Ok(Some(orders).filter(|_| is_pipe))
}

/// Messages of the program.
struct Inbox<F> {
    input: F,
    lines: Lines,
}

impl<F: AsFd> Inbox<F> {
    fn new(input: F) -> Self {
        Inbox { input, lines: Lines::default() }
    }

    /// Waits for the next message; `None` at the end of the input, or for an invalid message.
    fn next<M: DeserializeOwned>(&mut self) -> Option<M> {
        loop {
            if let Some(line) = self.lines.take() {
                return serde_json::from_slice(line).ok();
            }
            match self.lines.read(&self.input, PIECE) {
                Ok(0) => return None,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
            if self.lines.pending() > MESSAGE_LIMIT {
                return None;
            }
        }
    }
}

/// Runs the requested queries.
fn ask(shared: &Shared, path: Option<&Path>) {
    let mut send = |reply: &Reply| shared.send(reply);
    let library = Nvml::open(path).map(|library| shared.library.get_or_init(|| library));
    let library = library.map_err(|error| error.fault());
    let simulated = library.as_ref().ok().and_then(|library| library.simulated());
    let simulated = simulated.map(|simulated| Simulated {
        machine: simulated.machine.clone(),
        session: simulated.session.clone(),
    });
    send(&Reply::Greeting(Greeting { protocol: PROTOCOL, simulated }));
    shared.end_query();
    let mut requests = Inbox::new(std::io::stdin());
    while let Some(Request { query, then }) = requests.next() {
        shared.begin_query();
        match &library {
            Ok(library) => {
                let closes = matches!(query, Query::Close);
                answer(library, query, &mut send);
                if closes || then != Then::StayOpen {
                    library.close();
                }
            }
            Err(fault) => send(&Reply::Refused(fault.clone())),
        }
        // This precedes the reply: the parent may disconnect after it, and the call no longer
        // hangs.
        shared.end_query();
        send(&Reply::Done);
        if then == Then::End {
            return;
        }
    }
}

/// Runs a query and sends the reply in parts.
fn answer(nvml: &Nvml, query: Query, send: &mut impl FnMut(&Reply)) {
    fn fault<T>(answer: Result<T>) -> Result<T, Fault> {
        answer.map_err(|error| error.fault())
    }
    let reply = match query {
        Query::Driver => Reply::Driver(fault(nvml.driver())),
        Query::Devices => Reply::Devices(fault(nvml.devices())),
        Query::Sample(device) => Reply::Sample(fault(nvml.sample(&device))),
        Query::Processes(device) => Reply::Processes(fault(nvml.processes(&device))),
        Query::MigInstances(device) => Reply::MigInstances(fault(nvml.partitions(&device))),
        Query::Details(device, groups) => {
            Reply::Details(fault(nvml.details(&device, groups)).map(Box::new))
        }
        Query::Topology => Reply::Topology(fault(nvml.topology())),
        Query::PeerAccess(capability) => Reply::PeerAccess(fault(nvml.peer_access(capability))),
        Query::Events { wait_ms } => {
            Reply::Events(fault(nvml.events(Duration::from_millis(wait_ms))))
        }
        Query::Look(groups) => {
            let (driver, count) = nvml.begin_snapshot();
            send(&Reply::Begun { driver, count });
            for index in 0..count {
                send(&Reply::Device(Box::new(nvml.query_device(index, groups))));
            }
            return;
        }
        Query::Close => return,
    };
    send(&reply);
}

/// Follows orders, and ends the process at the end of the pipe.
fn follow_orders(shared: &Shared, orders: OwnedFd) {
    let mut orders = Inbox::new(orders);
    shared.started.wait();
    loop {
        match orders.next() {
            Some(Order::Where) => shared.send_current_call(),
            Some(Order::End) => {
                shared.rename();
                shared.send_current_call();
                shared.end();
            }
            None => shared.end(),
        }
    }
}

impl Shared {
    /// Marks a query as running; exits if the process is ending.
    fn begin_query(&self) {
        let idle = self.activity.compare_exchange(IDLE, BUSY, Ordering::AcqRel, Ordering::Acquire);
        if idle.is_err() {
            _exit(0);
        }
    }

    /// Marks the query as finished.
    fn end_query(&self) {
        // Otherwise the process is ending.
        let _ = self.activity.compare_exchange(BUSY, IDLE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Sends a message atomically. A part is only sent with those after it, or when the next call
    /// takes long.
    fn send(&self, reply: &Reply) {
        let mut lines = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut lines, reply);
        if (!reply.is_part() || lines.len() >= BATCH) && write(&mut lines).is_err() {
            _exit(1);
        }
    }

    /// Sends the waiting parts and the current call, unless the other thread is sending a message
    /// and is therefore not in a call.
    fn send_current_call(&self) {
        let mut lines = match self.output.try_lock() {
            Ok(lines) => lines,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        add(&mut lines, &Reply::Where(self.hanging_call()));
        if write(&mut lines).is_err() {
            self.end();
        }
    }

    fn hanging_call(&self) -> Option<String> {
        match self.library.get() {
            Some(library) => library.current_call().map(|call| call.to_string()),
            None => Some("loading the library".to_owned()),
        }
    }

    /// Sets the mark and the name of a hanging process if a query is running; no query starts after
    /// that. On Linux, any thread may write the name of the main thread, which `ps` shows as the
    /// process name.
    fn rename(&self) {
        if self.activity.swap(ENDING, Ordering::AcqRel) != BUSY {
            return;
        }
        if let Some(mark) = &self.mark {
            mark.set(std::process::id());
        }
        if let Some(name) = &self.name {
            // Errors cannot be handled here.
            let _ = rustix::io::write(name, NAME.as_bytes());
        }
    }

    /// Ends the process. A thread that hangs in the driver keeps it alive under its new name.
    fn end(&self) -> ! {
        self.rename();
        _exit(0);
    }
}

/// Appends a message; exits on failure.
fn add(lines: &mut Vec<u8>, reply: &Reply) {
    if wire::write(lines, reply).is_err() {
        _exit(1);
    }
}

/// Writes the lines.
///
/// # Errors
/// If the parent has ended.
fn write(lines: &mut Vec<u8>) -> rustix::io::Result<()> {
    let mut rest = &lines[..];
    while !rest.is_empty() {
        match rustix::io::write(std::io::stdout().as_fd(), rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    lines.clear();
    Ok(())
}

unsafe extern "C" {
    /// Ends the process without running exit handlers (POSIX `_exit`).
    pub(crate) safe fn _exit(status: c_int) -> !;
    /// Makes a system call by number (glibc and musl `syscall`).
    fn syscall(number: c_long, ...) -> c_long;
}

/// The number of `close_range` (Linux 5.9), the same on every architecture.
const SYS_CLOSE_RANGE: c_long = 436;

/// Closes every descriptor except the standard ones. A hanging child must not keep a lock or a
/// lease alive through an inherited descriptor.
fn close_inherited() {
    const FIRST: c_uint = 3;
    // SAFETY: it takes three integers and accesses no memory. No other code uses the closed
    // descriptors: `serve` never returns, and is called first or runs in a fork without other
    // threads.
    let done = unsafe { syscall(SYS_CLOSE_RANGE, FIRST, c_uint::MAX, 0 as c_uint) };
    if done == 0 {
        return;
    }
    // On an older kernel, close each possible descriptor.
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
    use crate::child::mark::marked;
    use tempfile::NamedTempFile;

    #[test]
    fn busy_child_is_marked_and_named() {
        for activity in [IDLE, BUSY, ENDING] {
            let is_busy = activity == BUSY;
            let (name, program) = (NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap());
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let shared = Shared {
                library: OnceLock::new(),
                activity: AtomicU8::new(activity),
                output: Mutex::default(),
                started: Barrier::new(2),
                name: Some(rustix::fs::open(name.path(), flags, Mode::empty()).unwrap()),
                mark: Some(Mark::on(program.path()).unwrap()),
            };
            shared.rename();
            let pids = if is_busy { vec![std::process::id()] } else { vec![] };
            assert_eq!(marked(program.path()), Some(pids), "{activity}");
            let expected = if is_busy { NAME } else { "" };
            assert_eq!(std::fs::read_to_string(name.path()).unwrap(), expected, "{activity}");
        }
    }
}
