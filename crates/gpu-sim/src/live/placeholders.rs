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

/// The placeholder program.
pub const ACTOR: &str = "nvml-sim-process";

/// All placeholders of a session. Each exits when its standard input is closed, so they end with
/// the session.
#[derive(Debug)]
pub struct PlaceholderProcesses {
    members: Vec<(Child, ChildStdin)>,
    /// The simulated process of each placeholder.
    pub placeholders: Vec<Placeholder>,
}

impl PlaceholderProcesses {
    /// Starts a placeholder for each simulated process that has a device file or device memory, and
    /// waits until each has its name and its files. `host` returns their start times.
    ///
    /// # Errors
    /// If a placeholder cannot be started; those that were started before then end.
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
                start.ok_or_else(|| Error::new(ErrorKind::Unsupported, "read its start time"))?;
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
        // The command line in `/proc/PID/cmdline`. The placeholder executes no part of it.
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

/// Kills a placeholder, because a stopped process does not notice that its standard input is
/// closed.
fn end(mut child: Child) {
    // If it has already exited, only its exit status remains to be collected.
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns whether a simulated process needs a placeholder: it is visible and uses a device.
fn has_a_part(process: &Process) -> bool {
    let exists = process.hidden.is_none() && !process.info.kernel_thread;
    exists && !(process.files.is_empty() && process.holdings.is_empty())
}

/// Returns the instructions for a placeholder.
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

/// Returns a text of a machine file; an error if control characters could add instructions.
fn one_line(text: &str) -> io::Result<&str> {
    if text.chars().any(char::is_control) {
        Err(io::Error::other("a name contains control characters"))
    } else {
        Ok(text)
    }
}

/// Creates the stand-in for a device file, one page long, if it does not exist.
fn stand_in(path: &str, dir: &Dir) -> io::Result<PathBuf> {
    let outside = || io::Error::other("it is not under /dev");
    let inside = dir.device_file(path).ok_or_else(outside)?;
    inside.parent().map_or(Ok(()), fs::create_dir_all)?;
    OpenOptions::new().create(true).append(true).open(&inside)?.set_len(4096)?;
    Ok(inside)
}
