//! Names of users.

use gpu_core::LeaseEntry;
pub(crate) use gpu_host::user_label as user;

/// Returns the name of the owner of a lease or a claim.
pub(crate) fn owner(entry: &LeaseEntry) -> String {
    user(entry.owner)
}
