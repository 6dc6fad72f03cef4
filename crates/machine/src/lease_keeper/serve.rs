//! The process that keeps a claim.

use super::{HOLDER, PLACEHOLDER, READY, RENEWAL};
use crate::backends::roots;
use gpu_core::visible::cuda::VISIBLE;
use gpu_core::{Clock, DeviceUuid, ProcessFault, ProcessKey, ProcessTable};
#[cfg(feature = "cuda")]
use gpu_cuda::CudaContexts;
use gpu_host::supervise::parse_words;
use gpu_host::{LinuxHost, SystemClock, renew_inherited};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::io::Write;
use std::time::Duration;

/// The interval after a poll that failed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The result of a process that kept a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The process that it served has ended.
    Done,
    /// Its arguments were invalid.
    Misused,
    /// It could not create what it should keep.
    Failed,
}

/// A program without the feature `cuda` cannot hold contexts.
#[cfg(not(feature = "cuda"))]
enum CudaContexts {}

#[cfg(not(feature = "cuda"))]
impl CudaContexts {
    fn hold(_: &[DeviceUuid]) -> gpu_core::Result<Self> {
        let what = "hold CUDA contexts: this program was built without the feature cuda";
        Err(gpu_core::Error::new(gpu_core::ErrorKind::Unsupported, what))
    }
}

/// Keeps the inherited lease until a process ends, if this process was started for that.
pub(crate) fn serve_if_requested() -> Option<Served> {
    let mut words = std::env::args_os().skip(1);
    let word = words.next()?;
    let is_placeholder = word == *PLACEHOLDER;
    if word != *HOLDER && !is_placeholder {
        return None;
    }
    let (Some(pid), Some(start)) = (words.next(), words.next()) else {
        return Some(Served::Misused);
    };
    let Ok(root) = parse_words(&pid, &start) else { return Some(Served::Misused) };
    let visible = std::env::var_os(VISIBLE).filter(|_| is_placeholder);
    if is_placeholder {
        // Before it has a context: other programs recognise placeholders by this name. A failure is
        // no reason to leave the device unused.
        let _ = rustix::thread::set_name(c"run-placeholder");
    }
    let devices = words.chain(visible);
    let devices = devices.map(|word| DeviceUuid(word.to_string_lossy().into_owned()));
    let devices: Vec<DeviceUuid> = devices.collect();
    let contexts =
        if devices.is_empty() { Ok(None) } else { CudaContexts::hold(&devices).map(Some) };
    // Open it before the claim is reported as kept: without it, the lease would end at once.
    let root = open_process(root);
    let message = match (&contexts, &root) {
        (Ok(_), Ok(_)) => READY.to_owned(),
        (Err(error), _) => error.fault().text,
        (_, Err(errno)) => format!("watch the process of the claim: {errno}"),
    };
    // The end of the pipe shows the reader that the message is complete.
    let mut stdout = std::io::stdout();
    let reported = stdout.write_all(message.as_bytes()).and_then(|()| stdout.flush());
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
    let hung_up = nowhere.and_then(|nowhere| Ok(rustix::stdio::dup2_stdout(nowhere)?));
    let Ok(root) = root else { return Some(Served::Failed) };
    if contexts.is_err() || reported.is_err() || hung_up.is_err() {
        return Some(Served::Failed);
    }
    if let Some(root) = root {
        let clock = SystemClock::new();
        let mut due = clock.monotonic() + RENEWAL;
        loop {
            match poll(&mut [PollFd::new(&root, PollFlags::IN)], Some(&time_until(due, &clock))) {
                Ok(0) => {
                    renew_inherited(&roots());
                    due = clock.monotonic() + RENEWAL;
                }
                Ok(_) => break,
                Err(Errno::INTR) => {}
                // Another failure, such as a lack of memory: the process may still live.
                Err(_) => clock.sleep(POLL_INTERVAL),
            }
        }
    }
    Some(Served::Done)
}

/// Returns the time until `due`, for `poll`.
pub fn time_until(due: Duration, clock: &dyn Clock) -> Timespec {
    let left = due.saturating_sub(clock.monotonic());
    Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
}

/// Opens a process; `None` if it has ended or its PID was reused.
///
/// # Errors
/// Those of the kernel.
pub fn open_process(key: ProcessKey) -> Result<Option<OwnedFd>, Errno> {
    let number = i32::try_from(key.pid.0).ok().and_then(rustix::process::Pid::from_raw);
    let pidfd = match number.map(|number| pidfd_open(number, PidfdFlags::empty())) {
        Some(Ok(pidfd)) => pidfd,
        None | Some(Err(Errno::SRCH)) => return Ok(None),
        Some(Err(errno)) => return Err(errno),
    };
    // The PID may have been reused before it was opened, so compare the identity now.
    match LinuxHost::new(roots()).process(key.pid) {
        Ok(info) => Ok(info.key.definitely_same(&key).then_some(pidfd)),
        Err(error) if error.kind() == ProcessFault::Gone.into() => Ok(None),
        Err(error) => {
            let errno = std::error::Error::source(&error).and_then(|errno| errno.downcast_ref());
            Err(errno.copied().unwrap_or(Errno::IO))
        }
    }
}
