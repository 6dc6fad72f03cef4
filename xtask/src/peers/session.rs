//! A simulated machine shared by several tools.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Error};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A shell command that prints its environment and runs until its standard input ends.
const PRINT_AND_WAIT: &str = "env -0; printf 'printed\\0'; exec cat";

/// The variable with a session's directory, and the file in it, as in gpu-sim.
const SESSION: &str = "GPUWS_SIM_SESSION";
const FILE: &str = "session.json";

/// The time limit of a tool, in seconds.
const TIME_LIMIT: &str = "60";

/// A machine with stopped time and real processes for the simulated ones. `gpuws sim --live` starts
/// the processes, and a copy of its session, in a directory next to it, stops the time. Dropping
/// this ends both.
pub(super) struct Session {
    gpuws: PathBuf,
    sim: Child,
    environment: Vec<(OsString, OsString)>,
    dir: PathBuf,
    description: Value,
}

impl Session {
    /// Starts a machine, and creates the session at `dir`.
    ///
    /// # Errors
    /// If `gpuws sim` cannot be run or fails, or the directory cannot be created.
    pub(super) fn start(gpuws: &Path, machine: &str, dir: &Path) -> io::Result<Self> {
        let mut sim = Command::new(gpuws)
            .args(["--quiet", "sim", machine, "--live", "--", "sh", "-c", PRINT_AND_WAIT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = sim.stdout.take().ok_or_else(|| Error::other("gpuws sim has no output"))?;
        let environment = reported(BufReader::new(stdout))?;
        let mut session = Session {
            gpuws: gpuws.to_owned(),
            sim,
            environment,
            dir: dir.to_owned(),
            description: Value::Null,
        };
        session.stand_still()?;
        Ok(session)
    }

    /// Creates the session with stopped time, and points the environment to it.
    fn stand_still(&mut self) -> io::Result<()> {
        let named = self.environment.iter().find(|(name, _)| name == SESSION);
        let (_, live) = named.ok_or_else(|| Error::other("gpuws sim ended early"))?;
        let live = live.clone();
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir)?;
        }
        fs::create_dir_all(&self.dir)?;
        for entry in fs::read_dir(&live)? {
            let entry = entry?;
            let to = self.dir.join(entry.file_name());
            match entry.file_type()? {
                kind if kind.is_symlink() => symlink(fs::read_link(entry.path())?, to)?,
                kind if kind.is_dir() => symlink(entry.path(), to)?,
                _ => {}
            }
        }
        let text = fs::read_to_string(Path::new(&live).join(FILE))?;
        self.description = serde_json::from_str(&text)?;
        self.description["frozen_at_ms"] = 0.into();
        fs::write(self.dir.join(FILE), self.description.to_string())?;
        let (live, dir) = (live.as_bytes().to_vec(), self.dir.as_os_str().as_bytes());
        for (_, value) in &mut self.environment {
            let parts = value.as_bytes().split(|byte| *byte == b':');
            let parts: Vec<&[u8]> =
                parts.map(|part| if part == live { dir } else { part }).collect();
            *value = OsString::from_vec(parts.join(&b':'));
        }
        Ok(())
    }

    /// Returns the gpuws program that runs the session.
    pub(super) fn gpuws(&self) -> &Path {
        &self.gpuws
    }

    /// Returns the real process for each simulated one.
    pub(super) fn placeholders(&self) -> BTreeMap<u64, u64> {
        let pairs = super::figures::array(&self.description["placeholders"]).iter();
        pairs.filter_map(|one| Some((one["simulated"].as_u64()?, one["pid"].as_u64()?))).collect()
    }

    /// Runs a program on the machine and returns its output, or its error message if it failed.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        program: &Path,
        arguments: &[A],
    ) -> Result<String, String> {
        let output = Command::new("timeout")
            .arg(TIME_LIMIT)
            .arg(program)
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("failed to run timeout: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let (message, printed) = (text(&output.stderr), text(&output.stdout));
        let last = message.lines().chain(printed.lines()).rfind(|line| !line.trim().is_empty());
        Err(format!("{}: {}", output.status, last.unwrap_or("no output").trim()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // At the end of its input, the command exits, and gpuws sim ends its processes.
        drop(self.sim.stdin.take());
        let _ = self.sim.wait();
    }
}

/// Parses the environment printed by a command.
fn reported(from: impl BufRead) -> io::Result<Vec<(OsString, OsString)>> {
    let mut environment = Vec::new();
    for entry in from.split(0) {
        let entry = entry?;
        if entry == b"printed" {
            break;
        }
        if let Some(at) = entry.iter().position(|byte| *byte == b'=') {
            let (name, value) = (entry[..at].to_vec(), entry[at + 1..].to_vec());
            environment.push((OsString::from_vec(name), OsString::from_vec(value)));
        }
    }
    Ok(environment)
}
