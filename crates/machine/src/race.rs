//! Two claims that race for one GPU: a check that exclusion works on this machine.
//!
//! Both are real runs of the program on a simulated machine, so they use the locks, the processes
//! and the directory of leases that claims use here. Each job makes the same directory; if both
//! have the GPU at the same time, the second one fails to make it.

use crate::MachineError;
use gpu_core::Clock;
use gpu_sim::Session;
use gpu_sim::live::Dir;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// A machine with free GPUs.
const MACHINE: &str = "rtx8000-x4";

/// The exit status of a job that finds another job on its GPU.
const BOTH: i32 = 99;

/// The exit status of a claim that was not granted.
const NOT_GRANTED: i32 = 75;

/// A job: it has the GPU until it is released, the directory is gone, or five minutes have passed.
const JOB: &str = "mkdir \"$0/taken\" 2>/dev/null || exit 99
n=0
while [ -d \"$0\" ] && [ ! -e \"$0/release\" ] && [ $((n += 1)) -lt 3000 ]; do sleep 0.1; done
rmdir \"$0/taken\"";

/// The time that the claims may take, before the GPU is released and after.
const LONGEST: Duration = Duration::from_secs(120);

/// The time for the second claim to wait behind the first, before the GPU is released.
const BEHIND: Duration = Duration::from_secs(2);

/// How two claims for one GPU ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raced {
    /// The exit statuses of the two; `None` if a signal ended it.
    pub exits: [Option<i32>; 2],
    /// Whether both waited for the GPU instead of giving up at once.
    pub waits: bool,
}

impl Raced {
    /// Returns whether both had the GPU at the same time.
    pub fn is_shared(self) -> bool {
        self.exits.contains(&Some(BOTH))
    }

    /// Returns whether the claims ended as they must: if they waited, both were granted, one after
    /// the other; otherwise exactly one was granted.
    pub fn is_exclusive(self) -> bool {
        let mut exits = self.exits;
        exits.sort_unstable();
        exits == [Some(0), Some(if self.waits { 0 } else { NOT_GRANTED })]
    }
}

/// Starts two claims of `program`, gpuws, for the same GPU at the same time, and returns how they
/// ended. The leases are in the directory `GPUWS_CLAIMS`, or else in a temporary one.
///
/// # Errors
/// If the simulated machine or a claim cannot be started.
pub fn race(program: &Path, waits: bool, clock: &dyn Clock) -> Result<Raced, MachineError> {
    let dir = Dir::make(None)?;
    Session { live: true, ..Session::begun(Path::new(MACHINE)) }.write(dir.path())?;
    let jobs = tempfile::tempdir().map_err(|error| MachineError::io("make a directory", error))?;
    let mut command = Command::new(program);
    command.args(["run", "--gpu", "0", if waits { "--wait" } else { "--no-wait" }]);
    command.args(["--", "sh", "-c", JOB]).arg(jobs.path());
    command.envs(dir.environment()).env_remove("CUDA_VISIBLE_DEVICES");
    let mut spawn = || command.spawn().map_err(|error| MachineError::io("start a claim", error));
    let mut claims = Claims(Vec::new());
    for _ in 0..2 {
        claims.0.push(spawn()?);
    }
    let ended = end(&mut claims, jobs.path(), waits, clock);
    let exits = ended.map_err(|error| MachineError::io("wait for the claims", error))?;
    Ok(Raced { exits: exits.map(|status| status.code()), waits })
}

/// The claims, which end with this program's interest in them.
struct Claims(Vec<Child>);

impl Drop for Claims {
    fn drop(&mut self) {
        for claim in &mut self.0 {
            // It may have ended.
            let _ = claim.kill();
            let _ = claim.wait();
        }
    }
}

/// Releases the GPU once the other claim is refused or waits, and waits for both.
///
/// # Errors
/// If they do not end in time.
fn end(
    claims: &mut Claims,
    jobs: &Path,
    waits: bool,
    clock: &dyn Clock,
) -> io::Result<[ExitStatus; 2]> {
    let since = clock.monotonic();
    let longest = if waits { BEHIND } else { LONGEST };
    let mut is_over = false;
    while !is_over && clock.monotonic() - since < longest {
        clock.sleep(Duration::from_millis(20));
        for claim in &mut claims.0 {
            is_over |= claim.try_wait()?.is_some();
        }
    }
    std::fs::write(jobs.join("release"), "")?;
    let released = clock.monotonic();
    while clock.monotonic() - released < LONGEST {
        if let [Some(one), Some(other)] = [claims.0[0].try_wait()?, claims.0[1].try_wait()?] {
            return Ok([one, other]);
        }
        clock.sleep(Duration::from_millis(20));
    }
    Err(io::Error::other("they did not end; another lease may have the GPU"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_of_two_is_granted_and_each_of_two_that_wait() {
        let is =
            |waits, one, other| Raced { exits: [Some(one), Some(other)], waits }.is_exclusive();
        assert!(is(false, 0, 75) && is(false, 75, 0) && is(true, 0, 0));
        assert!(!is(false, 0, 0) && !is(false, 75, 75) && !is(false, 0, 1));
        assert!(!is(true, 0, 75) && !is(true, 0, 99));
        let shared = Raced { exits: [Some(0), Some(99)], waits: false };
        assert!(shared.is_shared() && !shared.is_exclusive());
        assert!(!Raced { exits: [Some(0), None], waits: true }.is_exclusive());
    }
}
