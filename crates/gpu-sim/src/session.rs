//! A simulated machine that several processes read independently.
//!
//! They share only a directory, which has the machine, the seed, the start time and the faults. A
//! simulation is a function of these and of the time, so every process that opens the directory
//! sees the same machine at the same moment.

use crate::machine::Machine;
use crate::seed::Seed;
use crate::simulation::Simulation;
use crate::trusted;
use gpu_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum size of a session's file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The content of a session's directory. The file in it is [`Session::FILE`]; the environment
/// variable [`Session::VARIABLE`] has the directory's path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The machine, as [`Machine::named`] takes it. A path must be absolute: a process may open the
    /// session from another directory.
    pub machine: PathBuf,
    /// The seed.
    #[serde(default)]
    pub seed: u64,
    /// Its start, on the kernel's clock since boot (`CLOCK_BOOTTIME`), which all processes share.
    pub began_ns: u64,
    /// The machine stands still at this time since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_at_ms: Option<u64>,
    /// The latency of each NVML function, in addition to its work.
    #[serde(default)]
    pub latency_us: u64,
    /// The faults of NVML functions.
    #[serde(default)]
    pub faults: Vec<CallFault>,
    /// Its processes are real ones: placeholders for simulated ones, and those that
    /// [appear](crate::ExternalProcess) by themselves.
    #[serde(default)]
    pub live: bool,
    /// The real processes that stand for simulated ones, in a live session.
    #[serde(default)]
    pub placeholders: Vec<Placeholder>,
    /// Each process appends its call counts to [`Session::CALLS`] in the directory, after its last
    /// shutdown of NVML and when it ends.
    #[serde(default)]
    pub counts_calls: bool,
}

/// A fault of one NVML function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallFault {
    /// The function, such as `nvmlDeviceGetMemoryInfo_v2`; `*` for all functions.
    pub function: String,
    /// Only for this device, by index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// The first affected call of one process, counted from 1: of the calls that match function and
    /// device, all functions together for `*`.
    #[serde(default = "first")]
    pub from: u64,
    /// The number of affected calls; all further ones if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The effect.
    pub effect: CallEffect,
}

fn first() -> u64 {
    1
}

/// The effect of a fault on an NVML call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallEffect {
    /// It returns this code without effect.
    Returns(u32),
    /// It is delayed.
    DelayMs(u64),
    /// It never returns.
    Hangs,
    /// The device falls off the bus, for this process, just before the call.
    LosesGpu(u32),
    /// One more process appears on the device, for this process, just before the call.
    AddsProcess(u32),
}

/// A real process that stands for a simulated one.
///
/// The simulated process has the PID of the real one wherever it is referenced, also as parent or
/// leader of others; another simulated process with this PID gets a new one. The real process
/// determines its fate: no event ends it, it does not respawn, and of a recording only the first
/// snapshot is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placeholder {
    /// The simulated process, by its PID on the simulated host.
    pub simulated: u32,
    /// The real one.
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Placeholder {
    /// The environment variable that makes `nvml-sim-process` a placeholder; its arguments are
    /// those of the process that it stands for.
    pub const VARIABLE: &'static str = "GPUWS_SIM_PLACEHOLDER";
}

impl Session {
    /// The file in the directory of a session that is locked for as long as the session lives.
    pub const ALIVE: &'static str = "alive";

    /// The file in the directory.
    pub const FILE: &'static str = "session.json";
    /// The file in the directory for call counts: lines of JSON, each with the calls of one process
    /// since its last line.
    pub const CALLS: &'static str = "calls.jsonl";
    /// The subdirectory with stand-ins for the device files, under their names below `/dev`, for
    /// live sessions.
    pub const DEVICE_FILES: &'static str = "dev";
    /// The environment variable that names the directory.
    pub const VARIABLE: &'static str = "GPUWS_SIM_SESSION";

    /// Reads the session of a directory.
    ///
    /// # Errors
    /// `Io` when its file cannot be read; `Invalid` when that is a link, larger than 1 MiB, or no
    /// session, and when any user except root and the user of this program can change it.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(Self::FILE);
        let failed = |kind| {
            let remedy = format!(
                "{} must name the session directory of your own 'gpuws sim'",
                Self::VARIABLE
            );
            Error::new(kind, format!("read session '{}' ({remedy})", path.display()))
        };
        let unread = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData => failed(ErrorKind::Invalid).with_source(error),
            _ => failed(ErrorKind::Io).with_source(error),
        };
        let dir = trusted::private(dir).map_err(|error| failed(error.kind()).with_source(error))?;
        let bytes = trusted::read_private(&dir.join(Self::FILE), MAX_FILE).map_err(unread)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            failed(ErrorKind::Invalid).with_source(format!("invalid session: {error}"))
        })
    }

    /// Writes the session into a directory, for its owner only, and atomically for readers.
    ///
    /// # Errors
    /// `Io` when it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(Self::FILE);
        let new = dir.join(format!("{}.{}", Self::FILE, std::process::id()));
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(self)?;
            if text.len() as u64 > MAX_FILE {
                return Err(io::Error::other("it would be larger than is read again"));
            }
            match std::fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            trusted::write_private(&path, &new, &text)
        };
        write().map_err(|error| {
            let what = format!("write session '{}'", path.display());
            Error::new(ErrorKind::Io, what).with_source(error)
        })
    }

    /// Returns whether its processes are real ones.
    pub fn is_live(&self) -> bool {
        self.live || !self.placeholders.is_empty()
    }

    /// Returns the name of the session's machine, without opening it; `None` if there is no such
    /// machine.
    pub fn machine_name(&self) -> Option<String> {
        Machine::name_of(&self.machine)
    }

    /// Starts the session's machine, at its beginning.
    ///
    /// Each simulated process with a placeholder has the placeholder's PID, and ends only through
    /// [`Simulation::happen`]; see [`Placeholder`].
    ///
    /// # Errors
    /// As [`Machine::named`]; `Invalid` when a placeholder stands for no process of the machine.
    pub fn open(&self) -> Result<Simulation> {
        let mut machine = Machine::named(&self.machine)?;
        if self.is_live() {
            machine.stand_in(&self.placeholders)?;
        }
        Ok(Simulation::start(machine, Seed(self.seed)))
    }

    /// Returns the age of the session, on the clock since boot.
    pub fn elapsed(&self, now_ns: u64) -> Duration {
        match self.frozen_at_ms {
            Some(millis) => Duration::from_millis(millis),
            None => Duration::from_nanos(now_ns.saturating_sub(self.began_ns)),
        }
    }
}
