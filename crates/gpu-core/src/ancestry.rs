//! A process and its ancestors.

use crate::host::Host;
use crate::id::Pid;
use crate::process::ProcessInfo;
use std::borrow::Borrow;

/// No machine has this many generations; a longer chain is a cycle.
const MAX_ANCESTORS: usize = 4096;

/// Returns a process and its ancestors, nearest first, by looking each up with `find`. The chain
/// ends at an ancestor that cannot be found, and before one that started later than its child: that
/// process has reused the parent's PID.
pub fn line_of<P: Borrow<ProcessInfo>>(
    first: Option<P>,
    find: impl Fn(Pid) -> Option<P>,
) -> impl Iterator<Item = P> {
    let parent = move |child: &P| {
        let child: &ProcessInfo = child.borrow();
        let pid = child.parent.ok().filter(|pid| pid.0 != 0)?;
        find(pid).filter(|parent| {
            let parent: &ProcessInfo = (*parent).borrow();
            parent.key.start.zip(child.key.start).is_none_or(|(parent, child)| parent <= child)
        })
    };
    std::iter::successors(first, parent).take(MAX_ANCESTORS)
}

/// Returns a process and its ancestors, nearest first, as the machine reports them now. An
/// unreadable one ends the chain.
pub fn current_ancestry(
    host: &dyn Host,
    first: Option<ProcessInfo>,
) -> impl Iterator<Item = ProcessInfo> {
    line_of(first, |pid| host.process(pid).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::StartTime;

    /// Returns the PIDs in the ancestry of process 70, from processes given as PID, start and
    /// parent.
    fn line(processes: &[(u32, Option<u64>, u32)]) -> Vec<u32> {
        let find = |pid: Pid| {
            let (pid, start, parent) = processes.iter().find(|(own, ..)| *own == pid.0)?;
            let mut info = ProcessInfo::from_name(Pid(*pid), "a");
            info.key.start = start.map(StartTime);
            info.parent = Ok(Pid(*parent));
            Some(info)
        };
        line_of(find(Pid(70)), find).map(|info| info.key.pid.0).take(6).collect()
    }

    #[test]
    fn ancestry_ends_at_init_or_missing_process() {
        assert_eq!(line(&[(1, Some(1), 0), (50, Some(5), 1), (70, Some(7), 50)]), [70, 50, 1]);
        assert_eq!(line(&[(1, Some(1), 0), (70, Some(7), 50)]), [70]);
        assert_eq!(line(&[(1, Some(1), 0)]), [0_u32; 0]);
    }

    #[test]
    fn parent_started_after_child_is_not_its_parent() {
        assert_eq!(line(&[(50, Some(8), 1), (70, Some(7), 50)]), [70]);
        assert_eq!(line(&[(50, Some(7), 1), (70, Some(7), 50)]), [70, 50]);
        assert_eq!(line(&[(50, None, 1), (70, Some(7), 50)]), [70, 50]);
    }

    #[test]
    fn ancestry_cycle_is_bounded() {
        let round = [(70, Some(7), 71), (71, Some(7), 70)];
        assert_eq!(line(&round), [70, 71, 70, 71, 70, 71]);
        let info = |pid| {
            let mut info = ProcessInfo::from_name(pid, "a");
            info.parent = Ok(pid);
            Some(info)
        };
        assert_eq!(line_of(info(Pid(7)), info).count(), MAX_ANCESTORS);
    }
}
