//! What makes a process a target.

use gpu_core::{Pid, ProcessInfo, ProcessKey};
use serde::Serialize;

/// How far the end of one process reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The process alone.
    #[default]
    Process,
    /// Its process group.
    Group,
    /// Its container, pod or Slurm job; never a login session.
    Container,
}

/// What makes a process a rightful target, looked at again before each signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Membership {
    /// It has one of these device files (`/dev/nvidiaN`, by N).
    Holds(Vec<u32>),
    /// It is in this process group.
    Group(Pid),
    /// It is in this cgroup or below.
    Cgroup(String),
    /// It descends from this process.
    Descends(ProcessKey),
}

impl Membership {
    /// The device files that make it a target, by minor number; none in a wider scope.
    pub(crate) fn minors(&self) -> &[u32] {
        match self {
            Membership::Holds(minors) => minors,
            Membership::Group(_) | Membership::Cgroup(_) | Membership::Descends(_) => &[],
        }
    }

    /// Tells whether a process is in a scope by its group or cgroup; what it holds is asked of the
    /// opened process, and whom it descends from of its ancestors.
    pub(crate) fn covers(&self, process: &ProcessInfo) -> bool {
        match self {
            Membership::Holds(_) | Membership::Descends(_) => true,
            Membership::Group(group) => process.group == Ok(*group),
            Membership::Cgroup(cgroup) => process.cgroup.as_ref().is_ok_and(|path| {
                path.strip_prefix(cgroup.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }),
        }
    }
}
