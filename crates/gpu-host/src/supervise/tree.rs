//! Who descends from whom.

use crate::proc_dir::{ProcRoot, number};
use crate::process::{Place, read_place};
use rustix::io::{Errno, Result};
use std::collections::{HashMap, HashSet};

/// How much is read of a list of children.
pub(crate) const CHILDREN_LIMIT: usize = 1 << 20;

/// How often the processes are read at most, until two readings agree.
const READINGS: usize = 5;

/// The places of all processes at one moment, as far as a moment can be caught.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<Place>);

impl Places {
    /// Reads all processes once. One that ends meanwhile is left out, and so is one that is hidden
    /// from the caller.
    ///
    /// # Errors
    /// When the list cannot be read, or this process lacks descriptors or memory to read all of it:
    /// a process must not pass for one that is gone.
    pub(crate) fn read(root: &ProcRoot) -> Result<Self> {
        let mut places = Vec::new();
        for pid in root.pids()? {
            match place(root, pid) {
                Ok(place) => places.push(place),
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
                Err(_) => {}
            }
        }
        Ok(Places(places))
    }

    /// Reads all processes until those below `pid` are the same twice: while one reading goes on,
    /// a process may lose its parent and so be found below neither the old nor the new one.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub(crate) fn settled(root: &ProcRoot, pid: u32) -> Result<Self> {
        let mut places = Places::read(root)?;
        for _ in 1..READINGS {
            let again = Places::read(root)?;
            let keys = |places: &Places| -> HashSet<_> {
                places.below(pid).into_iter().map(|place| place.key).collect()
            };
            let same = keys(&places) == keys(&again);
            places = again;
            if same {
                break;
            }
        }
        Ok(places)
    }

    /// Returns all processes.
    pub(crate) fn all(&self) -> &[Place] {
        &self.0
    }

    /// Returns all processes, for themselves.
    pub(crate) fn into_all(self) -> impl Iterator<Item = Place> {
        self.0.into_iter()
    }

    /// Returns the descendants of a process, those that have ended and were not waited for too.
    pub(crate) fn below(&self, pid: u32) -> Vec<&Place> {
        let mut children: HashMap<u32, Vec<&Place>> = HashMap::new();
        for place in &self.0 {
            children.entry(place.parent).or_default().push(place);
        }
        let (mut below, mut parents) = (Vec::new(), vec![pid]);
        while let Some(parent) = parents.pop() {
            // Taken out: a list that was read bit by bit could have a circle.
            for child in children.remove(&parent).unwrap_or_default() {
                parents.push(child.key.pid.0);
                below.push(child);
            }
        }
        below
    }

    /// Tells whether a process group is orphaned: whether nobody of its session, outside of the
    /// group, is a parent in it, who could make it go on once it has stopped (credentials(7),
    /// setpgid(2)).
    pub(crate) fn is_orphaned(&self, group: u32) -> bool {
        let by_pid: HashMap<u32, &Place> =
            self.0.iter().map(|place| (place.key.pid.0, place)).collect();
        let watched = |place: &Place| {
            by_pid.get(&place.parent).is_some_and(|parent| {
                parent.group != group && parent.session == place.session && !parent.has_ended
            })
        };
        !self.0.iter().any(|place| place.group == group && watched(place))
    }
}

/// Returns the place of one process.
///
/// # Errors
/// `ENOENT` or `ESRCH` when it is gone.
pub(crate) fn place(root: &ProcRoot, pid: u32) -> Result<Place> {
    read_place(&root.process(pid)?)
}

/// Returns the children of this process, by the kernel's list of each thread's where it keeps one
/// (`CONFIG_PROC_CHILDREN`).
pub(crate) fn children(root: &ProcRoot, own: &Place) -> Result<Vec<Place>> {
    let dir = root.process(own.key.pid.0)?;
    let mut children = Vec::new();
    for thread in dir.threads()? {
        match dir.read(&format!("task/{thread}/children"), CHILDREN_LIMIT) {
            Ok(text) => {
                let pids = text.split(|byte| *byte == b' ').filter_map(number);
                children.extend(pids.filter_map(|pid| place(root, pid).ok()));
            }
            Err(Errno::NOENT) => {
                let below = Places::read(root)?.into_all();
                return Ok(below.filter(|place| place.parent == own.key.pid.0).collect());
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(children)
}

/// Returns the descendants of this process as the kernel's lists of children lead to them, as far
/// as it keeps such lists. That is faster by far than to read all processes, and finds one that
/// lives for a few milliseconds; but while children end, a list may leave out others (proc(5)).
pub(crate) fn listed_below(root: &ProcRoot, own: u32) -> Vec<Place> {
    let (mut below, mut known, mut parents) = (Vec::new(), HashSet::new(), vec![own]);
    while let Some(parent) = parents.pop() {
        let Ok(dir) = root.process(parent) else { continue };
        for thread in dir.threads().unwrap_or_default() {
            let list = dir.read(&format!("task/{thread}/children"), CHILDREN_LIMIT);
            let list = list.unwrap_or_default();
            for pid in list.split(|byte| *byte == b' ').filter_map(number) {
                // One whose parent has ended meanwhile has come to this process.
                let is_below = |place: &Place| [parent, own].contains(&place.parent);
                let Some(place) = place(root, pid).ok().filter(is_below) else { continue };
                if known.insert(place.key) {
                    parents.push(pid);
                    below.push(place);
                }
            }
        }
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Pid, ProcessKey, StartTime};

    /// Returns a process: number, parent, group, session.
    fn at([pid, parent, group, session]: [u32; 4]) -> Place {
        let key = ProcessKey { pid: Pid(pid), start: Some(StartTime(1)) };
        Place { key, parent, group, session, has_ended: false }
    }

    fn below(places: &Places, pid: u32) -> Vec<u32> {
        let mut pids: Vec<_> = places.below(pid).iter().map(|place| place.key.pid.0).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn all_generations_are_below_and_circles_end() {
        let places = Places(vec![
            at([1, 0, 1, 1]),
            at([20, 10, 20, 1]),
            at([10, 1, 10, 1]),
            at([5, 20, 5, 5]),
            at([30, 31, 30, 30]),
            at([31, 30, 30, 30]),
        ]);
        assert_eq!(below(&places, 10), [5, 20]);
        assert_eq!(below(&places, 5), [0; 0]);
        assert_eq!(below(&places, 30), [30, 31]);
        assert_eq!(below(&places, 1), [5, 10, 20]);
    }

    #[test]
    fn a_group_is_orphaned_without_a_parent_beside_it_in_its_session() {
        // A shell, a front in its job, a supervisor in the same, and their job.
        let shell = [at([1, 0, 1, 1]), at([10, 1, 10, 10])];
        let jobs = [at([20, 10, 20, 10]), at([21, 20, 20, 10]), at([30, 21, 30, 10])];
        let places = Places(shell.into_iter().chain(jobs).collect());
        assert!(!places.is_orphaned(20) && !places.is_orphaned(30));
        assert!(places.is_orphaned(10), "its parent is of another session");
        // The front is gone, and its child belongs to the first process.
        let places = Places(vec![at([1, 0, 1, 1]), at([21, 1, 20, 10]), at([30, 21, 30, 10])]);
        assert!(places.is_orphaned(20) && !places.is_orphaned(30));
    }
}
