//! The right to decide: the lock of one file.
//!
//! It is in the folder where new entries go, and nowhere else. Another folder, in which there may
//! still be leases of earlier times, is anybody's: what is done to a table there is to block
//! nobody who does not need it.

use super::folder::{Folder, REMEDY};
use super::ofd::{self, Lock};
use crate::fault;
use crate::host::{LinuxHost, Roots};
use crate::timer::{now, sleep};
use gpu_core::{Error, ErrorKind, Held, Host, Result};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use std::time::Duration;

const TABLE: &str = "table";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// So many of those who have it open are named.
const NAMED: usize = 3;

/// The table of a folder, locked. Closing unlocks, and only then can Ctrl-Z stop this program: it
/// would keep everybody from deciding until somebody types `fg`.
///
/// It is to be dropped by the thread that locked it: the signals are that thread's.
pub(super) struct Table(OwnedFd, #[expect(dead_code, reason = "it acts when dropped")] Unstopped);

/// The calling thread without the signals by which a terminal stops a program, until this is
/// dropped. Whichever thread drops it gets the signal mask that this one had before: it is to be the
/// same.
struct Unstopped(Option<SigSet>);

impl Unstopped {
    fn now() -> Self {
        let mut stop = SigSet::empty();
        for signal in [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU] {
            stop.add(signal);
        }
        // The kernel has no reason to refuse; then it is as it would be without.
        Unstopped(stop.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok())
    }
}

impl Drop for Unstopped {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // A mask that was set before can be set again.
            let _ = before.thread_set_mask();
        }
    }
}

impl Table {
    /// Locks the table of a folder, and makes it where it is missing.
    ///
    /// # Errors
    /// `TimedOut`, naming who has it open; `Io` when it cannot be opened or locked.
    pub(super) fn lock(folder: &Folder, patience: Duration, roots: &Roots) -> Result<Self> {
        let end = now() + patience;
        let mut wait = FIRST_PAUSE;
        loop {
            let unstopped = Unstopped::now();
            match attempt(folder).map_err(|errno| failed(folder, errno))? {
                Attempt::Locked(table) => return Ok(Table(table, unstopped)),
                Attempt::Taken if now() >= end => return Err(timed_out(folder, roots)),
                Attempt::Replaced if now() >= end => return Err(replaced(folder)),
                // Whoever owns the table can exchange it for ever.
                Attempt::Taken | Attempt::Replaced => {}
            }
            drop(unstopped);
            // Those who met once do not meet again.
            let chance = u64::from(std::process::id() % 8) * 125;
            sleep(wait + wait * u32::try_from(chance).unwrap_or(0) / 1000);
            wait = (wait * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Held for Table {
    fn inherit(&self, yes: bool) -> Result<()> {
        set_inherited(&self.0, yes)
    }

    fn renew(&self) -> Result<bool> {
        Ok(true)
    }

    // Closing is all that ends it, too.
    fn leave(self: Box<Self>) {}
}

/// Says whether a program that is started now gets a descriptor.
pub(super) fn set_inherited(fd: &OwnedFd, yes: bool) -> Result<()> {
    let flags = if yes { FdFlags::empty() } else { FdFlags::CLOEXEC };
    rustix::io::fcntl_setfd(fd, flags)
        .map_err(|errno| fault::file("say who inherits a lock", errno))
}

enum Attempt {
    Locked(OwnedFd),
    Taken,
    /// The file that was opened is no longer the one of that name.
    Replaced,
}

fn attempt(folder: &Folder) -> rustix::io::Result<Attempt> {
    let name = format!("{}{TABLE}", folder.prefix);
    // Without O_CREAT first: in a sticky folder the kernel refuses that for another's file
    // (fs.protected_regular).
    let table = match folder.open_file(&name, OFlags::RDWR) {
        Err(Errno::NOENT) => match folder.make_file(&name) {
            Err(Errno::EXIST) => return Ok(Attempt::Replaced),
            table => {
                let table = table?;
                rustix::fs::fchmod(&table, Mode::from_raw_mode(0o666))?;
                table
            }
        },
        table => table?,
    };
    let stat = rustix::fs::fstat(&table)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    if !ofd::try_lock(&table, Lock::Write)? {
        return Ok(Attempt::Taken);
    }
    let same = folder.is_at(&name, &stat)?;
    Ok(if same { Attempt::Locked(table) } else { Attempt::Replaced })
}

fn timed_out(folder: &Folder, roots: &Roots) -> Error {
    let path = folder.path.join(format!("{}{TABLE}", folder.prefix));
    let scan = crate::files::resolve(&path)
        .and_then(|file| LinuxHost::new(roots.clone()).holders(&[file]));
    let own = std::process::id();
    let holders: Vec<String> = scan.map_or_else(
        |_| Vec::new(),
        |scan| {
            let others = scan.holders.iter().filter(|holder| holder.process.pid.0 != own);
            others.take(NAMED).map(|holder| holder.process.pid.to_string()).collect()
        },
    );
    let who = if holders.is_empty() {
        "somebody has locked; who that is cannot be seen".to_owned()
    } else {
        format!("is open in process {}", holders.join(", "))
    };
    let what = format!("lock the table of leases '{}', which {who}", path.display());
    Error::new(ErrorKind::TimedOut, what)
}

fn replaced(folder: &Folder) -> Error {
    let path = folder.show(&format!("{}{TABLE}", folder.prefix));
    let what = format!("lock the table of leases '{path}', which its owner keeps exchanging");
    Error::new(ErrorKind::TimedOut, what)
}

fn failed(folder: &Folder, errno: Errno) -> Error {
    let path = folder.show(&format!("{}{TABLE}", folder.prefix));
    let table = format!("lock the table of leases '{path}'");
    // Where everybody makes files, the first to make this one owns it.
    let spoiled = [Errno::ACCESS, Errno::LOOP, Errno::INVAL, Errno::XDEV, Errno::AGAIN];
    match spoiled.contains(&errno) && !folder.prefix.is_empty() {
        true => fault::file(format!("{table}, which somebody spoiled; {REMEDY}"), errno),
        false => fault::file(table, errno),
    }
}
