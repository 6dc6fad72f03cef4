//! The port [`Companion`]: a helper program of the supervisor beside its job.

use super::launcher::Shared;
use super::tree::place;
use crate::fault;
use gpu_core::{Companion, Error, ErrorKind, Launch, Pid, ProcessKey, Result};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::rc::Rc;

/// The most of its output that is read.
const SAID_LIMIT: usize = 4096;

/// A child of the supervisor that is not a member of the job.
pub(crate) struct LinuxCompanion {
    shared: Rc<Shared>,
    child: Child,
    key: ProcessKey,
    /// Its output, once it has ended.
    said: Option<String>,
}

impl LinuxCompanion {
    /// Starts a program.
    pub(crate) fn start(launch: &Launch, shared: Rc<Shared>) -> Result<Self> {
        let what = || format!("start '{}' beside the job", launch.program.to_string_lossy());
        let failed = |error: std::io::Error| Error::new(ErrorKind::Io, what()).with_source(error);
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).process_group(0).current_dir("/");
        for name in &launch.unset {
            command.env_remove(name);
        }
        command.envs(launch.set.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = shared.as_before(|| command.spawn()).map_err(failed)?;
        // Until it is reaped, its PID is not reused.
        let key = match place(&shared.root, child.id()) {
            Ok(place) => place.key,
            Err(errno) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(fault::file(what(), errno));
            }
        };
        shared.companions.borrow_mut().insert(key);
        Ok(LinuxCompanion { shared, child, key, said: None })
    }
}

impl Companion for LinuxCompanion {
    fn pid(&self) -> Pid {
        self.key.pid
    }

    fn ended(&mut self) -> Result<Option<String>> {
        if self.said.is_none() {
            let failed = |error: std::io::Error| {
                let what = format!("watch process {}", self.key.pid);
                Error::new(ErrorKind::Io, what).with_source(error)
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

impl Drop for LinuxCompanion {
    fn drop(&mut self) {
        self.kill();
        // One that has not ended yet is reaped with the job's processes.
        let _ = self.child.try_wait();
        self.shared.companions.borrow_mut().remove(&self.key);
    }
}

/// Returns the output of one that has ended. A process that inherited the other end of the pipe may
/// keep it open, so this does not wait.
fn said(mut output: ChildStdout) -> String {
    let mut text = vec![0; SAID_LIMIT];
    let read = rustix::io::ioctl_fionbio(&output, true).map_err(Into::into);
    let count = read.and_then(|()| output.read(&mut text)).unwrap_or(0);
    text.truncate(count);
    String::from_utf8_lossy(&text).into_owned()
}
