//! safe-gpu's lock files, which keep its users and gpuws from starting on the same device.
//!
//! safe-gpu up to 1.5.1 and from 2.0.0 on each lock a file exclusively (`fcntl.lockf`), from before
//! they read the devices until they have a context on theirs. A read lock on both files blocks all
//! of them and does not block other gpuws claims.

use super::ofd::{self, Lock};
use crate::fault;
use crate::host::LinuxHost;
use crate::proc_dir::ProcRoot;
use crate::roots::Roots;
use crate::timer::{now, sleep};
use gpu_core::{
    Access, DeviceFiles, Error, ErrorKind, Holder, Pid, Result, SafeGpuGuard, SafeGpuHolder,
};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const NAME: &str = "gpu-lock-magic-RaNdOM-This_Name-NEED_BE-THE_SAME-Across_Users";

/// The name prefix of a file that is not ready yet.
const NEW: &str = ".gpuws-safe-gpu-";

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The kernel grants a read lock even if a writer waits. A waiting safe-gpu is let through, but not
/// indefinitely, because one in the claim's own job waits for that job.
const WAITER_GRACE: Duration = Duration::from_secs(5);

/// How many blocking processes are named.
const NAMED: usize = 3;

/// The maximum size of the machine's list of locks.
const LIST_LIMIT: usize = 512 << 10;

/// The location of safe-gpu's lock files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeGpuFiles(Vec<PathBuf>);

impl SafeGpuFiles {
    /// Returns those of all versions below `tmp`, which is `/tmp`, in the order in which all gpuws
    /// processes lock them.
    pub fn below(tmp: &Path) -> Self {
        SafeGpuFiles(vec![tmp.join(NAME), tmp.join("safe_gpu").join(NAME)])
    }
}

/// Holds back safe-gpu processes, and remembers since when it lets one through.
#[derive(Debug)]
pub(super) struct SafeGpu {
    files: SafeGpuFiles,
    proc: PathBuf,
    letting_through: Mutex<Option<Duration>>,
}

impl SafeGpu {
    pub(super) fn new(files: SafeGpuFiles, proc: PathBuf) -> Self {
        SafeGpu { files, proc, letting_through: Mutex::new(None) }
    }

    /// Locks all files for reading.
    ///
    /// # Errors
    /// `TimedOut` when a safe-gpu holds its lock or is let through, naming the process and the
    /// file; `Io` when a file cannot be opened.
    pub(super) fn hold(&self, patience: Duration) -> Result<SafeGpuLocks> {
        let files: Vec<Option<OwnedFd>> =
            self.files.0.iter().map(|path| open_or_make(path).map(Some)).collect::<Result<_>>()?;
        let held = SafeGpuLocks { files, proc: self.proc.clone() };
        let end = now() + patience;
        let mut wait = FIRST_PAUSE;
        loop {
            let Some(obstacle) = self.obstacle(&held)? else { return Ok(held) };
            for file in held.files.iter().flatten() {
                ofd::unlock(file).map_err(failed)?;
            }
            if now() >= end {
                return Err(Error::new(ErrorKind::TimedOut, self.named(&obstacle, &held)));
            }
            sleep(wait.min(end.saturating_sub(now())));
            wait = (wait * 2).min(LONGEST_PAUSE);
        }
    }

