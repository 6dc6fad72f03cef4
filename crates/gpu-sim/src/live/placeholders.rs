//! Real processes that stand for simulated ones.

use super::error::io as failed;
use super::{Dir, LiveError};
use crate::{Machine, Placeholder, Process, Reaction};
use gpu_core::{Access, Error, ErrorKind, Host, Pid, ProcessState};
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The program that each of them is.
pub const ACTOR: &str = "nvml-sim-process";

/// All placeholders of a session. They end with it: by themselves, when nobody holds the other end
/// of their standard input any more.
#[derive(Debug)]
pub struct PlaceholderProcesses {
    members: Vec<(Child, ChildStdin)>,
    /// Which process stands for which.
    pub placeholders: Vec<Placeholder>,
}

impl PlaceholderProcesses {
    /// Starts a process for each simulated one that has a device file or device memory, and waits
    /// until each has its name and its files. `host` tells when each of them started.
    ///
    /// # Errors
    /// When one cannot be started; those before it end then.
    pub fn start(machine: &Machine, dir: &Dir, host: &dyn Host) -> Result<Self, LiveError> {
        for file in &machine.files {
            stand_in(&file.path, dir)
                .map_err(|error| failed(format!("make '{}'", file.path), error))?;
        }
        let actor = dir.actor()?;
        dir.admit_externals(&actor)?;
        let mut placeholders_started =
            PlaceholderProcesses { members: Vec::new(), placeholders: Vec::new() };
        for process in machine.processes.iter().filter(|process| has_a_part(process)) {
            let named = |error| failed(format!("start '{}'", process.info.name), error);
            placeholders_started.add(&actor, process, dir).map_err(named)?;
            let Some((child, _)) = placeholders_started.members.last() else { continue };
            let start = host.process(Pid(child.id()))?.key.start;
            let start =
                start.ok_or_else(|| Error::new(ErrorKind::Unsupported, "read when it started"))?;
            placeholders_started.placeholders.push(Placeholder {
                simulated: process.pid().0,
                pid: child.id(),
                start_ticks: start.0,
            });
        }
        Ok(placeholders_started)
    }

    fn add(&mut self, actor: &Path, process: &Process, dir: &Dir) -> io::Result<()> {
        let info = &process.info;
        let line = info.command_line.as_deref().unwrap_or_default();
        let mut command = Command::new(actor);
        // What others read in /proc/PID/cmdline; nothing is run by it.
        command.arg0(line.first().unwrap_or(&info.name)).args(line.iter().skip(1));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.current_dir("/").process_group(0).env(Placeholder::VARIABLE, "1");
        let mut child = command.spawn()?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let reported = stdin.write_all(part(process, dir)?.as_bytes());
        self.members.push((child, stdin));
        reported?;
        let mut answer = String::new();
        BufReader::new(stdout.take(64)).read_line(&mut answer)?;
        if answer == "ready\n" { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Drop for PlaceholderProcesses {
    fn drop(&mut self) {
        for (child, stdin) in self.members.drain(..) {
            drop(stdin);
            end(child);
        }
    }
}

/// A stopped process does not notice that the simulation is over.
fn end(mut child: Child) {
    // Where it has ended already there is nothing to end and only its code to fetch.
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns whether a simulated process is one that a look at the devices could show.
fn has_a_part(process: &Process) -> bool {
    let exists = process.hidden.is_none() && !process.info.kernel_thread;
    exists && !(process.files.is_empty() && process.holdings.is_empty())
}

/// Returns what a placeholder is told to be.
fn part(process: &Process, dir: &Dir) -> io::Result<String> {
    let mut lines = vec![format!("name {}", one_line(&process.info.name)?)];
    for held in process.files.iter() {
        let path = stand_in(&held.path, dir)?;
        let word = if held.access.contains(Access::MAPPED) { "map" } else { "file" };
        lines.push(format!("{word} {}", path.display()));
    }
    lines.push(match process.on_term {
        Reaction::ExitsAfter(after) => format!("term {}", after.as_millis()),
        Reaction::Ignores | Reaction::Stuck(_) | Reaction::LeavesThreads => "term ignored".into(),
    });
    if process.info.state == Ok(ProcessState::Stopped) {
        lines.push("state stopped".to_owned());
    }
    lines.push("start\n".to_owned());
    Ok(lines.join("\n"))
}

/// Returns a word of a machine's file, which could be made to say more than one thing.
fn one_line(text: &str) -> io::Result<&str> {
    match text.chars().any(char::is_control) {
        true => Err(io::Error::other("a name contains control characters")),
        false => Ok(text),
    }
}

/// Makes the stand-in of a device file, a page long, where it is not there yet.
fn stand_in(path: &str, dir: &Dir) -> io::Result<PathBuf> {
    let outside = || io::Error::other("it is not under /dev");
    let inside = dir.device_file(path).ok_or_else(outside)?;
    inside.parent().map_or(Ok(()), fs::create_dir_all)?;
    OpenOptions::new().create(true).append(true).open(&inside)?.set_len(4096)?;
    Ok(inside)
}
