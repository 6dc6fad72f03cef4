//! A process that keeps a claim after the claiming program has ended: the lease, through an
//! inherited descriptor, and a CUDA context on each device if requested. The placeholder of a run
//! is such a process with one context.

mod serve;

pub(crate) use serve::serve_if_requested;
pub use serve::{Served, open_process, time_until};

use crate::{Cause, MachineError};
use gpu_core::{Error, ErrorKind, Launch, Pid, ProcessInfo, ProcessKey};
use gpu_steward::Grant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The hidden command name of the process that keeps a lease.
const HOLDER: &str = "lease-holder";

/// The hidden command name of the placeholder of a run on one device, which becomes its process
/// name. Process names have at most 15 bytes.
const PLACEHOLDER: &str = "run-placeholder";

/// The memory of a placeholder on a simulated device in MiB, about that of a CUDA context.
const PLACEHOLDER_MIB: u32 = 500;

/// The message of the process when it keeps everything.
const READY: &str = "holds";

/// The time limit for creating the CUDA contexts. Without persistence mode, the driver takes some
/// seconds for each device.
const CONTEXT_TIMEOUT: Duration = Duration::from_secs(120);

/// The interval of lease renewal. Programs that delete old files from `/tmp` use limits of days.
pub const RENEWAL: Duration = Duration::from_secs(3600);

/// A process that keeps a claim.
#[derive(Debug)]
pub struct Holder(Option<Child>);

/// What the process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    /// The lease.
    pub lease: bool,
    /// A context on each device.
    pub contexts: bool,
}

impl Holder {
    /// Starts the process, which lives as long as `root`, and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started, or CUDA denies a context or does not answer.
    pub fn start(
        grant: &Grant,
        root: ProcessKey,
        keeps: Keeps,
        variables: &[(OsString, OsString)],
    ) -> Result<Self, MachineError> {
        let failed = |error| {
            MachineError::io("start the program that keeps the lease", error).of(Cause::NotKept)
        };
        let own = std::env::current_exe().map_err(failed)?;
        let start = root.start.map_or(0, |start| start.0);
        let devices = grant.entry.devices.iter().filter(|_| keeps.contexts);
        grant.held.inherit(keeps.lease)?;
        let child = Command::new(own)
            .args([HOLDER, &root.pid.to_string(), &start.to_string()])
            .args(devices.map(ToString::to_string))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn();
        grant.held.inherit(false)?;
        // From here on, dropping this value ends the process, unless it is detached.
        let mut holder = Holder(Some(child.map_err(failed)?));
        let output = holder.0.as_mut().and_then(|child| child.stdout.take());
        let message = output.map_or(Ok(String::new()), read_message).map_err(failed)?;
        if message == READY {
            Ok(holder)
        } else {
            let error = Error::new(ErrorKind::Unsupported, "keep the devices");
            Err(MachineError::new(error.with_source(message)).of(Cause::NotKept))
        }
    }

    /// Detaches the process, so that it continues.
    pub fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // The child was not waited for yet, so its PID is not reused.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Reads the output to its end.
fn read_message(mut output: ChildStdout) -> std::io::Result<String> {
    let timeout = Timespec { tv_sec: CONTEXT_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    let mut message = Vec::new();
    loop {
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(std::io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let mut piece = [0; 512];
        let count = output.read(&mut piece)?;
        message.extend_from_slice(&piece[..count]);
        if count == 0 || message.len() > 4096 {
            return Ok(String::from_utf8_lossy(&message).into_owned());
        }
    }
}

/// Returns the placeholder program of a run on the device in `CUDA_VISIBLE_DEVICES`, which ends
/// with the supervisor. `session` is the directory of a simulated machine, which has no CUDA.
pub fn placeholder(supervisor: ProcessKey, session: Option<&Path>) -> Launch {
    let (program, arguments): (OsString, Vec<OsString>) = match session {
        Some(dir) => {
            let uses = format!("visible:{PLACEHOLDER_MIB}");
            let words = ["--use", &uses, "--name", PLACEHOLDER];
            (dir.join(gpu_sim::live::ACTOR).into(), words.map(Into::into).into())
        }
        // This program, even if another file has replaced it at its path.
        None => {
            let start = supervisor.start.map_or(0, |start| start.0);
            let words = [PLACEHOLDER.to_owned(), supervisor.pid.to_string(), start.to_string()];
            ("/proc/self/exe".into(), words.map(Into::into).into())
        }
    };
    Launch { program, arguments, ..Launch::default() }
}

/// Returns whether a process is a placeholder of the run with this supervisor. If a process of the
/// job takes that name, only its own job is affected.
pub fn is_placeholder(process: &ProcessInfo, supervisor: Pid) -> bool {
    process.name == PLACEHOLDER && process.parent == Ok(supervisor)
}