    /// Returns the process that has locked one of the files for writing now; `None` if there is
    /// none, or the files cannot be read.
    pub(super) fn holder(&self) -> Option<SafeGpuHolder> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let locked = |(file, path): (usize, &PathBuf)| {
            let fd = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
            writer(&fd).map(|process| SafeGpuHolder { file, process })
        };
        self.files.0.iter().enumerate().find_map(locked)
    }

    /// Locks the files, and returns the lock that prevents it.
    fn obstacle(&self, held: &SafeGpuLocks) -> Result<Option<Obstacle>> {
        let mut since = self.letting_through.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, file) in held.files.iter().enumerate() {
            let Some(file) = file else { continue };
            if !ofd::try_lock(file, Lock::Read).map_err(failed)? {
                *since = None;
                return Ok(Some(Obstacle::Locked(index)));
            }
        }
        // If the list cannot be read, no waiting process can be let through.
        let queues = held.queues().unwrap_or_default();
        if let Some((index, queue)) = queues.into_iter().enumerate().find(|(_, q)| !q.is_empty()) {
            let began = *since.get_or_insert_with(now);
            if now().saturating_sub(began) < WAITER_GRACE {
                return Ok(Some(Obstacle::Waits(index, queue)));
            }
        }
        *since = None;
        Ok(None)
    }

    /// Describes the failure, and the blocking process.
    fn named(&self, obstacle: &Obstacle, held: &SafeGpuLocks) -> String {
        let path = |index: &usize| {
            self.files.0.get(*index).map(|path| path.display().to_string()).unwrap_or_default()
        };
        match obstacle {
            Obstacle::Waits(index, queue) => {
                let who = numbers(queue)
                    .map_or("a process of another PID namespace".into(), |who| {
                        format!("process {who}")
                    });
                let path = path(index);
                format!("hold safe-gpu's locks: {who} is already waiting for '{path}'")
            }
            Obstacle::Locked(index) => {
                let file = held.files.get(*index).and_then(Option::as_ref);
                let who = match file.and_then(writer).flatten() {
                    Some(pid) => format!("it is locked by process {pid}"),
                    None => match self.writers(*index) {
                        Some(who) => format!("it is locked, and open for writing in process {who}"),
                        None => "it is locked by a process that is not visible".to_owned(),
                    },
                };
                format!("hold safe-gpu's lock '{}': {who}", path(index))
            }
        }
    }

    /// Returns the processes that could have locked a file for writing: the kernel does not report
    /// the process of an open file description lock.
    fn writers(&self, index: usize) -> Option<String> {
        let file = crate::files::resolve(self.files.0.get(index)?).ok()?;
        let roots = Roots { proc: self.proc.clone(), dev: "/dev".into(), sys: "/sys".into() };
        let scan = LinuxHost::new(roots).holders(&[file]).ok()?;
        let writes = |holder: &&Holder| {
            holder.held.iter().any(|held| held.access.contains(Access::OPEN_FOR_WRITING))
        };
        let pids = scan.holders.iter().filter(writes).map(|holder| holder.process.pid);
        numbers(&pids.collect::<Vec<_>>())
    }
}

/// What blocks a read lock, by the index of the file.
enum Obstacle {
    /// A process has locked the file for writing.
    Locked(usize),
    /// These processes wait to lock it, and go first.
    Waits(usize, Vec<Pid>),
}

/// Returns the process that has locked a file for writing, if the kernel reports it, as for a POSIX
/// lock; `None` if it is not locked.
fn writer(file: &OwnedFd) -> Option<Option<Pid>> {
    let pid = ofd::write_locker(file).ok().flatten()?;
    // The PID is -1 for an open file description lock, and 0 for one of another PID namespace.
    Some(u32::try_from(pid).ok().filter(|pid| *pid > 0).map(Pid))
}

/// Returns the first few PIDs; `None` if none is visible.
fn numbers(pids: &[Pid]) -> Option<String> {
    let visible = pids.iter().filter(|pid| pid.0 > 0).take(NAMED);
    let text: Vec<String> = visible.map(ToString::to_string).collect();
    (!text.is_empty()).then(|| text.join(", "))
}

/// The files of safe-gpu, locked for reading except for released ones; closing unlocks.
pub(super) struct SafeGpuLocks {
    files: Vec<Option<OwnedFd>>,
    proc: PathBuf,
}

