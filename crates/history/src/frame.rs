//! One look at a machine.

use gpu_core::{Fault, LeaseEntry, Snapshot, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One look at a machine: its snapshot and the leases on its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The leases, or why they are unknown.
    #[serde(with = "leases")]
    pub leases: Result<Vec<LeaseEntry>, Fault>,
}

impl Frame {
    /// Returns the time of its snapshot.
    pub fn time(&self) -> Timestamp {
        self.snapshot.taken_at
    }
}

/// Leases with their owners: a lease file does not name its owner, because it is that of the file.
mod leases {
    use super::*;

    #[derive(Serialize)]
    struct Owned<'a> {
        owner: u32,
        lease: &'a LeaseEntry,
    }

    #[derive(Deserialize)]
    struct Read {
        owner: u32,
        lease: LeaseEntry,
    }

    pub(super) fn serialize<S: Serializer>(
        leases: &Result<Vec<LeaseEntry>, Fault>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let owned = leases.as_ref().map(|leases| {
            let owned = leases.iter().map(|lease| Owned { owner: lease.owner, lease });
            owned.collect::<Vec<_>>()
        });
        owned.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Result<Vec<LeaseEntry>, Fault>, D::Error> {
        let leases = Result::<Vec<Read>, Fault>::deserialize(deserializer)?;
        let whole = |read: Read| LeaseEntry { owner: read.owner, ..read.lease };
        Ok(leases.map(|leases| leases.into_iter().map(whole).collect()))
    }
}
