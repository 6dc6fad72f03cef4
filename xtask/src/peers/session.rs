//! One simulated machine that several tools look at.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Error};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tells its environment, and stays until its standard input ends.
const TELLS_AND_WAITS: &str = "env -0; printf 'told\\0'; exec cat";

/// Seconds that a tool may take for a look.
const PATIENCE: &str = "60";

/// A `gpuws sim` that runs, and the environment that it gives to programs; ended with the value.
pub(super) struct Session {
    gpuws: PathBuf,
    sim: Child,
    environment: Vec<(OsString, OsString)>,
}

impl Session {
    /// Starts a machine that stands still, with real processes for simulated ones.
    ///
    /// # Errors
    /// When `gpuws sim` cannot be run or fails.
    pub(super) fn start(gpuws: &Path, machine: &str) -> io::Result<Self> {
        let mut sim = Command::new(gpuws)
            .args(["sim", machine, "--frozen", "--live", "--", "sh", "-c", TELLS_AND_WAITS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = sim.stdout.take().ok_or_else(|| Error::other("gpuws sim has no output"))?;
        let mut environment = Vec::new();
        for entry in BufReader::new(stdout).split(0) {
            let entry = entry?;
            if entry == b"told" {
                return Ok(Session { gpuws: gpuws.to_owned(), sim, environment });
            }
            if let Some(at) = entry.iter().position(|byte| *byte == b'=') {
                let (name, value) = (entry[..at].to_vec(), entry[at + 1..].to_vec());
                environment.push((OsString::from_vec(name), OsString::from_vec(value)));
            }
        }
        let status = sim.wait()?;
        Err(Error::other(format!("gpuws sim {machine} ended early: {status}")))
    }

    /// Returns the gpuws that runs it.
    pub(super) fn gpuws(&self) -> &Path {
        &self.gpuws
    }

    /// Returns which real process stands for which simulated one.
    ///
    /// # Errors
    /// When the session's file cannot be read.
    pub(super) fn placeholders(&self) -> io::Result<BTreeMap<u64, u64>> {
        let folder = self.environment.iter().find(|(name, _)| name == "GPUWS_SIM_SESSION");
        let (_, folder) = folder.ok_or_else(|| Error::other("gpuws sim names no session"))?;
        let text = fs::read_to_string(Path::new(folder).join("session.json"))?;
        let session: Value = serde_json::from_str(&text)?;
        let pairs = super::figures::array(&session["placeholders"]).iter();
        Ok(pairs
            .filter_map(|one| Some((one["simulated"].as_u64()?, one["pid"].as_u64()?)))
            .collect())
    }

    /// Runs a program on the machine and returns what it printed; what it said where it failed.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        program: &Path,
        arguments: &[A],
    ) -> Result<String, String> {
        let output = Command::new("timeout")
            .arg(PATIENCE)
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
        let (said, printed) = (text(&output.stderr), text(&output.stdout));
        let last = said.lines().chain(printed.lines()).rfind(|line| !line.trim().is_empty());
        Err(format!("{}: {}", output.status, last.unwrap_or("without a word").trim()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // At the end of its input the command ends, and gpuws sim ends what it started.
        drop(self.sim.stdin.take());
        let _ = self.sim.wait();
    }
}
