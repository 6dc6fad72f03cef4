//! The right to decide: one lock for each folder.

use super::folder::Folder;
use super::ofd::{self, Lock};
use super::timer::{now, pause};
use crate::fault;
use crate::host::{LinuxHost, Roots};
use gpu_core::{Error, ErrorKind, Held, Host, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use std::time::Duration;

const TABLE: &str = "table";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// So many of those who have it open are named.
const NAMED: usize = 3;

/// The tables of all folders, locked. Closing unlocks.
pub(super) struct Tables(Vec<OwnedFd>);

impl Tables {
    /// Locks the tables of these folders in their order, which is everybody's. That of the first
    /// is made where it is missing; another that is missing is in nobody's use.
    ///
    /// # Errors
    /// `TimedOut`, naming who has one open; `Io` when one cannot be opened or locked.
    pub(super) fn lock(folders: &[Folder], patience: Duration, roots: &Roots) -> Result<Self> {
        let end = now() + patience;
        let mut tables = Vec::with_capacity(folders.len());
        for (number, folder) in folders.iter().enumerate() {
            let mut wait = FIRST_PAUSE;
            loop {
                match attempt(folder, number == 0).map_err(|errno| failed(folder, errno))? {
                    Attempt::Locked(table) => tables.push(table),
                    Attempt::Missing => {}
                    Attempt::Taken if now() >= end => return Err(timed_out(folder, roots)),
                    Attempt::Replaced if now() >= end => return Err(replaced(folder)),
                    // Whoever owns the table can exchange it for ever.
                    Attempt::Taken | Attempt::Replaced => {
                        // Those who met once do not meet again.
                        let chance = u64::from(std::process::id() % 8) * 125;
                        pause(wait + wait * u32::try_from(chance).unwrap_or(0) / 1000);
                        wait = (wait * 2).min(LONGEST_PAUSE);
                        continue;
                    }
                }
                break;
            }
        }
        Ok(Tables(tables))
    }
}

impl Held for Tables {
    fn inherit(&self, yes: bool) -> Result<()> {
        self.0.iter().try_for_each(|table| set_inherited(table, yes))
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
    Missing,
    /// The file that was opened is no longer the one of that name.
    Replaced,
}

fn attempt(folder: &Folder, make: bool) -> rustix::io::Result<Attempt> {
    let name = format!("{}{TABLE}", folder.prefix);
    // Without O_CREAT first: in a sticky folder the kernel refuses that for another's file
    // (fs.protected_regular).
    let table = match folder.open_file(&name, OFlags::RDWR) {
        Err(Errno::NOENT) if !make => return Ok(Attempt::Missing),
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
    fault::file(format!("lock the table of leases '{path}'"), errno)
}
