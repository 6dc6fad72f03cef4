//! A process that keeps what a claim took after the program that took it has ended: the lease, by a
//! descriptor that it inherits, and a CUDA context on each device where that is wanted. The
//! placeholder of a run is such a process for one context.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::roots;
use gpu_core::visible::VISIBLE;
use gpu_core::{Clock, DeviceUuid, Host, Launch, Pid, ProcessInfo, ProcessKey};
use gpu_cuda::CudaContexts;
use gpu_host::supervise::parse_words;
use gpu_host::{LinuxHost, SystemClock, renew_inherited};
use gpu_steward::Grant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io::{Read, Write};
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
pub(crate) const RENEWAL: Duration = Duration::from_secs(3600);

/// One that was started.
pub(crate) struct Holder(Option<Child>);

/// What it is to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeps {
    /// The lease.
    pub(crate) lease: bool,
    /// A context on each device.
    pub(crate) contexts: bool,
}

impl Holder {
    /// Starts one that lives as long as `root`, and waits until it has what it is to keep.
    ///
    /// # Errors
    /// When it cannot be started, or CUDA refuses a context or does not answer.
    pub(crate) fn start(
        grant: &Grant,
        root: ProcessKey,
        keeps: Keeps,
        variables: &[(OsString, OsString)],
    ) -> Result<Self, Failure> {
        let failed =
            |error| Failure::io("start the program that keeps the lease", error).ending(Exit::Own);
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
            false => Err(Failure::new(Exit::Own, "keep the devices").with_source(said)),
        }
    }

    /// Leaves it to itself.
    pub(crate) fn leave(mut self) {
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
/// and ends with the supervisor. `session` is the folder of a simulated machine, which has no CUDA.
pub(crate) fn placeholder(supervisor: ProcessKey, session: Option<&Path>) -> Launch {
    let (program, arguments): (OsString, Vec<OsString>) = match session {
        Some(folder) => {
            let uses = format!("visible:{PLACEHOLDER_MIB}");
            let words = ["--use", &uses, "--name", PLACEHOLDER];
            (folder.join(crate::session::ACTOR).into(), words.map(Into::into).into())
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

/// Tells whether a process is a placeholder of the run whose supervisor has this number. One of the
/// job's processes that takes the name deceives nobody but its own job.
pub(crate) fn is_placeholder(process: &ProcessInfo, supervisor: Pid) -> bool {
    process.name == PLACEHOLDER && process.parent == Ok(supervisor)
}

/// Keeps what was inherited until a process ends, where this program was started for that.
pub(crate) fn serve_where_asked() -> Option<Exit> {
    let mut words = std::env::args_os().skip(1);
    let word = words.next()?;
    let is_placeholder = word == *PLACEHOLDER;
    if word != *HOLDER && !is_placeholder {
        return None;
    }
    let (Some(pid), Some(start)) = (words.next(), words.next()) else { return Some(Exit::Usage) };
    let Ok(root) = parse_words(&pid, &start) else { return Some(Exit::Usage) };
    let visible = std::env::var_os(VISIBLE).filter(|_| is_placeholder);
    if is_placeholder {
        // Before it shows: whoever leaves it out knows it by that. That it has no other name is no
        // reason to leave the device uncovered.
        let _ = rustix::thread::set_name(c"run-placeholder");
    }
    let devices = words.chain(visible);
    let devices = devices.map(|word| DeviceUuid(word.to_string_lossy().into_owned()));
    let devices: Vec<DeviceUuid> = devices.collect();
    let contexts = match devices.is_empty() {
        true => Ok(None),
        false => CudaContexts::hold(&devices).map(Some),
    };
    let said = match &contexts {
        Ok(_) => HOLDS.to_owned(),
        Err(error) => error.fault().text,
    };
    // Whoever waits hears that this is all by the end of the pipe.
    let mut stdout = std::io::stdout();
    let told = stdout.write_all(said.as_bytes()).and_then(|()| stdout.flush());
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
    let hung_up = nowhere.and_then(|nowhere| Ok(rustix::stdio::dup2_stdout(nowhere)?));
    if contexts.is_err() || told.is_err() || hung_up.is_err() {
        return Some(Exit::Own);
    }
    if let Ok(Some(root)) = opened(root) {
        let clock = SystemClock::new();
        let mut due = clock.monotonic() + RENEWAL;
        loop {
            match poll(&mut [PollFd::new(&root, PollFlags::IN)], Some(&until(due, &clock))) {
                Ok(0) => {
                    renew_inherited(&roots());
                    due = clock.monotonic() + RENEWAL;
                }
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
    }
    Some(Exit::Done)
}

/// Returns the time until something is due, for `poll`.
pub(crate) fn until(due: Duration, clock: &dyn Clock) -> Timespec {
    let left = due.saturating_sub(clock.monotonic());
    Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
}

/// Opens a process; `None` when it has ended, or its number is another's by now.
///
/// # Errors
/// The kernel's.
pub(crate) fn opened(key: ProcessKey) -> Result<Option<OwnedFd>, Errno> {
    let number = i32::try_from(key.pid.0).ok().and_then(rustix::process::Pid::from_raw);
    let pidfd = match number.map(|number| pidfd_open(number, PidfdFlags::empty())) {
        Some(Ok(pidfd)) => pidfd,
        None | Some(Err(Errno::SRCH)) => return Ok(None),
        Some(Err(errno)) => return Err(errno),
    };
    // The number was somebody's when it was opened; whose it is, is asked next.
    let host = LinuxHost::new(roots());
    let same = host.process(key.pid).is_ok_and(|info| info.key.definitely_same(&key));
    Ok(same.then_some(pidfd))
}
