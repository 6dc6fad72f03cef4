//! The programs of a Slurm installation, as the port of gpu-slurm.

use crate::backends;
use crate::{MachineError, Source};
use gpu_core::{Clock, DeviceKey, Error, ErrorKind, Result};
use gpu_host::{Tool, resolve};
use gpu_slurm::{Job, NodeDevice, Program, Question, Slurm, device_files, device_of, devices};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Directories where Slurm may be installed. slurmd sets no `PATH`, and that of a user is not
/// trusted.
const PLACES: [&str; 4] = ["/usr", "/usr/local", "/opt/slurm", "/opt/slurm/current"];

/// The variables that its programs get.
const VARIABLES: [&str; 4] = ["SLURM_CONF", "SLURM_CONF_SERVER", "LD_LIBRARY_PATH", "TZ"];

/// The time limit for one program. The controller may be unreachable.
const LIMIT: Duration = Duration::from_secs(10);

/// The maximum length of output that an error quotes.
const QUOTED: usize = 200;

/// The programs of Slurm on this machine.
pub struct SlurmTools {
    tools: BTreeMap<Program, Tool>,
    clock: Arc<dyn Clock>,
    until: Duration,
}

impl SlurmTools {
    /// Returns the programs of the installation in this directory, or of the first usual directory
    /// that has `scontrol`. They answer until the clock shows `until`, and not later.
    ///
    /// # Errors
    /// When there is none, or a user other than root or the caller can change a program.
    pub fn find(
        dir: Option<&Path>,
        clock: Arc<dyn Clock>,
        until: Duration,
    ) -> Result<Self, MachineError> {
        let has_it = |prefix: &PathBuf| prefix.join(Program::Scontrol.path()).exists();
        let prefix = match dir {
            Some(dir) => Some(dir.to_owned()),
            None => PLACES.iter().map(PathBuf::from).find(has_it),
        };
        let prefix = prefix.ok_or_else(|| {
            MachineError::new(Error::new(ErrorKind::Invalid, "find Slurm's scontrol"))
                .with_hint("pass the directory with bin and sbin: --slurm DIR")
        })?;
        let variable = |name: &&str| Some((OsString::from(name), std::env::var_os(name)?));
        let environment: Vec<_> = VARIABLES.iter().filter_map(variable).collect();
        let tool = |program: Program| {
            Ok((program, Tool::new(&prefix.join(program.path()), environment.clone())?))
        };
        let all = [Program::Slurmd, Program::Scontrol, Program::Squeue];
        let tools = all.into_iter().map(tool).collect::<Result<_>>().map_err(MachineError::new)?;
        Ok(SlurmTools { tools, clock, until })
    }
}

impl Source {
    /// Returns the file of the device at each position in Slurm's list of this node; empty if there
    /// is no Slurm, or the devices are simulated.
    pub fn slurm_positions(&self) -> BTreeMap<u32, DeviceKey> {
        match (&self.simulation, &self.session) {
            (None, None) => positions(&self.clock),
            _ => BTreeMap::new(),
        }
    }
}

/// Returns the devices of this node in Slurm's order, and the machine with their files. A job with
/// other devices is an error.
///
/// # Errors
/// When `slurmd -G` does not answer, or does not name a device of the job.
pub fn slurm_devices(
    source: Source,
    slurm: &SlurmTools,
    job: Option<&Job>,
) -> Result<(Source, Vec<NodeDevice>), MachineError> {
    let all = devices(&slurm.ask(Question::Devices)?, &backends::drivers());
    if let Some(job) = job.filter(|job| job.devices(&all).len() != job.positions.len()) {
        let what = format!("find the GPUs of job {} in the list of slurmd -G", job.id);
        return Err(MachineError::new(Error::new(ErrorKind::Invalid, what))
            .with_hint("gres.conf must name a /dev/nvidiaN with File= for each GPU"));
    }
    let files = device_files(&all, &backends::drivers(), &|path| resolve(path).ok());
    Ok((source.with_device_files(files), all))
}

