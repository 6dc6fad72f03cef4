//! A process that keeps what a claim took after the program that took it has ended: the lease, by a
//! descriptor that it inherits, and a CUDA context on each device where that is wanted. The
//! placeholder of a run is such a process for one context.

mod serve;

pub(crate) use serve::serve_where_asked;
pub use serve::{Served, opened, until};

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

/// The word that makes this program such a process; nobody types it.
const HOLDER: &str = "lease-holder";

/// The word that makes this program the placeholder of a run on one device, and its name from then
/// on; nobody types it. A name of a process has 15 bytes at most.
const PLACEHOLDER: &str = "run-placeholder";

/// What a placeholder has of a simulated device, in MiB: about what a CUDA context takes.
const PLACEHOLDER_MIB: u32 = 500;

/// What it says when it has all that it is to keep.
const HOLDS: &str = "holds";

/// How long CUDA may take to make the contexts. A driver without persistence mode takes some
/// seconds for each device.
const PATIENCE: Duration = Duration::from_secs(120);

/// What it keeps is shown to be in use this often: what clears `/tmp` of old files counts in days.
pub const RENEWAL: Duration = Duration::from_secs(3600);

/// One that was started.
#[derive(Debug)]
pub struct Holder(Option<Child>);

/// What it is to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    /// The lease.
    pub lease: bool,
    /// A context on each device.
    pub contexts: bool,
}

impl Holder {
    /// Starts one that lives as long as `root`, and waits until it has what it is to keep.
    ///
    /// # Errors
    /// When it cannot be started, or CUDA refuses a context or does not answer.
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
        // From here on it ends with this value, unless it is left.
        let mut holder = Holder(Some(child.map_err(failed)?));
        let output = holder.0.as_mut().and_then(|child| child.stdout.take());
        let said = output.map_or(Ok(String::new()), heard).map_err(failed)?;
        match said == HOLDS {
            true => Ok(holder),
            false => {
                let error = Error::new(ErrorKind::Unsupported, "keep the devices");
                Err(MachineError::new(error.with_source(said)).of(Cause::NotKept))
            }
        }
    }

    /// Leaves it to itself.
    pub fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It is this program's own child, not waited for yet, so its number is its own.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Returns what it says, to the end of its output.
fn heard(mut output: ChildStdout) -> std::io::Result<String> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut said = Vec::new();
    loop {
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&patience)) {
            Ok(0) => return Err(std::io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let mut piece = [0; 512];
        let count = output.read(&mut piece)?;
        said.extend_from_slice(&piece[..count]);
        if count == 0 || said.len() > 4096 {
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
    }
}

/// Returns the program that stands for a run on the device that its `CUDA_VISIBLE_DEVICES` names,
/// and ends with the supervisor. `session` is the directory of a simulated machine, which has no
/// CUDA.
pub fn placeholder(supervisor: ProcessKey, session: Option<&Path>) -> Launch {
    let (program, arguments): (OsString, Vec<OsString>) = match session {
        Some(dir) => {
            let uses = format!("visible:{PLACEHOLDER_MIB}");
            let words = ["--use", &uses, "--name", PLACEHOLDER];
            (dir.join(gpu_sim::live::ACTOR).into(), words.map(Into::into).into())
        }
        // This very program, also where another has its path by now.
        None => {
            let start = supervisor.start.map_or(0, |start| start.0);
            let words = [PLACEHOLDER.to_owned(), supervisor.pid.to_string(), start.to_string()];
            ("/proc/self/exe".into(), words.map(Into::into).into())
        }
    };
    Launch { program, arguments, ..Launch::default() }
}

/// Returns whether a process is a placeholder of the run whose supervisor has this number. One of the
/// job's processes that takes the name deceives nobody but its own job.
pub fn is_placeholder(process: &ProcessInfo, supervisor: Pid) -> bool {
    process.name == PLACEHOLDER && process.parent == Ok(supervisor)
}
