//! Finds the holders of device files on Linux, and sends signals that cannot reach the wrong
//! process.
//!
//! The main decision is that a PID is never trusted twice. It is looked up once, and everything
//! after that uses what the kernel ties to the process itself: an open directory of `/proc`, and a
//! pidfd for signals. Likewise a file is never compared by name: a device by its number, all else
//! by file system and inode.
//!
//! The roots of `/proc`, `/dev` and `/sys` are arguments ([`Roots`]), so that tests build machines
//! from directories; the rest of the workspace sees only the ports of [`gpu_core`].
//!
//! ```
//! use gpu_core::{Access, DeviceFiles, Pid, ProcessTable};
//! use gpu_host::{LinuxHost, Roots, resolve};
//!
//! let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
//! let host = LinuxHost::new(roots);
//!
//! // Find the holders of this program's file. The query for a device file is the same.
//! let scan = host.holders(&[resolve(std::env::current_exe()?)?])?;
//! let own = Pid(std::process::id());
//! let holder = scan.holders.iter().find(|holder| holder.process.pid == own).ok_or("not found")?;
//! assert!(holder.held[0].access.contains(Access::EXECUTABLE));
//!
//! // An opened process stays the same one, even if its PID is reused.
//! let process = host.open(own)?;
//! assert!(process.info()?.key.definitely_same(&holder.process));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Limits: unless statx(2) is blocked, it contacts no file server (a dead one must not stop a walk),
//! so it identifies a file there by what the kernel has cached; it checks the current and root
//! directory of the first
//! thread only; before Linux 6.2 it misses a thread with its own descriptor table where the kernel
//! does not compare tables (`CONFIG_KCMP`, and PIDs of the caller's namespace); and reading the
//! mappings of a process with a locked memory map blocks until the lock is released. The driver's
//! messages are those of this boot that the kernel's buffer still has.

#[cfg(not(target_os = "linux"))]
compile_error!("gpu-host reads Linux's /proc");

mod boot;
mod bpf;
mod clock;
mod context;
mod driver;
mod executable;
mod fault;
mod file_activity;
mod file_index;
mod file_stat;
mod files;
mod handle;
mod hidepid;
mod hook;
mod host;
mod inherited;
pub mod input;
mod journal;
mod kept_stats;
mod kernel_log;
mod limits;
mod load;
mod locks;
mod maps;
mod meminfo;
mod namespace;
pub mod output;
mod parallel;
mod proc_dir;
mod process;
pub mod python;
mod roots;
pub mod supervise;
mod syscall;
mod terminals;
mod timer;
mod tool;
mod trusted_dir;
mod trusted_file;
mod users;
mod walk;
mod workload;

pub use clock::SystemClock;
pub use driver::may_sleep;
pub use files::resolve;
pub use hidepid::hides_processes;
pub use hook::Hook;
pub use host::LinuxHost;
pub use inherited::renew_inherited;
pub use journal::FileJournal;
pub use limits::{ignore_file_size_signal, raise_open_file_limit};
pub use locks::{FileLeaseStore, LeaseLocation, SafeGpuFiles};
pub use roots::Roots;
pub use syscall::{give_back_memory, share_heap};
pub use terminals::Terminals;
pub use tool::{Answer, Tool};
pub use trusted_dir::{PathTrust, TrustedDir, is_own};
pub use trusted_file::TrustedFile;
pub use users::{has_account, user_label, user_name};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
