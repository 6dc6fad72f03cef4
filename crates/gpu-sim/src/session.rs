//! A simulated machine that several processes read independently.
//!
//! They share only a directory, which has the machine, the seed, the start time and the faults. A
//! simulation is a function of these and of the time, so all processes that open the directory see
//! the same machine at the same time.

use crate::machine::Machine;
use crate::seed::Seed;
use crate::simulation::Simulation;
use crate::trusted;
use gpu_core::{Error, ErrorKind, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum size of a session's file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The content of a session's directory. It is stored in the file [`Session::FILE`]; the
/// environment variable [`Session::VARIABLE`] names the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The machine, as accepted by [`Machine::named`]. A path must be absolute, because processes
    /// may open the session from another directory.
    pub machine: PathBuf,
    /// The seed.
    #[serde(default)]
    pub seed: u64,
    /// Its start, on the boot clock (`CLOCK_BOOTTIME`), which all processes share.
    pub began_ns: u64,
    /// If set, the machine's time stays at this time since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_at_ms: Option<u64>,
    /// The latency of each NVML function, in addition to its work.
    #[serde(default)]
    pub latency_us: u64,
    /// The faults of NVML functions.
    #[serde(default)]
    pub faults: Vec<CallFault>,
    /// Whether its processes are real: placeholders for simulated processes, and [external
    /// processes](crate::ExternalProcess).
    #[serde(default)]
    pub live: bool,
    /// The real processes that represent simulated ones, in a live session.
    #[serde(default)]
    pub placeholders: Vec<Placeholder>,
    /// Whether each process appends its call counts to [`Session::CALLS`] in the directory, after
    /// its last NVML shutdown and at exit.
    #[serde(default)]
    pub counts_calls: bool,
}

/// A fault of one NVML function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallFault {
    /// The function, such as `nvmlDeviceGetMemoryInfo_v2`; `*` for all functions.
    pub function: String,
    /// The affected device, by index; all devices if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// The first affected call of a process, counted from 1 over the calls that match function and
    /// device; for `*`, over all functions together.
    #[serde(default = "first")]
    pub from: u64,
    /// The number of affected calls; all later calls if missing.
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
    /// The call returns this code without effect.
    Returns(u32),
    /// The call is delayed.
    DelayMs(u64),
    /// The call never returns.
    Hangs,
    /// For this process, the device falls off the bus just before the call.
    LosesGpu(u32),
    /// For this process, another process appears on the device just before the call.
    AddsProcess(u32),
}

/// A real process that represents a simulated one.
///
/// The simulated process has the PID of the real process wherever it is referenced, including as a
/// parent or leader of others; another simulated process with this PID gets a new one. Only the end
/// of the real process ends the simulated one: no event ends it, it does not respawn, and only the
/// first snapshot of a recording is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placeholder {
    /// The simulated process, by its PID on the simulated host.
    pub simulated: u32,
    /// The real process, by its PID.
    pub pid: u32,
    /// The start time of the real process, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Placeholder {
    /// The environment variable that makes `nvml-sim-process` a placeholder; its arguments are
    /// those of the simulated process.
    pub const VARIABLE: &'static str = "GPUWS_SIM_PLACEHOLDER";
}

impl Session {
    /// The file in the session's directory that stays locked while the session lives.
    pub const ALIVE: &'static str = "alive";

    /// The file with the session, in the session's directory.
    pub const FILE: &'static str = "session.json";
    /// The file for call counts, in the session's directory: JSON lines, each with the calls of one
    /// process since its previous line.
    pub const CALLS: &'static str = "calls.jsonl";
    /// The subdirectory with stand-ins for the device files of a live session, under their names
    /// below `/dev`.
    pub const DEVICE_FILES: &'static str = "dev";
    /// The environment variable that names the directory.
    pub const VARIABLE: &'static str = "GPUWS_SIM_SESSION";

    /// Reads the session of a directory.
    ///
    /// # Errors
    /// `Io` if its file cannot be read; `Invalid` if the file is a link, is larger than 1 MiB, is
    /// not a session, or can be changed by any user except root and the user of this program.
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

    /// Writes the session into a directory, readable only by its owner and atomically for readers.
    ///
    /// # Errors
    /// `Io` if it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(Self::FILE);
        let new = dir.join(format!("{}.{}", Self::FILE, std::process::id()));
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(self)?;
            if text.len() as u64 > MAX_FILE {
                return Err(io::Error::other("it would exceed the size limit"));
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

    /// Returns whether its processes are real.
    pub fn is_live(&self) -> bool {
        self.live || !self.placeholders.is_empty()
    }

    /// Returns the name of the session's machine, without opening it; `None` if there is no such
    /// machine.
    pub fn machine_name(&self) -> Option<String> {
        Machine::name_of(&self.machine)
    }

    /// Starts the session's machine at time 0.
    ///
    /// A simulated process with a placeholder has the placeholder's PID and ends only through
    /// [`Simulation::happen`]; see [`Placeholder`].
    ///
    /// # Errors
    /// As [`Machine::named`]; `Invalid` if a placeholder represents no process of the machine.
    pub fn open(&self) -> Result<Simulation> {
        let mut machine = Machine::named(&self.machine)?;
        if self.is_live() {
            machine.stand_in(&self.placeholders)?;
        }
        Ok(Simulation::start(machine, Seed(self.seed)))
    }

    /// Returns a session that begins now, of a machine by name or path.
    pub fn begun(machine: &Path) -> Self {
        let is_name = crate::machines().iter().any(|known| Path::new(known.name) == machine);
        let absolute = machine.canonicalize().ok().filter(|_| !is_name);
        Session {
            machine: absolute.unwrap_or_else(|| machine.to_owned()),
            began_ns: since_boot(),
            ..Session::default()
        }
    }

    /// Returns the age of the session now.
    pub(crate) fn age(&self) -> Duration {
        self.elapsed(since_boot())
    }

    /// Returns the age of the session at a time on the boot clock.
    pub fn elapsed(&self, now_ns: u64) -> Duration {
        match self.frozen_at_ms {
            Some(millis) => Duration::from_millis(millis),
            None => Duration::from_nanos(now_ns.saturating_sub(self.began_ns)),
        }
    }
}

/// Returns the time on the boot clock, in nanoseconds.
fn since_boot() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