impl SafeGpuLocks {
    /// Reads a file below `/proc`.
    fn read(&self, path: &str) -> Result<String> {
        let text = ProcRoot::open(&self.proc).and_then(|root| root.read(path, LIST_LIMIT));
        let what = || format!("read '{}'", self.proc.join(path).display());
        let text = text.map_err(|errno| fault::file(what(), errno))?;
        if text.len() >= LIST_LIMIT {
            let what = format!("{}: it is longer than {LIST_LIMIT} bytes", what());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl SafeGpuGuard for SafeGpuLocks {
    fn waiting(&self) -> Result<Vec<Pid>> {
        let mut pids = self.queues()?.concat();
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    fn queues(&self) -> Result<Vec<Vec<Pid>>> {
        let list = self.read("locks")?;
        let queue = |file: &Option<OwnedFd>| {
            let Some(file) = file else { return Ok(Vec::new()) };
            let info = self.read(&format!("self/fdinfo/{}", file.as_raw_fd()))?;
            let own: Vec<String> =
                info.lines().filter_map(locked_file).map(str::to_owned).collect();
            Ok(waiters(&list, &own))
        };
        self.files.iter().map(queue).collect()
    }

    fn release(&mut self, index: usize) -> Result<()> {
        if let Some(file) = self.files.get_mut(index) {
            *file = None;
        }
        Ok(())
    }
}

/// Returns which file a line of `fdinfo` shows as locked: `lock: 1: OFDLCK ADVISORY READ -1
/// 00:1b:1234 0 EOF`. It is not built from `stat`, because some file systems report a different
/// device there.
fn locked_file(line: &str) -> Option<&str> {
    line.strip_prefix("lock:")?.split_whitespace().nth(5)
}

/// Returns the processes that wait for one of these files, from lines of `/proc/locks` such as `1:
/// -> POSIX ADVISORY WRITE 4711 00:1b:1234 0 EOF`.
fn waiters(list: &str, files: &[String]) -> Vec<Pid> {
    let waiter = |line: &str| {
        let mut fields = line.split_whitespace().skip_while(|field| *field != "->").skip(1);
        let pid = fields.nth(3)?.parse().ok()?;
        let file = fields.next()?;
        files.iter().any(|own| own == file).then_some(Pid(pid))
    };
    let mut pids: Vec<Pid> = list.lines().filter_map(waiter).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Opens a lock file, or creates it as safe-gpu would, for all users.
fn open_or_make(path: &Path) -> Result<OwnedFd> {
    let failed = |errno| fault::file(format!("open safe-gpu's '{}'", path.display()), errno);
    let refused = |why| {
        let what = format!("lock safe-gpu's '{}', which {why}", path.display());
        Error::new(ErrorKind::Invalid, what)
    };
    let (dir, name) =
        path.parent().zip(path.file_name()).ok_or_else(|| refused("is not a regular file"))?;
    let random = super::random_hex()?;
    let dir = open_or_make_dir(dir, &random).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = || rustix::fs::openat(&dir, name, flags | OFlags::CLOEXEC, Mode::empty());
    // O_CREAT alone does not work: the kernel refuses it for another user's file in a sticky
    // directory.
    let file = match open() {
        Err(Errno::NOENT) => {
            let new = format!("{NEW}{random}");
            let create = flags | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&dir, &new, create, Mode::RUSR | Mode::WUSR);
            let file = file.map_err(failed)?;
            let made = rustix::fs::fchmod(&file, Mode::from_raw_mode(0o666))
                .and_then(|()| rename(&dir, Path::new(&new), Path::new(name)));
            match made {
                Ok(()) => Ok(file),
                Err(errno) => {
                    let _ = rustix::fs::unlinkat(&dir, &new, AtFlags::empty());
                    if errno == Errno::EXIST { open() } else { Err(errno) }
                }
            }
        }
        file => file,
    };
    let file = file.map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused("is not a regular file"));
    }
    Ok(file)
}

fn open_or_make_dir(path: &Path, random: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |path: &Path| rustix::fs::open(path, flags, Mode::empty());
    match open(path) {
        Err(Errno::NOENT) => {
            let new = path.with_file_name(format!("{NEW}{random}"));
            rustix::fs::mkdir(&new, Mode::RWXU)?;
            let made = open(&new).and_then(|dir| {
                rustix::fs::fchmod(&dir, Mode::RWXU | Mode::RWXG | Mode::RWXO | Mode::SVTX)?;
                rename(CWD, &new, path).map(|()| dir)
            });
            made.or_else(|errno| {
                let _ = rustix::fs::unlinkat(CWD, &new, AtFlags::REMOVEDIR);
                if errno == Errno::EXIST { open(path) } else { Err(errno) }
            })
        }
        dir => dir,
    }
}

/// Gives a complete file its name, unless another process was faster: if the program dies before
/// that, it leaves no file that others cannot open.
fn rename(dir: impl AsFd, new: &Path, name: &Path) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(&dir, new, &dir, name, RenameFlags::NOREPLACE)
}

fn failed(errno: Errno) -> Error {
    fault::file("lock the files of safe-gpu", errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_read_from_proc_locks() {
        let list = "\
1: OFDLCK ADVISORY  READ -1 fe:00:77 0 EOF
1: -> POSIX  ADVISORY  WRITE 4711 fe:00:77 0 EOF
1:     -> POSIX  ADVISORY  WRITE 4712 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 9 00:1b:5 0 EOF
2: -> FLOCK  ADVISORY  WRITE 10 00:1b:5 0 EOF
3: -> POSIX
4: -> POSIX ADVISORY WRITE x fe:00:77 0 EOF
";
        assert_eq!(waiters(list, &["fe:00:77".to_owned()]), [Pid(4711), Pid(4712)]);
        assert_eq!(waiters(list, &[]), []);
    }

    #[test]
    fn list_of_locks_beyond_the_limit_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let line = "1: -> POSIX  ADVISORY  WRITE 4711 fe:00:77 0 EOF\n";
        let held = SafeGpuLocks { files: Vec::new(), proc: dir.path().to_owned() };
        let queues = |lines| {
            std::fs::write(dir.path().join("locks"), line.repeat(lines)).unwrap();
            held.queues().map_err(|error| error.kind())
        };
        assert_eq!(queues(100), Ok(Vec::new()));
        assert_eq!(queues(LIST_LIMIT / line.len() + 1), Err(ErrorKind::Unsupported));
    }

    #[test]
    fn locked_file_is_read_from_fdinfo() {
        let line = "lock:\t1: OFDLCK  ADVISORY  READ -1 fe:00:77 0 EOF";
        assert_eq!(locked_file(line), Some("fe:00:77"));
        assert_eq!(locked_file("pos:\t0"), None);
    }
}
