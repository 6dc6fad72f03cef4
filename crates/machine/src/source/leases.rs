//! The location of a machine's leases.

use super::Source;
use crate::MachineError;
use crate::backends::roots;
use gpu_core::{ErrorKind, Observer};
use gpu_host::{FileLeaseStore, LeaseLocation, PathTrust, SafeGpuFiles, TrustedDir};
use gpu_sim::live;
use gpu_steward::DeviceLeases;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The environment variable that names the lease directory.
pub const CLAIMS: &str = "GPUWS_CLAIMS";

/// The name of the lease directory in that of a session.
const SESSION_CLAIMS: &str = "claims";

/// Returns the lease directory that the environment names.
fn named_claims() -> Option<PathBuf> {
    std::env::var_os(CLAIMS).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Rejects a lease directory that users other than root and the caller can replace. An error on
/// opening the directory is reported later, by its first use.
fn check_claims(dir: &Path) -> Result<(), MachineError> {
    let failed = |error| MachineError::io("find the lease directory", error);
    let absolute = std::path::absolute(dir).map_err(failed)?;
    match TrustedDir::open(&absolute, PathTrust::Protected) {
        Err(error) if error.kind() == ErrorKind::Invalid => Err(MachineError::new(error)
            .with_hint("a user who can replace the lease directory can cause double grants")),
        _ => Ok(()),
    }
}

impl Source {
    /// Returns the lease store: in the directory of the option or of [`CLAIMS`] in the environment,
    /// otherwise that of the session, otherwise that of the machine.
    ///
    /// # Errors
    /// When the directory of the session cannot be created.
    pub fn lease_store(&self, dir: Option<&Path>) -> Result<FileLeaseStore, MachineError> {
        let location = match (dir.map(Path::to_owned).or_else(named_claims), &self.session) {
            (Some(dir), _) => {
                check_claims(&dir)?;
                LeaseLocation::dir(dir)
            }
            (None, Some(session)) => {
                let dir = TrustedDir::make(&session.join(SESSION_CLAIMS), PathTrust::Protected)?;
                LeaseLocation::dir(dir.path())
            }
            // A machine without real processes has an empty lease directory.
            (None, None) if self.simulation.is_some() => {
                let made = tempfile::tempdir_in(live::session_parent()?);
                let made =
                    made.map_err(|error| MachineError::io("create a private directory", error))?;
                LeaseLocation::dir(self.no_leases.get_or_init(|| made).path())
            }
            (None, None) => LeaseLocation::machine("/run", "/tmp"),
        };
        Ok(self.locks_in(location))
    }

    /// Returns the lease store for reading, without creating it; `None` if there is none.
    pub fn existing_lease_store(&self) -> Option<FileLeaseStore> {
        let location = match (named_claims(), &self.session) {
            _ if self.simulation.is_some() || self.is_copied() => return None,
            (Some(dir), _) => LeaseLocation::dir(Some(dir).filter(|at| check_claims(at).is_ok())?),
            (None, Some(session)) => {
                let dir = session.join(SESSION_CLAIMS);
                LeaseLocation::dir(Some(dir).filter(|dir| dir.exists())?)
            }
            (None, None) => LeaseLocation::machine("/run", "/tmp"),
        };
        Some(self.locks_in(location))
    }

    /// Returns the leases by device.
    pub fn leases(&self) -> DeviceLeases {
        LeaseReader::default().read(self).clone()
    }

    fn locks_in(&self, location: LeaseLocation) -> FileLeaseStore {
        // Jobs in a session must not block users of safe-gpu on the machine.
        let tmp = self.session.as_deref().unwrap_or(Path::new("/tmp"));
        FileLeaseStore::new(location, SafeGpuFiles::below(tmp), roots())
    }
}

/// Reads the leases of a machine for repeated snapshots.
///
/// If reading takes long, because another user has filled the shared directory, the leases are
/// those of an earlier read: reading takes up to a hundredth of the time, but they are never older
/// than [`Observer::LONGEST`].
#[derive(Default)]
pub struct LeaseReader {
    store: Option<FileLeaseStore>,
    last: Option<LastRead>,
}

struct LastRead {
    leases: DeviceLeases,
    /// When it began, on the monotonic clock, and how long it took.
    at: Duration,
    took: Duration,
    /// The shorter of the last two durations, because a busy machine delays a read.
    least: Duration,
}

impl LastRead {
    fn is_recent(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < (self.least * 100).min(Observer::LONGEST)
    }
}

impl LeaseReader {
    /// Returns the leases by device.
    pub fn read(&mut self, source: &Source) -> &DeviceLeases {
        let at = source.clock.monotonic();
        let last = self.last.take();
        let before = last.as_ref().map_or(Duration::ZERO, |last| last.took);
        let last = last.filter(|last| last.is_recent(at)).unwrap_or_else(|| {
            self.store = self.store.take().or_else(|| source.existing_lease_store());
            let leases = self.store.as_ref().map(|store| DeviceLeases::read(store));
            let leases = leases.unwrap_or_else(DeviceLeases::none);
            let took = source.clock.monotonic().saturating_sub(at);
            LastRead { leases, at, took, least: took.min(before) }
        });
        &self.last.insert(last).leases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_read_one_percent_of_time_or_once_a_minute() {
        let (leases, at) = (DeviceLeases::none(), Duration::ZERO);
        let read = |least| LastRead { leases: leases.clone(), at, took: least, least };
        let ms = Duration::from_millis;
        assert!(!read(Duration::ZERO).is_recent(Duration::ZERO));
        assert!(read(ms(60)).is_recent(ms(5_999)) && !read(ms(60)).is_recent(ms(6_000)));
        assert!(read(ms(5_000)).is_recent(ms(59_999)) && !read(ms(5_000)).is_recent(ms(60_000)));
    }
}
