//! The ports of commands that end no process.

use gpu_core::{Error, ErrorKind, Journal, NoJournal};
use gpu_host::FileLeaseStore;
use gpu_machine::Source;
use gpu_steward::Ports;

/// Returns the journal of a claim, which ends no process.
pub(crate) fn no_journal() -> NoJournal {
    let what = "write an audit log: a claim ends no process";
    NoJournal::new(Error::new(ErrorKind::Unsupported, what))
}

/// Returns the ports of a claim.
pub(crate) fn ports<'a>(
    source: &'a Source,
    journal: &'a dyn Journal,
    locks: &'a FileLeaseStore,
) -> Ports<'a> {
    Ports { backend: &*source.backend, host: &*source.host, clock: &*source.clock, journal, locks }
}
