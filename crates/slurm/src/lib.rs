//! Cleans the GPUs of a Slurm node before and after a job, and says why a node is drained.
//!
//! The main decision is that a process is ended on evidence of the job alone: it is in the cgroup
//! of the job, Slurm tracks it for the job, it belongs to the job's user and has the job's number
//! in its environment, or it uses a device of the job that Slurm has given to no other. A process
//! that Slurm tracks for another job is spared before any of this is considered, so jobs of one
//! user can overlap. The reason of a drain names what keeps a device from the next job: a process
//! on it, memory that no process holds, or a scan that timed out.
//!
//! Everything that Slurm knows comes through one port, [`Slurm`]: a [`Question`] is the program and
//! its arguments, and the answer is text that the parsers here read. [`Cleaner`] combines that port
//! with those of [`gpu_core`]; the signals are those of `gpu-reaper`, with its checks, its audit
//! log and its proof.
//!
//! ```
//! use gpu_slurm::{Job, devices, positions};
//!
//! // What `slurmd -G` prints. Slurm counts positions in this list, not device files.
//! let gres = "slurmd: Gres Name=gpu Type=p100 Count=1 Index=2 ID=7696487 File=/dev/nvidia2 (null)\n\
//!             slurmd: Gres Name=gpu Type=p100 Count=1 Index=3 ID=7696487 File=/dev/nvidia3 (null)\n";
//! let node = devices(gres, &gpu_nvidia_driver::drivers());
//! let variable = |name: &str| match name {
//!     "SLURM_JOB_ID" => Some("4711".to_owned()),
//!     "SLURM_JOB_UID" => Some("1000".to_owned()),
//!     "SLURM_JOB_GPUS" => Some("1".to_owned()),
//!     _ => None,
//! };
//! let job = Job::from_environment(&variable)?;
//! assert_eq!(positions("0-1"), Some(vec![0, 1]));
//! assert_eq!(&*job.devices(&node)[0].path, "/dev/nvidia3");
//! # Ok::<(), gpu_core::Error>(())
//! ```

mod allocation;
mod clean;
mod evidence;
mod gres;
mod health;
mod held;
mod job;
mod message;
mod node;
mod question;
mod suspects;
mod tracked;

pub use allocation::{Allocation, allocation, job_names};
pub use clean::{Cleaned, Cleaner};
pub use evidence::{Phase, Suspect, Verdict, verdict};
pub use gres::{NodeDevice, device_files, device_of, devices};
pub use health::{Change, Health, change, health};
pub use held::{HeldDevice, is_own_reason, reason};
pub use job::{Job, positions};
pub use message::WorkerReport;
pub use node::{NodeState, node_state};
pub use question::{Drained, Program, Question, Slurm, drain, drain_until};
pub use tracked::tracked;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
