//! The program to run, and how to run it.

use crate::memory_limit::MemoryLimit;
use crate::ports::Request;
use gpu_core::Launch;
use gpu_core::visible::Form;
use std::time::Duration;

/// What happens to a job when its caller is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeath {
    /// It ends, with everything that it started.
    #[default]
    End,
    /// It keeps running, with its lease.
    Keep,
}

/// A program to run on claimed devices.
#[derive(Clone, Debug)]
pub struct RunOrder {
    /// The devices. The root is the calling process, which the program's tree cannot leave.
    pub request: Request,
    /// The program; the variables that name the devices are added.
    pub launch: Launch,
    /// How the devices are named in its environment.
    pub visible: Form,
    /// Returns the value that a variable has in that environment otherwise.
    pub inherited: fn(&str) -> Option<String>,
    /// The data for the program's memory limit, if it must be kept within its share.
    pub bounding: Option<MemoryLimit>,
    /// Its time limit.
    pub time_limit: Option<Duration>,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// What happens to it when its caller is gone.
    pub on_death: OnDeath,
    /// How long safe-gpu's locks are held for a program that has not appeared on its devices.
    pub handoff: Duration,
    /// A program that uses the device in `CUDA_VISIBLE_DEVICES` until it is killed. It stands for
    /// the job on a device that looks unused when safe-gpu's locks are released. Without it,
    /// safe-gpu may take such a device.
    pub placeholder: Option<Launch>,
}

/// The processes that may remain of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Processes that hold no device.
    Others,
    /// No process.
    Nothing,
}
