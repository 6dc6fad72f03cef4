//! The number of the descriptor that a job inherits.
//!
//! A job does not know that it has this descriptor, and a shell closes a descriptor when a script
//! reuses its number: `exec 9>lock; flock 9` is common. Shells use 3 to 9 (POSIX), 10 and above for
//! their own files and for `{name}>file`, 200 by the manual page of flock(1), and 255 in bash. A
//! number that scripts do not use is therefore part of the protocol.

use crate::limits;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, Result, fcntl_dupfd_cloexec};

/// The first number to try. Scripts tend to use round numbers.
const FIRST: RawFd = 173;

/// Numbers that scripts use.
const TAKEN: [RawFd; 4] = [200, 222, 250, 255];

/// If the limit on open files allows no number from [`FIRST`] on, gpuws tries the highest free ones
/// that it allows, down to this one. Shells use the numbers below it.
const LOWEST: RawFd = 10;

/// Moves a descriptor to a number that scripts do not use, below the limit on open files of the
/// programs that this process starts. The result has close-on-exec set.
///
/// If no such number is free, the descriptor keeps its number. The job may then close it and lose
/// the lease.
pub(super) fn moved(file: OwnedFd) -> OwnedFd {
    let limit = limits::of_programs().and_then(|limit| RawFd::try_from(limit).ok());
    at(&file, limit.unwrap_or(RawFd::MAX)).unwrap_or(file)
}

/// Returns a copy of a descriptor with a number below `limit`.
///
/// # Errors
/// `EMFILE` if none is free.
fn at(file: &OwnedFd, limit: RawFd) -> Result<OwnedFd> {
    let mut least = FIRST;
    while least < limit {
        let copy = fcntl_dupfd_cloexec(file, least)?;
        let number = copy.as_raw_fd();
        if number < limit && !TAKEN.contains(&number) {
            return Ok(copy);
        }
        least = number.saturating_add(1);
    }
    // The kernel returns the lowest free number from the requested one on.
    let lower = (LOWEST..limit.min(FIRST)).rev();
    let mut copies = lower.map(|number| (number, fcntl_dupfd_cloexec(file, number)));
    let found = copies.find_map(|(number, copy)| copy.ok().filter(|c| c.as_raw_fd() == number));
    found.ok_or(Errno::MFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_high_and_not_one_of_scripts() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let copies: Vec<OwnedFd> = (0..100).map(|_| at(&file, 1024).unwrap()).collect();
        let numbers: Vec<RawFd> = copies.iter().map(AsRawFd::as_raw_fd).collect();
        assert!(numbers.iter().all(|number| (FIRST..1024).contains(number)), "{numbers:?}");
        assert!(numbers.iter().all(|number| !TAKEN.contains(number)), "{numbers:?}");
        assert!(numbers.contains(&199) && numbers.contains(&201), "{numbers:?}");
    }

    #[test]
    fn low_limit_gives_highest_free_number_below_it() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        // Other tests open files at the same time, but none has this many.
        let copies = [160, 160, 173, 173].map(|limit| at(&file, limit).unwrap());
        assert_eq!(copies.map(|copy| copy.as_raw_fd()), [159, 158, 172, 171]);
        for limit in [0, 3, LOWEST] {
            assert_eq!(at(&file, limit).err(), Some(Errno::MFILE), "{limit}");
        }
    }
}
