//! The descent of processes.

use crate::handle::raw;
use crate::proc_dir::{ProcDir, ProcRoot, number};
use crate::process::{TreeEntry, read_entry};
use gpu_core::ProcessKey;
use rustix::io::{Errno, Result};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::collections::{HashMap, HashSet};

/// How much of a list of children is read.
const CHILDREN_LIMIT: usize = 1 << 20;

/// The maximum number of reads of all processes, or of the lists of children, until two reads
/// agree.
const READINGS: usize = 5;

/// The positions of all processes at one moment, as nearly as possible.
#[derive(Debug, Default)]
pub(crate) struct ProcessTree(Vec<TreeEntry>);

impl ProcessTree {
    /// Reads all processes once. It leaves out processes that end meanwhile or are hidden from the
    /// caller.
    ///
    /// # Errors
    /// When the list cannot be read, or a process in it cannot be read for another reason, such as
    /// a lack of descriptors: a live process must not count as gone.
    pub(crate) fn read(root: &ProcRoot) -> Result<Self> {
        ProcessTree::of(root, root.pids()?)
    }

    /// Reads these processes, as [`read`](Self::read) does.
    fn of(root: &ProcRoot, pids: Vec<u32>) -> Result<Self> {
        let mut tree = Vec::new();
        for pid in pids {
            match entry(root, pid) {
                Ok(entry) => tree.push(entry),
                Err(errno) if is_gone_or_hidden(errno) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(ProcessTree(tree))
    }

    /// Reads all processes until those below `pid` are the same twice: during one read, a process
    /// may be re-parented and so be found below neither the old nor the new parent.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub(crate) fn settled(root: &ProcRoot, pid: u32) -> Result<Self> {
        let mut tree = ProcessTree::read(root)?;
        for _ in 1..READINGS {
            let again = ProcessTree::read(root)?;
            let keys = |tree: &ProcessTree| -> HashSet<_> {
                tree.below(pid).into_iter().map(|entry| entry.key).collect()
            };
            let same = keys(&tree) == keys(&again);
            tree = again;
            if same {
                break;
            }
        }
        Ok(tree)
    }

    /// Returns all processes.
    pub(crate) fn all(&self) -> &[TreeEntry] {
        &self.0
    }

    /// Returns the descendants of a process, including zombies.
    pub(crate) fn below(&self, pid: u32) -> Vec<&TreeEntry> {
        let mut children: HashMap<u32, Vec<&TreeEntry>> = HashMap::new();
        for entry in &self.0 {
            children.entry(entry.parent).or_default().push(entry);
        }
        let (mut below, mut parents) = (Vec::new(), vec![pid]);
        while let Some(parent) = parents.pop() {
            // Removed when visited: a list that was read in pieces could have a cycle.
            for child in children.remove(&parent).unwrap_or_default() {
                parents.push(child.key.pid.0);
                below.push(child);
            }
        }
        below
    }

    /// Returns whether a process group is orphaned: whether no process of its session, outside the
    /// group, is a parent in it that could continue it after a stop (credentials(7), setpgid(2)).
    pub(crate) fn is_orphaned(&self, group: u32) -> bool {
        let by_pid: HashMap<u32, &TreeEntry> =
            self.0.iter().map(|entry| (entry.key.pid.0, entry)).collect();
        let watched = |entry: &TreeEntry| {
            by_pid.get(&entry.parent).is_some_and(|parent| {
                parent.group != group && parent.session == entry.session && !parent.has_ended
            })
        };
        !self.0.iter().any(|entry| entry.group == group && watched(entry))
    }
}

/// Returns the position of one process.
///
/// # Errors
/// `ENOENT` or `ESRCH` when it is gone.
pub(crate) fn entry(root: &ProcRoot, pid: u32) -> Result<TreeEntry> {
    read_entry(&root.process(pid)?)
}

/// Returns whether a process that cannot be read has ended, or `/proc` hides it (`hidepid`). `stat`
/// of a process that is just being reaped has impossible numbers (`do_task_stat` of the kernel).
fn is_gone_or_hidden(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH | Errno::INVAL | Errno::ACCESS | Errno::PERM)
}

/// Returns the children of this process, from the kernel's list for each thread if it keeps one
/// (`CONFIG_PROC_CHILDREN`).
///
/// # Errors
/// When the list cannot be read, or this process is not in it.
pub(crate) fn children(root: &ProcRoot) -> Result<Vec<TreeEntry>> {
    let own = entry(root, std::process::id())?.key.pid.0;
    match listed(root) {
        Ok(pids) => Ok(ProcessTree::of(root, pids)?.0),
        Err(Errno::NOENT) => {
            let mut all = ProcessTree::read(root)?.0;
            all.retain(|entry| entry.parent == own);
            Ok(all)
        }
        Err(errno) => Err(errno),
    }
}

