//! A process of the test world. An attacker does anything that its user may do with its own
//! processes; the others do not change.

use super::driver;
use super::roles::{ActorRole, PROGRAM_NAMES, PROGRAMS, WorldDirs};
use super::truth::{Truth, descriptors};
use gpuws_tests::Chance;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    DumpableBehavior, Pid, Signal, getpid, getppid, kill_process, set_dumpable_behavior, setpgid,
    setsid,
};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The longest time between two steps of an attacker.
const PAUSE_MS: u64 = 150;

/// Process names to adopt.
const NAMES: [&[u8]; 14] = [
    b"Xorg",
    b"nvidia-cuda-mps-server",
    b"nvidia-persistenced",
    b"gpuws-stuck",
    b"gpuws",
    b"sshd",
    b") S 1 1",
    b") Z 1 1 1 1 1 1",
    b"((((",
    b"a\nUid:\t0\t0\t0\t0",
    b"\x1b[2J\x1b]0;x\x07",
    b"\xff\xfe\x80",
    b"",
    b"train",
];

/// The reason why an attacker woke up.
#[derive(Clone, Copy, PartialEq)]
enum Call {
    /// SIGTERM.
    Term,
    /// The reaper's recorder triggers an action at a moment that the attacker could not find
    /// itself.
    Cue,
    /// Like `Cue`, but the action is to exit.
    End,
    Timeout,
}

struct Actor {
    dirs: WorldDirs,
    role: ActorRole,
    chance: Chance,
    started: u64,
    /// Whether it has permanently closed the memory.
    released: bool,
}

fn files(dirs: &WorldDirs) -> [PathBuf; 2] {
    ["nvidia0", "nvidia-uvm"].map(|name| dirs.dev().join(name))
}

/// Opens the device for this process and the programs that it starts.
fn take(dirs: &WorldDirs) -> io::Result<()> {
    for path in files(dirs) {
        if descriptors("self", &path).is_empty() {
            let file = File::options().read(true).write(true).open(path)?;
            fcntl_setfd(&file, FdFlags::empty())?;
            std::mem::forget(file);
        }
    }
    Ok(())
}

/// Opens the device until this process exits.
pub(crate) fn hold(dirs: &WorldDirs) {
    take(dirs).expect("every user may open the device");
}

/// Runs a role to its end.
pub(crate) fn run(role: ActorRole, dirs: WorldDirs) {
    let chance = Chance::new(role.seed);
    let mut actor = Actor { dirs, chance, role, started: 0, released: false };
    match actor.role.kind.as_str() {
        "attack" => actor.attack(),
        // sshd starts a login and ends with the shell.
        "sshd" => actor.keep("login"),
        "login" => {
            let _ = setsid();
            loop {
                actor.keep("attack");
            }
        }
        "driver" => driver::serve(&actor.dirs),
        kind => {
            hold(&actor.dirs);
            if kind == "monitor" {
                actor.close(false);
            }
            loop {
                actor.wait(&mut []);
            }
        }
    }
}

impl Actor {
    fn say(&self, step: &str) {
        let line = json!({ "step": step, "token": self.role.token });
        // The test may have ended.
        let _ = io::stdout().write_all(format!("{line}\n").as_bytes());
    }

    /// Closes the memory, and optionally the device.
    fn close(&self, device_too: bool) {
        let [device, uvm] = files(&self.dirs);
        let mut closed = descriptors("self", &uvm);
        if device_too {
            closed.extend(descriptors("self", &device));
        }
        for descriptor in closed {
            let _ = nix::unistd::close(descriptor);
        }
    }

    /// Starts a process with another role and waits for its end. Reports a login that was ended by
    /// a signal.
    fn keep(&mut self, kind: &str) {
        let (uid, program) = match kind {
            "login" => (Some(super::roles::ATTACKER), self.dirs.bin().join("shell")),
            _ => (None, self.dirs.program(0, "train")),
        };
        let mut command = self.another(kind).command(&self.dirs, program);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        let status = command.spawn().and_then(|mut child| child.wait());
        let signal = status.as_ref().ok().and_then(|status| status.signal());
        if let (Some(signal), "login") = (signal, kind) {
            self.say(&format!("violation: a login shell got signal {signal}"));
        }
    }

    /// Returns the role of a child, with half of the remaining budget.
    fn another(&mut self, kind: &str) -> ActorRole {
        self.started += 1;
        self.role.budget = self.role.budget.saturating_sub(1);
        let budget = self.role.budget / 2;
        self.role.budget -= budget;
        ActorRole {
            kind: kind.to_owned(),
            // As another program, it counts from zero again.
            token: format!("{}.{}-{}", self.role.token, self.role.program, self.started),
            seed: self.chance.below(u64::MAX),
            budget: if kind == "login" { 3 } else { budget },
            program: 0,
        }
    }

    fn attack(&mut self) {
        let (term, cue, end) = (Signal::TERM, Signal::USR1, Signal::USR2);
        let mut streams: Vec<UnixStream> = [term, cue, end]
            .map(|signal| {
                let (reader, writer) = UnixStream::pair().expect("a descriptor is available");
                reader.set_nonblocking(true).expect("a socket can be nonblocking");
                signal_hook::low_level::pipe::register(signal.as_raw(), writer)
                    .expect("the handler can be installed");
                reader
            })
            .into();
        if !self.chance.one_in(6) {
            let _ = take(&self.dirs);
        }
        if self.chance.one_in(3) {
            self.rename();
        }
        loop {
            let call = self.wait(&mut streams);
            let which = match call {
                Call::End => 0,
                Call::Term if self.chance.one_in(2) => 0,
                Call::Term | Call::Cue => self.chance.below(12),
                Call::Timeout if self.released => self.chance.below(8),
                Call::Timeout => 1 + self.chance.below(30),
            };
            self.step(which);
        }
    }

