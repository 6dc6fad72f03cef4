//! The `stat` files of processes that are read again and again.
//!
//! To open such a file takes longer than to read it. It belongs to its process: after the end of
//! the process it cannot be read any more, also if the PID is used again.

use crate::proc_dir::ProcRoot;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;

/// No `stat` is longer: 52 numbers and a name of 64 bytes.
const LONGEST: usize = 2048;

/// A file is closed if this many rounds do not read it. A look has a round or two.
const ROUNDS: u64 = 4;

/// The open files, by PID, each with the last round that read it.
#[derive(Default)]
pub(crate) struct KeptStats {
    files: BTreeMap<u32, (OwnedFd, u64)>,
    round: u64,
}

impl KeptStats {
    /// Starts a round of reads: closes what was not read for some rounds.
    pub(crate) fn begin(&mut self) {
        self.round += 1;
        let round = self.round;
        self.files.retain(|_, (_, used)| *used + ROUNDS > round);
    }

    /// Returns `stat` of the process that has this PID now.
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` when there is none.
    pub(crate) fn read(&mut self, root: &ProcRoot, pid: u32) -> Result<Vec<u8>> {
        if let Some((file, used)) = self.files.get_mut(&pid) {
            if let Ok(text) = read(file) {
                *used = self.round;
                return Ok(text);
            }
            // It has ended. Another process may have its PID.
            self.files.remove(&pid);
        }
        let file = root.open_stat(pid)?;
        let text = read(&file)?;
        if self.files.len() < most() {
            self.files.insert(pid, (file, self.round));
        }
        Ok(text)
    }
}

/// Returns how many files are kept open at most: half of what the process may have.
fn most() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 2).unwrap_or(usize::MAX)
}

fn read(file: &OwnedFd) -> Result<Vec<u8>> {
    let mut text = [0; LONGEST];
    match rustix::io::pread(file, &mut text, 0)? {
        0 => Err(Errno::SRCH),
        LONGEST => Err(Errno::INVAL),
        count => Ok(text[..count].to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn stat_is_read_anew_until_the_process_ends_and_closed_when_unused() {
        let root = ProcRoot::open(Path::new("/proc")).unwrap();
        let mut kept = KeptStats::default();
        let (mut first, mut second) = (sleeper(), sleeper());
        for _ in 0..2 * ROUNDS {
            kept.begin();
            let text = kept.read(&root, first.id()).unwrap();
            assert!(text.starts_with(format!("{} (", first.id()).as_bytes()));
        }
        kept.read(&root, second.id()).unwrap();
        assert_eq!(kept.files.len(), 2);
        // Stopped and continued, the file shows it.
        let state = |kept: &mut KeptStats, pid| {
            let text = String::from_utf8(kept.read(&root, pid).unwrap()).unwrap();
            text.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        let pid = rustix::process::Pid::from_child(&first);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED).unwrap();
        assert_eq!(state(&mut kept, first.id()), 'T');
        for child in [&mut first, &mut second] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let error = kept.read(&root, first.id()).unwrap_err();
        assert!(matches!(error, Errno::SRCH | Errno::NOENT));
        assert_eq!(kept.files.len(), 1);
        for _ in 0..ROUNDS {
            kept.begin();
        }
        assert!(kept.files.is_empty());
    }
}
