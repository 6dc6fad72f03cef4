//! Programs in their own process tree: a frontend that the caller sees, a supervisor that stays, a
//! job.
//!
//! The main decision is that the program that a user started is only a [`Front`]: it holds nothing,
//! so nothing is lost with it. It starts its own program again as the *supervisor*, which does the
//! work through a [`LinuxLauncher`]. Every process of the job's tree stays a descendant of the
//! supervisor, whatever it does (`PR_SET_CHILD_SUBREAPER`, prctl(2)). The supervisor watches the
//! frontend through a pidfd, and so notices its end even by SIGKILL; this depends on no inherited
//! descriptor, pipe or environment variable. The frontend notices the supervisor's end. If the
//! supervisor was killed, the frontend is next above the tree: it adopts all of it ([`Orphans`]),
//! to end it. A supervisor that outlasts its run, to keep a lease, dismisses the frontend first
//! ([`DetachPipe`]).
//!
//! Each of the three has its own process group, so killing one of them does not kill the next. The
//! frontend's group lends the terminal to the job's, as a shell does (credentials(7),
//! tcsetpgrp(3)): Ctrl-C and Ctrl-Z reach only the job, and when it stops, the frontend's group is
//! stopped with it; the supervisor continues.
//!
//! Nothing here needs code between fork and exec.

mod companion;
mod detach;
mod exit_status;
mod frontend;
mod input;
mod job;
mod launcher;
mod members;
mod orphans;
mod program;
mod program_fault;
mod reexec;
mod shared;
mod signals;
mod suspend;
mod terminal;
mod tree;
mod tree_kill;

pub use companion::Companions;
pub use detach::{DetachPipe, dismiss};
pub use exit_status::end_as;
pub use frontend::{Front, Relation, parse_words};
pub use input::EndOfInput;
pub use launcher::LinuxLauncher;
pub use orphans::Orphans;
pub use program::{find_program, find_trusted_program};
pub use program_fault::ProgramFault;
pub use reexec::{Reexec, ReexecRole, Successor, SupervisorOrder};
pub use signals::{end_signals, unless_ignored};
pub(crate) use signals::{ignored, is_in};
pub(crate) use tree::children_of;

use crate::handle::has_ended;
use crate::timer::{now as moment, pause};

/// Returns the process group of the calling process; `None` if its leader is outside this PID
/// namespace.
pub fn process_group() -> Option<gpu_core::Pid> {
    terminal::own_group().map(|group| gpu_core::Pid(group.as_raw_nonzero().get().unsigned_abs()))
}