/// Reaps the children of this process that have ended, so that their PIDs become free, except
/// `kept` and those that match `is_own`: other code waits for them.
///
/// # Errors
/// As [`children`].
pub(crate) fn reap(
    root: &ProcRoot,
    is_own: impl Fn(&ProcessKey) -> bool,
    kept: Option<rustix::process::Pid>,
) -> Result<()> {
    for child in children(root)? {
        let pid = raw(child.key.pid.0).filter(|pid| kept != Some(*pid));
        if let Some(pid) = pid.filter(|_| child.has_ended && !is_own(&child.key)) {
            // No other code waits for it, so its PID is not reused.
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?;
        }
    }
    Ok(())
}

/// Returns the identities of the children of this process.
///
/// # Errors
/// As [`children`].
pub(crate) fn own_children(root: &ProcRoot) -> Result<HashSet<ProcessKey>> {
    Ok(children(root)?.into_iter().map(|child| child.key).collect())
}

/// Returns the PIDs of the children of all threads of this process, from the kernel's lists.
pub(crate) fn listed(root: &ProcRoot) -> Result<Vec<u32>> {
    let dir = root.process(std::process::id())?;
    let mut children = Vec::new();
    for thread in dir.threads()? {
        children.extend(children_of(&dir, thread)?);
    }
    Ok(children)
}

/// Returns the descendants of this process, from the kernel's lists of children if it keeps them.
/// That is much faster than reading all processes, and finds a process that lives for a few
/// milliseconds; but while children end, a list may omit others (proc(5)).
pub(crate) fn listed_below(root: &ProcRoot, own: u32) -> Vec<TreeEntry> {
    let (mut below, mut known, mut parents) = (Vec::new(), HashSet::new(), vec![own]);
    while let Some(parent) = parents.pop() {
        let Ok(dir) = root.process(parent) else { continue };
        for thread in dir.threads().unwrap_or_default() {
            for pid in children_of(&dir, thread).unwrap_or_default() {
                // If its parent has ended meanwhile, a process was re-parented to this one.
                let is_below = |entry: &TreeEntry| [parent, own].contains(&entry.parent);
                let Some(entry) = entry(root, pid).ok().filter(is_below) else { continue };
                if known.insert(entry.key) {
                    parents.push(pid);
                    below.push(entry);
                }
            }
        }
    }
    below
}

/// Returns the descendants of this process, including zombies, from the kernel's lists of children
/// alone: a machine may have thousands of other processes. A process orphaned below this one is
/// re-parented to it, or to a process between them, so none leaves these lists. `None` if the
/// kernel keeps none, or if they do not settle.
///
/// Two consecutive reads must agree, and no process may have ended during the second. Then no
/// process is missed that exists throughout:
///
/// - A list is complete unless a process in it is no longer a child of that parent (proc(5)), or a
///   thread has ended with its list. The read is then discarded.
/// - A process that is re-parented during a read may be missed: the read is too late at the old
///   parent and too early at the new one. If the old parent was seen alive, the next read sees it
///   ended. If it was not, the new parent has a child in the next read that the first read lacks,
///   unless that child has ended as well, and was seen alive.
///
/// If new processes appear, the caller reads all processes instead: retrying takes time for each
/// zombie.
pub(crate) fn settled_below(root: &ProcRoot, own: u32) -> Option<Vec<TreeEntry>> {
    let mut before: Option<HashSet<_>> = None;
    for _ in 0..READINGS {
        let Some(below) = lists_below(root, own) else {
            before = None;
            continue;
        };
        let now: HashSet<_> = below.iter().map(TreeEntry::identity).collect();
        if let Some(before) = before {
            if now == before {
                let lives = |seen: &TreeEntry| {
                    entry(root, seen.key.pid.0).is_ok_and(|now| now.identity() == seen.identity())
                };
                if below.iter().filter(|entry| !entry.has_ended).all(lives) {
                    return Some(below);
                }
            }
            let known: HashSet<_> = before.iter().map(|(key, ..)| key).collect();
            if below.iter().any(|entry| !known.contains(&entry.key)) {
                return None;
            }
        }
        before = Some(now);
    }
    None
}

/// Reads the lists once; `None` if one may be incomplete, or there are none.
fn lists_below(root: &ProcRoot, own: u32) -> Option<Vec<TreeEntry>> {
    let mut below: Vec<TreeEntry> = Vec::new();
    let (mut known, mut parents) = (HashSet::from([own]), vec![own]);
    while let Some(parent) = parents.pop() {
        for pid in whole_list(root, parent)? {
            let child = entry(root, pid).ok().filter(|child| child.parent == parent)?;
            // No process is below two processes, or below itself.
            known.insert(pid).then_some(())?;
            // A process that has ended has no children any more.
            parents.extend((!child.has_ended).then_some(pid));
            below.push(child);
        }
    }
    Some(below)
}

/// Returns the children of all threads of a process; `None` if a thread ended meanwhile.
fn whole_list(root: &ProcRoot, parent: u32) -> Option<Vec<u32>> {
    let dir = root.process(parent).ok()?;
    let threads = dir.threads().ok()?;
    let lists = threads.iter().map(|thread| children_of(&dir, *thread).ok());
    let lists = lists.collect::<Option<Vec<_>>>()?;
    let after = dir.threads().ok()?;
    threads.iter().all(|thread| after.contains(thread)).then(|| lists.concat())
}