impl Slurm for SlurmTools {
    fn ask(&self, question: Question<'_>) -> Result<String> {
        let program = question.program();
        let tool = &self.tools[&program];
        let arguments = question.arguments();
        let what = || format!("run {} {}", program.path(), arguments.join(" "));
        let left = self.until.saturating_sub(self.clock.monotonic());
        if left.is_zero() {
            return Err(Error::new(ErrorKind::TimedOut, what()));
        }
        let answer = tool.ask(&arguments, LIMIT.min(left), &*self.clock)?;
        match answer.status {
            None => Err(Error::new(ErrorKind::TimedOut, what())),
            // slurmd prints its devices on standard error.
            Some(status) if status.success() => Ok(answer.output + &answer.errors),
            Some(status) => {
                let said = answer.errors.lines().chain(answer.output.lines()).next();
                let said: String = said.unwrap_or_default().chars().take(QUOTED).collect();
                let why = if said.is_empty() { status.to_string() } else { said };
                Err(Error::new(ErrorKind::Io, what()).with_source(why))
            }
        }
    }
}

/// Returns the file of the device at each position in the list of `slurmd -G`; empty if that does
/// not answer.
fn positions(clock: &Arc<dyn Clock>) -> BTreeMap<u32, DeviceKey> {
    let tools = SlurmTools::find(None, Arc::clone(clock), Duration::MAX);
    let answer = tools.ok().and_then(|tools| tools.ask(Question::Devices).ok());
    let all = devices(&answer.unwrap_or_default(), &backends::drivers());
    let key = |path: &str| device_of(path, &backends::drivers());
    all.iter().filter_map(|device| Some((device.position, key(&device.path)?))).collect()
}

/// Returns the name of this node: the one given, that of slurmd, or the short hostname.
///
/// # Errors
/// When none is known, or it is not the name of a node.
pub fn node_name(given: Option<&str>, hostname: Option<&str>) -> Result<String, MachineError> {
    let set = std::env::var("SLURMD_NODENAME").ok();
    let short = hostname.map(|name| name.split('.').next().unwrap_or(name).to_owned());
    let name = given.map(str::to_owned).or(set).or(short).unwrap_or_default();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_allowed) {
        Ok(name)
    } else {
        let error = Error::new(ErrorKind::Invalid, format!("use '{name}' as a node name"));
        Err(MachineError::new(error).with_hint("pass Slurm's name for this node: --node NAME"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_host::SystemClock;
    use gpu_slurm::drain_until;
    use std::fs;
    use std::process::Command;

    /// Returns an installation whose programs run this script.
    fn installation(script: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for program in [Program::Slurmd, Program::Scontrol, Program::Squeue] {
            let path = dir.path().join(program.path());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = format!("#!/bin/sh\necho >> ${{0%/*/*}}/asked\n{script}\n");
            // A child writes it: the kernel executes no file that is open for writing, and a child
            // of another thread can have a copy of this program's descriptors.
            let write = ["-c", "printf %s \"$2\" > \"$1\" && chmod 755 \"$1\"", "sh"];
            let written = Command::new("sh").args(write).arg(&path).arg(text).status().unwrap();
            assert!(written.success());
        }
        dir
    }

    #[test]
    fn slow_controller_does_not_outlast_the_limit() {
        let dir = installation("sleep 4; echo NodeName=n1 State=IDLE");
        let (clock, until) = (SystemClock::new(), Duration::from_secs(2));
        let slurm = SlurmTools::find(Some(dir.path()), Arc::new(clock), until).unwrap();
        let drained = drain_until(&slurm, ("n1", "gpuws: GPU 0 held by 1"), until, &clock);
        assert_eq!(drained.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
        assert!(clock.monotonic() < Duration::from_secs(4), "{:?}", clock.monotonic());
        let asked = || fs::read_to_string(dir.path().join("asked")).unwrap();
        let before = asked();
        assert!(slurm.ask(Question::Node("n1")).is_err());
        assert_eq!(asked(), before, "nothing is started after the limit");
    }
}
