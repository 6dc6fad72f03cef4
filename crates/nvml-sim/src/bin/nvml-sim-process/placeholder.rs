//! Represents a process of a simulated machine: a real process with the same name, command line and
//! reaction to SIGTERM, and with stand-ins for the device files open and mapped.
//!
//! Its starter writes the configuration to its standard input, one setting per line, and `start`
//! last: `name NAME`, `file PATH`, `map PATH`, `term ignored`, `term MILLISECONDS`,
//! `state stopped`. Once set up, the process prints a line on standard output. When its standard
//! input ends, the simulation is over and the process exits.

use crate::device_file::{map, open};
use crate::starter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::SIGTERM;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The configuration of the process.
#[derive(Default)]
struct Config {
    name: String,
    files: Vec<File>,
    /// The time from SIGTERM to exit; `None` if it ignores SIGTERM.
    ends_after: Option<Duration>,
    stopped: bool,
}

/// Runs until the simulation or the process ends.
///
/// # Errors
/// Why it could not start.
pub(crate) fn run() -> io::Result<ExitCode> {
    let config = read_config(&mut io::stdin().lock())?;
    // The name is set only now, because it signals readiness.
    let name = CString::new(config.name).map_err(io::Error::other)?;
    rustix::thread::set_name(&name)?;
    let (mut asked, asks) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGTERM, asks)?;
    writeln!(io::stdout(), "ready")?;
    starter::quiet()?;
    if config.stopped {
        kill_process(getpid(), Signal::STOP)?;
    }
    loop {
        let stdin = io::stdin();
        let mut ends = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&asked, PollFlags::IN)];
        match poll(&mut ends, None) {
            Err(rustix::io::Errno::INTR) => continue,
            waited => waited?,
        };
        if !ends[0].revents().is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let mut word = [0; 64];
        let _ = asked.read(&mut word)?;
        if let Some(delay) = config.ends_after {
            wait(delay)?;
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn wait(delay: Duration) -> io::Result<()> {
    let delay = Timespec::try_from(delay).map_err(io::Error::other)?;
    match poll(&mut [], Some(&delay)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn read_config(input: &mut impl BufRead) -> io::Result<Config> {
    let mut config = Config { ends_after: Some(Duration::ZERO), ..Config::default() };
    for line in input.lines() {
        let line = line?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match (word, rest) {
            ("start", "") => return Ok(config),
            ("name", name) => config.name = name.to_owned(),
            ("file", path) => config.files.push(open(Path::new(path))?),
            ("map", path) => {
                let file = open(Path::new(path))?;
                map(&file)?;
                config.files.push(file);
            }
            ("term", "ignored") => config.ends_after = None,
            ("term", millis) => {
                let millis = millis.parse().map_err(io::Error::other)?;
                config.ends_after = Some(Duration::from_millis(millis));
            }
            ("state", "stopped") => config.stopped = true,
            _ => return Err(io::Error::other(format!("unknown setting '{line}'"))),
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