/// Returns the kernel's list of the children of one thread.
pub(crate) fn children_of(dir: &ProcDir, thread: u32) -> Result<Vec<u32>> {
    let list = dir.read(&format!("task/{thread}/children"), CHILDREN_LIMIT)?;
    Ok(list.split(|byte| *byte == b' ').filter_map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Pid, StartTime};

    /// Returns a process: PID, parent, group, session.
    fn at([pid, parent, group, session]: [u32; 4]) -> TreeEntry {
        let key = ProcessKey { pid: Pid(pid), start: Some(StartTime(1)) };
        TreeEntry { key, parent, group, session, has_ended: false }
    }

    fn below(tree: &ProcessTree, pid: u32) -> Vec<u32> {
        let mut pids: Vec<_> = tree.below(pid).iter().map(|entry| entry.key.pid.0).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn descendants_include_all_generations_and_cycles_terminate() {
        let tree = ProcessTree(vec![
            at([1, 0, 1, 1]),
            at([20, 10, 20, 1]),
            at([10, 1, 10, 1]),
            at([5, 20, 5, 5]),
            at([30, 31, 30, 30]),
            at([31, 30, 30, 30]),
        ]);
        assert_eq!(below(&tree, 10), [5, 20]);
        assert_eq!(below(&tree, 5), [0; 0]);
        assert_eq!(below(&tree, 30), [30, 31]);
        assert_eq!(below(&tree, 1), [5, 10, 20]);
    }

    /// A directory that imitates `/proc`: PID, parent, state and list of children of each.
    fn made(processes: &[(u32, u32, char, &str)]) -> (tempfile::TempDir, ProcRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, parent, state, children) in processes {
            put(&dir, *pid, *parent, *state);
            let list = dir.path().join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&list).unwrap();
            std::fs::write(list.join("children"), children).unwrap();
        }
        let root = ProcRoot::open(dir.path()).unwrap();
        (dir, root)
    }

    fn put(dir: &tempfile::TempDir, pid: u32, parent: u32, state: char) {
        let dir = dir.path().join(pid.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        let rest = "0 -1 0 1 0 0 0 200 50 0 0 20 0 1 0 4711 2301952 217 18446744073709551615 1 1 0 \
                    0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = format!("{pid} (x) {state} {parent} {pid} 77 {rest}\n");
        std::fs::write(dir.join("stat"), stat).unwrap();
    }

    fn listed_pids(root: &ProcRoot) -> Option<Vec<(u32, bool)>> {
        let below = settled_below(root, 10)?;
        let mut pids: Vec<_> =
            below.iter().map(|entry| (entry.key.pid.0, entry.has_ended)).collect();
        pids.sort_unstable();
        Some(pids)
    }

    #[test]
    fn child_lists_yield_exactly_the_tree() {
        // 13 is a zombie; 40 and its list belong to another tree.
        let (_dir, root) = made(&[
            (10, 1, 'S', "11 13 "),
            (11, 10, 'S', "12 "),
            (12, 11, 'S', ""),
            (13, 10, 'Z', ""),
            (40, 1, 'S', "41 "),
        ]);
        assert_eq!(listed_pids(&root), Some(vec![(11, false), (12, false), (13, true)]));
    }

    #[test]
    fn incomplete_child_lists_are_rejected() {
        let gone = made(&[(10, 1, 'S', "11 12 "), (11, 10, 'S', "")]);
        let given_away = made(&[(10, 1, 'S', "11 "), (11, 1, 'S', "")]);
        let circle = made(&[(10, 11, 'S', "11 "), (11, 10, 'S', "10 ")]);
        for (_dir, root) in [gone, given_away, circle] {
            assert_eq!(listed_pids(&root), None);
        }
        let (dir, root) = made(&[(10, 1, 'S', "11 "), (11, 10, 'S', "")]);
        assert_eq!(listed_pids(&root), Some(vec![(11, false)]));
        std::fs::remove_file(dir.path().join("11/task/11/children")).unwrap();
        assert_eq!(listed_pids(&root), None, "not every kernel has lists");
    }

    #[test]
    fn process_group_without_parent_in_session_is_orphaned() {
        // A shell, a frontend in its job, a supervisor in the same, and their job.
        let shell = [at([1, 0, 1, 1]), at([10, 1, 10, 10])];
        let jobs = [at([20, 10, 20, 10]), at([21, 20, 20, 10]), at([30, 21, 30, 10])];
        let tree = ProcessTree(shell.into_iter().chain(jobs).collect());
        assert!(!tree.is_orphaned(20) && !tree.is_orphaned(30));
        assert!(tree.is_orphaned(10), "its parent is of another session");
        // The frontend is gone, and its child belongs to the first process.
        let tree = ProcessTree(vec![at([1, 0, 1, 1]), at([21, 1, 20, 10]), at([30, 21, 30, 10])]);
        assert!(tree.is_orphaned(20) && !tree.is_orphaned(30));
    }
}
