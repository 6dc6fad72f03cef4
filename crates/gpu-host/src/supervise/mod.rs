//! Programs in a tree of their own: a front that the caller sees, a supervisor that stays, a job.
//!
//! The main decision is that the program which a person started is only a [`Front`]: it holds
//! nothing, so that nothing is lost with it. It starts its own program once more as the
//! *supervisor*, which does the work through a [`LinuxLauncher`], and of which every process of
//! the job's tree stays a descendant, whatever that process does (`PR_SET_CHILD_SUBREAPER`,
//! prctl(2)). The supervisor watches the front by a pidfd, and so learns of its end even by
//! SIGKILL; no descriptor, no pipe and no variable of the environment has to survive for that. The
//! front sees the supervisor's end, and where that was killed, it is the next above the tree: all
//! of it becomes the front's ([`Orphans`]), to be ended. A supervisor that outlasts its run, to keep
//! a lease, lets the front go before ([`DetachPipe`]).
//!
//! Each of the three has a process group, so that who kills one of them has not killed the next.
//! The terminal is lent by the front's group to the job's, as a shell lends it to a job
//! (credentials(7), tcsetpgrp(3)): Ctrl-C and Ctrl-Z reach the job alone, and when it stops, the
//! front's group is stopped with it; the supervisor goes on.
//!
//! Nothing here needs code between fork and exec.

mod companion;
mod detach;
mod exit_status;
mod frontend;
mod job;
mod launcher;
mod members;
mod orphans;
mod program;
mod reexec;
mod signals;
mod suspend;
mod terminal;
mod tree;
mod tree_kill;

pub use detach::{DetachPipe, dismiss};
pub use exit_status::end_as;
pub use frontend::{Front, Relation, parse_words};
pub use launcher::LinuxLauncher;
pub use orphans::Orphans;
pub use program::find_program;
pub use reexec::{Again, Asked, Heir, Part};
pub(crate) use signals::{ignored, is_in};
pub(crate) use tree::children_of;

use crate::handle::has_ended;
use crate::timer::{now as moment, pause};

/// Returns the process group of the calling process; `None` where its leader is outside of this PID
/// namespace.
pub fn process_group() -> Option<gpu_core::Pid> {
    terminal::own_group().map(|group| gpu_core::Pid(group.as_raw_nonzero().get().unsigned_abs()))
}