    /// Waits for a call, or until a timeout.
    fn wait(&mut self, streams: &mut [UnixStream]) -> Call {
        let pause = i64::try_from(self.chance.below(PAUSE_MS) * 1_000_000).unwrap_or(0);
        let pause = Timespec { tv_sec: i64::from(streams.is_empty()), tv_nsec: pause };
        let mut waited: Vec<PollFd<'_>> =
            streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        let _ = poll(&mut waited, Some(&pause));
        let calls = [Call::Term, Call::Cue, Call::End];
        let called = |stream: &mut UnixStream| stream.read(&mut [0; 64]).is_ok_and(|read| read > 0);
        let called = streams.iter_mut().zip(calls).find_map(|(stream, call)| {
            let called = called(stream);
            called.then_some(call)
        });
        called.unwrap_or(Call::Timeout)
    }

    fn step(&mut self, which: u64) {
        match which {
            0 | 30 => {
                self.say("exit");
                std::process::exit(0)
            }
            1 | 2 => self.execute(),
            3 => self.release(true),
            4 => self.release(false),
            5 => self.pass_on(),
            6..=8 => self.rename(),
            9 => self.stop(),
            10 | 11 => self.say("nothing"),
            12..=14 => self.start(),
            15 => self.storm(),
            16 => {
                self.say("setsid");
                let _ = setsid();
            }
            17 => {
                self.say("hide");
                let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
            }
            18 | 19 => {
                self.say("close");
                self.close(self.role.seed.is_multiple_of(2));
            }
            20 => self.join(),
            _ if !self.released => {
                self.say("open");
                let _ = take(&self.dirs);
            }
            _ => self.say("nothing"),
        }
    }

    fn rename(&mut self) {
        self.say("rename");
        let _ = fs::write("/proc/self/comm", self.chance.of(&NAMES));
    }

    /// Closes the memory permanently, then creates the file that records this.
    fn release(&mut self, device_too: bool) {
        // The process keeps the mapping until it runs another program.
        if std::env::var_os("LD_PRELOAD").is_some() {
            return self.say("nothing");
        }
        self.close(device_too);
        self.released = true;
        let _ = File::create(self.dirs.released(&self.role.token));
        self.say(if device_too { "release" } else { "become-monitor" });
    }

    /// Runs the next program under any of its names, never an earlier program.
    fn execute(&mut self) {
        let program = self.role.program + 1;
        // A process that has closed the memory must not reopen it; the next program would not know
        // that.
        if program > PROGRAMS || self.released {
            return self.say("nothing");
        }
        self.say("execute");
        let name = *self.chance.of(&PROGRAM_NAMES);
        let role = ActorRole { program, seed: self.chance.below(u64::MAX), ..self.role.clone() };
        let mut command = role.command(&self.dirs, self.dirs.program(program, name));
        self.map_device(&mut command);
        let _ = command.exec();
    }

    /// Occasionally makes a program map the device.
    fn map_device(&mut self, command: &mut Command) {
        if self.chance.one_in(2) {
            command.env("LD_PRELOAD", self.dirs.dev().join("nvidia0"));
        }
    }

    /// Starts a process that inherits the device.
    fn start(&mut self) {
        if self.role.budget == 0 {
            return self.say("nothing");
        }
        self.say("fork");
        let role = self.another("attack");
        let name = *self.chance.of(&PROGRAM_NAMES);
        let mut command = role.command(&self.dirs, self.dirs.program(0, name));
        self.map_device(&mut command);
        if self.chance.one_in(3) {
            command.process_group(0);
        }
        // Its parent never waits for it.
        let _ = command.spawn();
    }

    /// Passes the device to a child, then exits.
    fn pass_on(&mut self) {
        let (budget, seed) = (self.role.budget, self.chance.below(u64::MAX));
        let role = ActorRole {
            token: format!("{}.h", self.role.token),
            seed,
            budget,
            program: 0,
            kind: self.role.kind.clone(),
        };
        // Limits the length of such a chain.
        if role.token.len() > 60 {
            return self.step(0);
        }
        self.say("hand-on");
        let mut command = role.command(&self.dirs, self.dirs.program(0, "train"));
        self.map_device(&mut command);
        let _ = command.spawn();
        std::process::exit(0);
    }

    /// Starts many short-lived processes, so that PIDs wrap around.
    fn storm(&mut self) {
        self.say("storm");
        let count = self.chance.below(12);
        let storm: Vec<_> = (0..count)
            .filter_map(|_| Command::new("/bin/true").stdout(Stdio::null()).spawn().ok())
            .collect();
        for mut child in storm {
            let _ = child.wait();
        }
    }

    fn stop(&self) {
        self.say("stop");
        let _ = kill_process(getpid(), Signal::STOP);
    }

    /// Joins the process group of its parent, or creates its own.
    fn join(&mut self) {
        self.say("join");
        let parent = getppid().filter(|_| self.chance.one_in(2));
        let parent = parent.and_then(|parent| u32::try_from(parent.as_raw_nonzero().get()).ok());
        let group = parent.and_then(Truth::of).and_then(|parent| Pid::from_raw(parent.group));
        let _ = setpgid(None, Some(group.unwrap_or(getpid())));
    }
}
