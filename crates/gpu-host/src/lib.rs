//! Who holds a device file, and signals that cannot reach the wrong process, on Linux.
//!
//! The main decision is that numbers are never trusted twice. A process number is looked up once,
//! and everything after that goes through what the kernel ties to the process itself: a directory
//! of `/proc` that is held open, and a pidfd for signals. Likewise a file is never compared by
//! name: a device by its number, all else by file system and inode.
//!
//! The roots of `/proc`, `/dev` and `/sys` are arguments ([`Roots`]), so that tests make machines
//! out of folders; the ports of [`gpu_core`] are all that the rest of the workspace sees.
//!
//! What it does not do: it asks no file server (a dead one must not stop a walk), so it finds a
//! file on one by what the kernel remembers of it; it looks at the current and root directory of
//! the first thread only; before Linux 6.2 it does not notice a thread with descriptors of its
//! own; and reading the mappings of a process whose memory map the kernel has locked waits as
//! long as that lock is held.

#[cfg(not(target_os = "linux"))]
compile_error!("gpu-host reads Linux's /proc");

mod clock;
mod driver;
mod executable;
mod fault;
mod file_index;
mod files;
mod handle;
mod hidepid;
mod host;
mod inherited;
mod journal;
mod limits;
mod locks;
mod maps;
pub mod output;
mod parallel;
mod proc_dir;
mod process;
pub mod python;
pub mod supervise;
mod timer;
mod trusted_folder;
mod users;
mod walk;
mod workload;

pub use clock::SystemClock;
pub use files::resolve;
pub use hidepid::hides_processes;
pub use host::{LinuxHost, Roots};
pub use inherited::renew_inherited;
pub use journal::FileJournal;
pub use limits::{ignore_file_size_signal, raise_open_file_limit};
pub use locks::{FileLocks, Place, SafeGpuFiles};
pub use trusted_folder::{PathTrust, TrustedFolder, is_own};
pub use users::{has_account, user_name};
