//! The port [`Launcher`] for a program that only holds devices: it starts companions and no job.

use gpu_core::{Companion, Error, ErrorKind, Job, Launch, Launcher, Pid, Result};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The most of its output that is read.
const SAID_LIMIT: u64 = 4096;

/// Starts companions, such as placeholders, and no job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Companions;

impl Launcher for Companions {
    fn launch(&self, _: &Launch) -> Result<Box<dyn Job>> {
        Err(Error::new(ErrorKind::Unsupported, "start a job in a program that only holds devices"))
    }

    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).process_group(0).current_dir("/");
        for name in &launch.unset {
            command.env_remove(name);
        }
        command.envs(launch.set.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| {
            let what = format!("start '{}'", launch.program.to_string_lossy());
            Error::new(ErrorKind::Io, what).with_source(error)
        })?;
        Ok(Box::new(Started { child, said: None }))
    }
}

/// A companion. Until it is waited for, its PID is not reused.
struct Started {
    child: Child,
    /// Its output, once it has ended.
    said: Option<String>,
}

impl Companion for Started {
    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    fn ended(&mut self) -> Result<Option<String>> {
        if self.said.is_none() {
            let pid = self.child.id();
            let failed = |error: std::io::Error| {
                let what = format!("watch process {pid}");
                Error::new(ErrorKind::Io, what).with_source(error)
            };
            if self.child.try_wait().map_err(failed)?.is_none() {
                return Ok(None);
            }
            let mut said = Vec::new();
            // Placeholders start no process that could keep the pipe open.
            if let Some(output) = self.child.stdout.take() {
                let _ = output.take(SAID_LIMIT).read_to_end(&mut said);
            }
            self.said = Some(String::from_utf8_lossy(&said).into_owned());
        }
        Ok(self.said.clone())
    }

    fn kill(&mut self) {
        // One that has ended needs no signal.
        let _ = self.child.kill();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
        // One that the driver blocks ends later: nobody waits for it.
        let _ = self.child.try_wait();
    }
}
