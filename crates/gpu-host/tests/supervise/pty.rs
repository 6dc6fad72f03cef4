//! A terminal with an interactive shell in it, and simulated typing.

use crate::fixture::{Fixture, PATIENCE, eventually, number};
use crate::roles::REPORT;
use gpu_core::Clock;
use gpu_host::SystemClock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetpgrp;
use std::process::{Child, Command};

/// The characters of Ctrl-C and Ctrl-Z.
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_Z: &str = "\x1a";

/// A bash with job control in its own terminal; `$S` is this program.
pub(crate) struct Shell {
    terminal: OwnedFd,
    child: Child,
    /// Its output that no call has expected yet.
    shown: String,
}

impl Shell {
    pub(crate) fn new(fixture: &Fixture) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags).expect("a terminal can be made");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it can be used");
        let name = ptsname(&terminal, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let end = rustix::fs::open(&*name, flags, Mode::empty()).expect("it can be opened");
        let copy = || end.try_clone().expect("there are descriptors left");
        let mut command = Command::new("setsid");
        command.args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
        command.stdin(copy()).stdout(copy()).stderr(copy()).current_dir(fixture.dir());
        command.env("PS1", "$ ").env("TERM", "dumb").env("HISTFILE", "/dev/null");
        command.env("S", std::env::current_exe().expect("this program has a file"));
        command.env(REPORT, fixture.report_file()).env_remove("PROMPT_COMMAND");
        let child = command.spawn().expect("setsid and bash can be run");
        let mut shell = Shell { terminal, child, shown: String::new() };
        shell.enter("echo shell-$((1+1))");
        shell.expect("shell-2");
        shell
    }

    /// Types these keys.
    pub(crate) fn press(&self, keys: &str) {
        let mut keys = keys.as_bytes();
        while !keys.is_empty() {
            let count = rustix::io::write(&self.terminal, keys).expect("the terminal takes it");
            keys = &keys[count..];
        }
    }

    /// Types a line.
    pub(crate) fn enter(&self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits until a text is shown, and discards everything up to it. Typed text is shown as well,
    /// so it must not contain the text.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let clock = SystemClock::new();
        loop {
            if let Some(at) = self.shown.find(text) {
                let before = self.shown[..at].to_owned();
                self.shown.drain(..at + text.len());
                return before;
            }
            assert!(clock.monotonic() < PATIENCE, "{text:?} is not in {:?}", self.shown);
            let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let mut question = [PollFd::new(&self.terminal, PollFlags::IN)];
            if poll(&mut question, Some(&wait)).expect("the terminal can be watched") == 0 {
                continue;
            }
            let mut piece = [0; 4096];
            let count = rustix::io::read(&self.terminal, &mut piece).expect("the shell lives");
            self.shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    }

    /// Waits until this process group has the terminal.
    pub(crate) fn in_front(&self, group: Pid) {
        eventually("it is in the foreground", || tcgetpgrp(&self.terminal) == Ok(group));
    }

    /// Returns the exit status of the last command, from the shell.
    pub(crate) fn last_code(&mut self) -> i32 {
        self.in_front(number(self.child.id()));
        // After Ctrl-C the shell may discard its partial input.
        self.enter("");
        self.enter("echo code:$?:");
        self.expect("code:$?:");
        self.expect("code:");
        self.expect(":").parse().expect("a code")
    }

    /// Ends the shell, which must be at its prompt.
    pub(crate) fn leave(mut self) {
        self.enter("exit 77");
        assert_eq!(crate::fixture::how(&mut self.child), 77);
    }

    /// Closes the terminal, like a broken connection; the shell ends.
    pub(crate) fn hang_up(self) {
        let Shell { terminal, mut child, .. } = self;
        drop(terminal);
        crate::fixture::end_of(&mut child);
    }
}
