//! The port [`Companion`]: a helper program next to a job, or next to devices that are only held.

use super::shared::Shared;
use super::tree::entry;
use crate::fault;
use gpu_core::{Companion, Error, ErrorKind, Job, Launch, Launcher, Pid, ProcessKey, Result};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::rc::Rc;

/// The maximum number of bytes of its output to read.
const SAID_LIMIT: usize = 4096;

/// Starts companions, such as placeholders, and no job: the [`Launcher`] of a program that only
/// holds devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Companions;

impl Launcher for Companions {
    fn launch(&self, _: &Launch) -> Result<Box<dyn Job>> {
        Err(Error::new(ErrorKind::Unsupported, "start a job in a program that only holds devices"))
    }

    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        Ok(Box::new(Helper::start(launch, Command::spawn)?))
    }
}

/// A child. Until it is waited for, its PID is not reused.
struct Helper {
    child: Child,
    /// Its output, once it has ended.
    said: Option<String>,
}

impl Helper {
    /// Starts a program.
    fn start(
        launch: &Launch,
        spawn: impl FnOnce(&mut Command) -> std::io::Result<Child>,
    ) -> Result<Self> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).process_group(0).current_dir("/");
        for name in &launch.unset {
            command.env_remove(name);
        }
        command.envs(launch.set.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = spawn(&mut command).map_err(|error| {
            let what = format!("start '{}'", launch.program.to_string_lossy());
            Error::new(ErrorKind::Io, what).with_source(error)
        })?;
        Ok(Helper { child, said: None })
    }

    /// Kills it, and reaps it if it ends at once: the caller does not wait for one that the driver
    /// blocks.
    fn end(&mut self) {
        self.kill();
        let _ = self.child.try_wait();
    }
}

impl Companion for Helper {
    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    fn ended(&mut self) -> Result<Option<String>> {
        if self.said.is_none() {
            let pid = self.pid();
            let failed = |error: std::io::Error| {
                Error::new(ErrorKind::Io, format!("watch process {pid}")).with_source(error)
            };
            if self.child.try_wait().map_err(failed)?.is_none() {
                return Ok(None);
            }
            self.said = Some(self.child.stdout.take().map(said).unwrap_or_default());
        }
        Ok(self.said.clone())
    }

    fn kill(&mut self) {
        // One that has ended needs no signal.
        let _ = self.child.kill();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

/// A child of the supervisor that is not a member of the job. If it has not ended when this is
/// dropped, it is reaped with the job's processes.
pub(crate) struct LinuxCompanion {
    shared: Rc<Shared>,
    helper: Helper,
    key: ProcessKey,
}

impl LinuxCompanion {
    /// Starts a program.
    pub(crate) fn start(launch: &Launch, shared: Rc<Shared>) -> Result<Self> {
        let helper = Helper::start(launch, |command| shared.as_before(|| command.spawn()))?;
        let failed = |errno| {
            let program = launch.program.to_string_lossy();
            fault::file(format!("start '{program}' next to the job"), errno)
        };
        let key = entry(&shared.root, helper.child.id()).map_err(failed)?.key;
        shared.companions.borrow_mut().insert(key);
        Ok(LinuxCompanion { shared, helper, key })
    }
}

impl Companion for LinuxCompanion {
    fn pid(&self) -> Pid {
        self.key.pid
    }

    fn ended(&mut self) -> Result<Option<String>> {
        self.helper.ended()
    }

    fn kill(&mut self) {
        self.helper.kill();
    }
}

impl Drop for LinuxCompanion {
    fn drop(&mut self) {
        // It must end before it counts as a process of the job.
        self.helper.end();
        self.shared.companions.borrow_mut().remove(&self.key);
    }
}

/// Returns the output of an ended helper. A process that inherited the other end of the pipe may
/// keep it open, so this does not wait.
fn said(mut output: ChildStdout) -> String {
    let mut text = vec![0; SAID_LIMIT];
    let read = rustix::io::ioctl_fionbio(&output, true).map_err(Into::into);
    let count = read.and_then(|()| output.read(&mut text)).unwrap_or(0);
    text.truncate(count);
    String::from_utf8_lossy(&text).into_owned()
}
